"""HorizontalPodAutoscalers in the loop when things meet: conflicts, publications under way, what others do at
the same moment.
"""

import asyncio
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.observation import Unavailable
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.kubernetes.transport import RESET
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE, BOOST
from adapter.model.autoscaling.floor import LONGEST, Demotion, Floor
from adapter.model.timestamps import SECOND, FineInstant, Span
from tests.autoscaler.test_boost import KEY, NATIVE, ON, BoostBench, HandFloors, hpa
from tests.support.scaling import NOW, pods


@pytest.fixture
def bench() -> BoostBench:
    return BoostBench()


async def test_a_conflicting_raise_of_the_native_controller_is_no_reversal(bench: BoostBench) -> None:
    """Both react to one step: the native write comes first, ours meets a 409."""
    bench.want(8)
    bench.boost(ON._replace(shown=4), replicas=4)
    bench.server.set("web", 6, NATIVE, told=False)
    await bench.step()
    assert bench.server.writes == [("web", 8)]
    assert bench.reasons() == ["SuccessfulRescale"]
    assert bench.memory().reversals == ()


async def test_a_reversal_met_by_a_conflict_names_its_writer(bench: BoostBench) -> None:
    await bench.begin_boosted(6, ON._replace(shown=4))
    bench.server.tell("web")
    await bench.step(16)
    bench.server.set("web", 4, "argocd", told=False)
    bench.want(8)
    await bench.step(1)
    bench.server.tell("web")
    await bench.step(1)
    told = [each.message for each in bench.server.events if each.reason == "RaiseReverted"]
    assert told
    assert told[0].startswith("argocd scaled")


async def test_the_native_repeat_met_by_a_conflict_is_excused(bench: BoostBench) -> None:
    await bench.begin_boosted(6, ON._replace(shown=4))
    bench.server.tell("web")
    bench.server.set("web", 5, NATIVE, told=False)
    bench.want(8)
    await bench.step(16)
    bench.server.tell("web")
    await bench.step(1)
    assert "RaiseReverted" not in bench.reasons()
    assert bench.memory().reversals == ()


class LikeTheWriter(HandFloors):
    """Waiting publications are superseded by `want`, as FloorWriter's are."""

    def __init__(self) -> None:
        super().__init__([])
        self.waiting: list[tuple[Floor, asyncio.Future[None]]] = []
        self.hold = False

    async def publish(self, entry: Floor) -> None:
        if self.hold:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.waiting.append((entry, future))
            await future
        await super().publish(entry)

    def want(self, uid: str, entry: Floor | None) -> None:
        for each, future in self.waiting:
            if each.uid == uid and not future.done():
                future.set_exception(KubernetesError(0, "Superseded", "a newer one has replaced it"))
        super().want(uid, entry)

    def release(self) -> None:
        for _, future in self.waiting:
            if not future.done():
                future.set_result(None)


def writerlike() -> tuple[BoostBench, LikeTheWriter]:
    bench = BoostBench()
    bench.floors = floors = LikeTheWriter()
    bench.start()
    return bench, floors


async def test_a_first_publication_outlives_its_annotation() -> None:
    bench, floors = writerlike()
    floors.hold = True
    await bench.begin_boosted(8)
    bench.controller.remove(KEY)  # the annotation goes
    floors.release()
    await bench.step()
    bench.want(4)
    bench.boost()  # and comes back
    await bench.step(1)
    assert bench.server.writes == []
    assert floors.entries == {}


async def test_a_floor_comes_back_after_its_annotation_went() -> None:
    bench, floors = writerlike()
    await bench.begin_boosted(6)
    bench.server.tell("web")
    await bench.step(16)
    bench.want(10)
    floors.hold = True
    await bench.step(1)
    assert floors.waiting
    bench.controller.remove(KEY)
    assert floors.entries == {}
    await bench.step()
    assert floors.entries == {}


async def test_a_floor_of_another_target(bench: BoostBench) -> None:
    bench.floors.gate = asyncio.Event()
    await bench.begin_boosted(8)
    bench.server.set("other", 2)
    bench.want(2)
    bench.controller.put(_retarget(hpa(BOOST), "other"), ON._replace(digest="two"))
    bench.floors.gate.set()
    await bench.step()
    await bench.step(1)
    assert bench.memory().floor is None
    assert bench.floors.entries == {}


def _retarget(autoscaler: Any, name: str) -> Any:
    reference = msgspec.structs.replace(autoscaler.spec.scale_target_ref, name=name)
    return msgspec.structs.replace(
        autoscaler, spec=msgspec.structs.replace(autoscaler.spec, scale_target_ref=reference)
    )


async def test_a_fence_that_was_shut_for_a_moment_leaves_no_floor(bench: BoostBench) -> None:
    bench.want(8)
    bench.boost(replicas=4)
    bench.server.refusal = NotLeadingError()
    await bench.step()
    bench.server.refusal = None
    bench.want(4)
    await bench.step(1)
    assert bench.server.writes == []
    assert bench.memory().floor is None
    assert bench.floors.entries == {}


async def test_a_demotion_outlives_a_target_that_is_made_anew(bench: BoostBench) -> None:
    demoted = Demotion(FineInstant(NOW + 3000 * SECOND), "argocd", "one")
    bench.want(8)
    bench.boost(replicas=4, published=Floor("default", "web", "uid-1", demoted=demoted))
    await bench.step()
    bench.server.set("web", 4, uid="another-uid")
    await bench.step(1)
    await bench.step(1)
    assert bench.server.writes == []


async def test_advice_is_not_told_of_failed_metrics(bench: BoostBench) -> None:
    await bench.begin_boosted(8, ON._replace(mode=ADVISE))
    bench.sources.opened[0].reading = Unavailable("Gone", "gone")
    await bench.steps(30)
    assert bench.reasons() == []


async def test_advice_needs_no_handshake(bench: BoostBench) -> None:
    await bench.begin_boosted(4, ON._replace(mode=ADVISE, fault="spec.metrics has no fastpath_replicas"))
    assert bench.reasons() == []


async def test_a_missing_target_is_the_native_controllers_to_tell(bench: BoostBench) -> None:
    bench.boost(ON._replace(mode=ADVISE), replicas=4)
    bench.server.cached["web"] = Unfound('deployments.apps "web" not found', known=True)
    await bench.steps(40)
    assert bench.reasons() == []


async def test_a_minimum_of_zero_that_rests_on_the_handshake(bench: BoostBench) -> None:
    """The API takes it, for the handshake is an External metric."""
    cpu = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    bench.boost(replicas=4, metrics=[cpu], minReplicas=0)
    assert not bench.state.violations


async def test_a_count_that_would_be_answered_is_a_reversal(bench: BoostBench) -> None:
    """10 are held and a user sets 9 again and again: a tenth below, and more than a tenth to be raised."""
    await bench.begin_boosted(10, replicas=5)
    for _ in range(20):
        bench.server.set("web", 9, manager="argocd-controller")
        await bench.step(5)
    assert bench.server.writes == [("web", 10), ("web", 10)]
    assert "BoostDemoted" in bench.reasons()


async def test_a_raise_that_was_made_without_an_answer_is_held(bench: BoostBench) -> None:
    """The connection broke, and the look after it has found our own count."""
    server = bench.server

    async def put_scale(target: ScaleTarget, replicas: int) -> str:
        assert server.scales["web"].replicas == 4, "after the look there is nothing left to write"
        server.set("web", replicas, "fastpath", told=False)
        raise KubernetesError(0, RESET, "cut")

    bench.want(8)
    bench.boost(ON._replace(shown=4), replicas=4)
    server.put_scale = put_scale  # type: ignore[method-assign]  # the answer to a write is lost
    await bench.step()
    assert bench.floors.replicas() == 8
    server.tell("web")
    await bench.step(1)
    assert bench.floors.replicas() == 8
    bench.boost(ON._replace(shown=8))
    await bench.step(1)
    await bench.step(31)
    assert bench.floors.entries == {}


async def test_a_shrink_at_the_end_of_a_floor_is_no_reversal(bench: BoostBench) -> None:
    """The reader of the floor has a clock some seconds ahead of the writer."""
    quick = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    for replicas in (4, None):
        bench.want(8)
        bench.boost(ON._replace(shown=4), replicas=replicas, behavior=quick)
        await bench.step(1)
        bench.server.tell("web")
        bench.boost(ON._replace(shown=8), behavior=quick)
        await bench.step(1)
        bench.want(4)
        await bench.step(28.5)
        bench.server.set("web", 4, NATIVE)
        await bench.step(1)
        await bench.step(60)
    assert not {"RaiseReverted", "BoostDemoted"} & set(bench.reasons())


async def test_a_lesser_raise_that_was_made_without_an_answer_is_held(bench: BoostBench) -> None:
    """Less was right by the time of the write; its answer was lost, and the look after it has found that
    lesser count.
    """
    server = bench.server

    async def acquire(target: ScaleTarget) -> None:
        bench.want(6)
        bench.clock.seconds += 1

    async def put_scale(target: ScaleTarget, replicas: int) -> str:
        assert (server.scales["web"].replicas, replicas) == (4, 6)
        server.set("web", replicas, "fastpath", told=False)
        raise KubernetesError(0, RESET, "cut")

    bench.want(8)
    bench.boost(ON._replace(shown=4), replicas=4)
    server.acquire = acquire  # type: ignore[method-assign]  # the wait for a write slot
    server.put_scale = put_scale  # type: ignore[method-assign]  # the answer to a write is lost
    await bench.step()
    assert bench.floors.replicas() == 6


async def test_no_more_is_held_than_may_have_been_written(bench: BoostBench) -> None:
    """8 were published, 6 were right when the turn came, and it is unknown whether they were written."""
    bench.server.lose = True
    bench.floors.gate = asyncio.Event()
    await bench.begin_boosted(8)
    bench.want(6)
    bench.clock.seconds += 1
    bench.floors.gate.set()
    await bench.step()
    assert bench.server.writes == [("web", 6)]
    assert bench.floors.replicas() == 6


async def test_nothing_is_held_at_zero(bench: BoostBench) -> None:
    """A user stops the workload: an autoscaler that may leave zero, or is given one replica, would go to
    the floor at once.
    """
    await bench.begin_boosted(8, ON._replace(shown=4))
    assert bench.floors.replicas() == 8
    bench.server.tell("web")
    bench.boost(ON._replace(shown=8))
    await bench.step(1)
    bench.server.set("web", 0, "kubectl")
    await bench.step(1)
    assert bench.floors.replicas() == 0
    assert bench.reasons() == ["SuccessfulRescale", "RaiseReverted"]


@pytest.mark.parametrize("stands", [True, False])
async def test_a_floor_that_was_adopted_is_not_held_at_zero(bench: BoostBench, stands: bool) -> None:  # noqa: FBT001 - a case of the table
    published = msgspec.structs.replace(RAISED, stands=stands)
    bench.floors.entries["uid-1"] = published
    bench.want(8)
    bench.boost(replicas=0, published=published)
    await bench.step()
    await bench.step(1)
    assert bench.floors.replicas() == 0


# -- a change of leader --------------------------------------------------------------------------------------

RAISED = Floor(
    "default",
    "web",
    "uid-1",
    8,
    FineInstant(NOW + LONGEST),
    4,
    FineInstant(NOW - 5 * SECOND),
    hold=Span(30 * SECOND),
    stands=True,
)
SLOW = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}}


async def test_a_raise_that_was_taken_back_while_nobody_led_is_counted(bench: BoostBench) -> None:
    bench.want(8)
    bench.boost(replicas=4, manager="argocd-controller", published=RAISED)
    await bench.step(1)
    assert bench.reasons() == ["RaiseReverted", "SuccessfulRescale"]
    assert bench.server.writes == [("web", 8)]
    bench.server.set("web", 4, "argocd-controller")
    await bench.step(1)
    assert bench.reasons()[2:] == ["BoostDemoted"]


async def test_reversals_are_counted_once_across_leaders(bench: BoostBench) -> None:
    bench.want(8)
    bench.boost(replicas=4)
    await bench.step(1)
    assert bench.floors.entries["uid-1"].stands
    bench.server.fail = "out of order"
    bench.server.set("web", 4, "argocd-controller")
    await bench.step(1)
    assert bench.reasons() == ["SuccessfulRescale", "RaiseReverted", "FailedRescale"]
    published = bench.floors.entries["uid-1"]
    assert (published.stands, len(published.reversals)) == (False, 1)

    bench.server.fail = ""
    bench.start()
    bench.boost(published=published)
    await bench.step(1)
    assert bench.reasons()[3:] == ["SuccessfulRescale"]
    assert bench.server.writes == [("web", 8), ("web", 8)]


@pytest.mark.parametrize("stands", [True, False], ids=["known to be made", "found to be made"])
@pytest.mark.parametrize(("seconds", "count"), [(0, 8), (54, 8), (56, 12)])
async def test_the_raise_of_a_leader_before_counts_from_its_own_time(
    bench: BoostBench,
    stands: bool,  # noqa: FBT001 - a case of the table
    seconds: int,
    count: int,
) -> None:
    bench.want(20)
    bench.clock.seconds += seconds
    bench.boost(
        ON._replace(shown=8),
        replicas=8,
        manager="fastpath",
        published=msgspec.structs.replace(RAISED, stands=stands),
        behavior=SLOW,
    )
    await bench.step()
    assert bench.server.scales["web"].replicas == count


@pytest.mark.parametrize(
    ("since", "count"),
    [
        ("2026-11-20T11:58:58Z", 12),
        ("2026-11-20T11:59:30Z", 8),
        ("2026-11-20T12:30:00Z", 8),
        ("", 8),
        ("soon", 8),
    ],
    ids=["a minute ago", "lately", "a clock ahead", "unknown", "no time"],
)
async def test_a_raise_nobody_tells_of_counts_from_when_it_was_written(
    bench: BoostBench, since: str, count: int
) -> None:
    bench.want(20)
    bench.server.set("web", 8, "fastpath", told=False)
    bench.server.scales["web"] = bench.server.scales["web"]._replace(since=since)
    bench.server.tell("web")
    bench.pods.pods["app=web"] = pods(20)
    bench.boost(ON._replace(shown=8), behavior=SLOW)
    await bench.step()
    assert bench.server.scales["web"].replicas == count


@pytest.mark.parametrize("answered", [True, False])
async def test_the_later_of_two_writes_is_held(bench: BoostBench, answered: bool) -> None:  # noqa: FBT001 - a case of the table
    """The lesser count was made though its answer was lost; then what was published was right again, and
    written on top.
    """
    server = bench.server

    sent: list[int] = []

    async def acquire(target: ScaleTarget) -> None:
        if not sent:
            bench.want(6)
            bench.clock.seconds += 1

    async def put_scale(target: ScaleTarget, replicas: int) -> str:
        sent.append(replicas)
        server.set("web", replicas, "fastpath", told=False)
        if replicas == 6:
            bench.want(8)
            raise KubernetesError(0, RESET, "cut")
        assert sent == [6, 8]
        if answered:
            return server.scales["web"].resource_version
        raise KubernetesError(0, "Timeout", "no answer")

    bench.want(8)
    bench.boost(ON._replace(shown=4), replicas=4)
    server.acquire = acquire  # type: ignore[method-assign]  # the wait for a write slot
    server.put_scale = put_scale  # type: ignore[method-assign]  # the answer to the first write is lost
    await bench.step()
    assert bench.floors.replicas() == 8
    assert bench.floors.entries["uid-1"].stands is answered


@pytest.mark.parametrize("found", ["by a new leader", "by its own"])
async def test_a_raise_that_was_found_made_counts_as_taken_back_later(bench: BoostBench, found: str) -> None:
    if found == "by its own":
        bench.server.lose = True
        await bench.begin_boosted(8)
        bench.server.lose = False
        assert not bench.floors.entries["uid-1"].stands
        bench.server.tell("web")
    else:
        published = msgspec.structs.replace(RAISED, stands=False)
        bench.floors.entries["uid-1"] = published
        bench.want(8)
        bench.boost(replicas=8, manager="fastpath", published=published)
    await bench.step(1)
    await bench.step(1)
    published = bench.floors.entries["uid-1"]
    assert published.stands

    bench.start()
    bench.server.set("web", 4, "argocd-controller")
    bench.boost(published=published)
    await bench.step(1)
    assert "RaiseReverted" in bench.reasons()


async def test_all_raises_of_a_leader_before_count(bench: BoostBench) -> None:
    """A ramp: the last of several raises is not all that the policies have given leave to."""
    await bench.begin_boosted(6, behavior=SLOW)
    bench.server.tell("web")
    bench.want(20)
    await bench.step(5)
    assert bench.server.writes == [("web", 6), ("web", 8)]
    bench.server.tell("web")

    bench.start()
    bench.boost(ON._replace(shown=8), published=bench.floors.entries["uid-1"], behavior=SLOW)
    await bench.step(5)
    assert bench.server.writes[2:] == []
    await bench.step(56)
    assert bench.server.writes[2:] == [("web", 12)]


async def test_another_target_than_that_of_a_leader_before_took_nothing_back(bench: BoostBench) -> None:
    """Without a leader the target was created again, with fewer replicas."""
    await bench.begin_boosted(8)
    published = bench.floors.entries["uid-1"]

    bench.start()
    bench.server.set("web", 4, "kubectl", uid="created again")
    bench.want(4)
    bench.boost(published=published)
    await bench.step(1)
    await bench.step(1)
    assert "RaiseReverted" not in bench.reasons()
    assert bench.floors.entries == {}


async def test_the_native_repeat_is_excused_once_whoever_leads(bench: BoostBench) -> None:
    await bench.begin_boosted(8, ON._replace(shown=4))
    bench.server.tell("web")
    bench.server.set("web", 5, NATIVE)
    await bench.step(1)
    await bench.step(1)
    assert bench.server.scales["web"].replicas == 8
    assert "RaiseReverted" not in bench.reasons()
    published = bench.floors.entries["uid-1"]

    bench.start()
    bench.server.set("web", 5, NATIVE)
    bench.boost(ON._replace(shown=4), published=published)
    await bench.step(1)
    assert "RaiseReverted" in bench.reasons()


async def test_a_raise_of_a_leader_whose_clock_was_ahead_counts_for_one_period(bench: BoostBench) -> None:
    ahead = FineInstant(NOW + 3600 * SECOND)
    published = msgspec.structs.replace(
        RAISED, raised_at=ahead, until=FineInstant(ahead + LONGEST), reversals=(ahead,)
    )
    bench.want(20)
    bench.boost(ON._replace(shown=4), replicas=8, manager="fastpath", published=published, behavior=SLOW)
    await bench.step()
    assert bench.server.writes == []
    await bench.step(61)
    assert bench.server.writes == [("web", 12)]
    await bench.step(301)
    assert bench.memory().reversals == ()


async def test_a_raise_that_a_lower_maximum_ended_is_not_reverted(bench: BoostBench) -> None:
    """The maximum is 4 for a while, which is not a reversal, and then the leader changes."""
    await bench.begin_boosted(8)
    bench.server.tell("web")
    bench.boost(ON._replace(shown=8))
    await bench.step(1)
    bench.boost(ON._replace(shown=4), maxReplicas=4)
    bench.server.set("web", 4, NATIVE)
    await bench.step(1)
    assert bench.reasons() == ["SuccessfulRescale"]
    await bench.step(1)
    published = bench.floors.entries["uid-1"]

    bench.start()
    bench.boost(ON._replace(shown=4), published=published)
    await bench.step(1)
    assert "RaiseReverted" not in bench.reasons()
