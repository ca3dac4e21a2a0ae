"""Queries over the series of several endpoints against what a real Prometheus says of the same series."""

import asyncio
import math
from collections.abc import Mapping

import pytest
from aiohttp import web

from adapter.model import steps
from adapter.model.objects.label_selectors import parse_selector
from adapter.rules import matchers
from adapter.rules.scrape import scraped_query, series
from adapter.rules.scrape.series import PodSeries
from adapter.rules.template import template
from fastpath_sandbox.listener import Listener
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.scraping import parse, record

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

NOW = 1_700_000_000
WINDOW = 5
LABELS = ('queue="a",code="200"', 'queue="a",code="500"', 'queue="b"', "")
HITS = (
    ((3, 10, 12, 20, 35, 40), (7, 9, 30, 2, 4, 11), (1, 1, 1, 1, 1, 1), (1, 2, 3, 1, 0, 8)),
    ((1, 2, 4, 8, 16, 32), (5, 5, 5, 5, 5, 9), (1, 1, 2, 2, 2, 2), (3, 3, 3, 3, 3, 4)),
    ((0, 0, 0, 0, 0, 0), (9, 8, 7, 6, 5, 4), (1, 2, 3, 4, 5, 6), (2, 4, 6, 8, 10, 12)),
)
DEPTH = ((5, -2.5, "NaN", 1e300), (0, 3, 7, 0.5), (12, "+Inf", 1, 4))
PODS = ("epp-0", "epp-1", "epp-2")
SELECTED = (
    "depth{<<.LabelMatchers>>}",
    'depth{code=~"2.*",<<.LabelMatchers>>}',
    'depth{pod!="epp-1",<<.LabelMatchers>>} * 2 - 1',
    "depth{<<.LabelMatchers>>} > 1",
    "3 > depth{<<.LabelMatchers>>}",
    "depth{<<.LabelMatchers>>} > bool 1",
    "abs(-depth{<<.LabelMatchers>>})",
    "clamp_max(clamp_min(depth{<<.LabelMatchers>>}, 0), 5)",
    "last_over_time(depth{<<.LabelMatchers>>}[1m])",
    "rate(hits_total{<<.LabelMatchers>>}[5001ms])",
    "irate(hits_total{<<.LabelMatchers>>}[5001ms])",
    "increase(hits_total{<<.LabelMatchers>>}[5001ms])",
)
GROUPINGS = (
    "by (<<.GroupBy>>)",
    "",
    "by (queue)",
    "by (pod, code, nothing)",
    "without (instance, pod, code)",
)
QUERIES = [
    *(f"sum({inner}) {grouping}" for inner in SELECTED for grouping in GROUPINGS[:3]),
    *(
        f"{aggregation}({SELECTED[0]}) {grouping}"
        for aggregation in ("sum", "max", "min", "avg", "count")
        for grouping in GROUPINGS
    ),
    *SELECTED,
    "sum(depth{<<.LabelMatchers>>}) by (__name__, pod)",
    "-sum(depth{<<.LabelMatchers>>}) by (queue) ^ 2 / 0",
    "sum(max(depth{<<.LabelMatchers>>}) by (pod, queue)) by (queue)",
    "10 - depth{<<.LabelMatchers>>}",
    'depth{<<.LabelMatchers>>} + hits_total{pod="epp-1",<<.LabelMatchers>>}',
    "depth{<<.LabelMatchers>>} / hits_total{<<.LabelMatchers>>}",
    "depth{<<.LabelMatchers>>} - on (pod, queue, code) hits_total{<<.LabelMatchers>>}",
    'depth{code="200",<<.LabelMatchers>>} % ignoring (code) hits_total{code="500",<<.LabelMatchers>>}',
    "sum(depth{<<.LabelMatchers>>}) by (queue) / sum(hits_total{<<.LabelMatchers>>}) by (queue)",
    'depth{code="200",<<.LabelMatchers>>} or hits_total{<<.LabelMatchers>>}',
    'depth{<<.LabelMatchers>>} and on (pod) hits_total{pod=~"epp-[02]",<<.LabelMatchers>>}',
    'depth{<<.LabelMatchers>>} unless ignoring (code) hits_total{code="200",<<.LabelMatchers>>}',
    'sum(depth{queue="c",<<.LabelMatchers>>}) or vector(0)',
    "sum(depth{<<.LabelMatchers>>}) or vector(0)",
    'sum(depth{queue="c",<<.LabelMatchers>>})',
    "vector(3) + vector(1 > bool 0)",
    'sum(depth{job="gateway",service="gateway",endpoint="metrics",namespace="inference"})',
    "count(depth{<<.LabelMatchers>>}) by (instance)",
]  # fmt: skip
SELECTORS = ("", "queue=a", "queue!=a", "queue in (a,b)", "!queue", "queue,code notin (500)", "queue=c")


def labels_of(number: int) -> dict[str, str]:
    """Return what a ServiceMonitor attaches to the series of an endpoint."""
    return {
        "namespace": "inference",
        "pod": PODS[number],
        "service": "gateway",
        "endpoint": "metrics",
        "instance": f"10.0.0.{number + 1}:9090",
        "job": "gateway",
    }


def written(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


@pytest.fixture(scope="module")
def recorded(module_prometheus: PrometheusFactory) -> PrometheusServer:
    """Return a Prometheus with the series of three endpoints, each with its attached labels."""
    lines = ["# TYPE depth unknown"]
    for number, values in enumerate(DEPTH):
        for labels, value in zip(LABELS, values, strict=True):
            every = ",".join(part for part in (labels, written(labels_of(number))) if part)
            lines.append(f"depth{{{every}}} {value} {NOW}")
    lines.append("# TYPE hits_total unknown")
    for number, rows in enumerate(HITS):
        for labels, row in zip(LABELS, rows, strict=True):
            every = ",".join(part for part in (labels, written(labels_of(number))) if part)
            lines += [f"hits_total{{{every}}} {value} {NOW - 5 + at}" for at, value in enumerate(row)]
    return module_prometheus(samples="\n".join(lines))


@pytest.fixture(scope="module")
def shown() -> list[PodSeries]:
    """Return the same as scraped."""
    endpoints = []
    for number, (rows, depth) in enumerate(zip(HITS, DEPTH, strict=True)):
        endpoint = scraped(labels_of(number), honor=False)
        for at in range(6):
            lines = [
                f"{name}{{{labels}}} {value}"
                for name, values in (("hits_total", [row[at] for row in rows]), ("depth", depth))
                for labels, value in zip(LABELS, values, strict=True)
            ]
            record(endpoint, parse("\n".join(lines).encode(), {"hits_total", "depth"}), at, NOW, WINDOW)
        endpoints.append(endpoint)
    return endpoints


def scraped(labels: Mapping[str, str], *, honor: bool) -> PodSeries:
    return PodSeries(lambda exposed: series.attach(exposed, labels, honor=honor))


Values = dict[frozenset[tuple[str, str]], float]


def answer_of(server: PrometheusServer, promql: str, at: float | None = None) -> Values:
    return {
        frozenset(each["metric"].items()): float(each["value"][1]) for each in server.query(promql, at=at)
    }


def evaluate(query: str, endpoints: list[PodSeries], selector: str = "") -> Values:
    compiled = scraped_query.compile_query(template.parse(query))
    parts = matchers.from_selector(parse_selector(selector))
    found = steps.run(compiled.evaluate(endpoints, "", parts, WINDOW))
    values = {frozenset(each.all_labels().items()): each.value for each in found.elements}
    assert len(values) == len(found.elements)
    return values


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_prometheus_gives(
    recorded: PrometheusServer, shown: list[PodSeries], query: str
) -> None:
    for selector in SELECTORS if query in QUERIES[:3] else ("", "queue in (a,b)"):
        parts = matchers.join(matchers.from_selector(parse_selector(selector)))
        promql = template.parse(query).render({"Series": "", "LabelMatchers": parts, "GroupBy": ""})
        theirs = answer_of(recorded, promql, at=NOW)

        ours = evaluate(query, shown, selector)

        assert ours.keys() == theirs.keys(), (promql, selector)
        assert [ours[key] for key in ours] == pytest.approx(
            [theirs[key] for key in ours], rel=1e-9, nan_ok=True
        ), (promql, selector)


PAGE = """\
# TYPE depth gauge
depth{queue="a"} 3
depth{queue="b",pod="fake",exported_pod="older"} 4
depth{queue="c",job="own",instance="mine",namespace=""} 5
depth{queue="d",instance=""} 6
depth{queue="e",service="x",exported_service="y",exported_exported_service="z"} 7
"""


async def test_exposed_labels_are_treated_as_prometheus_does(prometheus_server: PrometheusFactory) -> None:
    async def show(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=PAGE)

    one, other = Listener(show, "127.0.0.1", 0), Listener(show, "127.0.0.2", 0)
    await one.start()
    await other.start()
    try:
        both = [each.address.removeprefix("http://") for each in (one, other)]
        targets = [labels_of(number) | {"instance": address} for number, address in enumerate(both)]
        static = [
            {"targets": [labels["instance"]], "labels": {k: v for k, v in labels.items() if k != "instance"}}
            for labels in targets
        ]
        servers = {}
        for honor in (False, True):
            job = {"job_name": "gateway", "honor_labels": honor, "static_configs": static}
            servers[honor] = await asyncio.to_thread(prometheus_server, jobs=[job])
        for honor, server in servers.items():
            await asyncio.to_thread(server.wait_for, "count(depth) == 10")
            endpoints = [scraped(labels, honor=honor) for labels in targets]
            for endpoint in endpoints:
                record(endpoint, parse(PAGE.encode(), {"depth"}), 1.0, NOW, WINDOW)

            for query in ("depth", "sum(depth) by (pod, service)", 'max(depth{exported_pod!=""})'):
                ours = evaluate(query, endpoints)
                assert ours == await asyncio.to_thread(answer_of, server, query), (honor, query)
                assert all(map(math.isfinite, ours.values()))
    finally:
        await one.stop()
        await other.stop()
