"""Reconciles one autoscaler: decides how many replicas its target should have, and writes that.

`Reconciler.sync` runs in the loop and never waits. It reports a decision that writes nothing, and returns
one that must be written. That decision is provisional: `Reconciler.write` first waits for a write slot, which
may take long under load, and then decides again from what is known by then. So what is sent is never older
than its slot:

1. For a boosted HorizontalPodAutoscaler, publish the floor that will hold the raise. Without it nothing is
   raised.
2. For a scale-down that is to remove the idlest pods, write the deletion costs of these.
3. Wait for a write slot.
4. Observe the target and decide, unless that was done a moment ago. If there is nothing left to write, stop.
5. PUT the count against the resource version that it was decided from. The fence is checked right before the
   first byte leaves. If it is lower than the count that costs were written for, write the missing ones first.
6. After a conflict, read the scale, and start over at 2, at most `ATTEMPTS` times.

A PUT without a response may have been applied. The scale that is read next then tells: the count that we sent
is taken for ours.
"""

import logging
import math
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from adapter.autoscaler.controller.actuator import Actuator
from adapter.autoscaler.controller.cost_keeper import CostKeeper
from adapter.autoscaler.controller.floor_keeper import FloorKeeper, FloorOutcome
from adapter.autoscaler.controller.reporter import Reporter
from adapter.autoscaler.controller.state import GAP, AutoscalerState
from adapter.autoscaler.decide import decision, guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards import conflicts
from adapter.autoscaler.decide.guards.conflicts import ForeignChange
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.record import DecisionInputs
from adapter.autoscaler.decide.sync import Decision
from adapter.autoscaler.inputs.snapshot import Snapshot
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.kubernetes.transport import RESET
from adapter.kubernetes.write.scale import is_superseded, may_be_ours
from adapter.kubernetes.write.writer import may_have_been_applied
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.floor import Floor
from adapter.model.clock import DecisionClock
from adapter.model.timestamps import SECOND
from adapter.telemetry.logs import facts

_log = logging.getLogger(__name__)

_FRESH = SECOND // 20
"""A decision that is no older, of the same target and spec, need not be made again for its write."""

_RETRY_LIMIT = 15.0
"""The longest pause, in seconds, after failed writes; the HPA controller retries once in a period of this
length."""

_DOUBLINGS = 10  # Cap on the exponent of that pause (2.0**n would overflow).

ATTEMPTS = 6
"""The number of PUTs before a write is given up."""


class PendingScale(msgspec.Struct, frozen=True):
    """A decision that is to be written: with what it was made, and when."""

    snapshot: Snapshot
    decision: Decision
    at: int
    spec: PreparedSpec
    change: ForeignChange | None
    """A change by another client that was observed on the way to this decision."""
    autoscaler: FastPathAutoscaler
    memory: Memory
    most: int | None = None
    """The maximum that the decision was capped at, None if it was not."""


class SyncResult(msgspec.Struct, frozen=True):
    """What a sync comes to: a decision that must be written, None without one, and when to sync again.

    It syncs `again` after so many seconds even if nothing changes, and not within `rest` seconds whatever
    changes.
    """

    write: PendingScale | None
    again: float
    rest: float


@dataclass(slots=True)
class _Write:
    pending: PendingScale
    """The newest decision."""
    epoch: int
    started: float
    floor: Floor | None = None
    most: int | None = None
    """The largest count that the published floor covers; None without a floor."""
    sent: list[int] = field(default_factory=list)
    """The counts of all PUTs so far."""
    marked: int | None = None
    """The count that deletion costs were written for; None before any is."""
    marked_since: float = 0.0
    is_unconfirmed: bool = False
    """Whether one of these may have been applied although no response said so."""


@dataclass(slots=True, eq=False)
class Reconciler:
    """Decides and writes autoscalers, each by itself."""

    actuator: Actuator
    floors: FloorKeeper
    costs: CostKeeper
    reporter: Reporter
    clock: DecisionClock

    # -- deciding --------------------------------------------------------------------------------------------

    def sync(self, state: AutoscalerState) -> SyncResult:
        """Decide an autoscaler. A decision that writes nothing is reported."""
        return self._result(state, self._decide(state))

    def fail(self, state: AutoscalerState) -> SyncResult:
        """Note a defect in a sync, or in a write."""
        state.turn.failures += 1
        return self._result(state)

    def _result(self, state: AutoscalerState, write: PendingScale | None = None) -> SyncResult:
        """Return when to sync again: after a period, or when the bounds change before that.

        After failed writes that is later, and a change does not shorten it. An autoscaler that may not write
        its target would otherwise take the write slots of the others.
        """
        period, failures = state.spec.period, state.turn.failures
        if failures:
            pause = max(period, min(_RETRY_LIMIT, 2.0 ** min(failures - 1, _DOUBLINGS)))
            return SyncResult(write, pause, pause)
        until = state.bounds.until
        left = math.inf if until is None else self.clock.monotonic_at(until) - self.clock.monotonic()
        return SyncResult(write, min(period, left), GAP * period)

    def _decide(self, state: AutoscalerState) -> PendingScale | None:
        """Return a decision that must be written; report any other."""
        now = self.clock.now()
        if not state.follow_bounds(now):
            return None
        if state.spec.boost is not None:
            self.floors.follow(state, now)
        if state.spec.violations:
            time, why = self.clock.time_of_day(now), str(state.spec.violations[0])
            self._conclude(state, guarded.refuse(state.spec.prepared, state.memory, why, time), now)
            return None
        target = state.subscriptions.find_target()
        if isinstance(target, Unfound):
            if target.known:  # one that is not in the cache yet is not reported
                memory, why, time = state.memory, target.message, self.clock.time_of_day(now)
                refusal = decision.without_scale(
                    state.spec.prepared, memory.status, why, memory.history, time
                )
                if state.spec.boost is not None:  # the HPA controller writes this event itself
                    refusal = replace(refusal, events=())
                self._conclude(state, refusal, now)
            return None
        constraints = state.constraints()
        if constraints is None:
            return None
        state.recognize(target.uid)
        pending = self._decide_on(state, target, constraints, now)
        if pending is None or pending.decision.rescale:
            return pending
        state.turn.failures = 0
        self._commit_unwritten(state, pending, pending.decision, now)
        return None

    def _decide_on(
        self,
        state: AutoscalerState,
        target: ScaleTarget,
        constraints: Constraints,
        now: int,
        *,
        change: ForeignChange | None = None,
        most: int | None = None,
    ) -> PendingScale | None:
        """Observe and decide, with `most` replicas; None before a cache has synced. `change` came before."""
        change = self._observe_scale(state, target, now) or change
        snapshot = state.observe(target, constraints, now)
        if isinstance(snapshot, Unfound):
            return None
        prepared, observation, memory = state.spec.prepared, snapshot.observation, state.memory
        last = None if state.last is None else state.last.decision
        choice = guarded.decide(prepared, observation, memory, now, constraints, last)
        cap = most if most is not None and choice.replicas > most else None
        if cap is not None:
            choice = guarded.decide(boosting.capped(prepared, cap), observation, memory, now, constraints)
        return PendingScale(snapshot, choice, now, prepared, change, state.spec.object, memory, cap)

    def _observe_scale(self, state: AutoscalerState, target: ScaleTarget, now: int) -> ForeignChange | None:
        """Note the count of a target, and report a change by another client."""
        change = state.observe_scale(target, now)
        if change is None:
            return None
        if change.by != conflicts.OWN:
            scale = facts(autoscaler=str(state.key), replicas=target.replicas, manager=change.by)
            _log.info("another client has scaled the target", extra=scale)
        if event := memories.change_event(state.memory, change, target.replicas, state.spec.boost):
            self.actuator.event(state.spec.object, event)
        # during a write, its end settles the floor
        if state.spec.boost is not None and not state.turn.is_writing:
            self.floors.show(state, now)
        return change

    def _conclude(self, state: AutoscalerState, refusal: Decision, now: int) -> None:
        state.conclude(refusal, now)
        self.reporter.report(state, refusal, None, refusal.events, None, now, "none")

    def _commit_unwritten(
        self, state: AutoscalerState, pending: PendingScale, choice: Decision, now: int
    ) -> None:
        """Remember and report a decision that writes nothing.

        One that failed only because the first value of a metric is still being fetched is not reported.
        """
        if pending.change is not None or not (choice.error and pending.snapshot.is_waiting):
            self._commit(state, pending, choice, now, "none")

    def _commit(
        self, state: AutoscalerState, pending: PendingScale, choice: Decision, now: int, outcome: str
    ) -> None:
        snapshot, inputs = pending.snapshot, None
        events = state.commit(choice, snapshot, now)
        self.costs.follow(state, snapshot, choice, now)
        if self.reporter.journal.keeps_inputs:
            inputs = DecisionInputs(
                pending.autoscaler,
                pending.spec.settings,
                pending.at,
                snapshot.observation,
                pending.memory,
                snapshot.constraints,
                pending.most,
            )
        self.reporter.report(state, choice, snapshot, events, pending.change, now, outcome, inputs)

    # -- writing ---------------------------------------------------------------------------------------------

    async def write(self, state: AutoscalerState, pending: PendingScale) -> SyncResult:
        """Write a decision. An unexpected exception passes on, with the state settled."""
        write = _Write(pending, state.target.epoch, self.clock.monotonic())
        failure = ""
        try:
            if state.spec.boost is not None:
                write.most = pending.decision.replicas
                write.floor, failure = await self.floors.publish(
                    state, pending.snapshot, write.most, pending.at
                )
            outcome = FloorOutcome(error=failure) if failure else await self._write_scale(state, write)
            if not _is_void(state, write):
                self._settle_floor(state, write, outcome, pending)
                self._finish(state, write, outcome)
        except NotLeadingError:
            pass  # the owner decides again; that may be this process in its next term
        except Exception:
            state.subscriptions.attempted = write.pending.decision.replicas
            if state.target.epoch == write.epoch:
                self._settle_floor(state, write, FloorOutcome(unknown=True), pending)
            raise
        return self._result(state)

    async def _write_scale(self, state: AutoscalerState, write: _Write) -> FloorOutcome:
        """Wait for a write slot, observe, decide, PUT; after a conflict read the scale and start over."""
        target = write.pending.snapshot.target
        superseded: KubernetesError | None = None
        reset: KubernetesError | None = None
        for _ in range(ATTEMPTS):
            if superseded is not None or not target.resource_version:
                try:
                    scale = await self.actuator.get_scale(target)
                except KubernetesError as error:
                    return _failed(reset or error)
                current = self._take_scale(state, write, scale, target)
                if current is None:
                    return FloorOutcome()
                target = current
            # Costs come before the slot: they are writes too, and a slot that is held keeps others waiting.
            # After each wait it is decided again, so no other task runs between a decision and its PUT.
            await self._mark(state, write, target)
            await self.actuator.acquire(target)
            pending = self._decide_again(state, write, target)
            while pending is not None and await self._mark(state, write, target):
                pending = self._decide_again(state, write, target)
            if pending is None:
                self.actuator.give_back(target)
                return FloorOutcome()
            target, replicas = pending.snapshot.target, pending.decision.replicas
            write.sent.append(replicas)
            try:
                return FloorOutcome(await self.actuator.put_scale(target, replicas))
            except KubernetesError as error:
                if not is_superseded(error):
                    return _failed(error)
                superseded = error
                write.is_unconfirmed = write.is_unconfirmed or may_be_ours(error)
                reset = error if error.reason == RESET else reset
        assert superseded is not None
        return _failed(superseded)

    async def _mark(self, state: AutoscalerState, write: _Write, target: ScaleTarget) -> bool:
        """Before a scale-down, write the deletion costs that are missing; tell whether there were any."""
        replicas = write.pending.decision.replicas
        if replicas >= (target.replicas if write.marked is None else write.marked) or _is_void(state, write):
            return False
        if write.marked is None:
            write.marked_since = self.clock.monotonic()
        write.marked = replicas
        return await self.costs.mark(state, write.pending.snapshot, replicas, write.marked_since)

    def _take_scale(
        self, state: AutoscalerState, write: _Write, scale: ScaleTarget, before: ScaleTarget
    ) -> ScaleTarget | None:
        """Note a scale that was read; None if the write is to be given up."""
        if _is_void(state, write):
            return None
        tried = write.pending.decision.replicas if write.is_unconfirmed else None
        target = state.take_scale(scale, before, tried)
        if target is not None:
            change = self._observe_scale(state, target, self.clock.now())
            write.pending = replace(write.pending, change=change or write.pending.change)
        return target

    def _decide_again(
        self, state: AutoscalerState, write: _Write, target: ScaleTarget
    ) -> PendingScale | None:
        """Decide from what is known now that a write may be sent; None if there is nothing left to write.

        During the wait the spec may have changed, another autoscaler may have come, values may have grown
        old. So target, bounds and rivals are looked up once more, even if the slot was free: other tasks have
        run since the decision. The decision itself is made once more only if it is not fresh.
        """
        if _is_void(state, write) or state.spec.violations:
            return None
        cached = state.subscriptions.find_target()
        if isinstance(cached, Unfound):
            return None
        if cached.resource_version:  # else the cache cannot tell what is newer than what was read
            target = cached
        if not state.recognize(target.uid):
            return None
        now, pending, former = self.clock.now(), write.pending, write.pending.snapshot
        state.follow_bounds(now)
        constraints = state.constraints() or former.constraints
        is_same = pending.spec is state.spec.prepared and former.constraints == constraints
        if now - pending.at < _FRESH and is_same and former.target == target:
            return pending
        again = self._decide_on(state, target, constraints, now, change=pending.change, most=write.most)
        if again is None:
            return None
        write.pending = again
        is_covered = write.most is None or again.decision.replicas <= write.most
        return again if again.decision.rescale and is_covered else None

    def _settle_floor(
        self, state: AutoscalerState, write: _Write, outcome: FloorOutcome, first: PendingScale
    ) -> None:
        """Settle the published floor on the written count, or on the largest one sent if that is unknown."""
        sent = write.sent or [first.decision.replicas]
        replicas = max(sent) if outcome.unknown else write.pending.decision.replicas
        if not (outcome.resource_version or outcome.unknown):
            # An earlier PUT of this write, without a response, may have been applied.
            applied = state.subscriptions.find_applied(first.snapshot.target, sent)
            if applied is not None:
                replicas, outcome = applied.replicas, FloorOutcome(applied.resource_version)
        self.floors.settle(state, write.floor, replicas, outcome, self.clock.now())

    def _finish(self, state: AutoscalerState, write: _Write, outcome: FloorOutcome) -> None:
        pending = write.pending
        snapshot, choice, now = pending.snapshot, pending.decision, pending.at
        state.subscriptions.attempted = choice.replicas if outcome.unknown else None
        if outcome.error:
            state.turn.failures += 1
            memory = state.memory
            seen = replace(snapshot.observation, write_error=outcome.error)
            failure = guarded.decide(pending.spec, seen, memory, now, snapshot.constraints)
            again = replace(
                pending, snapshot=replace(snapshot, observation=seen), memory=memory, at=now, most=None
            )
            self._commit(state, again, failure, now, "failed")
            return
        state.turn.failures = 0
        if not choice.rescale:
            self._commit_unwritten(state, pending, choice, now)
        elif outcome.resource_version:
            state.subscriptions.note_written(snapshot.target, choice.replicas, outcome.resource_version)
            self.reporter.observe_stages(state, snapshot, now, self.clock.monotonic() - write.started)
            self._commit(state, pending, choice, now, "written")


def _is_void(state: AutoscalerState, write: _Write) -> bool:
    """Tell whether the autoscaler has gone, or scales another target, since the write began."""
    return state.turn.is_closed or state.target.epoch != write.epoch


def _failed(error: KubernetesError) -> FloorOutcome:
    return FloorOutcome(error=error.said or str(error), unknown=may_have_been_applied(error))
