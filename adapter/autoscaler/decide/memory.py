"""What is remembered of one autoscaler between two decisions.

Each sync observes the scale (`observe`), decides (`guarded.decide`), and once the decision is done, written
or with nothing to write, commits it (`commit`). All are pure functions from one `Memory` to the next.

All instants here are times of decisions, but for those in the status, which are times of day as the API has
them (`adapter.model.clock`).
"""

import msgspec

from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards import conflicts, fallback
from adapter.autoscaler.decide.guards import pending as pending_capacity
from adapter.autoscaler.decide.guards.boost import Boost, Boosting
from adapter.autoscaler.decide.guards.conflicts import OWN, ConflictState, ForeignChange, ScaleObservation
from adapter.autoscaler.decide.guards.fallback import NOTHING_ABSENT, Absence
from adapter.autoscaler.decide.guards.pending import PendingState
from adapter.autoscaler.decide.guards.scheduled import BoundedSpec
from adapter.autoscaler.decide.history import Events, History
from adapter.autoscaler.decide.observation import NO_STATUS, Observation
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.sync import Decision, Event
from adapter.bounds.timeline import NO_BOUNDS
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.fastpath_autoscaler import Fallback, FastPathAutoscalerStatus
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.status import ABLE_TO_SCALE, SCALED_TO_ZERO, SCALING_ACTIVE
from adapter.model.timestamps import SECOND, read_instant

FOREIGN_AUTOSCALER, FOREIGN_WRITER = "ForeignAutoscaler", "ForeignWriter"
CLOCK_IN_DOUBT = "ClockInDoubt"

INVALID_SPEC = "InvalidSpec"

_ADVISED_EVENTS = frozenset({"SuccessfulRescale", "FailedRescale", FOREIGN_AUTOSCALER, CLOCK_IN_DOUBT})
"""Reasons of the events about a HorizontalPodAutoscaler; its own controller writes all others."""

_WITHOUT_COUNT = frozenset({"FailedGetScale", INVALID_SPEC})
"""Reasons of syncs that did not see the count."""


class Memory(msgspec.Struct, frozen=True, rename={"lowest": "floor"}):
    """What is remembered, the status included.

    `lowest` is the minimum of windows and forecast at the last sync, 0 without one. `draining` is since when
    scale-downs wait for pods to become idle.
    """

    status: HorizontalPodAutoscalerStatus = NO_STATUS
    history: History = History()
    conflicts: ConflictState = ConflictState()
    absence: Absence = NOTHING_ABSENT
    boost: Boosting = boosting.NOTHING
    lowest: int = 0
    draining: int | None = None

    def with_floor(self, floor: Floor | None) -> "Memory":
        return msgspec.structs.replace(self, boost=msgspec.structs.replace(self.boost, floor=floor))


def remember(
    status: HorizontalPodAutoscalerStatus,
    ups: Events = (),
    downs: Events = (),
    pending: PendingState | None = None,
) -> Memory:
    """Return what the object alone tells, as after a start or a change of owner.

    Recommendations are not stored there, so nothing is scaled down for one stabilization window. Scale events
    are, so a change of owner exceeds no policy; and the credits of pending capacity.
    """
    own_zero = statuses.holds(status.conditions, SCALED_TO_ZERO)
    history = History(ups=ups, downs=downs, pending=pending)
    return Memory(status, history, ConflictState(own_zero=own_zero))


def recall(
    status: FastPathAutoscalerStatus | None, events: tuple[Events, Events] | None, now: int, set_by: int = 0
) -> Memory:
    """Return what the status of a new object tells; `events` are those of an object before it, if known."""
    if status is None:
        return remember(NO_STATUS, *(events or ((), ())))
    if events is None:
        events = histories.inherited_events(status.recent_changes, now, set_by)
    pending = pending_capacity.inherited_state(status.pending_capacity, now, set_by)
    return remember(fastpath_autoscaler.plain_status(status), *events, pending)


def observe(
    spec: PreparedSpec, memory: Memory, scale: ScaleObservation, now: int, boost: Boost | None = None
) -> tuple[Memory, ForeignChange | None]:
    """Return the memory after an observation of the scale, and the change that it shows.

    Every change counts in the policies. At the first observation the count before it comes from the floor
    that the previous owner published, else from the status. If neither tells, and the count carries our
    name, it may be a raise from the minimum at the time when it was written.

    For a HorizontalPodAutoscaler a change reverts a held raise, not our last write, and leads to advice
    instead of a pause. At zero no floor is held: an HPA that reads a floor would leave zero because of it.
    """
    floor = memory.boost.floor
    if floor is None and scale.replicas and scale.replicas == memory.conflicts.known:
        return memory, None  # as nearly always
    if floor is not None and not floor.stands and scale[:2] == (floor.replicas, OWN):
        # The write had no response, but here is its count.
        memory = memory.with_floor(msgspec.structs.replace(floor, stands=True))
    memory, change = _observe_count(spec, memory, scale, now, boost)
    floor = memory.boost.floor
    if floor is not None and scale.replicas == 0:
        memory = memory.with_floor(None)
    elif floor is not None and floor.stands and boosting.takes_back(memory.boost, scale.replicas, spec.band):
        # Below the floor only because maxReplicas is lower now. This is no reversal, and must not look like
        # one to the next owner when maxReplicas is raised again.
        memory = memory.with_floor(msgspec.structs.replace(floor, stands=False))
    return memory, change


def _observe_count(
    spec: PreparedSpec, memory: Memory, scale: ScaleObservation, now: int, boost: Boost | None
) -> tuple[Memory, ForeignChange | None]:
    replicas, manager = scale.replicas, scale.manager
    at, assumed = now, False
    if memory.conflicts.known is None and replicas:
        memory, assumed = _recall(spec, memory, scale)
        at = _written_at(scale, now) if assumed else now
    state, change = conflicts.observe(memory.conflicts, replicas, manager, now)
    if change is None:
        if state is memory.conflicts:
            return memory, None
        return msgspec.structs.replace(memory, conflicts=state), None
    history = histories.with_change(
        memory.history, change.replicas, at, spec.longest_periods, assumed=assumed
    )
    memory = msgspec.structs.replace(memory, history=history, conflicts=state)
    if boost is None or change.by == OWN:
        return memory, change
    if change.replicas > 0:
        return memory, change  # A raise reverts nothing, even if it stays below the floor.
    most = spec.limits.highest
    boosted, change = boosting.judge(memory.boost, replicas, change, boost, spec.band, now, most=most)
    return msgspec.structs.replace(memory, boost=boosted), change


def _recall(spec: PreparedSpec, memory: Memory, scale: ScaleObservation) -> tuple[Memory, bool]:
    """Return the memory with the count before the first observation, and whether that is assumed."""
    floor, history, assumed = memory.boost.floor, memory.history, False
    if floor is not None and floor.stands:
        count: int | None = floor.replicas
        raised = floor.added + floor.replicas - floor.raised_from
        history = histories.with_change(history, raised, floor.raised_at, spec.longest_periods)
    else:
        count = _count_after(memory.status)
        assumed = count is None and scale.manager == OWN
        count = min(scale.replicas, spec.limits.lowest) if assumed else count
    state = msgspec.structs.replace(memory.conflicts, known=count)
    return msgspec.structs.replace(memory, history=history, conflicts=state), assumed


def _written_at(scale: ScaleObservation, now: int) -> int:
    """Return the latest time at which a count may have been written; `now` if that is not known.

    managedFields have whole seconds, so the write may be up to a second later.
    """
    try:
        return min(now, read_instant(scale.since) - scale.set_by + SECOND)
    except ValueError:
        return now


def _count_after(status: HorizontalPodAutoscalerStatus) -> int | None:
    """Return the count after the sync that wrote a status: the desired one, unless the sync did not apply it.

    None if no sync has seen a count yet.
    """
    if not status.conditions:
        return None
    if status.current_replicas == 0 and any(known.reason in _WITHOUT_COUNT for known in status.conditions):
        return None
    able, active = (statuses.find(status.conditions, kind) for kind in (ABLE_TO_SCALE, SCALING_ACTIVE))
    if able is not None and able.reason == "SucceededRescale":
        # Even if no metric had a value: bounds and fallbacks need none.
        return status.desired_replicas
    is_applied = able is not None and able.status == "True" and (active is None or active.status == "True")
    return status.desired_replicas if is_applied else status.current_replicas


def change_event(memory: Memory, change: ForeignChange, replicas: int, boost: Boost | None) -> Event | None:
    """Return the event about a change of the count to `replicas`, None if it needs none."""
    if boost is None:
        text = f"{memory.conflicts.why_paused} twice in 5 minutes"
        return Event("Warning", FOREIGN_WRITER, text) if change.starts_pause else None
    if not change.reverses:
        return None
    before = replicas - change.replicas
    return boosting.reversal_event(change.by, before, replicas, demotes=change.starts_pause)


def commit(
    memory: Memory,
    decision: Decision,
    observation: Observation,
    now: int,
    boost: Boost | None = None,
    rules: Fallback | None = None,
) -> tuple[Memory, tuple[Event, ...]]:
    """Return the memory after a decision whose count, if it has one to write, was written; and the events.

    `rules` are those for absent metrics. Of a HorizontalPodAutoscaler there are events on writes and advice.
    """
    state, history, events = memory.conflicts, decision.history, decision.events
    spec, lowest = decision.spec, 0
    if isinstance(spec, BoundedSpec) and spec.bounds is not NO_BOUNDS:
        lowest = spec.bounds.lowest
    if decision.rescale:
        state = conflicts.commit(state, observation.replicas, decision.replicas)
        if history.pending is not None:
            pending = pending_capacity.written(history.pending, decision.replicas)
            history = msgspec.structs.replace(history, pending=pending)
    if boost is not None:
        state, boosted = msgspec.structs.replace(state, ours=None), memory.boost
        events = tuple(event for event in events if event.reason in _ADVISED_EVENTS)
        if boosting.only_advised(boosted, boost, now):
            recommended = observation.replicas if decision.desired is None else decision.desired
            boosted, advice = boosting.advise(boosted, recommended, observation.replicas, boost, now)
            events = events if advice is None else (*events, advice)
        return Memory(decision.status, history, state, boost=boosted, lowest=lowest), events
    absence = NOTHING_ABSENT
    if rules is not None or memory.absence.active:
        absence, changes = fallback.follow(rules, memory.absence, decision, now)
        events = (*events, *changes)
    memory = Memory(decision.status, history, state, absence, lowest=lowest, draining=decision.draining)
    return memory, events
