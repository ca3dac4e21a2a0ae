"""Validation of an autoscaler as in the API server: all violations with their field paths, in its words.

Mirrors ``pkg/apis/autoscaling/validation`` of 1.36. `minReplicas` 0 is valid whatever the feature gate,
because an object that has it may keep it. As upstream, the selector of a metric is not checked: the
controller reports its errors. Specs come with their defaults filled in.
"""

import re

from adapter.model.autoscaling import hpa, limits
from adapter.model.autoscaling.limits import Violation, Violations, check, forbidden, invalid, required
from adapter.model.go_text import quote
from adapter.model.objects import label_selectors
from adapter.model.objects.api_objects import ObjectMeta
from adapter.model.objects.label_selectors import SUBDOMAIN, SUBDOMAIN_RULE

_SOURCES = {name: f"{name[0].upper()}{name[1:]}" for name in hpa.SOURCES}
"""Where each type of metric keeps its source."""

_LABEL_REGEX = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL = re.compile(_LABEL_REGEX)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    f"'{_LABEL_REGEX}')"
)


def validate(autoscaler: hpa.HorizontalPodAutoscaler, *, stored: bool = False) -> list[Violation]:
    """Return the violations of an autoscaler and its status; an empty list if it is valid.

    A `stored` one may be older than two rules, which then do not hold: that its target names an API group,
    and that it has an Object or External metric for `minReplicas` 0. The controller works with both.
    """
    violations = [*_metadata(autoscaler.metadata), *_spec(autoscaler.spec, stored=stored)]
    if status := autoscaler.status:
        counts = {"currentReplicas": status.current_replicas, "desiredReplicas": status.desired_replicas}
        violations += [negative(f"status.{name}", str(count)) for name, count in counts.items() if count < 0]
    return violations


def _metadata(meta: ObjectMeta) -> Violations:
    if not meta.name:
        yield required("metadata.name", "name or generateName is required")
    else:
        yield from _dns_name("metadata.name", meta.name, SUBDOMAIN, SUBDOMAIN_RULE, 253)
    if not meta.namespace:
        yield required("metadata.namespace", "")
    else:
        yield from _dns_name("metadata.namespace", meta.namespace, _LABEL, _LABEL_RULE, 63)


def _spec(spec: hpa.HorizontalPodAutoscalerSpec, *, stored: bool) -> Violations:
    lowest = spec.min_replicas
    if lowest is not None and lowest < 0:
        yield invalid("spec.minReplicas", str(lowest), "must be greater than or equal to 0")
    if spec.max_replicas < 1:
        yield invalid("spec.maxReplicas", str(spec.max_replicas), "must be greater than 0")
    if lowest is not None and spec.max_replicas < lowest:
        yield invalid(
            "spec.maxReplicas", str(spec.max_replicas), "must be greater than or equal to `minReplicas`"
        )
    target = spec.scale_target_ref
    needs_group = not stored and target.kind != "ReplicationController"
    yield from check(target, "spec.scaleTargetRef")
    yield from _group(target, "spec.scaleTargetRef", needs_group=needs_group)
    metrics = spec.metrics or ()
    for index, metric in enumerate(metrics):
        yield from _metric(metric, f"spec.metrics[{index}]")
    if lowest == 0 and not stored and not any(metric.type in {"Object", "External"} for metric in metrics):
        yield forbidden(
            "spec.metrics",
            "must specify at least one Object or External metric to support scaling to zero replicas",
        )
    if spec.behavior:
        yield from check(spec.behavior, "spec.behavior")


def _group(reference: hpa.CrossVersionObjectReference, path: str, *, needs_group: bool) -> Violations:
    version = reference.api_version
    group, slash, _ = version.partition("/")
    if version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", quote(version), f"unexpected GroupVersion string: {version}")
    elif needs_group and not (slash and group):
        yield invalid(f"{path}.apiVersion", quote(version), "apiVersion must specify API group")


def _metric(metric: hpa.MetricSpec, path: str) -> Violations:
    if not metric.type:
        yield required(f"{path}.type", "must specify a metric source type")
    if metric.type not in _SOURCES.values():
        yield limits.unsupported(f"{path}.type", metric.type, _SOURCES.values())
    present = hpa.sources(metric)
    for name, source in list(present.items())[:1]:
        yield from _source(source, f"{path}.{name}")
    for name, wanted in _SOURCES.items():
        if metric.type == wanted and name not in present:
            yield required(f"{path}.{name}", "must populate information for the given metric source")
        if len(present) > 1 and name in present and metric.type != wanted:
            yield forbidden(f"{path}.{name}", "must populate the given metric source only")


def _source(source: hpa.MetricSource, path: str) -> Violations:
    yield from check(source, path)
    if isinstance(source, hpa.ObjectMetricSource):
        yield from _group(source.described_object, f"{path}.describedObject", needs_group=False)
    if isinstance(source, hpa.ContainerResourceMetricSource):
        if source.name:
            yield from _container_resource(source.name, f"{path}.name")
        if source.container:
            yield from _dns_name(f"{path}.container", source.container, _LABEL, _LABEL_RULE, 63)
    yield from _numbers(source, f"{path}.target")


def _numbers(source: hpa.MetricSource, path: str) -> Violations:
    """Check which of its numbers a target has."""
    target = source.target
    total, average = target.value is not None, target.average_value is not None
    share = target.average_utilization is not None
    match source:
        case hpa.ObjectMetricSource() if not (total or average):
            yield required(f"{path}.averageValue", "must set either a target value or averageValue")
        case hpa.ExternalMetricSource() if not (total or average):
            detail = "must set either a target value for metric or a per-pod target"
            yield required(f"{path}.averageValue", detail)
        case hpa.ExternalMetricSource() if total and average:
            detail = "may not set both a target value for metric and a per-pod target"
            yield forbidden(f"{path}.value", detail)
        case hpa.PodsMetricSource() if not average:
            yield required(f"{path}.averageValue", "must specify a positive target averageValue")
        case hpa.ResourceMetricSource() | hpa.ContainerResourceMetricSource() if not (share or average):
            detail = "must set either a target raw value or a target utilization"
            yield required(f"{path}.averageUtilization", detail)
        case hpa.ResourceMetricSource() | hpa.ContainerResourceMetricSource() if share and average:
            detail = "may not set both a target raw value and a target utilization"
            yield forbidden(f"{path}.averageValue", detail)


def _container_resource(name: str, path: str) -> Violations:
    """Check the name of a container resource: cpu, memory and so on, or a device with its domain."""
    if complaints := label_selectors.key_faults(name):
        yield from (invalid(path, quote(name), complaint) for complaint in complaints)
    elif "/" not in name:
        if name not in {"cpu", "memory", "ephemeral-storage"} and not name.startswith("hugepages-"):
            yield invalid(path, quote(name), "must be a standard resource for containers")
    elif "kubernetes.io/" not in name and (
        name.startswith("requests.") or label_selectors.key_faults(f"requests.{name}")
    ):
        yield invalid(path, quote(name), "doesn't follow extended resource name standard")


def _dns_name(path: str, name: str, pattern: re.Pattern[str], rule: str, limit: int) -> Violations:
    if len(name.encode("utf-8", "surrogatepass")) > limit:
        yield invalid(path, quote(name), f"must be no more than {limit} bytes")
    if not pattern.fullmatch(name):
        dotted = pattern is _LABEL and SUBDOMAIN.fullmatch(name)
        yield invalid(path, quote(name), "must not contain dots" if dotted else rule)


def negative(path: str, value: str) -> Violation:
    return invalid(path, value, "must be greater than or equal to 0")
