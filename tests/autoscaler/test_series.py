"""The metrics of one autoscaler: what a decision shows, what has no series, and when series end."""

import pytest

from adapter.model.ready_times import UNKNOWN, PodStart
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import METRICS
from tests.support.controller import Bench
from tests.support.scaling import NOW

LABELS = {"kind": "FastPathAutoscaler", "namespace": "default", "name": "web"}


def shown(bench: Bench, metric: str, **labels: str) -> float | None:
    value: float | None = bench.monitoring.registry.get_sample_value(
        f"fastpath_autoscaler_{metric}", {**LABELS, **labels}
    )
    return value


def own_series(bench: Bench) -> list[str]:
    names = tuple(row.name for row in METRICS if "name" in row.labels)
    return [line for line in bench.monitoring.exposition().splitlines() if line.startswith(names)]


async def test_decisions_are_counted_from_zero(bench: Bench) -> None:
    def counts() -> list[float | None]:
        value = bench.monitoring.registry.get_sample_value
        directions = [
            value("fastpath_scaler_decisions_total", {"direction": kind}) for kind in ("up", "down", "none")
        ]
        return [*directions, value("fastpath_scaler_limited_decisions_total")]

    assert counts() == [0, 0, 0, 0]
    await bench.begin_with(30, replicas=6, maxReplicas=8)
    assert counts() == [1, 0, 0, 1]


@pytest.mark.parametrize("end", ["removed", "no longer leading"])
async def test_series_end_with_the_autoscaler(bench: Bench, end: str) -> None:
    await bench.begin_with(8)
    source = bench.sources.opened[0]
    source.sampled, source.span = NOW, 2 * SECOND
    bench.want(9)
    await bench.step(15)
    assert shown(bench, "last_scale_duration_seconds") is not None
    assert len(own_series(bench)) >= 10
    if end == "removed":
        (key,) = bench.controller.names()
        bench.controller.remove(key)
    else:
        bench.close()
    assert own_series(bench) == []


async def test_how_long_pods_take_to_be_ready(bench: Bench) -> None:
    await bench.begin_with(4)
    assert shown(bench, "ready_time_pods") is None
    (following,) = bench.pods.followings
    following.started(PodStart(1_000, UNKNOWN, UNKNOWN, 23_000))
    await bench.step(15)
    assert shown(bench, "ready_time_seconds", part="total", quantile="0.95") == 23
    assert shown(bench, "ready_time_seconds", part="started", quantile="0.5") is None
    following.started(PodStart(2_000, 2_000, 10_000, 24_000))
    following.started(PodStart(2_000, 2_000, 10_000, 25_000))
    await bench.step(15)
    for part, median, slow in (("scheduled", 2, 2), ("started", 8, 8), ("ready", 14, 15), ("total", 24, 25)):
        assert shown(bench, "ready_time_seconds", part=part, quantile="0.5") == median
        assert shown(bench, "ready_time_seconds", part=part, quantile="0.95") == slow
    assert shown(bench, "ready_time_pods") == 3
