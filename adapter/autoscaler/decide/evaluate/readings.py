"""Readings from the lists of an evaluate document, as the metrics APIs would answer each metric.

Errors are those of the metrics clients that can occur for an answer from a list.
"""

from collections.abc import Container, Iterable, Sequence

from adapter.autoscaler.decide.decision import selector_of
from adapter.autoscaler.decide.evaluate.document import EvaluateDocument, Metrics
from adapter.autoscaler.decide.observation import (
    NO_STATUS,
    ExternalReading,
    ObjectReading,
    Observation,
    PodsReading,
    Reading,
    Unavailable,
    read_usage,
)
from adapter.model import api_selectors
from adapter.model.autoscaling.hpa import (
    CrossVersionObjectReference,
    CustomMetricValue,
    ExternalMetricSource,
    ExternalMetricValue,
    MetricSpec,
    ObjectMetricSource,
    PodMetrics,
)
from adapter.model.label_selectors import LabelSelector, Operator
from adapter.model.pods import PodFacts, facts_of
from adapter.model.resources import BUILTIN

_PodKeys = Container[tuple[str, str]]
"""Namespace and name of the selected pods; the namespace of an item may be empty."""


def observe(document: EvaluateDocument) -> Observation:
    """Return the observation of a document's sync."""
    hpa, scale = document.hpa, document.scale
    namespace = hpa.metadata.namespace
    selector = selector_of(scale.status.selector)
    listed = () if selector is None else document.pods or ()
    within = {"", namespace}
    in_namespace = [pod for pod in listed if pod.metadata.namespace in within]
    pods = [] if selector is None else _selected(map(facts_of, in_namespace), selector)
    keys = {(where, pod.name) for pod in pods for where in within}
    metrics = document.metrics or Metrics()
    return Observation(
        replicas=scale.spec.replicas,
        status_replicas=scale.status.replicas,
        selector=scale.status.selector,
        pods=pods,
        readings=[_answer(metric, metrics, keys, namespace) for metric in hpa.spec.metrics or ()],
        status=hpa.status or NO_STATUS,
    )


def _selected(pods: Iterable[PodFacts], selector: LabelSelector) -> list[PodFacts]:
    if (
        len(selector.requirements) == 1 and selector.requirements[0].operator is Operator.EQUALS
    ):  # nearly always
        key, _, (value,) = selector.requirements[0]
        return [pod for pod in pods if pod.labels.get(key) == value]
    return [pod for pod in pods if selector.matches(pod.labels)]


def _answer(metric: MetricSpec, metrics: Metrics, pods: _PodKeys, namespace: str) -> Reading:
    if metric.type == "Resource" and metric.resource is not None:
        return read_usage(_of_these(metrics.resource, pods), metric.resource.name, "")
    if metric.type == "ContainerResource" and metric.container_resource is not None:
        source = metric.container_resource
        return read_usage(_of_these(metrics.resource, pods), source.name, source.container)
    if metric.type == "Pods" and metric.pods is not None:
        return _of_pods(metrics.custom or (), pods, metric.pods.metric.name)
    if metric.type == "Object" and metric.object is not None:
        return _of_object(metrics.custom or (), metric.object, namespace)
    assert metric.external is not None
    return _of_external(metrics.external or (), metric.external)


def _of_these(items: Sequence[PodMetrics] | None, pods: _PodKeys) -> list[PodMetrics]:
    return [item for item in items or () if (item.metadata.namespace, item.metadata.name) in pods]


def _of_pods(items: Sequence[CustomMetricValue], pods: _PodKeys, name: str) -> Reading:
    values = {
        its.name: item.value.milli
        for item in items
        if item.metric.name == name
        and (its := item.described_object).kind == "Pod"
        and (its.namespace, its.name) in pods
    }
    return (
        PodsReading(values)
        if values
        else Unavailable("NoMetrics", "no metrics returned from custom metrics API")
    )


def _of_object(items: Sequence[CustomMetricValue], source: ObjectMetricSource, namespace: str) -> Reading:
    described, name = source.described_object, source.metric.name
    group = _group(described)
    wanted = namespace if (described.kind, group) == ("Namespace", "") else described.name
    for item in items:
        its = item.described_object
        if item.metric.name == name and its.name == wanted and its.kind != "Pod":
            return ObjectReading(item.value.milli)
    missing = f"the server could not find the metric {name} for {_resource(described.kind, group)} {wanted}"
    return Unavailable("NotFound", f"unable to fetch metrics from custom metrics API: {missing}")


def _of_external(items: Sequence[ExternalMetricValue], source: ExternalMetricSource) -> Reading:
    name = source.metric.name.lower()
    try:
        selector = api_selectors.compile_selector(source.metric.selector)
    except ValueError as error:
        return Unavailable("InvalidSelector", str(error))
    values = [
        item.value.milli
        for item in items
        if item.metric_name.lower() == name and selector.matches(item.metric_labels or {})
    ]
    return (
        ExternalReading(values)
        if values
        else Unavailable("NoMetrics", "no metrics returned from external metrics API")
    )


def _group(reference: CrossVersionObjectReference) -> str:
    """Return the group of a reference; an invalid version has none, as in the client."""
    group, slash, version = reference.api_version.partition("/")
    return group if slash and "/" not in version else ""


def _resource(kind: str, group: str) -> str:
    """Return ``plural.group`` of a kind; the plural of an unknown kind is guessed as kubectl does."""
    plural = next((each.plural for each in BUILTIN if (each.kind, each.group) == (kind, group)), None)
    if plural is None:
        plural = kind.lower()
        if plural.endswith("s"):
            plural += "es"
        elif plural.endswith("y") and plural[-2:-1] not in set("aeiou"):
            plural = f"{plural[:-1]}ies"
        else:
            plural += "s"
    return f"{plural}.{group}" if group else plural
