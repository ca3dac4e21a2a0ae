"""The rules, metrics and autoscalers of the benchmarks."""

from collections.abc import Sequence
from typing import Any

import msgspec

from adapter.model.autoscaling import boost
from adapter.model.autoscaling.hpa import encode_scalar

SUM = "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
RATE = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)"


def pods_rule(series: str, query: str = SUM, **more: object) -> dict[str, Any]:
    """Return a rule for a series of pods."""
    return {
        "seriesQuery": f'{series}{{namespace!="",pod!=""}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}, "pod": {"resource": "pod"}}},
        "metricsQuery": query,
        **more,
    }


def queue_rule(series: str, **more: object) -> dict[str, Any]:
    """Return an external rule for a series of queues."""
    return {
        "seriesQuery": f'{series}{{namespace!=""}}',
        "resources": {"overrides": {"namespace": {"resource": "namespace"}}},
        "metricsQuery": "sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)",
        **more,
    }


def pods_metric(name: str, average: str) -> dict[str, Any]:
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "Pods", "pods": {"metric": {"name": name}, "target": target}}


def external_metric(name: str, average: str, **labels: str) -> dict[str, Any]:
    metric = {"name": name, **({"selector": {"matchLabels": labels}} if labels else {})}
    target = {"type": "AverageValue", "averageValue": average}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def autoscaler(
    name: str,
    namespace: str,
    metrics: Sequence[dict[str, Any]],
    counts: tuple[int, int],
    *,
    native: bool = False,
    boosted: bool = False,
    **spec: object,
) -> dict[str, Any]:
    """Return a FastPathAutoscaler of the Deployment of its name, or a `native` HorizontalPodAutoscaler."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if boosted:
        metadata["annotations"] = {boost.MODE_ANNOTATION: "boost"}
        floor = boost.handshake(name, boost.EXTERNAL)
        metrics = [*metrics, msgspec.to_builtins(floor, enc_hook=encode_scalar)]
    return {
        "apiVersion": "autoscaling/v2" if native else "fastpath.io/v1alpha1",
        "kind": "HorizontalPodAutoscaler" if native else "FastPathAutoscaler",
        "metadata": metadata,
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": counts[0],
            "maxReplicas": counts[1],
            "metrics": list(metrics),
            **spec,
        },
    }
