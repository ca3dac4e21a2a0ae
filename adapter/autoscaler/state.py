"""The state of one autoscaler: its spec, its memory, and what is known of its target.

`AutoscalerState` is the only owner of this state: the loop, the reconciler and the reporter call its methods
and use the effects that these return.

Two facts about the target are newer here than in the caches. After our own write, or after a read beside the
caches (`take_scale`), the caches still show the former count for a while; `find_target` then returns the
newer one. And when a write had no response, `attempted` holds its count: if the target shows it later without
a field manager, it is ours.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide import conflicts, guarded, prepared_spec
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide import pending as pending_capacity
from adapter.autoscaler.decide.boost import Boost, Boosting, ScheduledFloor
from adapter.autoscaler.decide.conflicts import ForeignChange, ScaleObservation
from adapter.autoscaler.decide.decision import Decision, Event
from adapter.autoscaler.decide.guarded import Constraints, Memory
from adapter.autoscaler.decide.history import Events
from adapter.autoscaler.decide.observation import NO_STATUS
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.snapshot import AutoscalerContext, Snapshot, Subscriptions
from adapter.bounds import timeline
from adapter.bounds.forecast.verdict import UNJUDGED
from adapter.bounds.timeline import NO_BOUNDS
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.pod_starts import StartingPods
from adapter.kubernetes.cache.scale_targets import ScaleTarget, Unfound
from adapter.kubernetes.write.scale import ScaleState
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import (
    FastPathAutoscaler,
    FastPathAutoscalerSpec,
    FastPathAutoscalerStatus,
    PastChange,
)
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.pending_capacity import BacklogCredit
from adapter.model.autoscaling.validation import Violation
from adapter.model.ready_times import Outcome, PodStart, ReadyLedger, ReadyTimes
from adapter.model.timestamps import SECOND

_RAISE_SECONDS = 2
"""The longest time from a boundary to the pods that are created for it: a decision, a write, a controller."""

_NO_SPEC = FastPathAutoscalerSpec(metrics=())


class NewerTarget(NamedTuple):
    """A target as we wrote or read it; it counts until the caches, which had `against`, catch up."""

    target: ScaleTarget
    against: str


class LastDecision(NamedTuple):
    """The last decision, when it was made and from what; `snapshot` is None if it looked at nothing."""

    at: int
    snapshot: Snapshot | None
    decision: Decision


class BoostChange(NamedTuple):
    """What has changed for a boosted HorizontalPodAutoscaler."""

    fault: bool
    """Whether there is another reason why it is not boosted."""
    shown: bool
    """Whether its status shows another count."""


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
        self.memory: Memory = _remember(autoscaler.status, events, now)
        self.boost: Boost | None = None
        """What limits the decisions about a HorizontalPodAutoscaler; None for a FastPathAutoscaler."""
        self.published: Floor | None = None
        """The floor that is published, or queued."""
        self.bounds = NO_BOUNDS
        """The bounds of windows and forecast, as `follow_bounds` last found them."""
        self.boundary: int | None = None
        """When these are to be looked at again, in nanoseconds; None for never."""
        self.readiness = UNJUDGED
        """The condition of a forecast that the spec asks for."""
        self.epoch = 0
        """The number of targets before this one. A write that began in a former epoch is void."""
        self.clock_shift = 0
        """By how many nanoseconds the clock of decisions was set in all."""
        self.last: LastDecision | None = None
        self.failures = 0
        """The number of failed writes since the last success."""
        self.is_writing = False
        """Whether a write is in progress; until it ends the autoscaler is not decided."""
        self.is_closed = False
        self.ledger = ReadyLedger()
        """The last starts of pods of the target."""
        self._context = context
        self._subscriptions = Subscriptions(context, self.key, changed, self._note_start)
        self._inherited: ReadyLedger | None = None
        self._newer: NewerTarget | None = None
        self._attempted: int | None = None
        self._uid = ""
        self.period = 0.0
        """The longest time between two decisions, in seconds."""
        self.prepared: PreparedSpec = self._prepare()

    @property
    def ready_times(self) -> ReadyTimes | None:
        """How long the last pods of the target took to be Ready; None before the first."""
        return self.ledger.times()

    @property
    def lead(self) -> int:
        """By how many seconds minimums begin early where pods are to be Ready by the start; 0 if unknown."""
        times = self.ledger.times()
        if times is None:
            return 0
        return min(timeline.MOST_LEAD, math.ceil(times.total.p95) + _RAISE_SECONDS)

    def recent_changes(self, now: int) -> tuple[PastChange, ...]:
        """Return the changes that policies still count, oldest first."""
        history = self.memory.history
        if not (history.ups or history.downs):
            return ()
        return histories.changes_of(history.ups, history.downs, now, max(self.prepared.longest_periods))

    @property
    def backlog_credits(self) -> tuple[BacklogCredit, ...]:
        """What the metrics with pending capacity count less."""
        return pending_capacity.credits_of(self.memory.history.pending)

    # -- the spec --------------------------------------------------------------------------------------------

    def adopt(self, autoscaler: FastPathAutoscaler) -> bool:
        """Take the object as it is now, and tell whether its spec has changed. Its status is our own."""
        before, self.object = self.object.spec, autoscaler
        if autoscaler.spec == before:
            return False
        self.memory = guarded.spec_changed(self.memory)
        if autoscaler.spec.scale_target_ref != before.scale_target_ref:
            self._forget_target()
            self._subscriptions.close()
        self.prepared = self._prepare()
        self.failures = 0
        return True

    def set_boost(self, boost: Boost) -> BoostChange:
        """Take what the annotations and the status of a HorizontalPodAutoscaler say now."""
        before, self.boost = self.boost, boost
        if before is None:
            return BoostChange(fault=True, shown=False)
        fault = (before.mode, before.fault) != (boost.mode, boost.fault)
        return BoostChange(fault=fault, shown=before.shown != boost.shown)

    def close(self) -> None:
        self.is_closed = True
        self._subscriptions.close()

    def _prepare(self) -> PreparedSpec:
        self.violations = fastpath_autoscaler.validate(self.object)
        autoscaler = fastpath_autoscaler.with_defaults(self.object)
        if self.violations:
            # An invalid spec is only named in the status; its metrics and its behavior are not used.
            autoscaler = msgspec.structs.replace(autoscaler, spec=_NO_SPEC)
        least, most = fastpath_autoscaler.SYNC_PERIODS  # an invalid spec may have any value
        self.period = min(max(self.object.spec.sync_period, least), most) / SECOND
        self._subscriptions.adopt(autoscaler.spec.metrics or (), self.period)
        return prepared_spec.prepare(autoscaler, self._context.settings)

    # -- the target ------------------------------------------------------------------------------------------

    def find_target(self) -> ScaleTarget | Unfound:
        """Return the target from the cache, or as we last wrote or read it if the cache is older."""
        found = self._subscriptions.follow(self.object.spec.scale_target_ref).find()
        if isinstance(found, Unfound):
            return found
        if self._newer is not None and _is_older(found.resource_version, self._newer):
            return self._newer.target
        self._newer = None
        if not found.manager and found.replicas == self._attempted:
            return found._replace(manager=conflicts.OWN)
        return found

    def recognize(self, uid: str) -> bool:
        """Note which object is scaled; False if it is a new one of the same name, which has no past."""
        floor = self.memory.boost.floor
        # The previous leader may have raised a former object.
        known = self._uid or ("" if floor is None else floor.target)
        is_new = bool(uid and known and uid != known)
        if is_new:
            self._forget_target()
        self._uid = uid or self._uid
        self.ledger.target = self._uid
        if self._inherited is not None and self._uid:
            if self._inherited.target == self._uid:
                self.ledger.inherit(self._inherited)
            self._inherited = None
        return not is_new

    def starting(self) -> StartingPods | None:
        """Return the pods of the target that have never been Ready; None before the pods are known."""
        return self._subscriptions.starting()

    @property
    def kept_ledger(self) -> ReadyLedger:
        """The ledger for the next leader: that of the previous one while the target is not known yet."""
        return self._inherited or self.ledger

    def _note_start(self, start: PodStart | Outcome) -> None:
        self.ledger.note(start)

    def inherit(self, ledger: ReadyLedger) -> None:
        """Take the ledger of the previous leader, once it is known that the target is the same object."""
        self._inherited = ledger

    def _forget_target(self) -> None:
        """Forget what was done to the former target. A demotion belongs to the autoscaler, and stays."""
        boosted = self.memory.boost
        self.memory = guarded.remember(NO_STATUS)
        self.set_boosting(Boosting(demotion=boosted.demotion, told=boosted.told))
        self._newer = self._attempted = None
        self.ledger = ReadyLedger()
        self._uid = ""
        self.epoch += 1

    def observe_scale(self, target: ScaleTarget, now: int) -> ForeignChange | None:
        """Note the count of the target; return the change that it shows, if our decisions did not make it."""
        scale = ScaleObservation(target.replicas, target.manager, target.since)
        self.memory, change = guarded.observe(self.prepared, self.memory, scale, now, self.boost)
        if change is not None:
            self._attempted = None  # whatever became of that write, the count is another one now
        return change

    def take_scale(self, scale: ScaleState, before: ScaleTarget, tried: int | None) -> ScaleTarget | None:
        """Note a scale that was read; return it as a target, None if it cannot be decided on now.

        `before` is the target that the write was for. `tried` is the count of a write without a response.
        Only the caches know the field manager; here it is inferred: a count that we tried to write is ours.
        """
        manager = before.manager
        if scale.replicas != before.replicas:
            manager = conflicts.OWN if scale.replicas in {self._attempted, tried} else ""
            cached = self.find_target()
            if not isinstance(cached, Unfound) and cached.resource_version == scale.resource_version:
                manager = cached.manager
            if not manager and scale.replicas < before.replicas and self._reverts_floor(scale.replicas):
                return None  # the caches will tell who reverted the raise; decide on that then
        target = before._replace(
            replicas=scale.replicas,
            status_replicas=scale.status_replicas,
            selector=scale.selector,
            resource_version=scale.resource_version,
            manager=manager,
            uid=scale.uid or before.uid,
            since="",
        )
        if not self.recognize(target.uid):
            return None  # the new object is decided from the beginning
        self._newer = NewerTarget(target, before.resource_version)
        return target

    def _reverts_floor(self, replicas: int) -> bool:
        if self.boost is None:
            return False
        most = self.object.spec.max_replicas
        return boosting.takes_back(self.memory.boost, replicas, self.prepared.band, most)

    # -- deciding --------------------------------------------------------------------------------------------

    def follow_bounds(self, now: int) -> bool:
        """Note the bounds of windows and forecast at `now`; False while the schedules are unknown."""
        schedules = self._context.schedules
        self.boundary = None
        if not schedules.synced:
            return False
        try:
            bounds, self.boundary = schedules.bounds_of(self.key, now, self.lead)
        except NotSyncedError:
            return False
        forecast = self._context.forecasts.bound_of(self.key)
        self.readiness = forecast.readiness
        if bounds.excess:
            bounds = bounds.holding(self._count())
        if forecast.min and now < forecast.until:
            bounds = bounds.with_forecast(forecast.min)
            self.boundary = min(self.boundary or forecast.until, forecast.until)
        if bounds != self.bounds:
            self.bounds = bounds
        return True

    def _count(self) -> int:
        """Return the count of the target, 0 if it is not known."""
        found = self.find_target()
        return 0 if isinstance(found, Unfound) else found.replicas

    def constraints(self) -> Constraints | None:
        """Return what limits a decision beside the snapshot; None while the other autoscalers are unknown."""
        rivals = self._context.rivals.of(self.object)
        if rivals is None:
            return None
        own = Constraints.of(self.object.spec, self.readiness)
        return own._replace(rivals=rivals, boost=self.boost, bounds=self.bounds)

    def forecast_document(self) -> dict[str, Any] | None:
        """Return what `debug` shows of the forecast, None without one."""
        return self._context.forecasts.document_of(self.key)

    def scheduled_floor(self, now: int) -> ScheduledFloor:
        """Return the minimums of windows and forecast that a boosted HorizontalPodAutoscaler is to read.

        They are 0 while the target is at zero: the HPA would leave zero because of them. A forecast that
        minReplicas covers is left out: it changes each minute, and each change is a write.
        """
        known, before = self.memory.conflicts.known, self.published
        if known is None and before is not None:
            return ScheduledFloor.of(before)
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
        return self._subscriptions.observe(self.prepared, status, target, constraints, now, monotonic, within)

    def commit(self, decision: Decision, snapshot: Snapshot, now: int) -> tuple[Event, ...]:
        """Remember a decision that was carried out, and return its events."""
        self.memory, events = guarded.commit(
            self.memory, decision, snapshot.observation, now, snapshot.constraints
        )
        self.last = LastDecision(now, snapshot, decision)
        return events

    def conclude(self, decision: Decision, now: int) -> None:
        """Remember a decision that looked at nothing."""
        self.memory = msgspec.structs.replace(self.memory, status=decision.status, history=decision.history)
        self.last = LastDecision(now, None, decision)

    def set_clock(self, by: int) -> None:
        """Keep all ages as they are when the clock of decisions is set forward by so many nanoseconds."""
        self.memory = guarded.shifted(self.memory, by)
        self.clock_shift += by

    # -- writing ---------------------------------------------------------------------------------------------

    def begin_write(self) -> None:
        self.is_writing = True

    def end_write(self) -> None:
        self.is_writing = False

    def note_success(self) -> None:
        """Note that a write was accepted, or that there was nothing to write."""
        self.failures = 0

    def note_failure(self) -> None:
        self.failures += 1

    def note_unconfirmed(self, replicas: int | None) -> None:
        """Note the count of a write without a response, which may have been applied; None for none."""
        self._attempted = replicas

    def note_written(self, target: ScaleTarget, replicas: int, resource_version: str) -> None:
        """Note a write of ours that the API server has accepted."""
        written = target._replace(
            replicas=replicas, resource_version=resource_version, manager=conflicts.OWN, since=""
        )
        self._newer = NewerTarget(written, target.resource_version)

    def find_applied(self, before: ScaleTarget, sent: Sequence[int]) -> ScaleTarget | None:
        """Return the target if it was read after a lost response and shows a sent count, else None."""
        newer = self._newer
        if newer is None or newer.target.resource_version == before.resource_version:
            return None
        is_applied = newer.target.manager == conflicts.OWN and newer.target.replicas in sent
        return newer.target if is_applied else None

    # -- floors ----------------------------------------------------------------------------------------------

    def follow_floor(self, now: int) -> None:
        """End a floor that time or the HorizontalPodAutoscaler has ended."""
        if self.boost is not None:
            alone = not self._context.rivals.of(self.object)
            most, band = self.object.spec.max_replicas, self.prepared.band
            boosted = boosting.follow(self.memory.boost, self.boost, now, alone=alone, most=most, band=band)
            self.set_boosting(boosted)

    def note_published(self, floor: Floor | None) -> None:
        """Note the floor that is published, or queued; None for none."""
        self.published = floor

    def set_boosting(self, boosted: Boosting) -> None:
        """Take what is remembered of raises and floors."""
        if boosted is not self.memory.boost:
            self.memory = msgspec.structs.replace(self.memory, boost=boosted)


def _remember(
    status: FastPathAutoscalerStatus | None, events: tuple[Events, Events] | None, now: int
) -> Memory:
    if status is None:
        return guarded.remember(NO_STATUS, *(events or ((), ())))
    if events is None:
        events = histories.events_of(status.recent_changes, now)
    pending = pending_capacity.state_of(status.pending_capacity, now)
    return guarded.remember(fastpath_autoscaler.plain_status(status), *events, pending)


def _is_older(version: str, newer: NewerTarget) -> bool:
    """Tell whether a resource version is older than ours; numeric versions are one growing count."""
    known = newer.target.resource_version
    if not version:
        return False
    if version.isdigit() and known.isdigit():
        return int(version) < int(known)
    return version == newer.against
