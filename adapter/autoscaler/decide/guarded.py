"""Decides a sync with the guards that Kubernetes does not have.

The arithmetic stays upstream's. A guard changes an input of the `Sync`, or vetoes; none computes a count. A
`Veto` is shown in a condition that does not hold, in the last step of the trace, and as `Restraint.WITHHELD`;
some begin with an event. Names in capitals are of `Restraint`, whose texts are in `explain` and in kubectl's
column LimitedBy. The guards, with modules in `guards`, apply in this order:

1. Bounds (`scheduled`) change minReplicas and maxReplicas, by windows and the forecast. They come first
   because all else decides within these limits. Kubernetes evaluates no metric for a count below minReplicas,
   so a forecast could delay a higher raise: such a sync is also decided without it. A minimum that
   has fallen counts as a recommendation, and so holds for one window. Shown in the conditions ScheduleActive,
   ForecastActive and ForecastReady, in the first step, and as SCHEDULED and FORECAST.
2. `spec.mode` Paused vetoes before any metric is evaluated. It precedes the next guard: a user who pauses one
   of two autoscalers of a target needs no warning about the other. Shown in ScalingActive, with an event.
3. Rivals veto alike: another autoscaler has the same target, and two recommendations that alternate scale
   wrongly even if each is right. Shown in AbleToScale, with an event.
4. Fallback (`fallback`) changes the least count while metrics are absent. Windows and policies apply to it.
   Shown in the step "fallback" and the reason of the raise; `memory.commit` has the events. That a metric is
   absent is shown as ABSENT, and in ScalingActive where it blocks.
5. A zero of another client changes the condition ScaledToZero, by which Kubernetes leaves zero or does not.
   Shown in ScalingActive, in the step "disabled", and as DISABLED. From our own zero a minimum wakes the
   target as a fallback does.
6. Fresh values (`boost`) and lost values (`lost_values`, after 7) change readings: for boosting only fresh
   values count, and for a FastPathAutoscaler a metric whose pods lost their values may scale up, not down.
   Such a metric counts as absent where it would lower the count. Shown in the step of the metric, and for
   a FastPathAutoscaler in its event.
7. Draining sets the least count of a scale-down, which waits until the pods that go are idle, up to a time.
   Windows and policies apply to it. A count above maxReplicas is lowered at once. Shown in ScalingLimited, in
   the step "draining", and as DRAINING.

Then `decision.follow` decides, as Kubernetes. The vetoes that follow leave the status as it was decided, so a
user reads what would have happened. Each is shown in AbleToScale, of a HorizontalPodAutoscaler in what
`explain` has as its status.

8. A pause after reversals (`conflicts`) vetoes for a FastPathAutoscaler: another field manager reverted our
   writes. A boosted HorizontalPodAutoscaler is demoted instead, and guard 10 refuses its raises.
   `memory.change_event` has the event.
9. A clock in doubt vetoes a count that falls, or would without a window, because values and windows may be
   those of another time. The current count is recommended meanwhile, so the stabilization window begins when
   the clock is right. It vetoes each change by boosting, whose floor would end by that clock. It has an
   event.
10. Boosting (`refusal` of `boost`) vetoes for a HorizontalPodAutoscaler all but a raise within its limits.
   It has no event: `Controller` has NotBoosted for what is written wrong, and `memory.commit` ScalingAdvice.
11. `spec.mode` Advise vetoes last, so that the advice is exactly the count that mode Auto would write. It has
   no event.

Before all of these the reconciler has a veto for a spec that is not valid (`refuse`), shown in AbleToScale
with an event, and a failure for a target that is not found (`decision.without_scale`). What is remembered is
in `memory`.
"""

from typing import Self

import msgspec

from adapter.autoscaler.decide import decision
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards import fallback, lost_values, scheduled
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.guards.scheduled import BoundedSpec
from adapter.autoscaler.decide.memory import (
    CLOCK_IN_DOUBT,
    FOREIGN_AUTOSCALER,
    FOREIGN_WRITER,
    INVALID_SPEC,
    Memory,
)
from adapter.autoscaler.decide.observation import Observation, OptionState
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.sync import Decision, Draining, Sync, Veto
from adapter.bounds.forecast.verdict import Readiness
from adapter.bounds.timeline import NO_BOUNDS, Bounds
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.status import Conditions


class Constraints(msgspec.Struct, frozen=True):
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
    bounds = constraints.bounds or NO_BOUNDS
    if not observation.replicas:
        bounds = bounds.with_forecast(0)  # a forecast never wakes a target from zero
    within = scheduled.bounded(spec, bounds, constraints.readiness, None if last is None else last.spec)
    # A minimum that has fallen counts as a recommendation. At zero it must not: it would wake the target.
    if observation.replicas and bounds.lowest < memory.lowest:
        minimum = min(memory.lowest, spec.limits.highest)
        recommendations = memory.history.recommendations.recorded(minimum, now)
        history = msgspec.structs.replace(memory.history, recommendations=recommendations)
        memory = msgspec.structs.replace(memory, history=history)
    sync = None
    if observation.replicas < within.limits.lowest:
        sync = _run_above_forecast(within, observation, memory, now, constraints)
    if sync is None:
        sync = _run(within, observation, memory, now, constraints)
    if last is None or last.spec is not within or last.status is not memory.status:
        scheduled.set_conditions(sync.conditions, within)
    # otherwise the status has these conditions already
    _set_option(sync.conditions, statuses.FAST_USAGE, observation.fast_usage)
    _set_option(sync.conditions, statuses.IDLE_SCALE_DOWN, observation.idle_scale_down)
    return sync.close(within)  # also if it was decided without the forecast: the next one has it again


def refuse(spec: PreparedSpec, memory: Memory, why: str, time: int) -> Decision:
    """Return what a sync at a time of day comes to whose spec is not valid."""
    observation = Observation(memory.status.current_replicas, 0, "", (), ())
    sync = Sync.begin(spec, observation, memory.status, memory.history, time)
    _stand_back(sync, Veto(INVALID_SPEC, why, tells=True))
    return sync.close(spec)


def _set_option(conditions: Conditions, kind: str, state: OptionState | None) -> None:
    """Set the condition of an option, or remove it where nothing asks for the option.

    While its reason stays, its message does: it may have numbers that change with each decision.
    """
    before = conditions.find(kind)
    if state is None:
        if before is not None:
            conditions.remove(kind)
    elif before is None or before.reason != state.reason:
        conditions.set(kind, holds=state.holds, reason=state.reason, message=state.message)


def _run_above_forecast(
    spec: BoundedSpec, observation: Observation, memory: Memory, now: int, constraints: Constraints
) -> Sync | None:
    """Decide without the forecast; return that where it asks for more than the forecast, else None.

    Below minReplicas no metric is evaluated, and a forecast must not delay a raise to more than its minimum.
    """
    without = spec.without_forecast()
    if observation.replicas < without.limits.lowest:
        return None
    # Whether a write has failed must not change which of the two decisions was to be written.
    unwritten = msgspec.structs.replace(observation, write_error="")
    trial = _run(without, unwritten, memory, now, constraints)
    if trial.veto is not None or trial.replicas <= spec.limits.lowest:
        return None
    return _run(without, observation, memory, now, constraints) if observation.write_error else trial


def _run(
    spec: BoundedSpec, observation: Observation, memory: Memory, now: int, constraints: Constraints
) -> Sync:
    """Decide within bounds, with all other guards."""
    current = observation.replicas
    sync = Sync.begin(spec, observation, memory.status, memory.history, now)
    if constraints.rivals or constraints.mode == fastpath_autoscaler.PAUSED:
        return _stand_back(sync, _forbid(constraints))
    _adjust(sync, spec.bounds, memory, constraints)
    if constraints.boost is None:
        _follow_alone(sync)
    else:
        decision.follow(sync)
    if current == 0 and sync.absent is None:
        # At a zero of another client no metric was computed, so there are no recent recommendations either.
        sync.history = histories.without_recommendations(memory.history)
    falls = sync.replicas < current or (sync.wanted is not None and sync.wanted < current)
    if constraints.doubt and falls:
        sync.record(current)
    sync.conclude(_refuse(sync, spec.bounds, memory, constraints, falls=falls))
    return sync


def _forbid(constraints: Constraints) -> Veto:
    """Return why no metric is evaluated."""
    if constraints.mode == fastpath_autoscaler.PAUSED:
        text = "scaling is paused by spec.mode"
        return Veto("ScalingPaused", text, statuses.SCALING_ACTIVE, tells=True)
    text = f"target is also scaled by {', '.join(constraints.rivals)}; not scaling"
    return Veto(FOREIGN_AUTOSCALER, text, tells=True)


def _stand_back(sync: Sync, veto: Veto) -> Sync:
    """Look at no metric. Without recent recommendations scale-down stays blocked for one window then."""
    sync.history = histories.without_recommendations(sync.history)
    sync.conclude(veto)
    return sync


def _adjust(sync: Sync, bounds: Bounds, memory: Memory, constraints: Constraints) -> None:
    """Change the inputs of a sync."""
    current, own_zero = sync.observation.replicas, memory.conflicts.own_zero
    if (rules := constraints.fallback) is not None:
        sync.fallback = fallback.replicas(rules, memory.absence, sync.now)
    if current == 0 and own_zero and bounds.lowest:
        # A minimum wakes the target even if no metric has a value.
        sync.fallback = max(sync.fallback, sync.spec.limits.lowest)
    if sync.conditions.holds(statuses.SCALED_TO_ZERO) != own_zero:
        reason = "ScaledToZero" if own_zero else "NotScaledToZero"
        sync.conditions.set(statuses.SCALED_TO_ZERO, holds=own_zero, reason=reason)
    if constraints.mode == fastpath_autoscaler.BOOST:
        sync.readings = boosting.fresh(sync.readings)
    if (longest := constraints.drain) is not None:
        since = sync.now if memory.draining is None else memory.draining
        if sync.now - since < longest:
            sync.drain = Draining(current - (sync.observation.idle or 0), since)


def _follow_alone(sync: Sync) -> None:
    """Decide for a FastPathAutoscaler: a metric of pods that lost their values may scale up, not down.

    While that blocks, the count is recommended: once it ends, the stabilization window begins. After a start
    it begins with the first value, not with the first sync: what was recommended before is not known.
    """
    before, sources = sync.history, sync.spec.sources
    sync.readings, reporting, blocks = lost_values.follow(
        before.reporting, sources, sync.observation, sync.readings, sync.now
    )
    if reporting is not before.reporting:
        sync.history = msgspec.structs.replace(before, reporting=reporting)
    decision.follow(sync)
    if sync.rescales or sync.conditions.holds(statuses.SCALING_ACTIVE):
        return
    if before.recommendations.empty:
        sync.history = msgspec.structs.replace(sync.history, recommendations=before.recommendations)
    elif blocks:
        sync.record(sync.observation.replicas)


def _refuse(
    sync: Sync, bounds: Bounds, memory: Memory, constraints: Constraints, *, falls: bool
) -> Veto | None:
    """Return why the count of a sync is not to be written, None if it may be.

    `falls` says that it is lower, or would be if no window held it.
    """
    boost, doubt = constraints.boost, constraints.doubt
    if memory.conflicts.is_paused(sync.now):
        return Veto(FOREIGN_WRITER, memory.conflicts.why_paused)
    if doubt and (falls or (boost is not None and sync.rescales)):
        return Veto(CLOCK_IN_DOUBT, f"{doubt}: no count is lowered, and no floor is set", tells=True)
    if not sync.rescales:
        return None
    if boost is not None:
        why = boosting.refusal(sync, memory.boost, boost, bounds.lowest)
        return Veto(boosting.NOT_BOOSTED, why) if why else None
    if constraints.mode == fastpath_autoscaler.ADVISE:
        return Veto("AdviseOnly", f"would scale to {sync.replicas}, but spec.mode is Advise")
    return None
