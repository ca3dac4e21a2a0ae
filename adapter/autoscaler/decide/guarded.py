"""Decides like `decision.decide`, and withholds a count that must not be written now.

The arithmetic stays upstream's. The guards here only withhold a count, they never compute one. They apply in
this order:

1. Bounds (`scheduled`): windows and the forecast set minReplicas and maxReplicas. They come first because all
   else decides within these limits. Kubernetes evaluates no metric for a count below minReplicas, so a
   forecast could delay a higher raise: such a sync is also decided without it.
2. Fallback (`fallback`): the count while metrics are absent. It is an input of the decision, so that windows
   and policies apply to it.
3. `spec.mode` Paused: no metric is evaluated. It precedes the next guard: a user who pauses one of two
   autoscalers of a target needs no warning about the other.
4. Rivals: another autoscaler has the same target. No metric is evaluated, because two recommendations that
   alternate scale wrongly even if each is right.
5. Lost values (`lost_values`): a metric whose pods lost their values may scale up, not down. This is the last
   guard before the decision because it changes what the decision may do, per metric.
6. `decision.decide`, as Kubernetes. What follows sees its count and keeps its status, so a user reads what
   would have happened.
7. A pause after reversals (`conflicts`): another field manager reverted our writes. It precedes the rules of
   boosting: these may allow a raise, but not against another writer.
8. Boosting (`boost`), for a HorizontalPodAutoscaler only: a raise only, from fresh values, within its limits.
9. `spec.mode` Advise: the last, so that the advice is exactly the count that mode Auto would write.

`Memory` is everything that is remembered of one autoscaler between two decisions. Each sync observes the
scale (`observe`), decides (`decide`), and once the decision is done, written or with nothing to write,
commits it (`commit`). All are pure functions from one `Memory` to the next.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

import msgspec

from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide import conflicts, decision, fallback, lost_values, scheduled
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide import pending as pending_capacity
from adapter.autoscaler.decide.boost import Boost, Boosting
from adapter.autoscaler.decide.conflicts import OWN, ConflictState, ForeignChange, ScaleObservation
from adapter.autoscaler.decide.decision import Decision, Event
from adapter.autoscaler.decide.fallback import NOTHING_ABSENT, Absence
from adapter.autoscaler.decide.history import Events, History, RecommendationQueues
from adapter.autoscaler.decide.observation import NO_STATUS, Observation
from adapter.autoscaler.decide.pending import PendingState
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.scheduled import BoundedSpec
from adapter.autoscaler.decide.trace import Step
from adapter.bounds.forecast.verdict import Readiness
from adapter.bounds.timeline import Bounds
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.fastpath_autoscaler import (
    ADVISE,
    AUTO,
    BOOST,
    PAUSED,
    Fallback,
    FastPathAutoscalerSpec,
)
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.status import ABLE_TO_SCALE, SCALED_TO_ZERO, SCALING_ACTIVE, Conditions
from adapter.model.timestamps import SECOND, Instant, read_instant

FOREIGN_AUTOSCALER, FOREIGN_WRITER = "ForeignAutoscaler", "ForeignWriter"

_ADVISED_EVENTS = frozenset({"SuccessfulRescale", "FailedRescale", FOREIGN_AUTOSCALER})
"""Reasons of the events about a HorizontalPodAutoscaler; its own controller writes all others."""

_INVALID_SPEC = "InvalidSpec"
_WITHOUT_COUNT = frozenset({"FailedGetScale", _INVALID_SPEC})
"""Reasons of syncs that did not see the count."""


class Constraints(NamedTuple):
    """What limits a decision beside the observation.

    `rivals` are the other autoscalers of the target by kind and name, `fallback` the rules for absent
    metrics. `boost` is None for a FastPathAutoscaler, whose target no HorizontalPodAutoscaler scales.
    `bounds` are those of windows and forecast that hold now, None for none. `readiness` is the condition of
    the forecast, None without one.
    """

    mode: str = AUTO
    rivals: tuple[str, ...] = ()
    fallback: Fallback | None = None
    boost: Boost | None = None
    bounds: Bounds | None = None
    readiness: Readiness | None = None

    @classmethod
    def of(cls, spec: FastPathAutoscalerSpec, readiness: Readiness | None = None) -> Self:
        """Return those of a spec alone; `readiness` counts only if it asks for a forecast."""
        readiness = None if spec.forecast is None else readiness
        return cls(spec.mode, fallback=spec.fallback, readiness=readiness)


class Memory(msgspec.Struct, frozen=True, rename={"lowest": "floor"}):
    """What is remembered of one autoscaler from one sync to the next, its status included.

    `lowest` is the minimum of windows and forecast at the last sync, 0 without one.
    """

    status: HorizontalPodAutoscalerStatus = NO_STATUS
    history: History = History(RecommendationQueues())
    conflicts: ConflictState = ConflictState()
    absence: Absence = NOTHING_ABSENT
    boost: Boosting = boosting.NOTHING
    lowest: int = 0

    def with_floor(self, floor: Floor | None) -> "Memory":
        return msgspec.structs.replace(self, boost=msgspec.structs.replace(self.boost, floor=floor))


def remember(
    status: HorizontalPodAutoscalerStatus,
    ups: Events = (),
    downs: Events = (),
    pending: PendingState | None = None,
) -> Memory:
    """Return what the object alone tells, as after a start or a change of leader.

    Recommendations are not stored there, so nothing is scaled down for one stabilization window. Scale events
    are, so a change of leader exceeds no policy; and the credits of pending capacity.
    """
    own_zero = statuses.holds(status.conditions, SCALED_TO_ZERO)
    history = History(RecommendationQueues(), ups, downs, pending)
    return Memory(status, history, ConflictState(own_zero=own_zero))


# -- observing the scale -------------------------------------------------------------------------------------


def observe(
    spec: PreparedSpec, memory: Memory, scale: ScaleObservation, now: int, boost: Boost | None = None
) -> tuple[Memory, ForeignChange | None]:
    """Return the memory after an observation of the scale, and the change that it shows.

    Every change counts in the policies. At the first observation the count before it comes from the floor
    that the previous leader published, else from the status. If neither tells, and the count carries our
    name, it may be a raise from the minimum at the time when it was written.

    For a HorizontalPodAutoscaler a change reverts a held raise, not our last write, and leads to advice
    instead of a pause. At zero no floor is held: an HPA that reads a floor would leave zero because of it.
    """
    floor = memory.boost.floor
    if floor is not None and not floor.stands and scale[:2] == (floor.replicas, OWN):
        # The write had no response, but here is its count.
        floor = msgspec.structs.replace(floor, stands=True)
        memory = memory.with_floor(floor)
    memory, change = _observe_count(spec, memory, scale, now, boost)
    floor = memory.boost.floor
    if floor is not None and scale.replicas == 0:
        memory = memory.with_floor(None)
    elif floor is not None and floor.stands and boosting.takes_back(memory.boost, scale.replicas, spec.band):
        # Below the floor only because maxReplicas is lower now. This is no reversal, and must not look like
        # one to the next leader when maxReplicas is raised again.
        memory = memory.with_floor(msgspec.structs.replace(floor, stands=False))
    return memory, change


def _observe_count(
    spec: PreparedSpec, memory: Memory, scale: ScaleObservation, now: int, boost: Boost | None
) -> tuple[Memory, ForeignChange | None]:
    replicas, manager = scale.replicas, scale.manager
    at, assumed = now, False
    if memory.conflicts.known is None and replicas:
        memory, assumed = _recall(spec, memory, scale)
        at = _written_at(scale.since, now) if assumed else now
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
    boosted, reversal = boosting.judge(memory.boost, replicas, change.by, boost, spec.band, now, most=most)
    change = change._replace(reverses=reversal.counted, starts_pause=reversal.demotes)
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


def _written_at(since: str, now: int) -> int:
    """Return the latest time at which a count may have been written; `now` if `since` does not tell.

    managedFields have whole seconds, so the write may be up to a second later.
    """
    try:
        return min(now, read_instant(since) + SECOND)
    except ValueError:
        return now


def _count_after(status: HorizontalPodAutoscalerStatus) -> int | None:
    """Return the count after the sync that wrote a status: the desired one, unless the sync did not apply it.

    None if no sync has seen a count yet.
    """
    if not status.conditions:
        return None
    if status.current_replicas == 0 and any(each.reason in _WITHOUT_COUNT for each in status.conditions):
        return None
    if any(each.type == ABLE_TO_SCALE and each.reason == "SucceededRescale" for each in status.conditions):
        # Even if no metric had a value: bounds and fallbacks need none.
        return status.desired_replicas
    is_true = {each.type: each.status == "True" for each in status.conditions}
    is_applied = is_true.get(ABLE_TO_SCALE, False) and is_true.get(SCALING_ACTIVE, True)
    return status.desired_replicas if is_applied else status.current_replicas


def change_event(memory: Memory, change: ForeignChange, replicas: int, boost: Boost | None) -> Event | None:
    """Return the event about a change of the count to `replicas`, None if it needs none."""
    if boost is None:
        return foreign_writer_event(memory.conflicts) if change.starts_pause else None
    if not change.reverses:
        return None
    return boosting.reversal_event(
        change.by, replicas - change.replicas, replicas, demotes=change.starts_pause
    )


def foreign_writer_event(state: ConflictState) -> Event:
    """Return the event about the start of a pause."""
    seconds = state.pause // SECOND
    reverted = f"field manager {state.paused_by} reverted our change twice in 5 minutes"
    text = f"scaling suspended for {seconds}s: {reverted}"
    return Event("Warning", FOREIGN_WRITER, text)


# -- committing a decision -----------------------------------------------------------------------------------


def commit(
    memory: Memory, made: Decision, observation: Observation, now: int, constraints: Constraints
) -> tuple[Memory, tuple[Event, ...]]:
    """Return the memory after a decision whose count, if it has one to write, was written; and the events."""
    state, boost = memory.conflicts, constraints.boost
    lowest = made.spec.bounds.lowest if isinstance(made.spec, BoundedSpec) else 0
    if made.rescale:
        state = conflicts.commit(state, observation.replicas, made.replicas)
        if made.history.pending is not None:
            asked = pending_capacity.asked(made.history.pending, made.replicas)
            history = msgspec.structs.replace(made.history, pending=asked)
            made = msgspec.structs.replace(made, history=history)
    if boost is not None:
        state = msgspec.structs.replace(state, ours=None)
        memory, events = _commit_boosted(memory, made, state, observation, now, boost)
        return msgspec.structs.replace(memory, lowest=lowest), events
    if constraints.fallback is None and not memory.absence.active:
        return Memory(made.status, made.history, state, lowest=lowest), made.events
    absence, events = fallback.follow(constraints.fallback, memory.absence, made, now)
    return Memory(made.status, made.history, state, absence, lowest=lowest), (*made.events, *events)


def _commit_boosted(
    memory: Memory, made: Decision, state: ConflictState, observation: Observation, now: int, boost: Boost
) -> tuple[Memory, tuple[Event, ...]]:
    """Return the memory after a decision about a HorizontalPodAutoscaler, and events on writes and advice."""
    boosted, events = memory.boost, tuple(event for event in made.events if event.reason in _ADVISED_EVENTS)
    if boosting.only_advised(boosted, boost, now):
        recommended = observation.replicas if made.desired is None else made.desired
        boosted, advice = boosting.advise(boosted, recommended, observation.replicas, boost, now)
        events = events if advice is None else (*events, advice)
    return Memory(made.status, made.history, state, boost=boosted), events


def spec_changed(memory: Memory) -> Memory:
    """Return the memory after a change of the spec, which ends a pause."""
    return msgspec.structs.replace(memory, conflicts=conflicts.spec_changed(memory.conflicts))


def shifted(memory: Memory, by: int) -> Memory:
    """Return the memory on a clock that was set forward by so many nanoseconds (back where negative)."""
    return Memory(
        memory.status,
        histories.shifted(memory.history, by),
        conflicts.shifted(memory.conflicts, by),
        fallback.shifted(memory.absence, by),
        boosting.shifted(memory.boost, by),
        memory.lowest,
    )


# -- deciding ------------------------------------------------------------------------------------------------


def decide(
    spec: PreparedSpec,
    observation: Observation,
    memory: Memory,
    now: int,
    constraints: Constraints,
    last: Decision | None = None,
) -> Decision:
    """Decide what one sync does at `now` nanoseconds; the status of the observation is that of the memory.

    `last` is the last decision that was committed. The result is the same without it; with it nothing is made
    again that has not changed.
    """
    bounds = scheduled.for_count(constraints.bounds, observation.replicas)
    within = scheduled.bounded(spec, bounds, constraints.readiness, None if last is None else last.spec)
    # At zero a former minimum keeps nothing up, and must not wake the target.
    if observation.replicas and bounds.lowest < memory.lowest:
        history = scheduled.held(memory.history, memory.lowest, spec.limits.highest, now)
        memory = msgspec.structs.replace(memory, history=history)
    made = _decide_above_forecast(within, observation, memory, now, constraints)
    if made is None:
        made = _decide_within(within, observation, memory, now, constraints)
    if last is not None and last.spec is within and last.status is memory.status:
        return made  # the status has these conditions already
    return scheduled.told(made, within, now)


def _decide_above_forecast(
    spec: BoundedSpec, observation: Observation, memory: Memory, now: int, constraints: Constraints
) -> Decision | None:
    """Return the decision without the forecast where it asks for more than the forecast, else None.

    Below minReplicas no metric is evaluated, and a forecast must not delay a raise to more than its minimum.
    """
    if observation.replicas >= spec.limits.lowest:
        return None
    without = spec.without_forecast()
    if observation.replicas < without.limits.lowest:
        return None
    # Whether a write has failed must not change which of the two decisions was to be written.
    trial = msgspec.structs.replace(observation, write_error="")
    made = _decide_within(without, trial, memory, now, constraints)
    if made.replicas <= spec.limits.lowest:
        return None
    if observation.write_error:
        made = _decide_within(without, observation, memory, now, constraints)
    return msgspec.structs.replace(made, spec=spec)  # the next decision has the forecast again


def _decide_within(
    spec: BoundedSpec, observation: Observation, memory: Memory, now: int, constraints: Constraints
) -> Decision:
    """Decide with the limits that a spec has within bounds."""
    mode, rivals, rules, boost, _, _ = constraints
    history, state = memory.history, memory.conflicts
    least = fallback.replicas(rules, memory.absence, now) if rules is not None else 0
    if observation.replicas == 0 and state.own_zero and spec.bounds.lowest:
        least = max(least, spec.limits.lowest)  # a minimum wakes the target even if no metric has a value
    if least or observation.status is not memory.status:
        observation = msgspec.structs.replace(observation, status=memory.status, fallback=least)
    if mode == PAUSED:
        text = "scaling is paused by spec.mode"
        return _stand_back(observation, history, now, SCALING_ACTIVE, "ScalingPaused", text, spec)
    if rivals:
        text = f"target is also scaled by {', '.join(rivals)}; not scaling"
        return _stand_back(observation, history, now, ABLE_TO_SCALE, FOREIGN_AUTOSCALER, text, spec)
    seen = _with_true_zero(observation, state, now)
    if mode == BOOST:
        seen = msgspec.structs.replace(seen, readings=boosting.fresh(seen.readings))
    made = (_decide_alone if boost is None else decision.decide)(spec, seen, history, now)
    if observation.replicas == 0 and made.absent is None:
        # At a zero of another client no metric was computed, so there are no recent recommendations either.
        made = msgspec.structs.replace(made, history=histories.without_recommendations(history))
    if state.is_paused(now):
        seconds = state.pause // SECOND
        text = f"scaling suspended for {seconds}s: field manager {state.paused_by} reverted our change"
        return _withhold(made, seen, history, now, FOREIGN_WRITER, text)
    if boost is not None:
        why = (
            boosting.refusal(made, seen, memory.boost, boost, spec.band, now, spec.bounds.lowest)
            if made.rescale
            else ""
        )
        return _withhold(made, seen, history, now, boosting.NOT_BOOSTED, why) if why else made
    if mode == ADVISE and made.rescale:
        text = f"would scale to {made.replicas}, but spec.mode is Advise"
        return _withhold(made, seen, history, now, "AdviseOnly", text)
    return made


def _decide_alone(spec: PreparedSpec, observation: Observation, history: History, now: int) -> Decision:
    """Decide for a FastPathAutoscaler: a metric of pods that lost their values may scale up, not down.

    While that blocks, the count is recommended: once it ends, the stabilization window begins.
    """
    observation, reporting, blocks = lost_values.follow(history.reporting, spec.sources, observation, now)
    history = msgspec.structs.replace(history, reporting=reporting)
    made = decision.decide(spec, observation, history, now)
    if not blocks or made.rescale or statuses.holds(made.status.conditions, SCALING_ACTIVE):
        return made
    held = made.history.recommendations.recorded(observation.replicas, now, 0)
    return msgspec.structs.replace(made, history=msgspec.structs.replace(made.history, recommendations=held))


def failed(
    spec: PreparedSpec,
    observation: Observation,
    memory: Memory,
    now: int,
    constraints: Constraints,
    why: str,
) -> Decision:
    """Return what the same sync comes to when its count could not be written."""
    observation = msgspec.structs.replace(observation, write_error=why)
    return decide(spec, observation, memory, now, constraints)


def refuse(memory: Memory, why: str, now: int) -> Decision:
    """Return what a sync comes to whose spec is not valid."""
    observation = Observation(memory.status.current_replicas, 0, "", (), (), status=memory.status)
    return _stand_back(observation, memory.history, now, ABLE_TO_SCALE, _INVALID_SPEC, why)


def _with_true_zero(observation: Observation, state: ConflictState, now: int) -> Observation:
    """Return the observation with a condition ScaledToZero that holds only for a zero that we wrote."""
    status, is_own = observation.status, state.own_zero
    if statuses.holds(status.conditions, SCALED_TO_ZERO) == is_own:
        return observation
    found = Conditions(status.conditions or (), now)
    found.set(SCALED_TO_ZERO, holds=is_own, reason="ScaledToZero" if is_own else "NotScaledToZero")
    status = msgspec.structs.replace(status, conditions=found.listed())
    return msgspec.structs.replace(observation, status=status)


def _stand_back(
    observation: Observation,
    history: History,
    now: int,
    kind: str,
    reason: str,
    message: str,
    spec: PreparedSpec | None = None,
) -> Decision:
    """Return a decision that looks at no metric and says why, with an event when that begins."""
    before, current = observation.status, observation.replicas
    found = Conditions(before.conditions or (), now)
    found.set(kind, holds=False, reason=reason, message=message)
    status = HorizontalPodAutoscalerStatus(
        last_scale_time=before.last_scale_time,
        current_replicas=current,
        desired_replicas=current,
        conditions=found.listed(),
    )
    is_known = any(each.type == kind and each.reason == reason for each in before.conditions or ())
    opening = () if spec is None else spec.opening
    return Decision(
        replicas=current,
        status=status,
        status_changed=not statuses.same_status(before, status),
        events=() if is_known else (Event("Warning", reason, message),),
        # Without recent recommendations scale-down stays blocked for one stabilization window.
        history=histories.without_recommendations(history),
        trace=(*opening, Step("withheld", {"replicas": current, "current": current, "message": message})),
        spec=spec,
    )


def _withhold(
    made: Decision, observation: Observation, history: History, now: int, reason: str, message: str
) -> Decision:
    """Return a decision without its write: no new scale event, and the target keeps its count."""
    before, current = observation.status, observation.replicas
    found = Conditions(made.status.conditions or (), now)
    found.set(ABLE_TO_SCALE, holds=False, reason=reason, message=message)
    zero = next((each for each in before.conditions or () if each.type == SCALED_TO_ZERO), None)
    if zero is None:
        found.remove(SCALED_TO_ZERO)
    else:
        found.set(SCALED_TO_ZERO, holds=zero.status == "True", reason=zero.reason, message=zero.message)
    status = msgspec.structs.replace(
        made.status,
        last_scale_time=before.last_scale_time,
        conditions=_keeping_times(found.listed(), before.conditions or (), Instant(now)),
    )
    withheld = {"replicas": made.replicas, "current": current, "message": message}
    return msgspec.structs.replace(
        made,
        replicas=current,
        rescale=False,
        status=status,
        status_changed=not statuses.same_status(before, status),
        events=tuple(
            event for event in made.events if event.reason not in {"SuccessfulRescale", "FailedRescale"}
        ),
        history=msgspec.structs.replace(made.history, ups=history.ups, downs=history.downs),
        trace=(*made.trace, Step("withheld", withheld)),
    )


def _keeping_times(
    listed: Sequence[Condition], before: Sequence[Condition], now: Instant
) -> tuple[Condition, ...]:
    """Return conditions; one that was toggled and restored within one sync keeps its lastTransitionTime."""
    old = {each.type: each for each in before}
    kept = []
    for each in listed:
        earlier = old.get(each.type)
        since = earlier.last_transition_time if earlier is not None and earlier.status == each.status else now
        kept.append(msgspec.structs.replace(each, last_transition_time=since))
    return tuple(kept)
