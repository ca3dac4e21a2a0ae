"""Loads from a real Prometheus: demand rebuilt with the rule's own query, gaps, saturation, and bad input."""

import asyncio
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.cli import main
from adapter.errors import InputError, RunError
from adapter.model.timestamps import SECOND
from fastpath_forecast.range_query import RangeReader
from fastpath_forecast.simulate.load import Load
from fastpath_tools.loads import load_options, recorded
from fastpath_tools.loads.sources import Recorded
from fastpath_tools.simulate.options import COMMAND
from tests.prometheus.scripted import Scripted
from tests.support import schedules
from tests.support.answers import answers
from tests.support.prometheus import PrometheusFactory, PrometheusServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(60)]

BEGIN = 1_704_067_200
"""2024-01-01, the beginning of all samples."""
SECONDS = 3000

RULES = (Path(__file__).parents[2] / "data" / "rules" / "history.yaml").read_text()

HASH = "6d4b75cb6d"
A, B, C = (f"web-{HASH}-{end}" for end in ("hgx2w", "kpl7b", "zzt9c"))


def pods(name: str, target: str = "10") -> dict[str, Any]:
    metric = {"metric": {"name": name}, "target": {"type": "AverageValue", "averageValue": target}}
    return {"type": "Pods", "pods": metric}


def external(kind: str, target: str) -> dict[str, Any]:
    key = {"AverageValue": "averageValue", "Value": "value"}[kind]
    metric = {"metric": {"name": "queue_depth"}, "target": {"type": kind, key: target}}
    return {"type": "External", "external": metric}


def samples() -> str:
    lines = ["# TYPE in_flight gauge"]

    def series(name: str, labels: str, value: Callable[[int], float | None]) -> None:
        for second in range(0, SECONDS + 1, 15):
            at = value(second)
            if at is not None:
                lines.append(f"{name}{{{labels}}} {at} {BEGIN + second - 0.5}")

    def of_pod(second: int) -> float | None:
        return 4.0 if second <= 600 else 12.0 if second >= 1500 else None

    for pod in (A, B):
        series("in_flight", f'namespace="shop",pod="{pod}"', of_pod)
    series("in_flight", f'namespace="shop",pod="{C}"', lambda at: 2.0 if at >= 2100 else None)
    series("in_flight", f'namespace="shop",pod="web-api-{HASH}-aaaaa"', lambda _: 1000.0)
    series("in_flight", f'namespace="bank",pod="{A}"', lambda _: 1000.0)
    lines.append("# TYPE broken gauge")
    series("broken", f'namespace="shop",pod="{A}"', lambda at: math.nan if 600 <= at < 1500 else 5.0)
    lines.append("# TYPE rare gauge")
    series("rare", f'namespace="shop",pod="{A}"', lambda at: 1.0 if at >= 1500 else None)
    lines.append("# TYPE queue_depth gauge")
    series("queue_depth", 'topic="a"', lambda at: 30.0 + at / 15)
    series("queue_depth", 'topic="b"', lambda at: 10.0)
    lines.append("# TYPE kube_pod_status_ready gauge")
    for pod in (A, B):
        series(
            "kube_pod_status_ready",
            f'namespace="shop",pod="{pod}",condition="true"',
            lambda at: 1.0 if at >= 600 else 0.0,
        )
    lines.append("# TYPE container_memory_working_set_bytes gauge")
    for container, used in (("", 300), ("POD", 1), ("app", 200), ("proxy", 100)):
        labels = f'namespace="shop",pod="{A}",container="{container}"'
        series("container_memory_working_set_bytes", labels, lambda _, used=used: float(used))  # type: ignore[misc]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def prometheus(module_prometheus: PrometheusFactory) -> PrometheusServer:
    return module_prometheus(samples=samples())


Run = Callable[..., Recorded]


@pytest.fixture(scope="module")
def known() -> dict[str, Recorded]:
    """What was read without a cache, by the autoscaler and the options."""
    return {}


@pytest.fixture
def run(tmp_path: Path, prometheus: PrometheusServer, known: dict[str, Recorded]) -> Run:
    """Return a function that reads the load of an autoscaler with the given metrics."""

    def read(
        *arguments: str, metrics: list[dict[str, Any]] | None = None, kind: str = "Deployment"
    ) -> Recorded:
        document = {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": "web"},
                "maxReplicas": 10,
                "metrics": metrics or [pods("in_flight")],
            },
        }
        (tmp_path / "web.yaml").write_text(yaml.safe_dump(document))
        (tmp_path / "rules.yaml").write_text(RULES)
        given = {
            "autoscaler": str(tmp_path / "web.yaml"),
            "config": str(tmp_path / "rules.yaml"),
            "prometheus-url": prometheus.url,
            "last": f"{SECONDS}s",
            "until": "2024-01-01T00:50:00Z",
            "pod-start": "20s",
        }
        given |= dict(argument.split("=", 1) for argument in arguments)
        options, _ = COMMAND.parse([f"--{name}={text}" for name, text in given.items() if text])
        question = repr((arguments, document))
        if options.cache or question not in known:
            known[question] = recorded.read(options)
        return known[question]

    return read


def steps(load: Load) -> list[tuple[int, int, float | None]]:
    return [(start, end, None if math.isnan(value) else value) for start, end, value in load.segments()]


def test_the_demand_is_the_sum_over_the_pods_of_the_target(run: Run) -> None:
    found = run()
    load = found.loads["in_flight"]

    assert steps(load) == [(0, 900, 8.0), (900, 1500, None), (1500, 2100, 24.0), (2100, 3000, 26.0)], (
        "a sample is repeated for five minutes, as every query has it; then there is a gap"
    )
    assert load.saturated == ((1500, 2100),), "the third pod was not busy"
    assert load.known_seconds == 2400
    assert any("rules[0]" in note for note in found.notes)


def test_a_pod_that_serves_more_than_its_target_is_not_saturated_at_it(run: Run) -> None:
    assert run("capacity-ratio=1.3").loads["in_flight"].saturated == ()
    assert run("capacity-ratio=1.26").loads["in_flight"].saturated == ((1500, 2100),), "within 5 %"


def test_a_fine_step_takes_several_queries_and_gives_the_same(run: Run) -> None:
    assert steps(run("step=1s").loads["in_flight"]) == steps(run().loads["in_flight"])


def test_the_load_tells_when_it_begins(run: Run) -> None:
    assert run().start == BEGIN * SECOND
    assert run("last=5m", "until=2024-01-01T00:10:07Z").start == (BEGIN + 300) * SECOND


def test_a_schedule_counts_from_when_the_load_begins(
    run: Run, prometheus: PrometheusServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One pod serves the load; the window is from second 120 to 240, and 7 pods stay for 300 s more."""
    run()
    document = schedules.document({"from": "00:02", "to": "00:04", "minReplicas": 7}, zone="Etc/UTC")
    (tmp_path / "office.yaml").write_text(yaml.safe_dump(document))
    files = {"autoscaler": "web.yaml", "config": "rules.yaml", "schedule": "office.yaml"}
    given = {name: str(tmp_path / file) for name, file in files.items()}
    given |= {"prometheus-url": prometheus.url, "last": "15m", "until": "2024-01-01T00:15:00Z"}
    given |= {"pod-start": "20s", "policy": "fast:window=0", "output": "json"}
    assert main.main(["simulate", *(f"--{name}={text}" for name, text in given.items())]) == 0
    (policy,) = json.loads(capsys.readouterr().out)["policies"]
    assert (policy["podSeconds"], policy["changes"]) == (900 + 6 * 420, 2)


def test_names_of_pods_can_be_given(run: Run) -> None:
    assert steps(run(f"pods=web-api-{HASH}-.+").loads["in_flight"]) == [(0, 3000, 1000.0)]


def test_nan_is_a_gap(run: Run) -> None:
    found = run(metrics=[pods("broken")]).loads["broken"]
    assert steps(found) == [(0, 600, 5.0), (600, 1500, None), (1500, 3000, 5.0)]


def test_a_total_is_the_sum_of_the_series(run: Run) -> None:
    found = run(metrics=[external("AverageValue", "5")])
    load = found.loads["queue_depth"]
    assert [load.values[0], load.values[1], load.values[-1]] == [40.0, 41.0, 239.0]
    assert load.saturated == ()
    assert any("does not tell whether the pods were saturated" in note for note in found.notes)


def test_a_value_is_multiplied_by_the_ready_pods(run: Run) -> None:
    load = run(metrics=[external("Value", "100")]).loads["queue_depth"]
    assert load.values[0] == 0.0, "no pod was ready"
    assert list(load.values[-2:]) == [238.0 * 2, 239.0 * 2]
    counted = run("ready-query=vector(7)", metrics=[external("Value", "100")]).loads["queue_depth"]
    assert list(counted.values[:2]) == [40.0 * 7, 41.0 * 7]


def test_usage_without_resource_rules_is_cadvisors(run: Run) -> None:
    memory = {"type": "Resource", "resource": {"name": "memory"}}
    memory["resource"]["target"] = {"type": "AverageValue", "averageValue": "1Ki"}  # type: ignore[index]
    assert steps(run("config=", metrics=[memory]).loads["memory"]) == [(0, 3000, 300.0)]


def test_several_metrics_are_read_each(run: Run) -> None:
    assert set(run(metrics=[pods("in_flight"), external("AverageValue", "5")]).loads) == {
        "in_flight",
        "queue_depth",
    }


# -- the cache -----------------------------------------------------------------------------------------------


def test_what_is_cached_is_not_read_again(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    whole = run(f"cache={folder}", "step=1s").loads["in_flight"]
    files = sorted(folder.iterdir())
    assert len(files) >= 4, "total and least, in chunks"
    files[0].unlink()
    files[1].write_bytes(files[1].read_bytes()[:100])
    asked: list[str] = []
    read = RangeReader.read

    async def count(self: RangeReader, promql: str, *times: int) -> dict[int, float]:
        asked.append(promql)
        return await read(self, promql, *times)

    monkeypatch.setattr(RangeReader, "read", count)
    again = run(f"cache={folder}", "step=1s").loads["in_flight"]
    assert len(asked) == 2, "the chunk that is gone, and the one that is cut off"
    assert repr(again) == repr(whole), "as values; NaN equals nothing"
    run(f"cache={folder}", "step=1s", "prometheus-query-param=tenant=b")
    assert len(asked) == 2 + len(files), "another tenant has a history of its own"
    monkeypatch.setattr(recorded, "SETTLED", 10**10)
    run(f"cache={tmp_path / 'new'}", "step=1s")
    assert not [*(tmp_path / "new").iterdir()], "what may still change is not kept"


# -- bad input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("arguments", "metric", "expected"), answers("loads/recorded", "refused"))
def test_what_cannot_be_read_is_one_sentence(
    run: Run, arguments: list[str], metric: str, expected: str
) -> None:
    with pytest.raises(InputError, match=expected) as raised:
        run(*arguments, metrics=[pods(metric)])
    assert len(raised.value.faults) == 1


def test_a_server_that_does_not_answer(run: Run) -> None:
    with pytest.raises(
        RunError, match=r"cannot query Prometheus: http://127\.0\.0\.1:9/api/v1/\w+: .*refused"
    ):
        run("prometheus-url=http://127.0.0.1:9")


def test_a_gap_at_the_beginning_is_a_gap_where_the_server_has_other_samples(
    prometheus_server: PrometheusFactory, run: Run
) -> None:
    text = samples() + "\n# TYPE up gauge\n"
    text += "\n".join(f'up{{job="a"}} 1 {BEGIN + second}' for second in range(0, SECONDS, 15))
    server = prometheus_server(samples=text)
    load = run(f"prometheus-url={server.url}", metrics=[pods("rare")]).loads["rare"]
    assert steps(load) == [(0, 1500, None), (1500, 3000, 1.0)]


def test_a_query_over_too_many_samples_is_split(prometheus_server: PrometheusFactory, run: Run) -> None:
    server = prometheus_server(samples=samples(), flags=["--query.max-samples=2000"])
    load = run(f"prometheus-url={server.url}", "step=1s").loads["in_flight"]
    assert steps(load) == steps(run("step=1s").loads["in_flight"])


async def test_wrong_credentials_name_the_flags(run: Run, scripted: Scripted) -> None:
    scripted.answer(401, "Unauthorized")
    with pytest.raises(
        RunError, match=r"HTTP status 401.*--prometheus-token-file or --prometheus-basic-auth"
    ):
        await asyncio.to_thread(run, f"prometheus-url={scripted.url}")


def test_a_pattern_that_nests_too_deeply_is_a_fault() -> None:
    assert "expected a regular expression" in load_options._check_pattern("(" * 5_000 + "a" + ")" * 5_000)
