"""The bounds of schedules, and the floor of a forecast, in a decision.

A window changes minReplicas and maxReplicas, a forecast minReplicas, and nothing else: the decision is that
of an autoscaler with these bounds. Two rules are added. Where a floor falls, because its window ends, its
schedule is changed or deleted, or the forecast is lower, the floor counts as a recommendation of that moment.
So the scale-down waits for its stabilization window, as that of a HorizontalPodAutoscaler does, which has
read the floor as a metric. And a forecast never wakes a target from zero (`for_count`).
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.trace import Step
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.status import FORECAST_ACTIVE, FORECAST_READY, SCHEDULE_ACTIVE, Conditions
from adapter.model.forecasts.readiness import PENDING, Readiness
from adapter.model.schedules import bounds as schedule_bounds
from adapter.model.schedules.bounds import ScheduledBounds


def for_count(bounds: ScheduledBounds | None, replicas: int) -> ScheduledBounds | None:
    """Return the bounds as they count for a target with so many replicas: at zero without the forecast."""
    return bounds if replicas else without_forecast(bounds)


def without_forecast(bounds: ScheduledBounds | None) -> ScheduledBounds | None:
    """Return the bounds of the windows alone, None for none."""
    return bounds if bounds is None or not bounds.forecast else schedule_bounds.with_forecast(bounds, 0)


def is_below_forecast(spec: PreparedSpec, bounds: ScheduledBounds | None, replicas: int) -> bool:
    """Tell whether a count is below the floor of a forecast, and within all other bounds."""
    if bounds is None or not replicas or replicas >= bounds.forecast:
        return False
    without, _ = schedule_bounds.limits(*spec.limits, without_forecast(bounds))
    return without <= replicas < schedule_bounds.limits(*spec.limits, bounds)[0]


def bounded(spec: PreparedSpec, bounds: ScheduledBounds | None) -> PreparedSpec:
    """Return the spec with the limits that it has within bounds."""
    limits = ReplicaLimits(*schedule_bounds.limits(*spec.limits, bounds))
    return spec if limits == spec.limits else msgspec.structs.replace(spec, limits=limits)


def floor_of(bounds: ScheduledBounds | None) -> int:
    """Return the floor of bounds, 0 for none."""
    return 0 if bounds is None else bounds.lowest


def held(history: History, before: int, bounds: ScheduledBounds | None, highest: int, now: int) -> History:
    """Return the history, with a recommendation of the former floor `before` if that has fallen at `now`."""
    if floor_of(bounds) >= before:
        return history
    recommendations = history.recommendations.recorded(min(before, highest), now, 0)
    return msgspec.structs.replace(history, recommendations=recommendations)


def told(made: Decision, spec: PreparedSpec, bounds: ScheduledBounds | None, now: int) -> Decision:
    """Return a decision with the bounds in its trace and in the conditions. `spec` has its own limits."""
    before = made.status.conditions or ()
    texts: _Texts = {}
    if bounds is not None:
        step, texts = _shown(*spec.limits, bounds)
        made = msgspec.structs.replace(made, trace=(step, *made.trace))
    elif not any(statuses.holds(before, kind) for kind in _INACTIVE):
        return made
    found: Conditions | None = None
    for kind, ended in _INACTIVE.items():
        said = texts.get(kind)
        condition = _find(before, kind)
        if said is None:
            if condition is None or condition.status != "True":
                continue
        elif condition is not None and ("True", *said) == _said(condition):
            continue
        found = found or Conditions(before, now)
        text = said or ended
        found.set(kind, holds=said is not None, reason=text.reason, message=text.message)
    return made if found is None else _with_status(made, found)


def with_readiness(made: Decision, readiness: Readiness | None, now: int) -> Decision:
    """Return a decision with the condition of a forecast, without it if `readiness` is None.

    Before the first verdict of a leader the condition stays as the former leader left it.
    """
    before = made.status.conditions or ()
    known = _find(before, FORECAST_READY)
    if readiness is None:
        if known is None:
            return made
    elif known is not None and _is_shown(readiness, known):
        return made
    found = Conditions(before, now)
    if readiness is None:
        found.remove(FORECAST_READY)
    else:
        found.set(FORECAST_READY, holds=readiness.holds, reason=readiness.reason, message=readiness.message)
    return _with_status(made, found)


def _find(conditions: Sequence[Condition], kind: str) -> Condition | None:
    for each in conditions:  # a loop takes half the time of `next` with a generator
        if each.type == kind:
            return each
    return None


def _is_shown(readiness: Readiness, known: Condition) -> bool:
    """Tell whether a condition stays as it is."""
    said = (str(readiness.holds), readiness.reason, readiness.message)
    return readiness.reason == PENDING or said == _said(known)


def _said(condition: Condition) -> tuple[str, str | None, str | None]:
    return condition.status, condition.reason, condition.message


def _with_status(made: Decision, conditions: Conditions) -> Decision:
    status: HorizontalPodAutoscalerStatus = msgspec.structs.replace(
        made.status, conditions=conditions.listed()
    )
    is_changed = made.status_changed or status != made.status
    return msgspec.structs.replace(made, status=status, status_changed=is_changed)


class _ConditionText(NamedTuple):
    reason: str
    message: str


_INACTIVE = {
    SCHEDULE_ACTIVE: _ConditionText("NoActiveWindow", "no window of a schedule is active"),
    FORECAST_ACTIVE: _ConditionText("NoFloor", "the forecast gives no floor"),
}
"""What is said of a condition that no longer holds."""

_Texts = Mapping[str, _ConditionText | None]
"""What is said of a condition by its type, None or nothing of one that does not hold."""


@lru_cache(4096)
def _shown(lowest: int, highest: int, bounds: ScheduledBounds) -> tuple[Step, _Texts]:
    """Return what is shown of bounds of a spec with these limits: it seldom changes between decisions."""
    least, most = schedule_bounds.limits(lowest, highest, bounds)
    facts = {"windows": describe(bounds), "min": least, "max": most}
    if bounds.forecast:
        facts["forecast"] = bounds.forecast
    texts = {
        SCHEDULE_ACTIVE: _of_windows(lowest, highest, bounds),
        FORECAST_ACTIVE: _of_forecast(lowest, highest, bounds),
    }
    return Step("schedule", facts), texts


def _of_windows(lowest: int, highest: int, bounds: ScheduledBounds | None) -> _ConditionText | None:
    """Return what the windows give alone, None if none is active or begins soon."""
    bounds = without_forecast(bounds)
    if bounds is None:
        return None
    lowest, highest = schedule_bounds.limits(lowest, highest, bounds)
    reason = "WindowActive" if bounds.windows else "WindowAhead"
    return _ConditionText(reason, f"minReplicas {lowest}, maxReplicas {highest}: {describe(bounds)}")


def _of_forecast(lowest: int, highest: int, bounds: ScheduledBounds) -> _ConditionText | None:
    """Return what the forecast gives, None without a floor.

    A forecast that changes nothing is not written as a number: the status would change each minute.
    """
    if not bounds.forecast:
        return None
    least, _ = schedule_bounds.limits(lowest, highest, bounds)
    without, _ = schedule_bounds.limits(lowest, highest, without_forecast(bounds))
    by = "by the forecast" if least > without else "with or without the forecast"
    return _ConditionText("FloorActive", f"minReplicas {least} {by}")


def describe(bounds: ScheduledBounds) -> str:
    """Return the windows as text, "" for none."""
    return ", ".join((*bounds.windows, *(f"{name} (begins soon)" for name in bounds.early)))
