"""What must not go wrong however things come together: writes that wait or are not answered, caches that lag,
targets that are others now.
"""

import asyncio
from collections import Counter
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.observation import NO_STATUS, PodsReading, Unavailable
from adapter.autoscaler.interfaces import Key
from adapter.errors import NotSyncedError
from adapter.model.autoscaling.fastpath_autoscaler import (
    FastPathAutoscaler,
    FastPathAutoscalerStatus,
    PastChange,
)
from adapter.model.timestamps import SECOND, FineInstant
from tests.support.controller import QUEUE, Bench, fpa, wanted
from tests.support.scaling import NOW, pods, pods_metric

KEY = Key("default", "web")
NO_WINDOW = {"scaleDown": {"stabilizationWindowSeconds": 0}}


def retargeted(name: str, **spec: Any) -> FastPathAutoscaler:
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return fpa(QUEUE, scaleTargetRef=reference, **spec)


async def begin_to_wait(bench: Bench, count: int) -> asyncio.Event:
    """Decide; what is to be written waits until the event is set."""
    bench.server.turn = asyncio.Event()
    await bench.begin_with(count)
    return bench.server.turn


async def go_on(bench: Bench, turn: asyncio.Event) -> None:
    bench.clock.seconds += 2
    turn.set()
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_autoscaler_that_is_removed_while_its_write_waits_writes_nothing(bench: Bench) -> None:
    turn = await begin_to_wait(bench, 8)
    bench.controller.remove(KEY)
    await go_on(bench, turn)
    assert bench.server.writes == []


async def test_writes_to_a_former_target_do_not_count_for_the_next(bench: Bench) -> None:
    bench.server.set("api", 2)
    bench.pods.pods["app=api"] = pods(2)
    bench.server.gate = asyncio.Event()
    await bench.begin_with(8)
    bench.sources.readings["queue"] = wanted(2)
    bench.controller.put(retargeted("api"))
    bench.server.gate.set()
    await bench.step()
    await bench.step(1)
    assert bench.server.writes == [("web", 8)]
    assert bench.state.memory.history.ups == ()
    assert bench.last().replicas == 2  # and not the 8 that another target has


async def test_a_conflict_on_the_previous_target_is_ignored(bench: Bench) -> None:
    bench.server.gate = asyncio.Event()
    await bench.begin_with(8)
    bench.server.set("web", 5, told=False)
    bench.server.set("api", 8)
    bench.controller.put(retargeted("api"))
    bench.server.gate.set()
    await bench.step(1)
    assert bench.server.writes == []
    await bench.step(1)
    assert bench.last().replicas == 8


async def test_a_cached_reading_names_the_writer_that_a_conflict_met(bench: Bench) -> None:
    bench.server.gate = asyncio.Event()
    await bench.begin_with(9)
    bench.server.set("web", 6, "argocd")
    bench.server.gate.set()
    await bench.step()
    assert bench.server.writes == [("web", 8)]
    assert [each.change.by for each in bench.journal.of(KEY) if each.change is not None] == ["argocd"]
    assert [each.change for each in bench.state.memory.history.ups] == [2, 2]


async def test_a_recreated_target_begins_as_after_a_start(bench: Bench) -> None:
    await bench.begin_with(10, replicas=10)
    bench.server.set("web", 2, uid="another")
    bench.sources.opened[0].reading = wanted(20)
    bench.controller.loop.touch(KEY)
    await bench.step(1)
    assert bench.server.writes == [("web", 6)]  # 4 pods more than its 2, whatever the one before it had
    assert bench.state.memory.history.downs == ()


@pytest.mark.parametrize("whose", ["another writer's", "of another target", "of a recreated target"])
async def test_a_zero_is_left_only_if_it_is_ours(bench: Bench, whose: str) -> None:
    await bench.begin_with(0, replicas=1, minReplicas=0, behavior=NO_WINDOW)
    assert bench.server.writes == [("web", 0)]
    if whose == "another writer's":  # between two looks
        bench.server.set("web", 2, "kubectl", told=False)
        bench.server.set("web", 0, "kubectl")
    elif whose == "of another target":
        bench.server.tell("web")
        bench.server.set("api", 0)
        bench.controller.put(retargeted("api", minReplicas=0))
    else:
        bench.server.tell("web")
        bench.server.set("web", 0, "", uid="another")
    bench.want(3)
    await bench.step(1)
    await bench.step(1)
    assert bench.server.writes == [("web", 0)]


async def test_an_unanswered_zero_of_ours_is_ours_without_managed_fields(bench: Bench) -> None:
    bench.sources.readings["queue"] = wanted(0)
    bench.put(fpa(QUEUE, minReplicas=0, behavior=NO_WINDOW), replicas=1)
    bench.server.lose = True
    await bench.step()
    bench.server.lose = False
    bench.server.scales["web"] = bench.server.scales["web"]._replace(manager="")
    bench.server.tell("web")
    bench.sources.opened[-1].reading = wanted(3)
    await bench.step(1)
    await bench.step(16)
    assert bench.server.writes == [("web", 0), ("web", 3)]


@pytest.mark.parametrize("how", ["paused", "another autoscaler", "wrong spec", "a zero of another writer"])
async def test_after_standing_back_nothing_shrinks_for_one_window(bench: Bench, how: str) -> None:
    await bench.begin_with(8, replicas=8)
    if how == "another autoscaler":
        bench.rivals.names = ("HorizontalPodAutoscaler/web",)
    elif how == "a zero of another writer":
        bench.server.set("web", 0)
    else:
        bench.put(fpa(QUEUE, **({"mode": "Paused"} if how == "paused" else {"maxReplicas": 0})))
    await bench.steps(7, 60)
    bench.want(1)
    if how == "a zero of another writer":
        bench.server.set("web", 8)
    else:
        bench.rivals.names = ()
        bench.put(fpa(QUEUE, maxReplicas=19))
    await bench.step(1)
    await bench.step(290)
    assert bench.server.writes == []
    await bench.step(15)
    assert bench.server.writes == [("web", 1)]


async def test_a_cache_behind_what_a_conflict_showed_is_no_change(bench: Bench) -> None:
    """A raise without an answer is found by a conflict; the stale cache is not taken for a reversal."""
    bench.sources.readings["queue"] = wanted(8)
    bench.put(fpa(QUEUE), replicas=4)
    bench.server.lose = True
    await bench.step()
    bench.server.lose = False
    await bench.steps(5)
    bench.server.tell("web")
    await bench.step(1)
    memory = bench.state.memory
    assert bench.server.writes == [("web", 8)]
    assert memory.conflicts.ours is not None
    assert memory.conflicts.reversals == ()
    assert [(each.change) for each in memory.history.ups] == [4]
    assert memory.history.downs == ()


async def test_fewer_pods_known_than_the_target_has_never_shrink(bench: Bench) -> None:
    """The watch of pods is behind: an average over those that are known says nothing of the others."""
    bench.put(fpa([pods_metric("10", "rps")], behavior=NO_WINDOW), replicas=8)
    bench.pods.pods["app=web"] = known = pods(4)
    bench.sources.readings["rps"] = PodsReading({pod.name: 5000 for pod in known})
    await bench.step()
    assert bench.server.writes == []
    bench.pods.pods["app=web"] = every = pods(8)
    bench.sources.opened[-1].reading = PodsReading({pod.name: 5000 for pod in every})
    await bench.step(1)
    assert bench.server.writes == [("web", 4)]


async def test_a_clock_set_while_something_is_written_leaves_ages_as_they_are(bench: Bench) -> None:
    bench.server.gate = asyncio.Event()
    await bench.begin_with(8)
    bench.clock.skew += 3600
    await bench.step(1)
    bench.server.gate.set()
    await bench.step()
    bench.server.tell("web")
    bench.sources.opened[-1].reading = wanted(1)
    await bench.step(1)
    await bench.step(1)
    assert bench.server.writes == [("web", 8)]
    now = bench.controller.loop.clock.now()
    assert [now - each.at < 5 * SECOND for each in bench.state.memory.history.ups] == [True]


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


class Unsynced(dict[str, Any]):
    """Pods of a cache that starts again."""

    def get(self, *_: object) -> Any:
        raise NotSyncedError("pods: the first list has not arrived yet")


async def test_a_conflict_after_which_the_pods_are_not_known_is_no_write(bench: Bench) -> None:
    turn = await begin_to_wait(bench, 8)
    bench.server.set("web", 5, told=False)
    bench.pods.pods = Unsynced()
    await go_on(bench, turn)
    assert (bench.server.writes, bench.server.events) == ([], [])
    assert bench.state.memory.history.ups == ()


async def test_hours_of_failures_end_nothing(bench: Bench) -> None:
    bench.server.fail = "forbidden"
    await bench.begin_with(7)
    bench.state.turn.failures = 3000
    await bench.step(16)
    bench.server.fail = ""
    await bench.step(16)
    assert bench.server.writes == [("web", 7)]


async def test_the_same_warning_is_not_repeated_at_every_decision(bench: Bench) -> None:
    """Thousands of autoscalers without a value would fill the queue of events and crowd out others."""
    bench.sources.readings["queue"] = Unavailable("NotAnswered", "no answer")
    bench.put(fpa(QUEUE), replicas=4)
    await bench.steps(60)
    counts = Counter(event.reason for event in bench.server.events)
    assert counts == {"FailedGetExternalMetric": 4, "FailedComputeMetricsReplicas": 4}
