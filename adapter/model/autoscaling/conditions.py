"""The conditions of an autoscaler's status: their texts, updates, and the comparison of statuses.

The texts are upstream's, byte for byte. A condition keeps its position and, while its status does not change,
its time.
"""

from collections.abc import Sequence
from typing import Any

from adapter.model.autoscaling.hpa import (
    Condition,
    HorizontalPodAutoscalerStatus,
    MetricIdentifier,
    MetricStatus,
    MetricValueStatus,
)
from adapter.model.timestamps import Instant

ABLE_TO_SCALE = "AbleToScale"
SCALING_ACTIVE = "ScalingActive"
SCALING_LIMITED = "ScalingLimited"
SCALED_TO_ZERO = "ScaledToZero"

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
    """The conditions of one sync in the making."""

    __slots__ = ("_listed", "_now")

    def __init__(self, before: Sequence[Condition], now: int) -> None:
        self._listed = list(before)
        self._now = Instant(now)

    def set(self, kind: str, *, holds: bool, reason: str, message: str = "") -> None:
        """Set the first condition of its type, or append one. The default message is that of the reason."""
        status = "True" if holds else "False"
        text = message or MESSAGES[reason]
        for place, before in enumerate(self._listed):
            if before.type == kind:
                since = before.last_transition_time if before.status == status else self._now
                self._listed[place] = Condition(kind, status, reason, text, since)
                return
        self._listed.append(Condition(kind, status, reason, text, self._now))

    def remove(self, kind: str) -> None:
        """Remove every condition of a type."""
        self._listed = [condition for condition in self._listed if condition.type != kind]

    def listed(self) -> tuple[Condition, ...]:
        """Return the conditions in their order."""
        return tuple(self._listed)


def holds(conditions: Sequence[Condition] | None, kind: str) -> bool:
    """Tell whether the first condition of a type is True."""
    return next(
        (condition.status == "True" for condition in conditions or () if condition.type == kind), False
    )


def same_status(left: HorizontalPodAutoscalerStatus, right: HorizontalPodAutoscalerStatus) -> bool:
    """Tell whether two statuses mean the same: quantities as numbers, absent lists as empty ones.

    A status that means the same is not written.
    """
    return (
        (left.current_replicas, left.desired_replicas) == (right.current_replicas, right.desired_replicas)
        and (left.last_scale_time, left.observed_generation)
        == (right.last_scale_time, right.observed_generation)
        and (left.conditions or ()) == (right.conditions or ())
        and [*map(_meaning, left.current_metrics or ())] == [*map(_meaning, right.current_metrics or ())]
    )


def _meaning(status: MetricStatus) -> tuple[Any, ...]:
    """Return what is compared of a metric's status."""
    resource, container = status.resource, status.container_resource
    pods, described, external = status.pods, status.object, status.external
    return (
        status.type,
        resource and (resource.name, _current(resource.current)),
        container and (container.name, container.container, _current(container.current)),
        pods and (_identifier(pods.metric), _current(pods.current)),
        described
        and (described.described_object, _identifier(described.metric), _current(described.current)),
        external and (_identifier(external.metric), _current(external.current)),
    )


def _identifier(metric: MetricIdentifier) -> tuple[Any, ...]:
    return metric.name, metric.selector and metric.selector.shown()


def _current(current: MetricValueStatus) -> tuple[Any, ...]:
    return current.value, current.average_value, current.average_utilization
