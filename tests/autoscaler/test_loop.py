"""The loop, stepped by hand or in virtual time: what the stories of test_scripts.py do not show."""

import asyncio

import msgspec
import pytest

from adapter.autoscaler.decide.observation import NO_STATUS, PodsReading
from adapter.autoscaler.inputs import snapshot as snapshots
from adapter.autoscaler.interfaces import Key
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscalerStatus, PastChange
from adapter.model.timestamps import SECOND, FineInstant
from tests.autoscaler.looped import OWN, HandLoopClock, LoopBench, window
from tests.support.controller import QUEUE, Bench, fpa, wanted
from tests.support.scaling import NOW, pods, pods_metric, reading
from tests.support.waiting import running, until

KEY = Key("default", "web")


def condition(bench: Bench, kind: str) -> tuple[str, str]:
    found = {each.type: (each.status, each.reason) for each in bench.last().status.conditions}
    return found[kind]


def decisions(bench: Bench) -> float:
    return bench.monitoring.registry.get_sample_value("fastpath_scaler_lag_seconds_count") or 0.0


async def test_the_decisions_after_the_first_are_spread_over_a_period(bench: Bench) -> None:
    bench.controller._random = lambda: 0.75
    await bench.begin_with(4)
    source, reads = bench.sources.opened[0], []
    for seconds in (0, 0.2, 0.1, 0.9, 0.1):
        await bench.step(seconds)
        reads.append(source.reads)
    assert reads == [1, 1, 2, 2, 3]


async def test_changes_close_together_are_one(bench: Bench) -> None:
    await bench.begin_with(4)
    for _ in range(20):
        bench.controller.loop.touch(KEY)
        await bench.step(0.002)

    assert bench.sources.opened[0].reads == 1


async def test_a_new_selector_is_followed_again(bench: Bench) -> None:
    await bench.begin_with(4)
    bench.server.cached["web"] = bench.server.scales["web"]._replace(
        selector="app=other", resource_version="999"
    )
    bench.pods.pods["app=other"] = pods(4)
    await bench.step(1)

    assert [following.closed for following in bench.pods.followings] == [True, False]
    assert [source.closed for source in bench.sources.opened] == [True, False]


@pytest.mark.parametrize("is_answered", [True, False])
@pytest.mark.looptime
async def test_a_write_in_progress_ends_before_its_slice_or_is_cancelled(
    bench: Bench, *, is_answered: bool
) -> None:
    """So none is carried out when the slice has another owner."""
    bench.sources.readings["queue"] = wanted(7)
    bench.server.gate = asyncio.Event()
    async with running(bench.controller.loop.run()):
        bench.put(fpa(QUEUE), replicas=4)
        await until(lambda: any(each.get_name().startswith("write ") for each in asyncio.all_tasks()))
        ending = asyncio.create_task(bench.controller.end(slices.slice_of("default")))
        await asyncio.sleep(0.1)
        assert not ending.done()
        if is_answered:
            bench.server.gate.set()
        await asyncio.wait({ending}, timeout=1)
        bench.server.gate.set()
        await asyncio.sleep(0.1)

        assert ending.done()
        assert bench.server.writes == ([("web", 7)] if is_answered else [])


async def test_ages_of_samples_are_measured(bench: Bench) -> None:
    await bench.begin_with(4)
    source = bench.sources.opened[0]
    source.reading, source.sampled, source.span = (
        wanted(7),
        round(bench.clock.wall() - 2) * SECOND,
        6 * SECOND,
    )
    await bench.step(1)

    text = bench.monitoring.exposition()
    assert 'fastpath_scaler_stage_seconds_count{stage="load-to-sample"} 1.0' in text
    assert 'fastpath_scaler_stage_seconds_count{stage="sample-to-decision"} 1.0' in text
    assert 'fastpath_scaler_stage_seconds_count{stage="decision-to-write"} 1.0' in text


async def test_a_decision_reads_so_many_values_of_pods(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the pods and metrics are not four times as many values. The first metric always counts."""
    monkeypatch.setattr(snapshots, "MOST_VALUES", 40)
    metrics = [*(pods_metric("1", f"load-{number}") for number in range(6)), *QUEUE]
    bench.want(10)
    for number in range(6):
        bench.sources.readings[f"load-{number}"] = reading(*[1000] * 10)
    bench.put(fpa(metrics), replicas=10)
    await bench.step()
    assert [source.reads for source in bench.sources.opened] == [1, 1, 1, 1, 0, 0, 1]
    assert condition(bench, "ScalingActive") == ("True", "ValidMetricFound"), "the others may raise"
    assert list(bench.last().absent) == ["pods metric load-4", "pods metric load-5"]
    assert "a decision reads 100,000 values of pods" in bench.last().error
    bench.pods.pods["app=web"] = pods(50)
    await bench.step(1)
    assert [source.reads for source in bench.sources.opened] == [2, 1, 1, 1, 0, 0, 2]


@pytest.mark.looptime
async def test_a_boundary_is_exact() -> None:
    """Between two decisions, which are a minute apart, and after the clock was set at its next look."""
    bench = LoopBench()
    clock = bench.clock = HandLoopClock()
    clock.skew = NOW / SECOND + 0.25 - clock.monotonic()  # 13:00 in Berlin
    bench.want(3)
    bench.schedules.by_key = {OWN: (window("13:00:31", "14:00"), window("15:00", "16:00", 15))}
    bench.start()
    bench.put(fpa(QUEUE, syncPeriod="60s"), 3)
    task = asyncio.create_task(bench.controller.loop.run())
    await asyncio.sleep(30.7499)
    assert bench.server.writes == []
    await asyncio.sleep(0.0002)
    assert bench.server.writes == [("web", 12)]
    bench.pods.pods["app=web"] = pods(12)
    bench.server.tell("web")
    await asyncio.sleep(10)
    clock.skew += 2 * 3600
    await asyncio.sleep(1)
    assert bench.server.writes == [("web", 12), ("web", 15)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("by", [-3600, 7200, -50 * 365 * 86400])
async def test_a_clock_that_is_set_changes_nothing_that_is_remembered(by: int) -> None:
    """Of two autoscalers with the same past, one has its clock set: windows, policies, pauses, the wait for a
    fallback, lost values and the last hour go on alike.
    """
    fallback = {"after": "120s", "type": "Floor", "replicas": 9}
    scalers = Bench(), Bench()
    for each in scalers:
        each.sources.readings["rps"] = PodsReading({pod.name: 20_000 for pod in pods(4)})
        each.put(fpa([pods_metric("10", "rps"), *QUEUE], fallback=fallback), replicas=4)
    for second in range(600):
        for each in scalers:
            if second in {20, 40}:
                each.server.set("web", 4, "argocd")
            if second == 60:
                each.want(None)
            if second == 250:
                each.want(3)
            if second == 300:
                each.sources.opened[0].reading = PodsReading({pod.name: 1000 for pod in pods(2)})
            await each.step(1)
            if second % 10 == 0:
                each.server.tell("web")
                each.pods.pods["app=web"] = pods(each.server.scales["web"].replicas)
        if second % 100 == 50:
            scalers[0].clock.skew += by * (1 if second % 200 == 50 else -1)
        there, here = (msgspec.structs.replace(each.state.memory, status=NO_STATUS) for each in scalers)
        assert there == here
    assert scalers[0].server.writes == scalers[1].server.writes
    reasons = {event.reason for event in scalers[0].server.events}
    assert reasons >= {"ForeignWriter", "FallbackStarted", "FailedGetPodsMetric"}


@pytest.mark.parametrize("set_by", [0, 7200, -7200])
@pytest.mark.parametrize(("seconds", "count"), [(54, 8), (56, 12)])
async def test_a_change_by_the_owner_before_counts_from_its_own_time(
    bench: Bench, seconds: int, count: int, set_by: int
) -> None:
    """And changes are told with times of day."""
    bench.clock.skew += set_by
    await bench.step()
    bench.clock.seconds += seconds
    change = PastChange(4, FineInstant(NOW + (set_by - 5) * SECOND))
    policy = {"type": "Pods", "value": 4, "periodSeconds": 60}
    autoscaler = fpa(QUEUE, behavior={"scaleUp": {"policies": [policy]}})
    bench.want(20)
    bench.put(
        msgspec.structs.replace(autoscaler, status=FastPathAutoscalerStatus(recent_changes=(change,))), 8
    )
    await bench.step()
    assert bench.server.scales["web"].replicas == count
    told = {each.time for _, _, changes in bench.server.statuses for each in changes}
    assert told == {change.time if count == 8 else NOW + (set_by + seconds) * SECOND}


async def test_hours_of_failures_end_nothing(bench: Bench) -> None:
    bench.server.fail = "forbidden"
    await bench.begin_with(7)
    bench.state.turn.failures = 3000
    await bench.step(16)
    bench.server.fail = ""
    await bench.step(16)
    assert bench.server.writes == [("web", 7)]
