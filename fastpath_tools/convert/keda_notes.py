"""What of a ScaledObject a schedule has no field for: pauses, and what its autoscaler needs."""

from collections.abc import Iterator
from typing import Any

from fastpath_tools.convert import drafts

_GROUP = "autoscaling.keda.sh/"
_PAUSED, _PAUSED_REPLICAS = f"{_GROUP}paused", f"{_GROUP}paused-replicas"
_PAUSED_WAYS = {f"{_GROUP}paused-scale-in": "scaleDown", f"{_GROUP}paused-scale-out": "scaleUp"}
_FALSE = frozenset({"false", "f", "0"})

_BEHAVIOR = "spec.advanced.horizontalPodAutoscalerConfig.behavior"
_RESTORED = "spec.advanced.restoreToOriginalReplicaCount"

READ = frozenset(
    {
        *(f"metadata.annotations.{name}" for name in (_PAUSED, *_PAUSED_WAYS)),
        _BEHAVIOR,
        _RESTORED,
        "spec.cooldownPeriod",
        "spec.fallback",
        "spec.idleReplicaCount",
        "spec.maxReplicaCount",
        "spec.minReplicaCount",
        "spec.scaleTargetRef.apiVersion",
        "spec.scaleTargetRef.kind",
        "spec.scaleTargetRef.name",
        "spec.triggers[].metadata.desiredReplicas",
        "spec.triggers[].metadata.end",
        "spec.triggers[].metadata.start",
        "spec.triggers[].metadata.timezone",
        "spec.triggers[].metricType",
        "spec.triggers[].type",
    }
)
"""The fields that make a schedule, or a note of their own."""


def paused(tree: object) -> str:
    """Return how a ScaledObject is paused, "" for one that is not."""
    annotations = drafts.mapping_at(drafts.mapping_at(tree, "metadata"), "annotations")
    if _PAUSED_REPLICAS in annotations:
        return f"{_PAUSED_REPLICAS} keeps it at {annotations[_PAUSED_REPLICAS]} replicas"
    return f"{_PAUSED} keeps its count" if _is_set(annotations, _PAUSED) else ""


def autoscaler_notes(tree: dict[str, Any]) -> Iterator[str]:
    """Yield what the autoscaler needs, because a schedule has no field for it."""
    annotations = drafts.mapping_at(drafts.mapping_at(tree, "metadata"), "annotations")
    for name, rules in _PAUSED_WAYS.items():
        if _is_set(annotations, name):
            yield f"annotation {name}: the autoscaler needs spec.behavior.{rules}.selectPolicy: Disabled"
    spec = drafts.mapping_at(tree, "spec")
    advanced = drafts.mapping_at(spec, "advanced")
    behavior = drafts.mapping_at(advanced, "horizontalPodAutoscalerConfig").get("behavior")
    if behavior is not None:
        yield f"{_BEHAVIOR}: the autoscaler needs spec.behavior: {drafts.whole(behavior)}"
    if (fallback := spec.get("fallback")) is not None:
        yield (
            f"spec.fallback: {drafts.whole(fallback)}: the autoscaler needs spec.fallback of type Floor with "
            "these replicas, and scales nothing down while a metric is absent"
        )
    if advanced.get("restoreToOriginalReplicaCount"):
        yield f"{_RESTORED}: KEDA sets the count back when it is deleted: set it to false before that"


def _is_set(annotations: dict[str, Any], name: str) -> bool:
    return name in annotations and str(annotations[name]).lower() not in _FALSE
