"""The bounds of windows and of a forecast in a decision.

A window changes minReplicas and maxReplicas, a forecast minReplicas, and nothing else: the decision is that
of an autoscaler with these bounds. Two rules are added. Where the minimum falls, because its window ends, its
schedule is changed or deleted, or the forecast is lower, it counts as a recommendation of that moment. So the
scale-down waits for its stabilization window, as that of a HorizontalPodAutoscaler does, which has read the
minimum as a metric. And a forecast never wakes a target from zero. `guarded` applies both.

Where an autoscaler has too many schedules, some do not count, and their minimums are not known. Its bounds
then hold the count that it has as a minimum, so that it is not scaled down.
"""

from collections.abc import Mapping

import msgspec

from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.decide.trace import Step
from adapter.bounds.forecast.verdict import PENDING, Readiness
from adapter.bounds.timeline import NO_BOUNDS, Bounds
from adapter.model.autoscaling.status import FORECAST_ACTIVE, FORECAST_READY, SCHEDULE_ACTIVE, Conditions

TOO_MANY_WINDOWS = "TooManyWindows"

_MOST_NAMED = 20
"""How many windows are named: an autoscaler may have hundreds, and the text is written at each boundary."""


class BoundedSpec(PreparedSpec, frozen=True, kw_only=True):
    """A spec with the limits that it has within bounds, and with what decisions show of these.

    It is made when `own`, the spec without bounds, the bounds, or the condition of the forecast change, and
    is kept from decision to decision. `texts` are reason and message of each condition of bounds that holds.
    """

    own: PreparedSpec
    bounds: Bounds
    readiness: Readiness | None
    texts: Mapping[str, tuple[str, str]]

    def without_forecast(self) -> "BoundedSpec":
        """Return it with the limits that it has without the forecast, which is shown all the same."""
        limits = self.bounds.with_forecast(0).limits(*self.own.limits)
        return msgspec.structs.replace(self, limits=ReplicaLimits(*limits))


def bounded(
    spec: PreparedSpec, bounds: Bounds, readiness: Readiness | None, last: PreparedSpec | None = None
) -> BoundedSpec:
    """Return a spec within bounds: `last` if that was made from the same."""
    if (
        isinstance(last, BoundedSpec)
        and last.own is spec
        and last.readiness is readiness
        and (last.bounds is bounds or last.bounds == bounds)
    ):
        return last
    plain = msgspec.structs.asdict(spec)
    if bounds != NO_BOUNDS:
        least, most = bounds.limits(*spec.limits)
        opening = Step("schedule", (describe(bounds), least, most, bounds.forecast or msgspec.UNSET))
        plain |= {"limits": ReplicaLimits(least, most), "opening": (opening,)}
        if least > spec.limits.lowest:
            plain["lowest"] = Restraint.FORECAST if bounds.forecast == least else Restraint.SCHEDULED
        if most < spec.limits.highest:
            plain["highest"] = Restraint.SCHEDULED
    return BoundedSpec(
        **plain, own=spec, bounds=bounds, readiness=readiness, texts=_texts(spec.limits, bounds)
    )


# -- conditions ----------------------------------------------------------------------------------------------


_INACTIVE = {
    SCHEDULE_ACTIVE: ("NoActiveWindow", "no window of a schedule is active"),
    FORECAST_ACTIVE: ("NoFloor", "the forecast gives no floor"),
}
"""Reason and message of a condition that no longer holds."""


def set_conditions(conditions: Conditions, spec: BoundedSpec) -> None:
    """Set the conditions of bounds and of a forecast.

    Without a forecast its condition is removed. Before the first verdict of an owner that condition stays as
    the former owner left it.
    """
    readiness = spec.readiness
    for kind, ended in _INACTIVE.items():
        text = spec.texts.get(kind)
        if text is not None or conditions.holds(kind):
            reason, message = text or ended
            conditions.set(kind, holds=text is not None, reason=reason, message=message)
    if readiness is None:
        conditions.remove(FORECAST_READY)
    elif conditions.find(FORECAST_READY) is None or readiness.reason != PENDING:
        holds, reason, message = readiness
        conditions.set(FORECAST_READY, holds=holds, reason=reason, message=message)


def _texts(own: ReplicaLimits, bounds: Bounds) -> Mapping[str, tuple[str, str]]:
    """Return reason and message of the conditions that hold, by type."""
    least, _ = bounds.limits(*own)
    lowest, highest = bounds.with_forecast(0).limits(*own)
    texts = {}
    if bounds.windows or bounds.early or bounds.excess:
        reason = TOO_MANY_WINDOWS if bounds.excess else "WindowActive" if bounds.windows else "WindowAhead"
        why = "; ".join(filter(None, (describe(bounds), bounds.excess)))
        text = f"minReplicas {lowest}, maxReplicas {highest}: {why}"
        texts[SCHEDULE_ACTIVE] = (reason, text)
    if bounds.forecast:
        # One that changes nothing is not written as a number: the status would change each minute.
        by = "by the forecast" if least > lowest else "with or without the forecast"
        texts[FORECAST_ACTIVE] = ("FloorActive", f"minReplicas {least} {by}")
    return texts


def describe(bounds: Bounds) -> str:
    """Return the windows as text, "" for none; the first of many, and how many more there are."""
    names = (*bounds.windows, *(f"{name} (begins soon)" for name in bounds.early))
    more = [f"{len(names) - _MOST_NAMED} more"] if len(names) > _MOST_NAMED else []
    return ", ".join((*names[:_MOST_NAMED], *more))
