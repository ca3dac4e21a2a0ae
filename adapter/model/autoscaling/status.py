"""The status of an autoscaler: its conditions, its text in kubectl's column, and the comparison of statuses.

The texts of conditions are upstream's, byte for byte; only what is written to a FastPathAutoscaler names the
autoscaler where they name the HPA. A condition keeps its position and, while its status does not change, its
time.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from adapter.model.autoscaling import hpa
from adapter.model.timestamps import Instant

ABLE_TO_SCALE = "AbleToScale"
SCALING_ACTIVE = "ScalingActive"
SCALING_LIMITED = "ScalingLimited"
SCALED_TO_ZERO = "ScaledToZero"
SCHEDULE_ACTIVE = "ScheduleActive"
"""Our own: whether a window of a schedule sets bounds."""
FORECAST_ACTIVE = "ForecastActive"
"""Our own: whether a forecast gives a floor."""
FORECAST_READY = "ForecastReady"
"""Our own: whether there is a verdict on the forecasts."""
FAST_USAGE = "FastUsage"
"""Our own: whether the usage that the pods expose themselves counts."""
IDLE_SCALE_DOWN = "IdleScaleDown"
"""Our own: whether scale-downs remove the idlest pods first."""

MESSAGES = {
    "SucceededGetScale": "the HPA controller was able to get the target's current scale",
    "ReadyForNewScale": "recommended size matches current size",
    "ScaleDownStabilized": (
        "recent recommendations were higher than current one, applying the highest recent recommendation"
    ),
    "ScaleUpStabilized": (
        "recent recommendations were lower than current one, applying the lowest recent recommendation"
    ),
    "ScalingDisabled": "scaling is disabled since the replica count of the target is zero",
    "DesiredWithinRange": "the desired count is within the acceptable range",
    "TooFewReplicas": "the desired replica count is less than the minimum replica count",
    "TooManyReplicas": "the desired replica count is more than the maximum replica count",
    "ScaleUpLimit": "the desired replica count is increasing faster than the maximum scale rate",
    "ScaleDownLimit": "the desired replica count is decreasing faster than the maximum scale rate",
    "ScaledToZero": "the HPA controller scaled the workload to zero",
    "NotScaledToZero": "the HPA controller did not scale the workload to zero",
}
"""What each reason says that needs no number or error."""


class Conditions:
    """The conditions of one sync, at a time of day, in the making."""

    __slots__ = ("_before", "_listed", "_time")

    def __init__(self, before: tuple[hpa.Condition, ...], time: int) -> None:
        self._before = before
        self._listed = list(before)
        self._time = time

    def set(self, kind: str, *, holds: bool, reason: str, message: str = "") -> None:
        """Set the first condition of its type, or append one. The default message is that of the reason."""
        status = "True" if holds else "False"
        text = message or MESSAGES[reason]
        for place, before in enumerate(self._listed):
            if before.type == kind:
                if before.status != status:
                    self._listed[place] = hpa.Condition(kind, status, reason, text, Instant(self._time))
                elif before.reason != reason or before.message != text:
                    since = before.last_transition_time
                    self._listed[place] = hpa.Condition(kind, status, reason, text, since)
                return
        self._listed.append(hpa.Condition(kind, status, reason, text, Instant(self._time)))

    def remove(self, kind: str) -> None:
        self._listed = [condition for condition in self._listed if condition.type != kind]

    def find(self, kind: str) -> hpa.Condition | None:
        for condition in self._listed:
            if condition.type == kind:
                return condition
        return None

    def holds(self, kind: str) -> bool:
        for condition in self._listed:
            if condition.type == kind:
                return condition.status == "True"
        return False

    def settle(self) -> None:
        """Give the conditions that were changed and restored the time that they had before the sync."""
        for place, after in enumerate(self._listed):
            before = find(self._before, after.type)
            if before is not None and before.status == after.status:
                since = before.last_transition_time
                if after.last_transition_time != since:
                    self._listed[place] = replace(after, last_transition_time=since)

    def listed(self) -> tuple[hpa.Condition, ...]:
        """Return the conditions: the object that was there before if they are equal to it."""
        listed = tuple(self._listed)
        return self._before if listed == self._before else listed


def find(conditions: Sequence[hpa.Condition] | None, kind: str) -> hpa.Condition | None:
    """Return the first condition of a type, None without one."""
    for condition in conditions or ():
        if condition.type == kind:
            return condition
    return None


def holds(conditions: Sequence[hpa.Condition] | None, kind: str) -> bool:
    """Tell whether the first condition of a type is True."""
    condition = find(conditions, kind)
    return condition is not None and condition.status == "True"


_SUBJECT = re.compile(r"\Athe HPA (?:controller )?")
"""How the messages begin that name the HPA."""


def without_hpa(status: hpa.HorizontalPodAutoscalerStatus) -> hpa.HorizontalPodAutoscalerStatus:
    """Return a status whose messages begin with the autoscaler where upstream's begin with the HPA."""
    own = (
        replace(condition, message=_SUBJECT.sub("the autoscaler ", condition.message))
        for condition in status.conditions or ()
    )
    return replace(status, conditions=tuple(own))


def same_status(left: hpa.HorizontalPodAutoscalerStatus, right: hpa.HorizontalPodAutoscalerStatus) -> bool:
    """Tell whether two statuses mean the same: quantities as numbers, absent lists as empty ones.

    A status that means the same is not written.
    """
    return (
        (left.current_replicas, left.desired_replicas) == (right.current_replicas, right.desired_replicas)
        and (left.last_scale_time, left.observed_generation)
        == (right.last_scale_time, right.observed_generation)
        and (left.conditions or ()) == (right.conditions or ())
        and (left.current_metrics or ()) == (right.current_metrics or ())
    )


_SHOWN = 2
_UNKNOWN = "<unknown>"
_NO_STATUS = hpa.MetricStatus()


def describe_targets(metrics: Sequence[hpa.MetricSpec], statuses: Sequence[hpa.MetricStatus]) -> str:
    """Return the text for metrics and their statuses, which are in the same order and may be fewer."""
    if not metrics:
        return "<none>"
    statuses = [*statuses, *[_NO_STATUS] * len(metrics)]
    listed = [_describe(metric, status) for metric, status in zip(metrics[:_SHOWN], statuses, strict=False)]
    more = f" + {len(metrics) - _SHOWN} more..." if len(metrics) > _SHOWN else ""
    return ", ".join(listed) + more


class DescribedValue(NamedTuple):
    """The current and the target value of a metric as texts, and their quotient, None without a value."""

    current: str
    target: str
    ratio: float | None


def describe_value(metric: hpa.MetricSpec, status: hpa.MetricStatus | None) -> DescribedValue:
    status = status or _NO_STATUS
    text = _describe(metric, status).rpartition(": ")[2].removesuffix(" (avg)")
    current, _, target = text.partition("/")
    pair = compare(metric, status)
    return DescribedValue(current, target, None if pair is None else pair[0] / pair[1])


def _sides(
    metric: hpa.MetricSpec, status: hpa.MetricStatus
) -> tuple[hpa.MetricSource | None, hpa.MetricValueStatus | None]:
    """Return the source of a metric, and what was measured of it; None for what is absent."""
    for field in ("resource", "container_resource", "pods", "object", "external"):
        source = getattr(metric, field)
        if source is not None:
            measured = getattr(status, field)
            return source, measured and measured.current
    return None, None


def compare(metric: hpa.MetricSpec, status: hpa.MetricStatus) -> tuple[int, int] | None:
    """Return a value and its target in one unit, per cent or thousandths; None where they have none."""
    source, current = _sides(metric, status)
    if source is None or current is None:
        return None
    target = source.target
    if current.average_utilization is not None and target.average_utilization:
        return current.average_utilization, target.average_utilization
    for value, wanted in ((current.average_value, target.average_value), (current.value, target.value)):
        if value is not None and wanted is not None and wanted.milli:
            return value.milli, wanted.milli
    return None


def _describe(metric: hpa.MetricSpec, status: hpa.MetricStatus) -> str:
    source, current = _sides(metric, status)
    match source:
        case None:
            return "<unknown type>"
        case hpa.ResourceMetricSource() | hpa.ContainerResourceMetricSource():
            return _resource(source.name, source.target, current)
        case hpa.PodsMetricSource():
            return _pair(current, source.target, per_pod=True)
        case _:  # a metric of no pod, whose target may be a total or a value per pod
            per_pod = source.target.average_value is not None
            return _pair(current, source.target, per_pod=per_pod) + (" (avg)" if per_pod else "")


def _resource(name: str, target: hpa.MetricTarget, current: hpa.MetricValueStatus | None) -> str:
    if target.average_value is not None:
        return f"{name}: {_pair(current, target, per_pod=True)}"
    share = None if current is None else current.average_utilization
    wanted = "<auto>" if target.average_utilization is None else f"{target.average_utilization}%"
    return f"{name}: {_UNKNOWN if share is None else f'{share}%'}/{wanted}"


def _pair(current: hpa.MetricValueStatus | None, target: hpa.MetricTarget, *, per_pod: bool) -> str:
    wanted = target.average_value if per_pod else target.value
    value = None if current is None else current.average_value if per_pod else current.value
    return f"{_UNKNOWN if value is None else value}/{_UNKNOWN if wanted is None else wanted}"
