"""The API objects of an autoscaler, as frozen structs that JSON decodes into, and their defaults.

These are the HorizontalPodAutoscaler (``autoscaling/v2``), the Scale of its target (``autoscaling/v1``) and
the items of the lists that the metrics APIs return. Field names are Kubernetes'. Unknown fields are ignored,
and null is absence. `validation` checks the values.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from adapter.model import quantity, timestamps
from adapter.model.autoscaling.limits import Amount, Count, Filled, Matches, OneOf, Segment
from adapter.model.objects.api_objects import DescribedObject, ObjectMeta, Struct
from adapter.model.objects.api_selectors import APISelector
from adapter.model.quantity import Quantity
from adapter.model.timestamps import FineInstant, Instant, Span

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

_always = msgspec.field(default_factory=str)
"""The default of a text that is written even when it is empty."""


_TARGETS = Matches("Utilization|Value|AverageValue", 12, "must be either Utilization, Value, or AverageValue")

Shape = TypeVar("Shape", bound=Struct)


def reshape(value: Struct, shape: type[Shape], **others: Any) -> Shape:
    """Return a struct of another type with the fields that both have, and with `others`."""
    shared = {name: getattr(value, name) for name in shape.__struct_fields__ if hasattr(value, name)}
    return shape(**shared | others)


class CrossVersionObjectReference(Struct, frozen=True):
    """A reference to an object of the autoscaler's namespace; of `api_version` only the group matters."""

    kind: Annotated[str, Segment()] = _always
    name: Annotated[str, Segment()] = _always
    api_version: str = ""


class MetricIdentifier(Struct, frozen=True):
    name: Annotated[str, Segment("must specify a metric name")] = _always
    selector: APISelector | None = None


class MetricTarget(Struct, frozen=True):
    """What a metric is held at; which of the fields counts depends on the source."""

    type: Annotated[str, Filled("must specify a metric target type"), _TARGETS] = _always
    value: Annotated[Quantity | None, Amount()] = None
    average_value: Annotated[Quantity | None, Amount()] = None
    average_utilization: Annotated[Int32 | None, Count(1)] = None


# The sources of a metric: what each type measures, and the target it is held at.


class ResourceMetricSource(Struct, frozen=True):
    name: Annotated[str, Filled("must specify a resource name")] = _always
    target: MetricTarget = MetricTarget()


class ContainerResourceMetricSource(Struct, frozen=True):
    name: Annotated[str, Filled("must specify a resource name")] = _always
    container: Annotated[str, Filled("must specify a container")] = _always
    target: MetricTarget = MetricTarget()


class PodsMetricSource(Struct, frozen=True):
    metric: MetricIdentifier = MetricIdentifier()
    target: MetricTarget = MetricTarget()


class ObjectMetricSource(Struct, frozen=True):
    metric: MetricIdentifier = MetricIdentifier()
    target: MetricTarget = MetricTarget()
    described_object: CrossVersionObjectReference = CrossVersionObjectReference()


class ExternalMetricSource(Struct, frozen=True):
    metric: MetricIdentifier = MetricIdentifier()
    target: MetricTarget = MetricTarget()


class MetricSpec(Struct, frozen=True):
    """One metric; `type` says which source is set."""

    type: str = _always
    resource: ResourceMetricSource | None = None
    container_resource: ContainerResourceMetricSource | None = None
    pods: PodsMetricSource | None = None
    object: ObjectMetricSource | None = None
    external: ExternalMetricSource | None = None


MetricSource = (
    ObjectMetricSource
    | ExternalMetricSource
    | PodsMetricSource
    | ResourceMetricSource
    | ContainerResourceMetricSource
)


SOURCES = ("object", "external", "pods", "resource", "containerResource")
"""The names of the fields with a source, in the API server's order."""


def sources(metric: MetricSpec) -> dict[str, MetricSource]:
    """Return the sources that are set by the names of their fields."""
    listed = (metric.object, metric.external, metric.pods, metric.resource, metric.container_resource)
    return {name: source for name, source in zip(SOURCES, listed, strict=True) if source is not None}


class HPAScalingPolicy(Struct, frozen=True):
    """At most `value` pods, or per cent of them, in `period_seconds`."""

    type: Annotated[str, OneOf("Pods", "Percent")] = _always
    value: Annotated[Int32, Count(1, zero="zero")] = 0
    period_seconds: Annotated[Int32, Count(1, 1800, "zero")] = 0


class HPAScalingRules(Struct, frozen=True):
    """How fast one direction may go; None where the default, or the controller's flag, applies."""

    stabilization_window_seconds: Annotated[Int32 | None, Count(0, 3600, "zero")] = None
    select_policy: Annotated[str | None, OneOf("Max", "Min", "Disabled")] = None
    policies: Annotated[tuple[HPAScalingPolicy, ...] | None, Filled("must specify at least one Policy")] = (
        None
    )
    tolerance: Annotated[Quantity | None, Amount(0)] = None


class HorizontalPodAutoscalerBehavior(Struct, frozen=True):
    scale_up: HPAScalingRules | None = None
    scale_down: HPAScalingRules | None = None


class HorizontalPodAutoscalerSpec(Struct, frozen=True):
    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: Annotated[Int32 | None, Count(0)] = None
    max_replicas: Annotated[Int32, Count(1)] = 0
    metrics: tuple[MetricSpec, ...] | None = None
    behavior: HorizontalPodAutoscalerBehavior | None = None


class MetricValueStatus(Struct, frozen=True):
    value: Quantity | None = None
    average_value: Quantity | None = None
    average_utilization: Int32 | None = None


# The same for a status: what each type measured.


class ResourceMetricStatus(Struct, frozen=True):
    name: str = _always
    current: MetricValueStatus = MetricValueStatus()


class ContainerResourceMetricStatus(Struct, frozen=True):
    name: str = _always
    container: str = _always
    current: MetricValueStatus = MetricValueStatus()


class PodsMetricStatus(Struct, frozen=True):
    metric: MetricIdentifier = MetricIdentifier()
    current: MetricValueStatus = MetricValueStatus()


class ObjectMetricStatus(Struct, frozen=True):
    metric: MetricIdentifier = MetricIdentifier()
    current: MetricValueStatus = MetricValueStatus()
    described_object: CrossVersionObjectReference = CrossVersionObjectReference()


class ExternalMetricStatus(Struct, frozen=True):
    metric: MetricIdentifier = MetricIdentifier()
    current: MetricValueStatus = MetricValueStatus()


class MetricStatus(Struct, frozen=True):
    """One metric's status: only an empty `type` where the metric could not be computed."""

    type: str = _always
    resource: ResourceMetricStatus | None = None
    container_resource: ContainerResourceMetricStatus | None = None
    pods: PodsMetricStatus | None = None
    object: ObjectMetricStatus | None = None
    external: ExternalMetricStatus | None = None


class Condition(Struct, frozen=True):
    """One condition; `last_transition_time` is when `status` last changed."""

    type: str = _always
    status: str = _always
    reason: str = ""
    message: str = ""
    last_transition_time: Instant | None = None


class HorizontalPodAutoscalerStatus(Struct, frozen=True):
    observed_generation: int | None = None
    last_scale_time: Instant | None = None
    current_replicas: Int32 = 0
    desired_replicas: Int32 = 0
    current_metrics: tuple[MetricStatus, ...] | None = None
    conditions: tuple[Condition, ...] | None = None


class HorizontalPodAutoscaler(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()
    status: HorizontalPodAutoscalerStatus | None = None


class ScaleSpec(Struct, frozen=True):
    replicas: Int32 = 0


class ScaleStatus(Struct, frozen=True):
    """How many replicas there are, and the text of the selector that finds their pods."""

    replicas: Int32 = 0
    selector: str = ""


class Scale(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ScaleSpec = ScaleSpec()
    status: ScaleStatus = ScaleStatus()


def decode_scalar(wanted: type, written: Any) -> Any:
    """Return a quantity, instant or span from its JSON or YAML: the ``dec_hook`` of these structs.

    A quantity may be written as a number. ValueError with a sentence otherwise; msgspec adds the path.
    """
    if written.__class__ is str:
        return _READERS[wanted](written)
    if wanted is Quantity and isinstance(written, int | float) and not isinstance(written, bool):
        return quantity.read(repr(written))
    raise ValueError(f"expected {_EXPECTED[wanted]}")


_READERS: dict[type, Callable[[str], object]] = {
    Quantity: quantity.read,
    Instant: timestamps.read_instant,
    FineInstant: lambda text: FineInstant(timestamps.read_nanoseconds(text)),
    Span: timestamps.read_span,
}

_EXPECTED = {
    Quantity: "a quantity such as 500m, 2 or 1Gi",
    Instant: "an RFC 3339 time such as 2026-01-31T12:00:00Z",
    FineInstant: "an RFC 3339 time such as 2026-01-31T12:00:00.5Z",
    Span: "a duration such as 30s or 1m30s",
}


def encode_scalar(value: Any) -> str:
    """Return the canonical text of a quantity, instant or span: the ``enc_hook`` of these structs."""
    writer = _WRITERS.get(value.__class__, str)
    return writer(value)


def to_plain(value: object) -> dict[str, Any]:
    """Return a struct as mappings, lists and scalars; what is a default is left out."""
    plain: dict[str, Any] = msgspec.to_builtins(value, enc_hook=encode_scalar, str_keys=True)
    return plain


_WRITERS: dict[type, Callable[[Any], str]] = {
    Instant: timestamps.write_instant,
    FineInstant: timestamps.write_fine_instant,
    Span: timestamps.write_span,
}


# --- the defaults that the API server sets, on writing and on reading. Mirrors
# ``pkg/apis/autoscaling/v2/defaults.go`` of 1.36. The scale-down window and the tolerances are no defaults of
# the API: the controller fills them in at each sync.

_DEFAULT_METRICS = (
    MetricSpec(
        type="Resource",
        resource=ResourceMetricSource(
            name="cpu", target=MetricTarget(type="Utilization", average_utilization=80)
        ),
    ),
)
_DEFAULT_SCALE_UP = HPAScalingRules(
    stabilization_window_seconds=0,
    select_policy="Max",
    policies=(HPAScalingPolicy("Pods", 4, 15), HPAScalingPolicy("Percent", 100, 15)),
)
_DEFAULT_SCALE_DOWN = HPAScalingRules(select_policy="Max", policies=(HPAScalingPolicy("Percent", 100, 15),))


def with_defaults(spec: HorizontalPodAutoscalerSpec) -> HorizontalPodAutoscalerSpec:
    """Return the spec as the API server stores it.

    An absent `behavior` stays absent, for that chooses the legacy algorithm; an empty one is filled. An empty
    list of policies is there, and so not filled.
    """
    behavior = spec.behavior
    return replace(
        spec,
        min_replicas=1 if spec.min_replicas is None else spec.min_replicas,
        metrics=spec.metrics or _DEFAULT_METRICS,
        behavior=behavior
        and HorizontalPodAutoscalerBehavior(
            _filled(behavior.scale_up, _DEFAULT_SCALE_UP), _filled(behavior.scale_down, _DEFAULT_SCALE_DOWN)
        ),
    )


def _filled(rules: HPAScalingRules | None, defaults: HPAScalingRules) -> HPAScalingRules:
    given = {} if rules is None else asdict(rules)
    return replace(defaults, **{name: value for name, value in given.items() if value is not None})


# --- items of the lists that the metrics APIs return, as an autoscaler reads them


class ContainerMetrics(Struct, frozen=True):
    name: str = ""
    usage: Mapping[str, Quantity] | None = None


class PodMetrics(Struct, frozen=True):
    """The usage of the containers of one pod, over a `window` that ends at `timestamp`."""

    metadata: ObjectMeta = ObjectMeta()
    timestamp: Instant | None = None
    window: Span | None = None
    containers: tuple[ContainerMetrics, ...] | None = None


class MetricName(Struct, frozen=True):
    """The identifier of a custom metric; its selector is not read."""

    name: str = ""


class CustomMetricValue(Struct, frozen=True):
    value: Quantity
    described_object: DescribedObject = DescribedObject()
    metric: MetricName = MetricName()


class ExternalMetricValue(Struct, frozen=True):
    value: Quantity
    metric_name: str = ""
    metric_labels: Mapping[str, str] | None = None
