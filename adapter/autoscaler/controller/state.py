"""What is known of one autoscaler: its spec, its target, the bounds that hold, and its memory.

Each of these is a frozen value that only methods of `AutoscalerState` replace. `Subscriptions` has what it
reads, and `Turn` what concerns its turns.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide import foresight, prepared_spec
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.foresight import BoundsFrom, Foreseen
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards import conflicts
from adapter.autoscaler.decide.guards import pending as pending_capacity
from adapter.autoscaler.decide.guards.boost import Boost, Boosting
from adapter.autoscaler.decide.guards.conflicts import ForeignChange, ScaleObservation
from adapter.autoscaler.decide.history import Events
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import NO_STATUS, OptionState
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.sync import Decision, Event
from adapter.autoscaler.explain.last_decision import LastDecision
from adapter.autoscaler.explain.past_hour import PastHour
from adapter.autoscaler.inputs.snapshot import AutoscalerContext, Snapshot, Subscriptions
from adapter.autoscaler.interfaces import Key
from adapter.bounds.forecast.verdict import UNJUDGED, Readiness
from adapter.bounds.schedule.documents import ScheduleDocument
from adapter.bounds.timeline import MOST_LEAD, NO_BOUNDS, NO_LEAD, Bounds, Lead
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import (
    FastPathAutoscaler,
    FastPathAutoscalerSpec,
    PastChange,
)
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.limits import Violation
from adapter.model.autoscaling.pending_capacity import BacklogCredit
from adapter.model.clock import DecisionClock
from adapter.model.ready_times import Outcome, PodStart, ReadyLedger, ReadyTimes
from adapter.model.timestamps import SECOND

_RAISE_SECONDS = 2
"""The longest time from a boundary to the pods that are created for it: a decision, a write, a controller."""

GAP = 0.05
"""The least time between two decisions, as a part of the period: the pods of a target are scraped one by
one."""

AHEAD = 3600 * SECOND
"""For how long bounds are looked up ahead."""

_NO_SPEC = FastPathAutoscalerSpec(metrics=())


class KnownSpec(msgspec.Struct, frozen=True):
    """What an autoscaler asks for. `AutoscalerState.adopt` writes it."""

    object: FastPathAutoscaler
    prepared: PreparedSpec
    violations: Sequence[Violation]
    period: float
    """The longest time between two decisions, in seconds."""
    boost: Boost | None = None
    """What limits the decisions about a HorizontalPodAutoscaler; None for a FastPathAutoscaler."""


class KnownTarget(msgspec.Struct, frozen=True):
    """Which object is scaled. `AutoscalerState.recognize` writes it; a new object has no past."""

    uid: str = ""
    epoch: int = 0
    """The number of targets before this one. A write that began in a former epoch is void."""
    ledger: ReadyLedger = msgspec.field(default_factory=ReadyLedger)
    """The last starts of its pods."""
    inherited: ReadyLedger | None = None
    """The ledger of the previous owner, until it is known whether the target is the same object."""


class KnownBounds(NamedTuple):
    """The bounds that hold. `AutoscalerState.follow_bounds` writes them."""

    now: Bounds = NO_BOUNDS
    """Those of windows and forecast together."""
    parts: tuple[Bounds, int] = (NO_BOUNDS, 0)
    """What these were made of: the bounds of windows, and the minimum of the forecast."""
    until: int | None = None
    """The time of day at which they are to be looked at again, in nanoseconds; None for never."""
    lead: Lead = NO_LEAD
    """By how much minimums begin early."""
    led_since: int = 0
    """Since when that lead counts, in nanoseconds."""
    readiness: Readiness = UNJUDGED
    """The condition of a forecast that the spec asks for."""


_UNBOUNDED = KnownBounds()


@dataclass(slots=True)
class Turn:
    """What concerns the turns of an autoscaler; the loop and the reconciler write it."""

    decided: float = -math.inf
    """When it was last decided, in monotonic seconds."""
    rest: float = 0.0
    """The least seconds from then to the next decision, whatever changes."""
    failures: int = 0
    """The number of failed writes since the last success."""
    is_writing: bool = False
    """Whether a write is in progress; until it ends the autoscaler is not decided."""
    has_changed: bool = False
    """Whether something has changed during that write."""
    is_closed: bool = False
    since: int | None = None
    """The time of day at which it was first decided, with the values of all metrics."""


class AutoscalerState:
    """One autoscaler."""

    __slots__ = (
        "_context",
        "bounds",
        "idle_scale_down",
        "key",
        "last",
        "memory",
        "past",
        "published",
        "spec",
        "subscriptions",
        "target",
        "turn",
    )

    def __init__(
        self,
        autoscaler: FastPathAutoscaler,
        context: AutoscalerContext,
        events: tuple[Events, Events] | None = None,
    ) -> None:
        """`events` are the scale events so far; without them those of the status, as they count now."""
        self.key = Key.of(autoscaler)
        self._context = context
        clock = context.clock
        self.memory: Memory = memories.recall(autoscaler.status, events, clock.now(), clock.set_by)
        self.target = KnownTarget()
        self.bounds = _UNBOUNDED
        self.turn = Turn()
        self.published: Floor | None = None
        """The floor that is published, or queued."""
        self.idle_scale_down: OptionState | None = None
        """The condition of idle scale-downs; None without the option."""
        self.last: LastDecision | None = None
        self.past = PastHour() if context.keeps_history else None
        self.subscriptions = Subscriptions(context, self.key, self._note_start)
        self.spec = self._prepare(autoscaler, None)

    @property
    def clock(self) -> DecisionClock:
        return self._context.clock

    @property
    def ready_times(self) -> ReadyTimes | None:
        """How long the last pods of the target took to be Ready; None before the first."""
        return self.target.ledger.times()

    @property
    def doubt(self) -> str:
        """Why no count may fall, "" if one may."""
        return self._context.doubt()

    @property
    def lead(self) -> Lead:
        """By how much minimums begin early where pods are to be Ready by the start."""
        times = self.target.ledger.times()
        return Lead(None if times is None else times.start_ups, *self.spec.prepared.limits, _RAISE_SECONDS)

    def recent_changes(self, now: int) -> tuple[PastChange, ...]:
        """Return the changes that policies still count, oldest first, with times of day."""
        history = self.memory.history
        if not (history.ups or history.downs):
            return ()
        longest, set_by = max(self.spec.prepared.longest_periods), self._context.clock.set_by
        return histories.recent_changes(history.ups, history.downs, now, longest, set_by)

    @property
    def backlog_credits(self) -> tuple[BacklogCredit, ...]:
        """What the metrics with pending capacity count less."""
        return pending_capacity.list_credits(self.memory.history.pending, self._context.clock.set_by)

    # -- the spec --------------------------------------------------------------------------------------------

    def adopt(self, autoscaler: FastPathAutoscaler) -> bool:
        """Take the object as it is now, and tell whether its spec has changed. Its status is our own."""
        before = self.spec
        if autoscaler.spec == before.object.spec:
            self.spec = msgspec.structs.replace(before, object=autoscaler)
            return False
        state = conflicts.spec_changed(self.memory.conflicts)
        self.memory = msgspec.structs.replace(self.memory, conflicts=state)
        reference = autoscaler.spec.scale_target_ref
        if reference != before.object.spec.scale_target_ref:
            self._forget_target()
            # first, so that a defect in the new spec leaves the old target alone
            self.subscriptions.adopt(reference, (), before.period)
        self.spec = self._prepare(autoscaler, before.boost)
        self.turn.failures, self.turn.rest = 0, GAP * self.spec.period
        return True

    def allow(self, boost: Boost) -> None:
        """Take what limits the decisions about a HorizontalPodAutoscaler."""
        self.spec = msgspec.structs.replace(self.spec, boost=boost)

    def close(self) -> None:
        self.turn.is_closed = True
        self.subscriptions.close()

    def _prepare(self, autoscaler: FastPathAutoscaler, boost: Boost | None) -> KnownSpec:
        violations = fastpath_autoscaler.validate(autoscaler)
        complete = fastpath_autoscaler.with_defaults(autoscaler)
        if violations:
            # An invalid spec is only named in the status; its metrics and its behavior are not used.
            complete = msgspec.structs.replace(complete, spec=_NO_SPEC)
        bounds = fastpath_autoscaler.SYNC_PERIODS  # an invalid spec may have any value
        period = min(max(autoscaler.spec.sync_period, bounds.least), bounds.most) / SECOND
        reference, spec = autoscaler.spec.scale_target_ref, complete.spec
        self.subscriptions.adopt(reference, spec.metrics or (), period, spec.removal_order)
        prepared = prepared_spec.prepare(complete, self._context.settings)
        return KnownSpec(autoscaler, prepared, violations or (), period, boost)

    # -- the target ------------------------------------------------------------------------------------------

    def recognize(self, uid: str) -> bool:
        """Note which object is scaled; False if it is a new one of the same name, which has no past."""
        if uid and uid == self.target.uid and self.target.inherited is None:
            return True
        floor = self.memory.boost.floor
        # The previous owner may have raised a former object.
        known = self.target.uid or ("" if floor is None else floor.target)
        is_new = bool(uid and known and uid != known)
        if is_new:
            self._forget_target()
        target = self.target
        known, inherited = uid or target.uid, target.inherited
        target.ledger.target = known
        if inherited is not None and known:
            if inherited.target == known:
                target.ledger.inherit(inherited)
            inherited = None
        self.target = KnownTarget(known, target.epoch, target.ledger, inherited)
        return not is_new

    def inherit(self, ledger: ReadyLedger | None) -> None:
        """Take the ledger of the previous owner."""
        self.target = msgspec.structs.replace(self.target, inherited=ledger)

    def _note_start(self, start: PodStart | Outcome) -> None:
        self.target.ledger.note(start)

    def _forget_target(self) -> None:
        """Forget what was done to the former target. A demotion belongs to the autoscaler, and stays."""
        boosted, before = self.memory.boost, self.target
        self.memory = memories.remember(NO_STATUS)
        self.set_boosting(Boosting(demotion=boosted.demotion, told=boosted.told))
        self.subscriptions.forget_target()
        self.target = KnownTarget(epoch=before.epoch + 1, inherited=before.inherited)

    def observe_scale(self, target: ScaleTarget, now: int) -> ForeignChange | None:
        """Note the count of the target; return the change that it shows, if our decisions did not make it."""
        scale = ScaleObservation(target.replicas, target.manager, target.since, self._context.clock.set_by)
        self.memory, change = memories.observe(self.spec.prepared, self.memory, scale, now, self.spec.boost)
        if change is not None:
            self.subscriptions.attempted = None  # whatever became of that write, the count is another now
        return change

    def take_scale(self, scale: ScaleTarget, before: ScaleTarget, tried: int | None) -> ScaleTarget | None:
        """Note a scale that was read; return it with its manager, None if it cannot be decided on now.

        `before` is the target that the write was for. `tried` is the count of a write without a response.
        Only the caches know the field manager; here it is inferred: a count that we tried to write is ours.
        """
        manager = before.manager
        if scale.replicas != before.replicas:
            manager = conflicts.OWN if scale.replicas in {self.subscriptions.attempted, tried} else ""
            cached = self.subscriptions.find_target()
            if not isinstance(cached, Unfound) and cached.resource_version == scale.resource_version:
                manager = cached.manager
            is_reverted = self.spec.boost is not None and boosting.takes_back(
                self.memory.boost, scale.replicas, self.spec.prepared.band, self.spec.object.spec.max_replicas
            )
            if not manager and scale.replicas < before.replicas and is_reverted:
                return None  # the caches will tell who reverted the raise; decide on that then
        target = scale._replace(manager=manager)
        if not self.recognize(target.uid):
            return None  # the new object is decided from the beginning
        self.subscriptions.note_newer(target, before.resource_version)
        return target

    @property
    def schedules(self) -> tuple[ScheduleDocument, ...]:
        known = self._context.schedules
        return () if known is None else known.applied(self.key)

    # -- deciding --------------------------------------------------------------------------------------------

    def follow_bounds(self, now: int) -> bool:
        """Note the bounds of windows and forecast at `now`; False while the schedules are unknown."""
        before, time = self.bounds, now + self._context.clock.set_by
        windows, until, lead, led_since = NO_BOUNDS, None, before.lead, before.led_since
        if (schedules := self._context.schedules) is not None:
            # While a minimum is early its lead stays. The pods that it asked for are in the ledger as they
            # become Ready; a shorter lead would end the minimum before its window begins.
            if not before.now.early or now - led_since >= MOST_LEAD * SECOND:
                lead, led_since = self.lead, now
            try:
                windows, until = schedules.bounds_of(self.key, time, lead)
            except NotSyncedError:
                self.bounds = before._replace(until=None, lead=lead, led_since=led_since)
                return False
        forecast = self._context.forecasts.bound_of(self.key)
        if windows.excess:
            target = self.subscriptions.find_target()
            windows = windows.holding(0 if isinstance(target, Unfound) else target.replicas)
        parts = windows, forecast.min if time < forecast.until else 0
        is_same = parts == before.parts
        if not is_same or (until, lead, led_since, forecast.readiness) != before[2:]:
            bounds = before.now if is_same else windows.with_forecast(parts[1])
            self.bounds = KnownBounds(bounds, parts, until, lead, led_since, forecast.readiness)
        return True

    def constraints(self) -> Constraints | None:
        """Return what limits a decision beside the snapshot; None while the other autoscalers are unknown."""
        rivals = self._context.rivals.of(self.spec.object)
        if rivals is None:
            return None
        limits = Constraints.of(
            self.spec.object.spec, self.bounds.readiness, rivals, self.spec.boost, self.bounds.now
        )
        doubt = self.doubt
        return msgspec.structs.replace(limits, doubt=doubt) if doubt else limits

    def scheduled_floor(self, now: int) -> Floor:
        """Return the minimums of windows and forecast that a boosted HorizontalPodAutoscaler is to read.

        They are 0 while the target is at zero: the HPA would leave zero because of them. A forecast that
        minReplicas covers is left out: it changes each minute, and each change is a write.
        """
        known, before = self.memory.conflicts.known, self.published
        if known is None and before is not None:
            return before
        bounds = self.bounds.now if known else NO_BOUNDS
        if bounds.forecast <= self.spec.prepared.limits.lowest:
            bounds = bounds.with_forecast(0)
        time = now + self._context.clock.set_by
        return boosting.scheduled_floor(bounds, self.spec.object.spec.max_replicas, before, time)

    def observe(self, target: ScaleTarget, constraints: Constraints, now: int) -> Snapshot | Unfound:
        """Return what a decision sees at `now`, or why it cannot see yet."""
        within = None
        if self.spec.prepared.throughputs and (times := self.target.ledger.times()) is not None:
            within = max(SECOND, round(times.total.p95 * SECOND))  # the API writes whole seconds
        status, usages, option = self.memory.status, self.target.ledger.usages, self.idle_scale_down
        prepared = self.spec.prepared
        return self.subscriptions.observe(prepared, status, target, constraints, now, usages, within, option)

    def commit(self, decision: Decision, snapshot: Snapshot, now: int) -> tuple[Event, ...]:
        """Remember a decision that was carried out, and return its events."""
        limits = snapshot.constraints
        self.memory, events = memories.commit(
            self.memory, decision, snapshot.observation, now, limits.boost, limits.fallback
        )
        self._note(decision, snapshot, now)
        return events

    def conclude(self, decision: Decision, now: int) -> None:
        self.memory = msgspec.structs.replace(self.memory, status=decision.status, history=decision.history)
        self._note(decision, None, now)

    def _note(self, decision: Decision, snapshot: Snapshot | None, now: int) -> None:
        time = now + self._context.clock.set_by
        self.last = LastDecision(time, snapshot, decision)
        self.turn.since = self.turn.since or time
        if self.past is not None:
            self.past.note(self.last.change(now, self.memory.boost.floor))

    # -- what is ahead ---------------------------------------------------------------------------------------

    def bounds_ahead(self, now: int) -> tuple[BoundsFrom, ...]:
        """Return the bounds of the next hour, beginning with those that hold at `now` nanoseconds."""
        known, bounds, set_by = self._context.schedules, self.bounds.now, self._context.clock.set_by
        time, lead = now + set_by, self.bounds.lead
        following = () if known is None else known.bounds_ahead(self.key, time, time + AHEAD, lead)
        later = (BoundsFrom(begin - set_by, one.with_forecast(bounds.forecast)) for begin, one in following)
        return BoundsFrom(now, bounds), *later

    def foresee(self, now: int) -> Foreseen | None:
        """Return the next change of the count if the load stays; None for none, or if it is not known."""
        if self.last is None or self.last.snapshot is None:
            return None
        target = self.subscriptions.find_target()
        if isinstance(target, Unfound):
            return None
        seen, constraints = self.last.snapshot.observation, self.last.snapshot.constraints
        seen = msgspec.structs.replace(seen, replicas=target.replicas)
        ahead = self.bounds_ahead(now)
        return foresight.foresee(self.spec.prepared, seen, self.memory, now, constraints, ahead[1:])

    # -- floors ----------------------------------------------------------------------------------------------

    def follow_floor(self, now: int) -> None:
        """End a floor that time or the HorizontalPodAutoscaler has ended."""
        if self.spec.boost is not None:
            alone = not self._context.rivals.of(self.spec.object)
            most, band = self.spec.object.spec.max_replicas, self.spec.prepared.band
            boosted = boosting.follow(self.memory.boost, self.spec.boost, band, now, alone=alone, most=most)
            self.set_boosting(boosted)

    def set_boosting(self, boosted: Boosting) -> None:
        if boosted is not self.memory.boost:
            self.memory = msgspec.structs.replace(self.memory, boost=boosted)
