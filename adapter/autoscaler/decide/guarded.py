"""Decides like `decision.decide`, and withholds a count that must not be written now.

The arithmetic stays upstream's: a guard changes its inputs or withholds its count, and never computes one.
They apply in this order:

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
8. Draining: a scale-down waits until the pods that go are idle. It is a minimum for this decision, so windows
   and policies apply to it. It is no guard of a count above maxReplicas.
9. A clock in doubt: no count falls, because values and windows may be those of another time. The count is
   recommended meanwhile, so the stabilization window begins when the clock is right. Nor does boosting raise:
   its floor would end by that clock.
10. Boosting (`boost`), for a HorizontalPodAutoscaler only: a raise, from fresh values, within its limits.
11. `spec.mode` Advise: the last, so that the advice is exactly the count that mode Auto would write.

What is remembered from one decision to the next is in `memory`.
"""

from typing import NamedTuple, Self

import msgspec

from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide import decision, fallback, lost_values, scheduled
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.decide.conflicts import ConflictState
from adapter.autoscaler.decide.decision import Decision, Event
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.memory import (
    CLOCK_IN_DOUBT,
    FOREIGN_AUTOSCALER,
    FOREIGN_WRITER,
    INVALID_SPEC,
    Memory,
)
from adapter.autoscaler.decide.observation import Observation, OptionState
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.scheduled import BoundedSpec
from adapter.autoscaler.decide.trace import Step
from adapter.bounds.forecast.verdict import Readiness
from adapter.bounds.timeline import NO_BOUNDS, Bounds
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus


class Constraints(NamedTuple):
    """What limits a decision beside the observation.

    `rivals` are the other autoscalers of the target by kind and name, `fallback` the rules for absent
    metrics. `boost` is None for a FastPathAutoscaler, whose target no HorizontalPodAutoscaler scales.
    `bounds` are those of windows and forecast that hold now, None for none. `readiness` is the condition of
    the forecast, None without one. `drain` is for how many nanoseconds a scale-down waits for idle pods, None
    if it does not. `doubt` is why the clock may be wrong, "" if it is right.
    """

    mode: str = fastpath_autoscaler.AUTO
    rivals: tuple[str, ...] = ()
    fallback: fastpath_autoscaler.Fallback | None = None
    boost: Boost | None = None
    bounds: Bounds | None = None
    readiness: Readiness | None = None
    drain: int | None = None
    doubt: str = ""

    @classmethod
    def of(
        cls,
        spec: fastpath_autoscaler.FastPathAutoscalerSpec,
        readiness: Readiness | None = None,
        rivals: tuple[str, ...] = (),
        boost: Boost | None = None,
        bounds: Bounds | None = None,
    ) -> Self:
        """Return those of a spec and of what else is known; `readiness` counts only with a forecast."""
        readiness = None if spec.forecast is None else readiness
        option = None if spec.removal_order is None or boost is not None else spec.removal_order.drain
        drain = None if option is None else option.timeout
        return cls(spec.mode, rivals, spec.fallback, boost, bounds, readiness, drain)


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
    bounds, time = constraints.bounds or NO_BOUNDS, observation.time_of_day(now)
    if not observation.replicas:
        bounds = bounds.with_forecast(0)  # a forecast never wakes a target from zero
    within = scheduled.bounded(spec, bounds, constraints.readiness, None if last is None else last.spec)
    # A minimum that has fallen counts as a recommendation. At zero it must not: it would wake the target.
    if observation.replicas and bounds.lowest < memory.lowest:
        minimum = min(memory.lowest, spec.limits.highest)
        recommendations = memory.history.recommendations.recorded(minimum, now)
        history = msgspec.structs.replace(memory.history, recommendations=recommendations)
        memory = msgspec.structs.replace(memory, history=history)
    outcome = _decide_above_forecast(within, observation, memory, now, constraints)
    if outcome is None:
        outcome = _decide_within(within, observation, memory, now, constraints)
    if last is None or last.spec is not within or last.status is not memory.status:
        outcome = scheduled.with_conditions(outcome, within, time)
    # otherwise the status has these conditions already
    outcome = _with_option(outcome, statuses.FAST_USAGE, observation.fast_usage, time)
    return _with_option(outcome, statuses.IDLE_SCALE_DOWN, observation.idle_scale_down, time)


def _with_option(decision: Decision, kind: str, state: OptionState | None, time: int) -> Decision:
    """Return a decision with the condition of an option, or without it where nothing asks for the option.

    While its reason stays, its message does: it may have numbers that change with each decision.
    """
    before = statuses.find(decision.status.conditions, kind)
    reason = "" if state is None else state.reason
    if reason == ("" if before is None else before.reason):
        return decision
    conditions = statuses.Conditions(decision.status.conditions or (), time)
    if state is None:
        conditions.remove(kind)
    else:
        conditions.set(kind, holds=state.holds, reason=state.reason, message=state.message)
    status = msgspec.structs.replace(decision.status, conditions=conditions.listed())
    return msgspec.structs.replace(decision, status=status, status_changed=True)


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
    outcome = _decide_within(without, trial, memory, now, constraints)
    if outcome.replicas <= spec.limits.lowest:
        return None
    if observation.write_error:
        outcome = _decide_within(without, observation, memory, now, constraints)
    return msgspec.structs.replace(outcome, spec=spec)  # the next decision has the forecast again


def _decide_within(
    spec: BoundedSpec, observation: Observation, memory: Memory, now: int, constraints: Constraints
) -> Decision:
    mode, rivals, rules, boost, _, _, drain, _ = constraints
    history, state, time = memory.history, memory.conflicts, observation.time_of_day(now)
    least = fallback.replicas(rules, memory.absence, now) if rules is not None else 0
    if observation.replicas == 0 and state.own_zero and spec.bounds.lowest:
        least = max(least, spec.limits.lowest)  # a minimum wakes the target even if no metric has a value
    if least or observation.status is not memory.status:
        observation = msgspec.structs.replace(observation, status=memory.status, fallback=least)
    if mode == fastpath_autoscaler.PAUSED:
        text = "scaling is paused by spec.mode"
        return _stand_back(observation, history, time, statuses.SCALING_ACTIVE, "ScalingPaused", text, spec)
    if rivals:
        text = f"target is also scaled by {', '.join(rivals)}; not scaling"
        return _stand_back(observation, history, time, statuses.ABLE_TO_SCALE, FOREIGN_AUTOSCALER, text, spec)
    seen = _with_true_zero(observation, state, time)
    if mode == fastpath_autoscaler.BOOST:
        seen = msgspec.structs.replace(seen, readings=boosting.fresh(seen.readings))
    outcome = (_decide_alone if boost is None else decision.decide)(spec, seen, history, now)
    outcome = _draining(outcome, spec, seen, memory, now, drain)
    if observation.replicas == 0 and outcome.absent is None:
        # At a zero of another client no metric was computed, so there are no recent recommendations either.
        outcome = msgspec.structs.replace(outcome, history=histories.without_recommendations(history))
    if constraints.doubt and _falls(outcome, observation.replicas):
        outcome = _recommending(outcome, observation.replicas, now)
    reason, why = _refuse(outcome, spec, seen, memory, now, constraints)
    return _withhold(outcome, seen, history, time, reason, why) if why else outcome


def _refuse(
    outcome: Decision,
    spec: BoundedSpec,
    observation: Observation,
    memory: Memory,
    now: int,
    constraints: Constraints,
) -> tuple[str, str]:
    """Return why a decision is not to be written, as a reason and a text; "" if it may be."""
    boost, doubt = constraints.boost, constraints.doubt
    if memory.conflicts.is_paused(now):
        return FOREIGN_WRITER, memory.conflicts.why_paused
    if doubt and (_falls(outcome, observation.replicas) or (boost is not None and outcome.rescale)):
        return CLOCK_IN_DOUBT, f"{doubt}: no count is lowered, and no floor is set"
    if outcome.rescale and boost is not None:
        least = spec.bounds.lowest
        why = boosting.refusal(outcome, observation, memory.boost, boost, spec.band, now, least)
        return boosting.NOT_BOOSTED, why
    if outcome.rescale and constraints.mode == fastpath_autoscaler.ADVISE:
        return "AdviseOnly", f"would scale to {outcome.replicas}, but spec.mode is Advise"
    return "", ""


def _falls(outcome: Decision, current: int) -> bool:
    """Tell whether a decision lowers the count, or would if no window held it."""
    return outcome.replicas < current or (outcome.wanted is not None and outcome.wanted < current)


def _recommending(outcome: Decision, replicas: int, now: int) -> Decision:
    """Return a decision with one more recommendation, from which the stabilization window counts."""
    recommendations = outcome.history.recommendations.recorded(replicas, now)
    history = msgspec.structs.replace(outcome.history, recommendations=recommendations)
    return msgspec.structs.replace(outcome, history=history)


def _decide_alone(spec: PreparedSpec, observation: Observation, history: History, now: int) -> Decision:
    """Decide for a FastPathAutoscaler: a metric of pods that lost their values may scale up, not down.

    While that blocks, the count is recommended: once it ends, the stabilization window begins. After a start
    it begins with the first value, not with the first sync: what was recommended before is not known.
    """
    observation, reporting, blocks = lost_values.follow(history.reporting, spec.sources, observation, now)
    if reporting is not history.reporting:
        history = msgspec.structs.replace(history, reporting=reporting)
    outcome = decision.decide(spec, observation, history, now)
    if outcome.rescale or statuses.holds(outcome.status.conditions, statuses.SCALING_ACTIVE):
        return outcome
    if not history.recommendations.empty:
        return _recommending(outcome, observation.replicas, now) if blocks else outcome
    history = msgspec.structs.replace(outcome.history, recommendations=history.recommendations)
    return msgspec.structs.replace(outcome, history=history)


def _draining(
    outcome: Decision,
    spec: BoundedSpec,
    observation: Observation,
    memory: Memory,
    now: int,
    longest: int | None,
) -> Decision:
    """Return a decision by which the count falls by idle pods only, for the `longest` time; None for not."""
    current, wanted = observation.replicas, outcome.desired
    least = current - (observation.idle or 0)
    if longest is None or wanted is None or wanted >= least or current > spec.limits.highest:
        return outcome
    since = now if memory.draining is None else memory.draining
    if now - since >= longest:
        return outcome
    limits = ReplicaLimits(least, spec.limits.highest)
    limited = _decide_alone(msgspec.structs.replace(spec, limits=limits), observation, memory.history, now)
    conditions = statuses.Conditions(limited.status.conditions or (), observation.time_of_day(now))
    text = f"{least - wanted} of the pods that go are not idle yet"
    conditions.set(statuses.SCALING_LIMITED, holds=True, reason="Draining", message=text)
    status = msgspec.structs.replace(limited.status, conditions=conditions.listed())
    return msgspec.structs.replace(
        limited,
        status=status,
        status_changed=not statuses.same_status(observation.status, status),
        trace=(*outcome.trace, Step("draining", {"replicas": limited.replicas, "pods": least - wanted})),
        spec=spec,
        draining=since,
    )


def refuse(memory: Memory, why: str, time: int) -> Decision:
    """Return what a sync at a time of day comes to whose spec is not valid."""
    observation = Observation(memory.status.current_replicas, 0, "", (), (), status=memory.status)
    return _stand_back(observation, memory.history, time, statuses.ABLE_TO_SCALE, INVALID_SPEC, why)


def _with_true_zero(observation: Observation, state: ConflictState, time: int) -> Observation:
    """Return the observation with a condition ScaledToZero that holds only for a zero that we wrote."""
    status, is_own = observation.status, state.own_zero
    if statuses.holds(status.conditions, statuses.SCALED_TO_ZERO) == is_own:
        return observation
    conditions = statuses.Conditions(status.conditions or (), time)
    conditions.set(
        statuses.SCALED_TO_ZERO, holds=is_own, reason="ScaledToZero" if is_own else "NotScaledToZero"
    )
    status = msgspec.structs.replace(status, conditions=conditions.listed())
    return msgspec.structs.replace(observation, status=status)


def _stand_back(
    observation: Observation,
    history: History,
    time: int,
    kind: str,
    reason: str,
    message: str,
    spec: PreparedSpec | None = None,
) -> Decision:
    """Return a decision that looks at no metric and says why, with an event when that begins."""
    before, current = observation.status, observation.replicas
    conditions = statuses.Conditions(before.conditions or (), time)
    conditions.set(kind, holds=False, reason=reason, message=message)
    status = HorizontalPodAutoscalerStatus(
        last_scale_time=before.last_scale_time,
        current_replicas=current,
        desired_replicas=current,
        conditions=conditions.listed(),
    )
    is_known = any((known.type, known.reason) == (kind, reason) for known in before.conditions or ())
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
    outcome: Decision, observation: Observation, history: History, time: int, reason: str, message: str
) -> Decision:
    """Return a decision without its write: no new scale event, and the target keeps its count."""
    before, current = observation.status, observation.replicas
    known = before.conditions or ()
    # From the conditions before the sync, so that one that was toggled and restored keeps its time.
    conditions = statuses.Conditions(known, time)
    conditions.set(statuses.ABLE_TO_SCALE, holds=False, reason=reason, message=message)
    for condition in outcome.status.conditions or ():
        if condition.type not in {statuses.ABLE_TO_SCALE, statuses.SCALED_TO_ZERO} and condition not in known:
            holds, text = condition.status == "True", condition.message
            conditions.set(condition.type, holds=holds, reason=condition.reason, message=text)
    status = msgspec.structs.replace(
        outcome.status, last_scale_time=before.last_scale_time, conditions=conditions.listed()
    )
    withheld = {"replicas": outcome.replicas, "current": current, "message": message}
    events = tuple(
        event for event in outcome.events if event.reason not in {"SuccessfulRescale", "FailedRescale"}
    )
    if reason == CLOCK_IN_DOUBT and not any(condition.reason == reason for condition in known):
        events += (Event("Warning", reason, message),)
    return msgspec.structs.replace(
        outcome,
        replicas=current,
        rescale=False,
        status=status,
        status_changed=not statuses.same_status(before, status),
        events=events,
        history=msgspec.structs.replace(outcome.history, ups=history.ups, downs=history.downs),
        trace=(*outcome.trace, Step("withheld", withheld)),
    )
