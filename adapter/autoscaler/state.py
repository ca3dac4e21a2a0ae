"""The state of one autoscaler: its spec, its memory, the bounds that hold, and its target's identity.

`AutoscalerState` is the only owner of this state: the loop, the reconciler and the reporter call its methods
and use the effects that these return. Only what concerns its turn (`decided`, `is_writing`, `failures`) is
set from outside, by the loop and the reconciler. `Subscriptions` has what it reads.
"""

import math
from collections.abc import Callable, Sequence

import msgspec

from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide import conflicts, foresight, prepared_spec
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide import pending as pending_capacity
from adapter.autoscaler.decide.boost import Boost, Boosting
from adapter.autoscaler.decide.conflicts import ForeignChange, ScaleObservation
from adapter.autoscaler.decide.decision import Decision, Event
from adapter.autoscaler.decide.foresight import BoundsFrom, Foreseen
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.history import Events
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import NO_STATUS, OptionState
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.removal import count_idle
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.last_decision import LastDecision
from adapter.autoscaler.past_hour import PastHour
from adapter.autoscaler.snapshot import AutoscalerContext, Snapshot, Subscriptions
from adapter.bounds.forecast.verdict import UNJUDGED
from adapter.bounds.schedule.documents import ScheduleDocument
from adapter.bounds.timeline import MOST_LEAD, NO_BOUNDS, NO_LEAD, Lead
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import (
    FastPathAutoscaler,
    FastPathAutoscalerSpec,
    PastChange,
)
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.pending_capacity import BacklogCredit
from adapter.model.autoscaling.validation import Violation
from adapter.model.ready_times import Outcome, PodStart, ReadyLedger, ReadyTimes
from adapter.model.timestamps import SECOND

_RAISE_SECONDS = 2
"""The longest time from a boundary to the pods that are created for it: a decision, a write, a controller."""

AHEAD = 3600 * SECOND
"""For how long bounds are looked up ahead."""

_NO_SPEC = FastPathAutoscalerSpec(metrics=())


class AutoscalerState:
    """One autoscaler. `changed` is called when something that it depends on may have changed."""

    def __init__(
        self,
        autoscaler: FastPathAutoscaler,
        context: AutoscalerContext,
        changed: Callable[[], None],
        now: int,
        events: tuple[Events, Events] | None = None,
    ) -> None:
        """`events` are the scale events so far; without them those of the status, as they count at `now`."""
        self.key = Key.of(autoscaler)
        self.object = autoscaler
        self.violations: Sequence[Violation] = ()
        self.memory: Memory = memories.recall(autoscaler.status, events, now)
        self.boost: Boost | None = None
        """What limits the decisions about a HorizontalPodAutoscaler; None for a FastPathAutoscaler."""
        self.published: Floor | None = None
        """The floor that is published, or queued."""
        self.bounds = NO_BOUNDS
        """The bounds of windows and forecast, as `follow_bounds` last found them."""
        self._combined = NO_BOUNDS, 0
        """What the bounds were made of: those of windows, and the minimum of the forecast."""
        self.boundary: int | None = None
        """When these are to be looked at again, in nanoseconds; None for never."""
        self._led = NO_LEAD, 0
        """The lead of the bounds, and since when it counts, in nanoseconds."""
        self.readiness = UNJUDGED
        """The condition of a forecast that the spec asks for."""
        self.idle_scale_down: OptionState | None = None
        """The condition of idle scale-downs; None without the option."""
        self.epoch = 0
        """The number of targets before this one. A write that began in a former epoch is void."""
        self.clock_shift = 0
        """By how many nanoseconds the clock of decisions was set in all."""
        self.last: LastDecision | None = None
        self.past = PastHour() if context.keeps_history else None
        self.since: int | None = None
        """When it was first decided, with the values of all metrics."""
        self.decided = -math.inf
        """When it was last decided, in monotonic seconds."""
        self.failures = 0
        """The number of failed writes since the last success."""
        self.is_writing = False
        """Whether a write is in progress; until it ends the autoscaler is not decided."""
        self.has_changed = False
        """Whether something has changed during that write."""
        self.is_closed = False
        self.ledger = ReadyLedger()
        """The last starts of pods of the target."""
        self.inherited: ReadyLedger | None = None
        """The ledger of the previous owner, until it is known whether the target is the same object."""
        self.subscriptions = Subscriptions(context, self.key, changed, self._note_start)
        self._context = context
        self._uid = ""
        self.period = 0.0
        """The longest time between two decisions, in seconds."""
        self.prepared: PreparedSpec = self._prepare()

    @property
    def ready_times(self) -> ReadyTimes | None:
        """How long the last pods of the target took to be Ready; None before the first."""
        return self.ledger.times()

    @property
    def prefers_idle(self) -> bool:
        """Whether scale-downs are to remove the idlest pods first."""
        return self.object.spec.removal_order is not None

    @property
    def doubt(self) -> str:
        """Why no count may fall, "" if one may."""
        return self._context.doubt()

    @property
    def lead(self) -> Lead:
        """By how much minimums begin early where pods are to be Ready by the start."""
        times = self.ledger.times()
        return Lead(None if times is None else times.start_ups, *self.prepared.limits, _RAISE_SECONDS)

    def recent_changes(self, now: int) -> tuple[PastChange, ...]:
        """Return the changes that policies still count, oldest first."""
        history = self.memory.history
        if not (history.ups or history.downs):
            return ()
        return histories.recent_changes(history.ups, history.downs, now, max(self.prepared.longest_periods))

    @property
    def backlog_credits(self) -> tuple[BacklogCredit, ...]:
        """What the metrics with pending capacity count less."""
        return pending_capacity.list_credits(self.memory.history.pending)

    # -- the spec --------------------------------------------------------------------------------------------

    def adopt(self, autoscaler: FastPathAutoscaler) -> bool:
        """Take the object as it is now, and tell whether its spec has changed. Its status is our own."""
        before, self.object = self.object.spec, autoscaler
        if autoscaler.spec == before:
            return False
        state = conflicts.spec_changed(self.memory.conflicts)
        self.memory = msgspec.structs.replace(self.memory, conflicts=state)
        if autoscaler.spec.scale_target_ref != before.scale_target_ref:
            self._forget_target()
            # first, so that a defect in the new spec leaves the old target alone
            self.subscriptions.adopt(autoscaler.spec.scale_target_ref, (), self.period)
        self.prepared = self._prepare()
        self.failures = 0
        return True

    def close(self) -> None:
        self.is_closed = True
        self.subscriptions.close()

    def _prepare(self) -> PreparedSpec:
        self.violations = fastpath_autoscaler.validate(self.object)
        autoscaler = fastpath_autoscaler.with_defaults(self.object)
        if self.violations:
            # An invalid spec is only named in the status; its metrics and its behavior are not used.
            autoscaler = msgspec.structs.replace(autoscaler, spec=_NO_SPEC)
        least, most = fastpath_autoscaler.SYNC_PERIODS  # an invalid spec may have any value
        self.period = min(max(self.object.spec.sync_period, least), most) / SECOND
        reference = self.object.spec.scale_target_ref
        spec = autoscaler.spec
        self.subscriptions.adopt(reference, spec.metrics or (), self.period, spec.removal_order)
        return prepared_spec.prepare(autoscaler, self._context.settings)

    # -- the target ------------------------------------------------------------------------------------------

    def recognize(self, uid: str) -> bool:
        """Note which object is scaled; False if it is a new one of the same name, which has no past."""
        floor = self.memory.boost.floor
        # The previous owner may have raised a former object.
        known = self._uid or ("" if floor is None else floor.target)
        is_new = bool(uid and known and uid != known)
        if is_new:
            self._forget_target()
        self._uid = uid or self._uid
        self.ledger.target = self._uid
        if self.inherited is not None and self._uid:
            if self.inherited.target == self._uid:
                self.ledger.inherit(self.inherited)
            self.inherited = None
        return not is_new

    def _note_start(self, start: PodStart | Outcome) -> None:
        self.ledger.note(start)

    def _forget_target(self) -> None:
        """Forget what was done to the former target. A demotion belongs to the autoscaler, and stays."""
        boosted = self.memory.boost
        self.memory = memories.remember(NO_STATUS)
        self.set_boosting(Boosting(demotion=boosted.demotion, told=boosted.told))
        self.subscriptions.forget_target()
        self.ledger = ReadyLedger()
        self._uid = ""
        self.epoch += 1

    def observe_scale(self, target: ScaleTarget, now: int) -> ForeignChange | None:
        """Note the count of the target; return the change that it shows, if our decisions did not make it."""
        scale = ScaleObservation(target.replicas, target.manager, target.since)
        self.memory, change = memories.observe(self.prepared, self.memory, scale, now, self.boost)
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
            is_reverted = self.boost is not None and boosting.takes_back(
                self.memory.boost, scale.replicas, self.prepared.band, self.object.spec.max_replicas
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
        self.boundary, bounds = None, NO_BOUNDS
        if (schedules := self._context.schedules) is not None:
            if not schedules.synced:
                return False
            try:
                bounds, self.boundary = schedules.bounds_of(self.key, now, self._follow_lead(now))
            except NotSyncedError:
                return False
        forecast = self._context.forecasts.bound_of(self.key)
        self.readiness = forecast.readiness
        if bounds.excess:
            target = self.subscriptions.find_target()
            bounds = bounds.holding(0 if isinstance(target, Unfound) else target.replicas)
        replicas = forecast.min if now < forecast.until else 0
        if (bounds, replicas) != self._combined:
            self._combined, self.bounds = (bounds, replicas), bounds.with_forecast(replicas)
        return True

    def _follow_lead(self, now: int) -> Lead:
        """Return the lead at `now`; while a minimum is early it stays.

        The pods that the minimum asked for are in the ledger as they become Ready. A shorter lead would end
        the minimum before its window begins.
        """
        lead, since = self._led
        if not self.bounds.early or now - since >= MOST_LEAD * SECOND:
            self._led = lead, _ = self.lead, now
        return lead

    def constraints(self) -> Constraints | None:
        """Return what limits a decision beside the snapshot; None while the other autoscalers are unknown."""
        rivals = self._context.rivals.of(self.object)
        if rivals is None:
            return None
        limits = Constraints.of(self.object.spec, self.readiness, rivals, self.boost, self.bounds)
        return limits._replace(doubt=self.doubt) if self.doubt else limits

    def scheduled_floor(self, now: int) -> Floor:
        """Return the minimums of windows and forecast that a boosted HorizontalPodAutoscaler is to read.

        They are 0 while the target is at zero: the HPA would leave zero because of them. A forecast that
        minReplicas covers is left out: it changes each minute, and each change is a write.
        """
        known, before = self.memory.conflicts.known, self.published
        if known is None and before is not None:
            return before
        bounds = self.bounds if known else NO_BOUNDS
        if bounds.forecast <= self.prepared.limits.lowest:
            bounds = bounds.with_forecast(0)
        return boosting.scheduled_floor(bounds, self.object.spec.max_replicas, before, now)

    def observe(
        self, target: ScaleTarget, constraints: Constraints, now: int, monotonic: float
    ) -> Snapshot | Unfound:
        """Return what a decision sees at `now`, or why it cannot see yet."""
        status, within = self.memory.status, None
        if self.prepared.throughputs and (times := self.ledger.times()) is not None:
            within = max(SECOND, round(times.total.p95 * SECOND))  # the API writes whole seconds
        snapshot = self.subscriptions.observe(
            self.prepared, status, target, constraints, now, monotonic, within, self.ledger.usages
        )
        if not self.prefers_idle or isinstance(snapshot, Unfound):
            return snapshot
        return self._observe_idleness(snapshot)

    def _observe_idleness(self, snapshot: Snapshot) -> Snapshot:
        seen, idle, option = snapshot.observation, None, self.object.spec.removal_order
        if option is not None and option.drain is not None:
            idle = count_idle(seen.pods, snapshot.idleness, option.drain.value.milli)
        seen = msgspec.structs.replace(seen, idle=idle, idle_scale_down=self.idle_scale_down)
        return msgspec.structs.replace(snapshot, observation=seen)

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
        own = self.prepared.limits
        self.last = LastDecision(now, snapshot, decision)
        self.since = self.since or now
        if self.past is not None:
            floor = self.memory.boost.floor
            self.past.note(self.last.counts(own, 0 if floor is None else floor.replicas), now)

    def set_clock(self, by: int) -> None:
        """Keep all ages as they are when the clock of decisions is set forward by so many nanoseconds."""
        self.memory = memories.shifted(self.memory, by)
        self.clock_shift += by
        if self.past is not None:
            self.past.shift(by)

    # -- what is ahead ---------------------------------------------------------------------------------------

    def bounds_ahead(self, now: int) -> tuple[BoundsFrom, ...]:
        """Return the bounds of the next hour, beginning with those that hold at `now` nanoseconds."""
        known, bounds = self._context.schedules, self.bounds
        following = () if known is None else known.bounds_ahead(self.key, now, now + AHEAD, self._led[0])
        later = (BoundsFrom(at, one.with_forecast(bounds.forecast)) for at, one in following)
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
        return foresight.foresee(self.prepared, seen, self.memory, now, constraints, ahead[1:])

    # -- floors ----------------------------------------------------------------------------------------------

    def follow_floor(self, now: int) -> None:
        """End a floor that time or the HorizontalPodAutoscaler has ended."""
        if self.boost is not None:
            alone = not self._context.rivals.of(self.object)
            most, band = self.object.spec.max_replicas, self.prepared.band
            boosted = boosting.follow(self.memory.boost, self.boost, band, now, alone=alone, most=most)
            self.set_boosting(boosted)

    def set_boosting(self, boosted: Boosting) -> None:
        if boosted is not self.memory.boost:
            self.memory = msgspec.structs.replace(self.memory, boost=boosted)
