"""The loop, stepped by hand: when autoscalers are decided, what is written, what is remembered and told."""

import asyncio
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.guards.conflicts import ScaleObservation
from adapter.autoscaler.decide.observation import NOT_YET, ExternalReading, Unavailable
from adapter.autoscaler.inputs import snapshot as snapshots
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.cache.scale_targets import Unfound
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import full_status
from adapter.model.timestamps import SECOND
from tests.support.controller import QUEUE, Bench, fpa, wanted
from tests.support.scaling import external_metric, pods, pods_metric, reading
from tests.support.waiting import running, until

KEY = Key("default", "web")
GONE = Unavailable("NoMetrics", "nothing")


def condition(bench: Bench, kind: str) -> tuple[str, str]:
    found = {each.type: (each.status, each.reason) for each in bench.last().status.conditions}
    return found[kind]


def decisions(bench: Bench) -> float:
    return bench.monitoring.registry.get_sample_value("fastpath_scaler_lag_seconds_count") or 0.0


async def test_a_raise_is_written_at_once(bench: Bench) -> None:
    await bench.begin_with(7)
    assert bench.server.writes == [("web", 7)]
    assert [event.reason for event in bench.server.events] == ["SuccessfulRescale"]
    name, status, changes = bench.server.statuses[-1]
    assert (name, status.current_replicas, status.desired_replicas) == ("web", 4, 7)
    assert [each.change for each in changes] == [3]


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


async def test_a_slow_write_delays_no_other(bench: Bench) -> None:
    bench.server.gate = asyncio.Event()
    await bench.begin_with(7)
    gate, bench.server.gate = bench.server.gate, None

    bench.put(fpa(QUEUE, name="api"), replicas=4)
    await bench.step()
    assert bench.server.writes == [("api", 7)]

    gate.set()
    await bench.step()
    assert bench.server.writes == [("api", 7), ("web", 7)]


async def test_while_it_is_written_it_is_not_decided_and_then_at_once(bench: Bench) -> None:
    bench.server.gate = asyncio.Event()
    await bench.begin_with(5)
    bench.sources.opened[0].reading = wanted(6)
    bench.controller.loop.touch(KEY)
    await bench.step(2)
    assert bench.sources.opened[0].reads == 1

    bench.server.gate.set()
    await bench.step()
    await bench.step(0.05)

    assert bench.server.writes == [("web", 5), ("web", 6)]


@pytest.mark.parametrize("refused", [False, True], ids=["not there at first", "not valid at first"])
async def test_the_first_count_of_a_target_is_no_change(
    bench: Bench, caplog: pytest.LogCaptureFixture, *, refused: bool
) -> None:
    """Neither the log nor the policies count a target's creation as a change: 4 pods in 15 s are free."""
    caplog.set_level("INFO")
    bench.sources.readings["queue"] = wanted(9)
    bench.server.cached["web"] = Unfound('deployments.apps "web" not found')
    bench.put(fpa(QUEUE, minReplicas=30) if refused else fpa(QUEUE))
    await bench.step()
    bench.put(fpa(QUEUE), replicas=5)
    await bench.step(1)

    assert bench.server.writes == [("web", 9)]
    assert "another client has scaled the target" not in caplog.messages


async def test_changes_do_not_cut_the_pause_after_failed_writes_short(bench: Bench) -> None:
    """Otherwise targets that may not be written would take the turns of those that may."""
    bench.server.fail = "forbidden"
    bench.sources.readings["queue"] = wanted(7)
    bench.put(fpa(QUEUE), replicas=4)
    failures = []
    for _ in range(600):
        await bench.step(0.1)
        bench.controller.loop.touch(KEY)
        failures.append(bench.state.turn.failures)
    assert 4 <= failures[-1] <= 10

    bench.server.fail = ""
    bench.controller.put(fpa(QUEUE, maxReplicas=30))
    await bench.step(0.1)
    assert bench.server.writes == [("web", 7)], "another spec ends it"


@pytest.mark.parametrize("spec", [{"metrics": [*QUEUE, pods_metric("10")]}, {"maxReplicas": 0}])
async def test_a_write_that_fails_after_a_spec_change_is_reported(bench: Bench, spec: dict[str, Any]) -> None:
    bench.server.fail, bench.server.gate = "forbidden", asyncio.Event()
    await bench.begin_with(7)
    bench.controller.put(fpa(**{"metrics": QUEUE, **spec}))
    bench.server.gate.set()
    await bench.step()

    assert "fastpath_scaler_unexpected_errors_total 0.0" in bench.monitoring.exposition()
    assert bench.server.events[0].reason == "FailedRescale"
    assert bench.journal.of(KEY)[0].outcome == "failed"


async def test_a_change_of_leader_keeps_scale_events_and_forgets_recommendations(bench: Bench) -> None:
    await bench.begin_with(30)
    bench.server.tell("web")
    _, status, changes = bench.server.statuses[-1]
    bench.close()

    stored = full_status(status, changes)
    bench.start().put(msgspec.structs.replace(fpa(QUEUE), status=stored))
    await bench.step(1)
    assert bench.server.writes == [("web", 8)]
    bench.sources.opened[-1].reading = wanted(1)
    await bench.step(299)
    assert bench.server.writes == [("web", 8)]


async def test_a_change_of_leader_counts_a_change_without_metrics_once(bench: Bench) -> None:
    bench.sources.readings["queue"] = GONE
    bench.put(fpa(QUEUE, maxReplicas=60), replicas=50)
    await bench.step()
    bench.controller.put(fpa(QUEUE, maxReplicas=10))
    await bench.step(1)
    assert bench.server.writes == [("web", 10)]
    bench.server.tell("web")
    _, status, changes = bench.server.statuses[-1]
    bench.close()

    bench.start().put(
        msgspec.structs.replace(fpa(QUEUE, maxReplicas=10), status=full_status(status, changes))
    )
    await bench.step(1)
    assert [each.change for each in bench.state.memory.history.downs] == [40]


@pytest.mark.parametrize(("load", "written"), [(2, [("web", 19)]), (200, [])])
async def test_a_count_of_ours_without_a_status_is_neither_raised_nor_lowered_faster_than_policies(
    bench: Bench, load: int, written: list[tuple[str, int]]
) -> None:
    """The time of our last raise is unknown."""
    bench.sources.readings["queue"] = wanted(load)
    policy = {"type": "Pods", "value": 1, "periodSeconds": 300}
    slow = {"scaleDown": {"stabilizationWindowSeconds": 0, "policies": [policy]}}
    bench.server.set("web", 20, manager="fastpath")
    bench.put(fpa(QUEUE, minReplicas=2, maxReplicas=100, behavior=slow))
    bench.pods.pods["app=web"] = pods(20)
    await bench.step()
    await bench.step(1)

    assert bench.server.writes == written


@pytest.mark.parametrize(("mode", "reason"), [("Advise", "AdviseOnly"), ("Paused", "ScalingPaused")])
async def test_modes_that_write_nothing(bench: Bench, mode: str, reason: str) -> None:
    await bench.begin_with(7, mode=mode)
    assert bench.server.writes == []
    assert reason in {each.reason for each in bench.last().status.conditions}
    assert bench.last().status.desired_replicas == (7 if mode == "Advise" else 4)
    spec, after_restart = bench.last().spec, memories.remember(bench.last().status)
    assert spec is not None
    assert memories.observe(spec, after_restart, ScaleObservation(4), 0)[1] is None, (
        "no other client changed it"
    )


async def test_the_metric_of_boost_is_refused_with_what_to_do(bench: Bench) -> None:
    """It never has a value for this kind, so the autoscaler would grow and never shrink."""
    bench.sources.readings["queue"] = wanted(8)
    bench.put(fpa([*QUEUE, external_metric("fastpath_replicas", averageValue="1")]), replicas=4)

    await bench.step()

    assert bench.server.writes == []
    assert condition(bench, "AbleToScale") == ("False", "InvalidSpec")
    said = (
        "spec.metrics[1].external.metric.name: Forbidden: "
        "fastpath_replicas is only for boosted HorizontalPodAutoscalers: remove this metric"
    )
    assert [(each.type, each.reason, each.message) for each in bench.server.events] == [
        ("Warning", "InvalidSpec", said)
    ]

    bench.put(fpa(QUEUE, uid="uid-1"))
    await bench.step(1)
    assert bench.server.writes == [("web", 8)], "without the metric it scales"


async def test_changes_of_another_target_do_not_count(bench: Bench) -> None:
    await bench.begin_with(100, replicas=60, maxReplicas=100)
    bench.server.set("web", 5)  # so many were taken away
    bench.sources.opened[-1].reading = wanted(5)
    await bench.step(1)

    bench.server.set("api", 5)
    bench.pods.pods["app=api"] = pods(5)
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "api"}
    bench.controller.put(fpa(QUEUE, uid="uid-2", maxReplicas=100, scaleTargetRef=other))
    await bench.step(1)

    assert bench.server.writes[-1] == ("api", 10)  # 4 pods or 100 % in 15 seconds


@pytest.mark.parametrize("period", ["0s", "-1s", "1h"])
async def test_a_period_that_cannot_be_is_refused_at_most_ten_times_a_second(
    bench: Bench, period: str
) -> None:
    bench.put(fpa(QUEUE, syncPeriod=period), replicas=4)
    await bench.step()
    assert condition(bench, "AbleToScale") == ("False", "InvalidSpec")
    before = decisions(bench)
    await bench.steps(100, 0.05)
    assert decisions(bench) - before <= 50
    await bench.step(60)
    assert decisions(bench) > before


@pytest.mark.parametrize("why", ["mode", "rival"])
async def test_an_idle_autoscaler_writes_nothing_and_closes_its_sources(bench: Bench, why: str) -> None:
    await bench.begin_with(4)
    if why == "mode":
        bench.controller.put(fpa(QUEUE, mode="Paused"))
    else:
        bench.rivals.names = ("HorizontalPodAutoscaler/web",)
    bench.want(7)
    await bench.step(1)
    assert bench.server.writes == []
    assert all(source.closed for source in bench.sources.opened)
    if why == "rival":
        assert condition(bench, "AbleToScale") == ("False", "ForeignAutoscaler")
        assert [event.reason for event in bench.server.events] == ["ForeignAutoscaler"]

    bench.rivals.names = ()
    bench.controller.put(fpa(QUEUE, maxReplicas=30))
    await bench.step(1)
    assert bench.server.writes == [("web", 7)]


async def test_a_question_under_way_reports_nothing(bench: Bench) -> None:
    bench.sources.readings["queue"] = Unavailable(NOT_YET, "no answer yet")
    bench.put(fpa(QUEUE), replicas=4)
    await bench.step()
    assert (bench.server.statuses, bench.server.events, bench.journal.of(KEY)) == ([], [], ())

    bench.sources.opened[0].reading = wanted(4)
    await bench.step(1)
    assert condition(bench, "ScalingActive") == ("True", "ValidMetricFound")

    bench.controller.put(fpa(QUEUE, maxReplicas=30))
    await bench.step(1)
    assert condition(bench, "ScalingActive") == ("True", "ValidMetricFound"), "as it was"
    bench.sources.opened[-1].reading = GONE
    await bench.step(1)
    assert condition(bench, "ScalingActive")[0] == "False"


async def test_while_a_write_waits_a_question_may_restart(bench: Bench) -> None:
    bench.server.turn = asyncio.Event()
    await bench.begin_with(7)
    told = len(bench.server.statuses)
    bench.sources.opened[0].reading = Unavailable(NOT_YET, "no answer yet")
    bench.clock.seconds += 1
    bench.server.turn.set()
    await bench.step()

    assert bench.server.writes == []
    assert len(bench.server.statuses) == told


async def test_a_removed_autoscaler_is_released(bench: Bench) -> None:
    await bench.begin_with(4)
    bench.controller.remove(KEY)
    await bench.step(2)

    assert bench.sources.opened[0].closed
    assert bench.pods.followings[0].closed
    assert bench.sources.opened[0].reads == 1
    series = 'fastpath_autoscaler_desired_replicas{kind="FastPathAutoscaler",name="web"'
    assert series not in bench.monitoring.exposition()


async def test_a_new_selector_is_followed_again(bench: Bench) -> None:
    await bench.begin_with(4)
    bench.server.cached["web"] = bench.server.scales["web"]._replace(
        selector="app=other", resource_version="999"
    )
    bench.pods.pods["app=other"] = pods(4)
    await bench.step(1)

    assert [following.closed for following in bench.pods.followings] == [True, False]
    assert [source.closed for source in bench.sources.opened] == [True, False]


async def test_the_journal_tells_changes_once(bench: Bench) -> None:
    await bench.begin_with(30)
    bench.server.tell("web")
    await bench.steps(10)

    entries = bench.journal.of(KEY)
    assert [(entry.current, entry.replicas, entry.outcome) for entry in entries] == [
        (4, 8, "written"),
        (8, 8, "none"),
    ]
    assert entries[0].inputs[0].reading == wanted(30)


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


async def test_the_moment_after_a_scale_down_is_no_fault(bench: Bench) -> None:
    """The pods that go leave the cache before the status of the target follows."""
    metric = external_metric(value="1")
    bench.sources.readings["queue"] = ExternalReading([500])
    window = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    bench.put(fpa([metric], behavior=window), replicas=10)
    bench.pods.pods["app=web"] = pods(7)
    await bench.step()
    await bench.steps(14)
    assert (bench.server.writes, bench.server.events) == ([], [])
    assert condition(bench, "ScalingActive") == ("True", "ValidMetricFound")
    texts = [step.text() for step in bench.last().trace]
    assert "pods of the target come or go: stays 10 until all are known" in texts
    await bench.step(1)
    assert condition(bench, "ScalingActive") == ("False", "FailedGetExternalMetric"), "that takes too long"
    assert {event.type for event in bench.server.events} == {"Warning"}
    bench.pods.pods["app=web"] = pods(10)
    await bench.step(1)
    assert bench.server.writes == [("web", 5)]


async def test_what_is_asked_for_in_that_moment_begins_no_new_window(bench: Bench) -> None:
    metric = external_metric(value="1")
    bench.sources.readings["queue"] = ExternalReading([1000])
    bench.put(fpa([metric], behavior={"scaleDown": {"stabilizationWindowSeconds": 30}}), replicas=10)
    await bench.step()
    bench.sources.opened[0].reading = ExternalReading([500])
    await bench.steps(25)
    bench.pods.pods["app=web"] = pods(9)
    await bench.steps(3)
    bench.pods.pods["app=web"] = pods(10)
    await bench.steps(5)
    assert bench.server.writes == [("web", 5)]
