"""The bounds of schedules, and the floor of a forecast, in a decision.

A window changes minReplicas and maxReplicas, a forecast minReplicas, and nothing else: the decision is that
of an autoscaler with these bounds. Two rules are added. Where a floor falls, because its window ends, its
schedule is changed or deleted, or the forecast is lower, the floor counts as a recommendation of that moment.
So the scale-down waits for its stabilization window, as that of a HorizontalPodAutoscaler does, which has
read the floor as a metric. And a forecast never wakes a target from zero (`for_count`).

Where an autoscaler has too many schedules, some do not count, and their floors are not known. Its bounds then
hold the count that it has as a floor, so that it is not scaled down.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.trace import Step
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.status import FORECAST_ACTIVE, FORECAST_READY, SCHEDULE_ACTIVE, Conditions
from adapter.model.forecasts.readiness import PENDING, Readiness
from adapter.model.schedules import bounds as schedule_bounds
from adapter.model.schedules.bounds import ScheduledBounds

TOO_MANY_WINDOWS = "TooManyWindows"

_MOST_NAMED = 20
"""How many windows are named: an autoscaler may have hundreds, and the text is written at each boundary."""


class BoundedSpec(PreparedSpec, frozen=True, kw_only=True):
    """A spec with the limits that it has within bounds, and with what decisions show of these.

    It is made when `own`, the spec without bounds, the bounds, or the condition of the forecast change, and
    is kept from decision to decision. `floor` is that of the bounds, 0 for none. `texts` are what the
    conditions of bounds say.
    """

    own: PreparedSpec
    bounds: ScheduledBounds | None
    readiness: Readiness | None
    floor: int
    texts: "_Texts"

    def is_below_forecast(self, replicas: int) -> bool:
        """Tell whether a count is below the floor of a forecast, and within all other bounds."""
        bounds = self.bounds
        if bounds is None or not replicas or replicas >= bounds.forecast:
            return False
        return self.without_forecast().limits.lowest <= replicas < self.limits.lowest

    def without_forecast(self) -> "BoundedSpec":
        """Return it with the limits that it has without the forecast, which is shown all the same."""
        limits = schedule_bounds.limits(*self.own.limits, without_forecast(self.bounds))
        return msgspec.structs.replace(self, limits=ReplicaLimits(*limits))


def bounded(
    spec: PreparedSpec,
    bounds: ScheduledBounds | None,
    readiness: Readiness | None,
    last: PreparedSpec | None = None,
) -> BoundedSpec:
    """Return a spec within bounds: `last` if that was made from the same."""
    if (
        isinstance(last, BoundedSpec)
        and last.own is spec
        and last.bounds is bounds
        and last.readiness is readiness
    ):
        return last
    plain = msgspec.structs.asdict(spec)
    texts: _Texts = {}
    if bounds is not None:
        least, most = schedule_bounds.limits(*spec.limits, bounds)
        facts = {"windows": describe(bounds), "min": least, "max": most}
        if bounds.forecast:
            facts["forecast"] = bounds.forecast
        plain |= {"limits": ReplicaLimits(least, most), "opening": (Step("schedule", facts),)}
        texts = _texts(spec.limits, bounds)
    floor = floor_of(bounds)
    return BoundedSpec(**plain, own=spec, bounds=bounds, readiness=readiness, floor=floor, texts=texts)


def for_count(bounds: ScheduledBounds | None, replicas: int) -> ScheduledBounds | None:
    """Return the bounds as they count for a target with so many replicas: at zero without the forecast."""
    return bounds if replicas else without_forecast(bounds)


def without_forecast(bounds: ScheduledBounds | None) -> ScheduledBounds | None:
    """Return the bounds of the windows alone, None for none."""
    return bounds if bounds is None or not bounds.forecast else schedule_bounds.with_forecast(bounds, 0)


def floor_of(bounds: ScheduledBounds | None) -> int:
    """Return the floor of bounds, 0 for none."""
    return 0 if bounds is None else bounds.lowest


def held(history: History, before: int, floor: int, highest: int, now: int) -> History:
    """Return the history, with a recommendation of the former floor `before` if that has fallen at `now`."""
    if floor >= before:
        return history
    recommendations = history.recommendations.recorded(min(before, highest), now, 0)
    return msgspec.structs.replace(history, recommendations=recommendations)


# -- conditions ----------------------------------------------------------------------------------------------


class _ConditionText(NamedTuple):
    reason: str
    message: str


_INACTIVE = {
    SCHEDULE_ACTIVE: _ConditionText("NoActiveWindow", "no window of a schedule is active"),
    FORECAST_ACTIVE: _ConditionText("NoFloor", "the forecast gives no floor"),
}
"""What is said of a condition that no longer holds."""

_Texts = Mapping[str, _ConditionText]
"""What is said of the conditions that hold, by type."""


def told(made: Decision, spec: BoundedSpec, now: int) -> Decision:
    """Return a decision with the conditions of bounds and of a forecast.

    Without a forecast its condition is removed. Before the first verdict of a leader that condition stays as
    the former leader left it.
    """
    before, texts, readiness = made.status.conditions or (), spec.texts, spec.readiness
    if _are_shown(before, texts, readiness):
        return made
    found, known = Conditions(before, now), {each.type: each for each in before}
    for kind, ended in _INACTIVE.items():
        said = texts.get(kind)
        if said is not None or (kind in known and known[kind].status == "True"):
            text = said or ended
            found.set(kind, holds=said is not None, reason=text.reason, message=text.message)
    if readiness is None:
        found.remove(FORECAST_READY)
    elif FORECAST_READY not in known or readiness.reason != PENDING:
        found.set(FORECAST_READY, holds=readiness.holds, reason=readiness.reason, message=readiness.message)
    status: HorizontalPodAutoscalerStatus = msgspec.structs.replace(made.status, conditions=found.listed())
    is_changed = made.status_changed or status != made.status
    return msgspec.structs.replace(made, status=status, status_changed=is_changed)


def _are_shown(conditions: Sequence[Condition], texts: _Texts, readiness: Readiness | None) -> bool:
    """Tell whether conditions stay as they are."""
    missing = len(texts) + (readiness is not None)
    for each in conditions:
        if each.type in _INACTIVE:
            said = texts.get(each.type)
            if said is None:
                if each.status == "True":
                    return False
                continue
            if each.reason != said.reason or each.message != said.message or each.status != "True":
                return False
        elif each.type == FORECAST_READY:
            if readiness is None or not _is_shown(each, readiness):
                return False
        else:
            continue
        missing -= 1
    return not missing


def _is_shown(condition: Condition, readiness: Readiness) -> bool:
    if readiness.reason == PENDING:
        return True
    if condition.reason != readiness.reason or condition.message != readiness.message:
        return False
    return (condition.status == "True") is readiness.holds


def _texts(own: ReplicaLimits, bounds: ScheduledBounds) -> _Texts:
    texts = {
        SCHEDULE_ACTIVE: _of_windows(*own, without_forecast(bounds)),
        FORECAST_ACTIVE: _of_forecast(*own, bounds),
    }
    return {kind: text for kind, text in texts.items() if text is not None}


def _of_windows(lowest: int, highest: int, bounds: ScheduledBounds | None) -> _ConditionText | None:
    """Return what the windows give, None if none is active or begins soon."""
    if bounds is None:
        return None
    lowest, highest = schedule_bounds.limits(lowest, highest, bounds)
    reason = TOO_MANY_WINDOWS if bounds.excess else "WindowActive" if bounds.windows else "WindowAhead"
    why = "; ".join(filter(None, (describe(bounds), bounds.excess)))
    return _ConditionText(reason, f"minReplicas {lowest}, maxReplicas {highest}: {why}")


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
    """Return the windows as text, "" for none; the first of many, and how many more there are."""
    names = (*bounds.windows, *(f"{name} (begins soon)" for name in bounds.early))
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return ", ".join((*names[:_MOST_NAMED], *more))
