"""Writes the deletion costs of the pods that a scale-down is to remove, and takes back those it did not need.

Costs are written when a scale-down is foreseen (`follow`): a sync period ahead of that of a boosted
HorizontalPodAutoscaler, and `AHEAD_SECONDS` ahead of our own, since many autoscalers may shrink at once and
share the rate of writes. While it is due the pods are ranked again, and marks move with the load. What is
missing is written right before our own Scale (`mark`), which waits for `MARK_SECONDS` at most: pods without
their cost keep their place in Kubernetes' order.

What is written is remembered (`Marks`). A pod that is still there when nothing has wanted it away for
`removal.KEEP_SECONDS` gets its cost taken back. A scaler that begins does not know what its predecessor
wrote: it takes negative costs for ours, until taking them back shows that they are another writer's.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from adapter import errors
from adapter.autoscaler.controller.actuator import Actuator
from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards import removal
from adapter.autoscaler.decide.observation import OptionState, is_active
from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.decide.sync import Decision, Event
from adapter.autoscaler.inputs.snapshot import Snapshot
from adapter.autoscaler.interfaces import Key
from adapter.kubernetes.write import deletion_costs
from adapter.kubernetes.write.outbox import Outbox, OutboxKey, Outlet, SendTime
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model import timestamps
from adapter.model.objects.pods import COST_ANNOTATION, PodFacts
from adapter.model.timestamps import SECOND

MARK_SECONDS = 1.0
"""The longest time that a scale-down waits for the costs of its pods."""

AHEAD_SECONDS = 5.0
"""How long before the end of its stabilization window the pods of our own scale-down are marked."""

EXCHANGE_SECONDS = 2.0
"""How often marks move with the load: a load that swings costs twice k writes in that time at most."""

REFUSED_SECONDS, FAILED_SECONDS = 60.0, 15.0
"""How long no cost is written for an autoscaler after one was refused, or failed."""

TAKEN_SECONDS = 10.0
"""For how long the cache may still show a cost that was taken back."""


@dataclass(slots=True, eq=False)
class PodMarks:
    """What is known of the costs of one autoscaler. Times are monotonic seconds."""

    costs: dict[str, float | None] = field(default_factory=dict)
    """The pods with a cost of ours, each with when it was taken back, None if it was not."""
    wanted: float = 0.0
    """When pods were last to go."""
    exchanged: float = 0.0
    """When marks were last exchanged."""
    replicas: int = 0
    """The count of the target at the last decision."""
    lowered: float = -math.inf
    """When that count fell last: samples of before show load that has since moved."""
    paused: float = 0.0
    """Until when no cost is written."""
    refused_until: str = ""
    """That time for people, if it is because one was refused."""
    foreign: str = ""
    """What the API server said of a cost of another writer."""
    is_known: bool = False
    """Whether the costs that a predecessor wrote have been looked for."""
    told: set[str] = field(default_factory=set)
    """The reasons of the events so far."""


@dataclass(slots=True, eq=False)
class CostJob:
    """A cost to be written, None to be taken back."""

    state: AutoscalerState
    marks: PodMarks
    pod: str
    cost: int | None
    done: asyncio.Future[None]
    has_begun: bool = False

    @property
    def outbox_key(self) -> OutboxKey:
        return OutboxKey(self.state.key.namespace, self.state.key.name, self.pod)

    def end(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class CostKeeper(Outlet[CostJob]):
    """Keeps the deletion costs of pods."""

    kind = WriteKind.COST
    unexpected = "unexpected error about the deletion costs of an autoscaler"
    at_once = deletion_costs.AT_ONCE

    def __init__(self, outbox: Outbox, actuator: Actuator) -> None:
        super().__init__(outbox)
        self._actuator = actuator
        self._marks: dict[Key, PodMarks] = {}

    async def mark(self, state: AutoscalerState, snapshot: Snapshot, replicas: int, since: float) -> bool:
        """Write the costs of the idlest pods before a scale-down to `replicas`; tell whether any was missing.

        That takes `MARK_SECONDS` at most, `since` the first costs for the same write.
        """
        if state.spec.object.spec.removal_order is None:
            return False
        marks = self._marks.setdefault(state.key, PodMarks())
        jobs = self._choose(state, marks, snapshot, replicas, may_exchange=True)
        if not jobs:
            return False
        marks.wanted = now = self.outbox.clock.monotonic()
        await asyncio.wait([job.done for job in jobs], timeout=max(0.0, since + MARK_SECONDS - now))
        for job in jobs:
            if self.withdraw(job.outbox_key, job):
                _undo(job)
        return True

    def follow(self, state: AutoscalerState, snapshot: Snapshot, choice: Decision, now: int) -> None:
        """After a decision, mark the pods that the HPA is about to remove; take back what nothing needs."""
        if state.spec.object.spec.removal_order is None:
            self.forget(state)
            return
        marks = self._marks.setdefault(state.key, PodMarks())
        seen, monotonic = snapshot.observation, self.outbox.clock.monotonic()
        foreign = _learn(marks, seen.pods, monotonic)
        state.idle_scale_down = self._describe(state, marks, seen.pods, monotonic, foreign)
        if seen.replicas < marks.replicas:
            marks.lowered = monotonic
        marks.replicas = seen.replicas
        expected = self._foresee(state, choice, seen.replicas, now)
        latest = monotonic - marks.lowered  # an age, because the clock may be set
        sampled = snapshot.ranked_at  # other metrics do not choose the pods
        is_outdated = sampled is not None and (seen.time_of_day(now) - sampled) / SECOND > latest
        if expected < seen.replicas and not choice.rescale and not is_outdated:
            is_due = monotonic - marks.exchanged >= EXCHANGE_SECONDS
            self._choose(state, marks, snapshot, expected, may_exchange=is_due)
        if removal.count_active(seen.pods) > expected:
            marks.wanted = monotonic
        elif monotonic - marks.wanted > removal.KEEP_SECONDS:
            self._take_back(state, marks)

    @staticmethod
    def _foresee(state: AutoscalerState, choice: Decision, current: int, now: int) -> int:
        """Return the count that the target is about to have, for which pods are marked now."""
        boost, memory = state.spec.boost, state.memory.boost
        if boost is not None:
            if boosting.only_advised(memory, boost, now):
                return choice.replicas
            return removal.foresee(choice, memory, current, now + boost.period + SECOND)
        is_held = choice.restraint is Restraint.HELD
        if not is_held or state.spec.object.only_advises:  # then nothing is written when the window ends
            return choice.replicas
        return removal.foresee(choice, memory, current, now + int(AHEAD_SECONDS * SECOND))

    def forget(self, state: AutoscalerState) -> None:
        """Take back all costs of an autoscaler that is gone, or no longer asks for them."""
        marks = self._marks.pop(state.key, None)
        state.idle_scale_down = None
        if marks is not None:
            self._take_back(state, marks)

    def drop(self, key: Key) -> None:
        """Know nothing more of the costs of an autoscaler: its next owner looks for them."""
        self._marks.pop(key, None)

    # -- what is to be written -------------------------------------------------------------------------------

    def _choose(
        self,
        state: AutoscalerState,
        marks: PodMarks,
        snapshot: Snapshot,
        replicas: int,
        *,
        may_exchange: bool,
    ) -> list[CostJob]:
        """Queue the costs that are missing for a scale-down to `replicas`; take back those of busier pods.

        Pods that go for an earlier one may still be there. Others that are too many are those of an update of
        the target, which removes them itself.
        """
        pods, now = snapshot.observation.pods, self.outbox.clock.monotonic()
        is_paused = now < marks.paused
        if is_paused or not removal.has_replica_set(state.spec.object.spec.scale_target_ref.kind, pods):
            return []
        first = sum(is_active(pod) and removal.goes_first(pod, marks.costs) for pod in pods)
        fewer = snapshot.observation.replicas - replicas
        count = min(fewer + first, removal.count_active(pods) - replicas)
        choice = removal.choose(pods, snapshot.idleness, count, marks.costs)
        if choice.exchanged and may_exchange:
            marks.exchanged = now
        elif choice.exchanged:
            choice = choice.without_exchange()
        for pod in choice.exchanged:
            marks.costs[pod] = now
        jobs = [self._queue(state, marks, pod, None) for pod in choice.exchanged]
        for pod, _ in choice.costs:
            marks.costs[pod] = None
        return jobs + [self._queue(state, marks, pod, cost) for pod, cost in choice.costs]

    def _take_back(self, state: AutoscalerState, marks: PodMarks) -> None:
        marks.wanted = now = self.outbox.clock.monotonic()
        for pod in [pod for pod, taken in marks.costs.items() if taken is None]:
            marks.costs[pod] = now
            self._queue(state, marks, pod, None)

    def _queue(self, state: AutoscalerState, marks: PodMarks, pod: str, cost: int | None) -> CostJob:
        job = CostJob(state, marks, pod, cost, asyncio.get_running_loop().create_future())
        self.submit(job.outbox_key, job)
        return job

    def merge(self, before: CostJob, new: CostJob) -> CostJob:
        if not before.has_begun:
            before.end()
        return new

    def due(self, value: CostJob, now: float) -> SendTime | None:
        return None if value.done.done() else SendTime(now)

    def subject(self, value: CostJob) -> Key:
        return value.state.key

    async def send(self, value: CostJob, writer: Writer) -> None:
        value.has_begun = True
        await deletion_costs.apply(writer, value.state.key.namespace, value.pod, value.cost)
        value.end()

    def failed(self, value: CostJob, error: Exception, tries: int) -> None:  # noqa: ARG002
        """Note a failure. After the term the next owner looks for what may have been written."""
        value.end()
        if isinstance(error, errors.KubernetesError):
            self._note_failure(value, error)

    def dropped(self, value: CostJob) -> None:
        value.end()

    # -- what is known ---------------------------------------------------------------------------------------

    def _note_failure(self, job: CostJob, error: errors.KubernetesError) -> None:
        """Note that a pod has no cost of ours, or after a failure to take it back, that it may have one."""
        is_gone = error.status in {404, 422} or (error.status == 403 and "cannot create" in str(error))
        if job.cost is None and not is_gone:
            _undo(job)
            return
        job.marks.costs.pop(job.pod, None)
        if error.status == 409:
            job.marks.foreign = error.said or str(error)
        elif not is_gone:
            pause = REFUSED_SECONDS if error.status == 403 else FAILED_SECONDS
            job.marks.paused = self.outbox.clock.monotonic() + pause
            again = timestamps.write_instant(int((self.outbox.clock.wall() + pause) * SECOND))
            job.marks.refused_until = again if error.status == 403 else ""

    def _describe(
        self, state: AutoscalerState, marks: PodMarks, pods: Sequence[PodFacts], now: float, foreign: str
    ) -> OptionState:
        """Return the condition of the option; one event for each reason says why it has no effect."""
        target = state.spec.object.spec.scale_target_ref
        if pods and not removal.has_replica_set(target.kind, pods):
            text = f"{target.kind} {target.name} has no ReplicaSet, which would heed deletion costs"
            described = OptionState(False, "NoReplicaSet", text)
        elif marks.refused_until and now < marks.paused:
            again = f"a cost is tried again at {marks.refused_until}"
            text = f"pods may not be patched: install the component for idle scale-down; {again}"
            described = OptionState(False, "Forbidden", text)
        elif foreign:
            why = f": {marks.foreign}" if marks.foreign else ""
            text = f"Pod {foreign} has a {COST_ANNOTATION} of another writer, which is kept{why}"
            described = OptionState(False, "ForeignDeletionCost", text)
        else:
            described = OptionState(True, "Ranking", "a scale-down removes the idlest pods first")
        if not described.holds and described.reason not in marks.told:
            marks.told.add(described.reason)
            self._actuator.event(state.spec.object, Event("Warning", described.reason, described.message))
        return described


def _undo(job: CostJob) -> None:
    """Note that what a job was to write is not written: a cost is missing, or still there."""
    if job.cost is None:
        job.marks.costs[job.pod] = None
    else:
        job.marks.costs.pop(job.pod, None)


def _learn(marks: PodMarks, pods: Sequence[PodFacts], now: float) -> str:
    """Note which pods have a cost of ours, and return one that has a cost of another writer, "" for none."""
    costs = {pod.name: pod.cost for pod in pods if is_active(pod)}
    if costs and not marks.is_known:
        marks.is_known, marks.wanted = True, now
        # The costs of a predecessor begin at minus the number of pods, as `removal.choose` gives them.
        marks.costs |= {name: None for name, cost in costs.items() if -len(costs) <= (cost or 0) < 0}
    for name, taken in list(marks.costs.items()):
        is_taken = taken is not None and (costs.get(name) is None or now - taken > TAKEN_SECONDS)
        if is_taken or name not in costs:
            del marks.costs[name]
    return next((name for name, cost in costs.items() if cost is not None and name not in marks.costs), "")
