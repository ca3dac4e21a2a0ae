"""Dashboards are up to date, name what exists, and show something of a real run."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from scripts.generate import dashboards
from scripts.generate.panels import DASHBOARDS, Dashboard, Panel, Query
from tests.monitoring import expressions
from tests.monitoring.test_alerts import RULES, UNIT_TESTS
from tests.support import adapter as support
from tests.support.adapter import RunningAdapter
from tests.support.objects import api_service
from tests.support.processor import Limit
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.tools import free_port
from tests.support.waiting import running, until
from tests.world.workloads import BOOSTED, HOME, NAMESPACE, OWN, STANDIN_FLAGS
from tests.world.world import sandboxed

JSON = dict[str, Any]

every = pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)


def document(dashboard: Dashboard) -> JSON:
    found: JSON = json.loads((dashboards.FOLDER / f"{dashboard.name}.json").read_text())
    return found


def substituted(expr: str, values: dict[str, str]) -> str:
    """Return an expression as Grafana sends it."""
    values = {"__rate_interval": "10s"} | values
    return re.sub(r"\$(\w+)", lambda match: values[match[1]], expr)


def queries() -> Iterator[tuple[Dashboard, Panel, Query, str]]:
    for dashboard in DASHBOARDS:
        for panel, query, expr in dashboards.expressions_of(dashboard):
            yield dashboard, panel, query, expr


ANY = {"namespace": ".*", "name": "x", "kind": "x", "job": ".*", "instance": ".*"}


@every
def test_the_files_are_up_to_date(dashboard: Dashboard) -> None:
    made = dashboards.render(dashboard)
    assert (dashboards.FOLDER / f"{dashboard.name}.json").read_text() == made, (
        "run python -m scripts.generate.dashboards"
    )


def test_no_other_file_is_there() -> None:
    found = {path.stem for path in dashboards.FOLDER.glob("*.json")}
    assert found == {dashboard.name for dashboard in DASHBOARDS}


@every
def test_queries_and_legends_name_metrics_and_labels_that_exist(dashboard: Dashboard) -> None:
    for panel in document(dashboard)["panels"]:
        for target in panel["targets"]:
            labels = expressions.labels_of(substituted(target["expr"], ANY))
            legend = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            assert legend <= labels, panel["title"]


@every
def test_variables_name_what_exists(dashboard: Dashboard) -> None:
    known = {"datasource", "__rate_interval"}
    for variable in document(dashboard)["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()  # type: ignore[union-attr]
            assert set(re.findall(r"\$(\w+)", selector)) <= known, "variables before it"
            assert label in expressions.labels_of(substituted(selector, ANY))
        known.add(variable["name"])
    for _, _, expr in dashboards.expressions_of(dashboard):
        assert set(re.findall(r"\$(\w+)", expr)) <= known


@every
def test_conventions_of_panels(dashboard: Dashboard) -> None:
    found = document(dashboard)
    assert found["uid"] == f"fastpath-{dashboard.name}"
    assert len(found["panels"]) <= 24
    occupied: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        assert panel["type"] in {"timeseries", "stat", "table", "state-timeline"}
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert len(panel["description"]) > 40
        assert all(target["datasource"] == panel["datasource"] for target in panel["targets"])
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & occupied, f"{panel['title']} covers another panel"
        assert max(x for x, _ in cells) < 24
        occupied |= cells
    titles = [(panel["title"], panel["type"]) for panel in found["panels"]]
    assert len(set(titles)) == len(titles)


GROUPS = ("custom.metrics.k8s.io", "external.metrics.k8s.io")
PATHS = (
    f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/backlog?labelSelector=queue%3D{BOOSTED}",
    f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/pods/%2A/busy",
    f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}/pods/%2A/load",
)


async def ask(adapter: RunningAdapter) -> None:
    """Send requests as HPAs do."""
    while True:
        for path in PATHS:
            await adapter.get(path)
        await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def recorded(tmp_path: Path, prometheus_server: PrometheusFactory) -> AsyncIterator[PrometheusServer]:
    """Run adapter and scaler in one process; the block begins when Prometheus has scraped their scale-ups."""
    port = free_port()
    server = await asyncio.to_thread(
        prometheus_server,
        targets={"fastpath": [f"127.0.0.1:{port}"]},
        scrape_interval="1s",
        labels={"namespace": HOME, "pod": "fastpath-a"},
    )
    async with sandboxed(tmp_path) as world:
        for group in GROUPS:
            world.sandbox.create(api_service(f"v1beta1.{group}", {"namespace": HOME, "name": "fastpath"}))
        (tmp_path / "rules.yaml").write_text(world.rules)
        world.hpa(BOOSTED, "pods-scraped")
        world.fpa(OWN, "pods-scraped")
        await world.create()
        arguments = (
            "--scaler",
            f"--local-address=127.0.0.1:{port}",
            "--scrape-pod-cidrs=127.0.0.0/8",
            *(f"--serve-groups={group}" for group in GROUPS),
            *STANDIN_FLAGS,
        )
        async with (
            support.running(tmp_path, world.sandbox, world.prometheus.url, *arguments) as adapter,
            running(ask(adapter)),
        ):
            ready = "min(fastpath_autoscaler_ready_pods) >= 2"
            await asyncio.to_thread(server.wait_for, ready)
            world.begin()
            await until(lambda: world.replicas(BOOSTED) == 6 and world.replicas(OWN) == 6, 20.0)
            scaled = "count(fastpath_autoscaler_last_scale_duration_seconds offset 1s) == 2"
            await asyncio.to_thread(server.wait_for, scaled)
            yield server


OF_ONE = [
    {"namespace": NAMESPACE, "name": OWN, "kind": "FastPathAutoscaler"},
    {"namespace": NAMESPACE, "name": BOOSTED, "kind": "HorizontalPodAutoscaler"},
]
"""Values of variables of the dashboard of one autoscaler, for each of the two kinds."""

PROBLEMS_ONLY = {"fastpath_faults_active"}
"""Series that exist once something has gone wrong."""


async def first_results(server: PrometheusServer, exprs: list[str]) -> list[dict[str, Any]]:
    """Return the series of all queries as soon as there are any, and none after a while.

    On a busy machine a scrape may fail for its short interval; its series are absent until the next one.
    """
    limit = Limit(5.0)
    while True:
        found = [series for expr in exprs for series in await asyncio.to_thread(server.query, expr)]
        if found or limit.left() <= 0:
            return found
        await asyncio.sleep(0.1)


PERSISTENCE = "FastpathProblemPersists"
"""Only its `for` tells a problem from a scrape that comes a moment too late on a busy machine."""


@pytest.mark.integration
@pytest.mark.timeout(90)
async def test_no_query_is_empty_on_a_real_run(
    tmp_path: Path, prometheus_server: PrometheusFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", HOME)
    empty, unlabelled = [], []
    tested = [each["series"] for test in UNIT_TESTS["tests"] for each in test["input_series"]]
    own_series = [
        each for each in tested if 'pod="fastpath-' in each and each.partition("{")[0] not in PROBLEMS_ONLY
    ]
    async with recorded(tmp_path, prometheus_server) as server:
        for dashboard, panel, query, expr in queries():
            values = OF_ONE if dashboard.name == "autoscaler" else [ANY]
            results = await first_results(server, [substituted(expr, each) for each in values])
            if not results:
                empty.append((dashboard.name, panel.title, expr))
            for each in results:
                legend = re.findall(r"{{(\w+)}}", query.legend)
                unlabelled += [(panel.title, name) for name in legend if not each["metric"].get(name)]
        missing = [
            name
            for rule in RULES
            for name in expressions.selectors_of(rule["expr"])
            if name not in PROBLEMS_ONLY and not await first_results(server, [f"count({name})"])
        ]
        unlike = []
        for series in own_series:
            name, _, matchers = series.partition("{")
            shown = [set(each["metric"]) - {"__name__"} for each in await first_results(server, [name])]
            if set(re.findall(r"(\w+)=", matchers)) not in shown:
                unlike.append(series)
        firing = [
            rule["alert"]
            for rule in RULES
            if rule["alert"] != PERSISTENCE and await asyncio.to_thread(server.query, rule["expr"])
        ]
    assert empty == []
    assert unlabelled == []
    assert missing == [], "metrics of alerts"
    assert unlike == [], "series of the tests of alerts that no process exports"
    assert firing == [], "nothing is wrong with this run"
