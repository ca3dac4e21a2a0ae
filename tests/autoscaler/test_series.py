"""The metrics of one autoscaler: what a decision shows, what has no series, and when series end."""

from typing import Any

import pytest

from adapter.autoscaler.decide.observation import Unavailable
from adapter.model.ready_times import UNKNOWN, PodStart
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import METRICS
from tests.support.controller import QUEUE, Bench, fpa, wanted
from tests.support.scaling import NOW, external_metric

LABELS = {"kind": "FastPathAutoscaler", "namespace": "default", "name": "web"}
AT_ONCE: dict[str, Any] = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}


def shown(bench: Bench, metric: str, **labels: str) -> float | None:
    value: float | None = bench.monitoring.registry.get_sample_value(
        f"fastpath_autoscaler_{metric}", {**LABELS, **labels}
    )
    return value


def reasons(bench: Bench) -> list[str]:
    (family,) = [
        each for each in bench.monitoring.registry.collect() if each.name == "fastpath_autoscaler_reason"
    ]
    return [sample.labels["reason"] for sample in family.samples]


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


async def test_demand_is_what_metrics_ask_for_before_limits(bench: Bench) -> None:
    await bench.begin_with(30, replicas=6, minReplicas=2, maxReplicas=6)
    found = {name: shown(bench, f"{name}_replicas") for name in ("demand", "min", "max")}
    assert found == {"demand": 30, "min": 2, "max": 6}
    assert reasons(bench) == ["TooManyReplicas"]
    assert shown(bench, "ready_pods") == 6


async def test_a_demand_that_is_unknown_has_no_series(bench: Bench) -> None:
    await bench.begin_with(7)
    assert shown(bench, "demand_replicas") == 7
    assert shown(bench, "metrics_absent") == 0
    bench.sources.opened[0].reading = Unavailable("Failed", "no answer")
    await bench.step(15)
    assert shown(bench, "demand_replicas") is None
    assert shown(bench, "metrics_absent") == 1
    assert reasons(bench) == ["FailedGetExternalMetric"]


async def test_the_age_of_a_value_grows_while_there_is_no_newer_one(bench: Bench) -> None:
    await bench.begin_with(4)
    assert shown(bench, "value_timestamp_seconds") is None, "when it was sampled is unknown"
    source = bench.sources.opened[0]
    source.sampled = NOW - 10 * SECOND
    await bench.step(15)
    assert shown(bench, "value_timestamp_seconds") == NOW / SECOND - 10
    source.reading, source.sampled = Unavailable("Failed", "no answer"), None
    await bench.step(15)
    assert shown(bench, "value_timestamp_seconds") == NOW / SECOND - 10


async def test_of_several_values_the_oldest_counts(bench: Bench) -> None:
    bench.put(fpa([external_metric(name, averageValue="1") for name in ("queue", "second", "third")]), 4)
    bench.want(4)
    await bench.step()
    for source, age in zip(bench.sources.opened, (20, 30, 10), strict=True):
        source.reading, source.sampled = wanted(4), NOW - age * SECOND
    await bench.step(15)
    assert shown(bench, "value_timestamp_seconds") == NOW / SECOND - 30


async def test_a_paused_autoscaler_has_no_value_that_could_be_old(bench: Bench) -> None:
    await bench.begin_with(4)
    bench.sources.opened[0].sampled = NOW
    await bench.step(15)
    bench.put(fpa(QUEUE, mode="Paused"))
    await bench.step(15)
    assert shown(bench, "value_timestamp_seconds") is None
    assert reasons(bench) == ["ScalingPaused"]


async def test_changes_of_direction_are_counted_whoever_scales(bench: Bench) -> None:
    await bench.begin_with(4, **AT_ONCE)
    assert shown(bench, "direction_changes_total") == 0
    bench.want(8)
    await bench.step(15)
    bench.want(12)
    await bench.step(15)
    assert shown(bench, "direction_changes_total") == 0, "up and further up"
    bench.server.set("web", 9)
    bench.want(9)
    await bench.step(15)
    assert shown(bench, "direction_changes_total") == 1, "down, by another client"
    bench.want(16)
    await bench.step(15)
    assert shown(bench, "direction_changes_total") == 2


async def test_how_long_the_last_scale_took(bench: Bench) -> None:
    await bench.begin_with(4)
    assert shown(bench, "last_scale_duration_seconds") is None
    source = bench.sources.opened[0]
    bench.want(8)
    source.sampled, source.span = NOW, 2 * SECOND
    await bench.step(3)
    assert bench.server.writes == [("web", 8)]
    assert shown(bench, "last_scale_duration_seconds") == pytest.approx(5.0)


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
