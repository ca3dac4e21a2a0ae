"""The bounds of schedules in a decision.

A window changes minReplicas and maxReplicas, and nothing else: the decision is that of an autoscaler with
these bounds. One rule is added. Where a floor falls, because its window ends or its schedule is changed or
deleted, the floor counts as a recommendation of that moment. So the scale-down waits for its stabilization
window, as that of a HorizontalPodAutoscaler does, which has read the floor as a metric.
"""

import msgspec

from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.trace import Step
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.status import SCHEDULE_ACTIVE, Conditions
from adapter.model.schedules import bounds as schedule_bounds
from adapter.model.schedules.bounds import ScheduledBounds


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
    """Return a decision with the bounds in its trace and in the conditions. `spec` is the bounded one."""
    status = made.status
    if bounds is None:
        if not statuses.holds(status.conditions, SCHEDULE_ACTIVE):
            return made
        return _with_condition(made, now, holds=False, reason="NoActiveWindow", message=_NO_WINDOW)
    lowest, highest = spec.limits
    names = describe(bounds)
    step = Step("schedule", {"windows": names, "min": lowest, "max": highest})
    made = msgspec.structs.replace(made, trace=(step, *made.trace))
    reason = "WindowActive" if bounds.windows else "WindowAhead"
    message = f"minReplicas {lowest}, maxReplicas {highest}: {names}"
    return _with_condition(made, now, holds=True, reason=reason, message=message)


_NO_WINDOW = "no window of a schedule is active"


def describe(bounds: ScheduledBounds) -> str:
    """Return the windows as text."""
    return ", ".join((*bounds.windows, *(f"{name} (begins soon)" for name in bounds.early)))


def _with_condition(made: Decision, now: int, *, holds: bool, reason: str, message: str) -> Decision:
    found = Conditions(made.status.conditions or (), now)
    found.set(SCHEDULE_ACTIVE, holds=holds, reason=reason, message=message)
    status: HorizontalPodAutoscalerStatus = msgspec.structs.replace(made.status, conditions=found.listed())
    is_changed = made.status_changed or status != made.status
    return msgspec.structs.replace(made, status=status, status_changed=is_changed)
