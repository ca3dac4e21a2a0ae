"""The document that `fastpath evaluate` reads: the input of one sync, decoded and checked.

Any input ends in an `EvaluateDocument` or in an `InputError` with the JSON path of each fault. `observe`
then answers each metric from the lists of the document as the metrics APIs would; errors are those of the
metrics clients that can occur for an answer from a list.
"""

import re
from collections.abc import Container, Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec.structs import replace

from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide.decision import read_selector
from adapter.autoscaler.decide.history import History, Recommendation, ScaleEvent
from adapter.autoscaler.decide.observation import (
    NO_STATUS,
    ExternalReading,
    ObjectReading,
    Observation,
    PodsReading,
    Reading,
    Settings,
    Unavailable,
    read_usage,
)
from adapter.errors import Fault, InputError
from adapter.model import timestamps
from adapter.model.autoscaling import documents, validation
from adapter.model.autoscaling.hpa import (
    CrossVersionObjectReference,
    CustomMetricValue,
    ExternalMetricSource,
    ExternalMetricValue,
    HorizontalPodAutoscaler,
    Int32,
    MetricSpec,
    ObjectMetricSource,
    PodMetrics,
    Scale,
    decode_scalar,
    with_defaults,
)
from adapter.model.objects import api_selectors
from adapter.model.objects.api_objects import Struct
from adapter.model.objects.pods import Pod, PodFacts, facts_of
from adapter.model.objects.resources import BUILTIN
from adapter.model.timestamps import Instant

_YEARS = 10**10
"""An upper bound for all settings and ages in seconds: three hundred years."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=_YEARS)]


class Metrics(Struct, frozen=True):
    """The answers of the three metrics APIs."""

    resource: tuple[PodMetrics, ...] | None = None
    custom: tuple[CustomMetricValue, ...] | None = None
    external: tuple[ExternalMetricValue, ...] | None = None


class PastRecommendation(Struct, frozen=True):
    replicas: Int32
    age_seconds: Seconds


class PastScale(Struct, frozen=True):
    """A change by an earlier sync, in the direction of its list."""

    change: Annotated[int, msgspec.Meta(gt=0, le=2**31 - 1)]
    age_seconds: Seconds


class Past(Struct, frozen=True):
    """What earlier syncs remember."""

    recommendations: tuple[PastRecommendation, ...] | None = None
    scale_up_events: tuple[PastScale, ...] | None = None
    scale_down_events: tuple[PastScale, ...] | None = None


class ControllerOptions(Struct, frozen=True):
    """The controller's flags and its feature gate."""

    tolerance: Annotated[float, msgspec.Meta(ge=0, le=1e300)] = 0.1
    cpu_initialization_period_seconds: Seconds = 300
    initial_readiness_delay_seconds: Seconds = 30
    downscale_stabilization_seconds: Seconds = 300
    scale_to_zero: bool = False

    def settings(self) -> Settings:
        return Settings(
            self.tolerance,
            timestamps.span_of(self.cpu_initialization_period_seconds),
            timestamps.span_of(self.initial_readiness_delay_seconds),
            timestamps.span_of(self.downscale_stabilization_seconds),
            self.scale_to_zero,
        )


class EvaluateDocument(Struct, frozen=True):
    """One sync's input."""

    now: Instant
    hpa: HorizontalPodAutoscaler
    scale: Scale
    name: str | None = None
    pods: tuple[Pod, ...] | None = None
    metrics: Metrics | None = None
    history: Past | None = None
    options: ControllerOptions | None = None

    def remembered(self) -> History:
        """Return the history with instants in place of ages."""
        past, now = self.history, self.now
        if past is None:
            return History()
        recommendations = (
            Recommendation(entry.replicas, now - timestamps.span_of(entry.age_seconds))
            for entry in past.recommendations or ()
        )
        ups, downs = (
            tuple(
                ScaleEvent(event.change, now - timestamps.span_of(event.age_seconds))
                for event in changes or ()
            )
            for changes in (past.scale_up_events, past.scale_down_events)
        )
        return History(histories.queued(recommendations), ups, downs)


_DECODER = msgspec.json.Decoder(EvaluateDocument, dec_hook=decode_scalar)


def read_json(text: bytes, source: str = "") -> EvaluateDocument:
    """Return the document in a JSON text; InputError with all faults, or with the first fault of its form."""
    try:
        return _checked(_DECODER.decode(text), source)
    except msgspec.ValidationError as error:
        wrong = str(error)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _not_json(error, source) from None
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _not_json(error, source) from None  # what is wrong with its meaning was met first
    raise _misshapen(wrong, tree, source)


def _misshapen(wrong: str, tree: object, source: str) -> InputError:
    """Return the fault of a document's form; name a cluster object that stands in its place."""
    kind = tree.get("kind") if isinstance(tree, dict) and "hpa" not in tree else None
    if not isinstance(kind, str):
        return documents.explain(wrong, tree, source)
    is_hpa = kind == "HorizontalPodAutoscaler"
    place = "it belongs under hpa" if is_hpa else "its key is hpa, scale or an item of pods"
    expected = "expected a document with now, hpa and scale, not a single object"
    expected += f": {place} (docs/guides/evaluate.md)"
    return InputError([Fault("kind", documents.shown(kind), expected, source)])


def _not_json(error: Exception, source: str) -> InputError:
    why = "nested too deeply" if isinstance(error, RecursionError) else str(error)
    return InputError([Fault("", "", f"not JSON: {why}", source)])


def read_plain(tree: object, source: str = "") -> EvaluateDocument:
    """Return the document in mappings, lists and scalars, as from YAML; InputError."""
    try:
        document = msgspec.convert(tree, EvaluateDocument, dec_hook=decode_scalar)
    except msgspec.ValidationError as error:
        raise _misshapen(str(error), tree, source) from None
    return _checked(document, source)


def read_name(text: bytes) -> str | None:
    """Return the name of a document that may be invalid, None if it has none."""
    try:
        tree = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    name = tree.get("name") if isinstance(tree, dict) else None
    return name if isinstance(name, str) else None


def _checked(document: EvaluateDocument, source: str) -> EvaluateDocument:
    """Fill in the API's defaults, and reject what the API rejects."""
    hpa = document.hpa
    meta = hpa.metadata
    faults = []
    for path, value, expected in (
        ("hpa.apiVersion", hpa.api_version, "autoscaling/v2"),
        ("hpa.kind", hpa.kind, "HorizontalPodAutoscaler"),
    ):
        if value not in {"", expected}:
            faults.append(Fault(path, documents.shown(value), f"expected {expected}", source))
    if not meta.namespace:
        # that of its target, else where kubectl puts what names no namespace
        meta = replace(meta, namespace=document.scale.metadata.namespace or "default")
    hpa = replace(hpa, metadata=meta, spec=with_defaults(hpa.spec))
    violations = [("hpa", violation) for violation in validation.validate(hpa, stored=True)]
    if (replicas := document.scale.spec.replicas) < 0:
        violations.append(("scale", validation.negative("spec.replicas", str(replicas))))
    faults += [
        Fault(f"{where}.{path}", ": ".join(filter(None, (problem, value))), detail, source)
        for where, (path, problem, value, detail) in violations
    ]
    if faults:
        raise InputError(faults)
    return replace(document, hpa=hpa)


# -- the observation -----------------------------------------------------------------------------------------

_NO_METRICS = "no metrics returned from %s metrics API"
_PodKeys = Container[tuple[str, str]]
"""Namespace and name of the selected pods; the namespace of an item may be empty."""


def observe(document: EvaluateDocument) -> Observation:
    hpa, scale = document.hpa, document.scale
    namespace = hpa.metadata.namespace
    selector = read_selector(scale.status.selector)
    within = {"", namespace}
    pods: list[PodFacts] = []
    if selector is not None:
        in_namespace = (facts_of(pod) for pod in document.pods or () if pod.metadata.namespace in within)
        pods = [pod for pod in in_namespace if selector.matches(pod.labels)]
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


def remarks(document: EvaluateDocument) -> Iterator[str]:
    """Yield what the controller does not say: which field is new, why a resource metric has no value."""
    behavior = document.hpa.spec.behavior
    rules = (behavior.scale_up, behavior.scale_down) if behavior is not None else ()
    if any(one is not None and one.tolerance is not None for one in rules):
        yield "spec.behavior: a tolerance needs Kubernetes 1.35, or the feature gate HPAConfigurableTolerance"
    pods = document.pods or ()
    for metric in document.hpa.spec.metrics or ():
        part = metric.container_resource
        source = part or metric.resource
        if source is not None and source.name not in {"cpu", "memory"}:
            yield f"{source.name} has no value: the resource metrics are cpu and memory only"
        names = {container.name for pod in pods for container in pod.spec.containers or ()}
        sidecars = {container.name for pod in pods for container in pod.spec.init_containers or ()}
        if part is not None and names and part.container not in names | sidecars:
            yield f"no pod has a container {part.container}: they have {', '.join(sorted(names))}"


def _answer(metric: MetricSpec, metrics: Metrics, pods: _PodKeys, namespace: str) -> Reading:
    if metric.type in {"Resource", "ContainerResource"}:
        selected = [
            item for item in metrics.resource or () if (item.metadata.namespace, item.metadata.name) in pods
        ]
        if metric.type == "Resource" and metric.resource is not None:
            return read_usage(selected, metric.resource.name, "")
        assert metric.container_resource is not None
        return read_usage(selected, metric.container_resource.name, metric.container_resource.container)
    if metric.type == "Pods" and metric.pods is not None:
        return _of_pods(metrics.custom or (), pods, metric.pods.metric.name)
    if metric.type == "Object" and metric.object is not None:
        return _of_object(metrics.custom or (), metric.object, namespace)
    assert metric.external is not None
    return _of_external(metrics.external or (), metric.external)


def _of_pods(items: Sequence[CustomMetricValue], pods: _PodKeys, name: str) -> Reading:
    values = {
        its.name: item.value.milli
        for item in items
        if item.metric.name == name
        and (its := item.described_object).kind == "Pod"
        and (its.namespace, its.name) in pods
    }
    return PodsReading(values) if values else Unavailable("NoMetrics", _NO_METRICS % "custom")


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
    return ExternalReading(values) if values else Unavailable("NoMetrics", _NO_METRICS % "external")


def _group(reference: CrossVersionObjectReference) -> str:
    """Return the group of a reference; an invalid version has none, as in the client."""
    group, slash, version = reference.api_version.partition("/")
    return group if slash and "/" not in version else ""


def _resource(kind: str, group: str) -> str:
    """Return ``plural.group`` of a kind; the plural of an unknown kind is guessed as kubectl does."""
    plural = next((known.plural for known in BUILTIN if (known.kind, known.group) == (kind, group)), None)
    if plural is None:
        word = re.sub("(?<![aeiou])y$", "ie", kind.lower())
        plural = f"{word}es" if word.endswith("s") else f"{word}s"
    return f"{plural}.{group}" if group else plural
