"""The TARGETS column of an autoscaler: each metric and what it is held at, such as ``cpu: 45%/80%, 20/10``.

The text is that of `kubectl get hpa` in Kubernetes 1.36, made by the API server's printers
(`formatHPAMetrics`). A column of a CustomResourceDefinition can only show one field, so the text is a field
of the status.
"""

from collections.abc import Sequence

from adapter.model.autoscaling.hpa import (
    ContainerResourceMetricStatus,
    ExternalMetricStatus,
    MetricSpec,
    MetricStatus,
    MetricTarget,
    MetricValueStatus,
    ObjectMetricStatus,
    PodsMetricStatus,
    ResourceMetricStatus,
)

_SHOWN = 2
_UNKNOWN = "<unknown>"
_NO_STATUS = MetricStatus()
_Source = (
    ResourceMetricStatus
    | ContainerResourceMetricStatus
    | PodsMetricStatus
    | ObjectMetricStatus
    | ExternalMetricStatus
)


def describe_targets(metrics: Sequence[MetricSpec], statuses: Sequence[MetricStatus]) -> str:
    """Return the text for metrics and their statuses, which are in the same order and may be fewer."""
    if not metrics:
        return "<none>"
    statuses = [*statuses, *[_NO_STATUS] * len(metrics)]
    listed = [_describe(metric, status) for metric, status in zip(metrics[:_SHOWN], statuses, strict=False)]
    more = f" + {len(metrics) - _SHOWN} more..." if len(metrics) > _SHOWN else ""
    return ", ".join(listed) + more


def _describe(metric: MetricSpec, status: MetricStatus) -> str:
    if metric.resource is not None:
        return _resource(metric.resource.name, metric.resource.target, _current(status.resource))
    if container := metric.container_resource:
        return _resource(container.name, container.target, _current(status.container_resource))
    if metric.pods is not None:
        return _pair(_current(status.pods), metric.pods.target, per_pod=True)
    if metric.object is not None:
        return _outer(_current(status.object), metric.object.target)
    if metric.external is not None:
        return _outer(_current(status.external), metric.external.target)
    return "<unknown type>"


def _current(source: _Source | None) -> MetricValueStatus | None:
    return None if source is None else source.current


def _resource(name: str, target: MetricTarget, current: MetricValueStatus | None) -> str:
    if target.average_value is not None:
        return f"{name}: {_pair(current, target, per_pod=True)}"
    share = None if current is None else current.average_utilization
    wanted = "<auto>" if target.average_utilization is None else f"{target.average_utilization}%"
    return f"{name}: {_UNKNOWN if share is None else f'{share}%'}/{wanted}"


def _outer(current: MetricValueStatus | None, target: MetricTarget) -> str:
    """Return the text for a metric of no pod, whose target may be a total or a value per pod."""
    per_pod = target.average_value is not None
    return _pair(current, target, per_pod=per_pod) + (" (avg)" if per_pod else "")


def _pair(current: MetricValueStatus | None, target: MetricTarget, *, per_pod: bool) -> str:
    wanted = target.average_value if per_pod else target.value
    value = None if current is None else current.average_value if per_pod else current.value
    return f"{_UNKNOWN if value is None else value}/{_UNKNOWN if wanted is None else wanted}"
