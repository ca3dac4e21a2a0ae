"""Our writes stay within the limits and the policies, whatever other writers, faults and clocks do.

The target, its other writers and the API server are modelled here, apart from the code: what a policy allows
is worked out from the counts that the target really had.
"""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.autoscaler.decide import guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards.conflicts import OWN, ScaleObservation
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import ExternalReading, Observation, Reading, Settings, Unavailable
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.sync import Decision
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.timestamps import SECOND
from tests.support.answers import answers
from tests.support.scaling import NOW, autoscaler, external_metric, pods

EXAMPLES = max(150, settings.default.max_examples) if settings.default is not None else 150
"""More than elsewhere: what stands here is about harm."""

LIVE = Settings(scale_to_zero=True, strict=True)
GONE = Unavailable("NoMetrics", "nothing")


class ScaleTarget:
    """A scale target: counts over real time, last writer, version, and the state that a watch delivered."""

    def __init__(self, replicas: int, now: int) -> None:
        self.counts = [(now, replicas)]
        self.manager = ""
        self.version = 1
        self.told = (replicas, self.manager, self.version)
        self.told_at = now

    @property
    def replicas(self) -> int:
        return self.counts[-1][1]

    def set(self, replicas: int, manager: str, now: int) -> None:
        if replicas != self.replicas:
            self.counts.append((now, replicas))
            self.manager = manager
        self.version += 1

    def at(self, moment: int) -> int:
        earlier = [count for at, count in self.counts if at <= moment]
        return earlier[-1] if earlier else self.counts[0][1]

    def bases(self, start: int, end: int) -> list[int]:
        """Return every count that there was in a stretch of time, its beginning included."""
        return [self.at(start), *(count for at, count in self.counts if start < at <= end)]


class FaultyTarget:
    """One autoscaler, its target and their faults."""

    def __init__(self, scaler: PreparedSpec, replicas: int) -> None:
        self.scaler = scaler
        self.time: int = NOW
        self.set_by = 0
        self.target = ScaleTarget(replicas, NOW)
        self.memory = Memory()
        self.stored: tuple[HorizontalPodAutoscalerStatus, Any, Any] = (
            HorizontalPodAutoscalerStatus(),
            (),
            (),
        )
        self.blind_since = NOW
        self.writes: list[tuple[int, int]] = []

    def pass_time(self, tenths: int) -> None:
        self.time += tenths * SECOND // 10

    def watch(self) -> None:
        target = self.target
        target.told = (target.replicas, target.manager, target.version)
        target.told_at = self.time
        self.memory, _ = memories.observe(
            self.scaler, self.memory, ScaleObservation(target.replicas, target.manager), self.time
        )

    def set_clock(self, by: int) -> None:
        """The clock of the machine is set: the controller notices, and ages stay what they are."""
        self.set_by += by * SECOND

    def restart(self) -> None:
        self.memory = memories.remember(*self.stored)

    def sync(
        self, wanted: Reading, outcome: str, *, rivals: tuple[str, ...] = (), mode: str = "Auto"
    ) -> Decision:
        """One sync as the loop makes it; `outcome` is what becomes of a write."""
        circumstances = Constraints(mode, rivals)
        for _ in range(5):
            replicas, manager, version = self.target.told
            self.memory, _ = memories.observe(
                self.scaler, self.memory, ScaleObservation(replicas, manager), self.time
            )
            seen = Observation(replicas, replicas, "app=web", pods(replicas), [wanted], set_by=self.set_by)
            made = guarded.decide(self.scaler, seen, self.memory, self.time, circumstances)
            if not made.rescale:
                self.memory, _ = memories.commit(self.memory, made, seen, self.time)
                self.store()
                return made
            if version != self.target.version:
                self.watch()  # a conflict: read again, decide again
                continue
            if outcome == "refused":
                break
            self.check(replicas, made.replicas)
            self.target.set(made.replicas, OWN, self.time)
            if outcome == "lost":
                break  # the write succeeded, but its response was lost
            self.memory, _ = memories.commit(self.memory, made, seen, self.time)
            if outcome != "status lost":
                self.store()
            self.watch()
            return made
        told = guarded.decide(
            self.scaler,
            msgspec.structs.replace(seen, write_error="it failed"),
            self.memory,
            self.time,
            circumstances,
        )
        assert not told.rescale
        self.memory, _ = memories.commit(self.memory, told, seen, self.time)
        return told

    def store(self) -> None:
        self.stored = (self.memory.status, self.memory.history.ups, self.memory.history.downs)

    def check(self, before: int, after: int) -> None:
        """A write of ours against the limits and what the policies allow of the counts there really were."""
        low, high = self.scaler.limits
        assert before == self.target.replicas
        assert low <= after <= high or (before == 0 and low != 0)
        self.writes.append((before, after))
        if not low <= before <= high or after <= before:
            return
        assert self.scaler.up is not None
        rules = self.scaler.up
        assert rules.select != "Disabled"
        # a change counts from when it was seen, which is at most as long after it as the watch had not spoken
        late = self.late
        limits = []
        for policy in rules.policies:
            start = self.time - policy.period
            base = max(self.target.bases(start - late, start))
            limits.append(
                math.ceil(base * (1 + policy.value / 100)) if policy.percent else base + policy.value
            )
        limit = min(limits) if rules.select == "Min" else max(limits)
        assert after <= max(limit, before)

    @property
    def late(self) -> int:
        return 40 * SECOND


WANTED = st.one_of(
    st.integers(0, 40).map(lambda count: ExternalReading([count * 1000])),
    st.integers(0, 40).map(lambda count: ExternalReading([count * 1000], overdue="its sample is old")),
    st.just(ExternalReading([-5000])),
    st.just(ExternalReading([2**63 - 1, 2**63 - 1])),
    st.just(GONE),
)
OUTCOMES = st.sampled_from(["done"] * 6 + ["refused", "lost", "status lost"])

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sync"), WANTED, OUTCOMES),
        st.tuples(st.just("sync"), WANTED, OUTCOMES),
        st.tuples(st.just("time"), st.integers(1, 200)),
        st.tuples(st.just("write"), st.integers(0, 45), st.sampled_from(["kubectl", "argocd", ""])),
        st.tuples(st.just("watch")),
        st.tuples(st.just("clock"), st.integers(-4000, 4000)),
        st.tuples(st.just("rival"), WANTED),
        st.tuples(st.just("advise"), WANTED),
    ),
    max_size=40,
)


@pytest.mark.parametrize("behavior", answers("decide/safety", "behaviors"))
@given(first=st.integers(0, 45), low=st.integers(0, 3), steps=STEPS)
@settings(max_examples=EXAMPLES, deadline=None)
@pytest.mark.timeout(300)
def test_our_writes_never_exceed_limits_or_policies(
    behavior: dict[str, Any], first: int, low: int, steps: list[tuple[Any, ...]]
) -> None:
    metrics = [external_metric(averageValue="1")]
    world = FaultyTarget(autoscaler(metrics, LIVE, minReplicas=low, maxReplicas=30, behavior=behavior), first)
    world.watch()  # what was changed before the first look is nothing that anybody could count
    for step in steps:
        run(world, step)


def run(world: FaultyTarget, step: tuple[Any, ...]) -> None:
    what, *values = step
    before = world.target.version
    if world.time - world.target.told_at > 20 * SECOND:
        world.watch()
    if what == "sync":
        wanted, outcome = values
        writes = len(world.writes)
        made = world.sync(wanted, outcome)
        if made.absent:
            assert all(after >= count for count, after in world.writes[writes:])
    elif what == "time":
        world.pass_time(*values)
    elif what == "write":
        replicas, manager = values
        world.target.set(replicas, manager, world.time)
    elif what == "watch":
        world.watch()
    elif what == "clock":
        world.set_clock(*values)
    else:
        mode = "Advise" if what == "advise" else "Auto"
        rivals = ("HorizontalPodAutoscaler web",) if what == "rival" else ()
        world.sync(values[0], "done", rivals=rivals, mode=mode)
        assert world.target.version == before


@given(steps=STEPS, again=st.lists(st.integers(0, 39), max_size=5))
@settings(max_examples=EXAMPLES, deadline=None)
@pytest.mark.timeout(300)
def test_a_change_of_leader_exceeds_nothing_either(steps: list[tuple[Any, ...]], again: list[int]) -> None:
    """Recommendations are gone then, scale events are not: they travel with the status, and what did not get
    there shows in the count.
    """
    world = FaultyTarget(
        autoscaler([external_metric(averageValue="1")], LIVE, maxReplicas=30, behavior={}), 4
    )
    for number, step in enumerate(steps):
        if step[0] == "write":
            continue  # without a leader, the writes of others are not observed
        run(world, step)
        if number in again:
            world.watch()
            world.restart()


@given(first=st.integers(1, 20), steps=STEPS)
@settings(max_examples=EXAMPLES, deadline=None)
@pytest.mark.timeout(300)
def test_nothing_is_written_in_a_pause(first: int, steps: list[tuple[Any, ...]]) -> None:
    world = FaultyTarget(
        autoscaler([external_metric(averageValue="1")], LIVE, maxReplicas=30, behavior={}), first
    )
    world.watch()
    for step in steps:
        paused = world.memory.conflicts.is_paused(world.time)
        writes = len(world.writes)
        run(world, step)
        assert not paused or len(world.writes) == writes
