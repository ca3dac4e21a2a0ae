"""FastPathAutoscaler, the object of the scaler: the spec of a HorizontalPodAutoscaler with a few more fields.

Its shape, defaults, validation, and the conversion from and to a HorizontalPodAutoscaler. Status and
conditions are a HorizontalPodAutoscaler's, and decisions are made from `with_defaults`. A field of the spec
is declared here once, as `limits` says: what copies a spec takes its fields from the struct.
"""

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from adapter.model.autoscaling import hpa, limits, pending_capacity, scale_down, validation
from adapter.model.autoscaling.forecast import ForecastSpec
from adapter.model.autoscaling.limits import Count, Items, OneOf, Violation, Within
from adapter.model.autoscaling.pending_capacity import BacklogCredit, PendingCapacity
from adapter.model.autoscaling.scale_down import ScaleDown
from adapter.model.go_text import quote
from adapter.model.objects import api_selectors
from adapter.model.objects.api_objects import Metadata, Struct
from adapter.model.quantity import GREATEST
from adapter.model.timestamps import SECOND, FineInstant, Span

_RESOURCES = hpa.ResourceMetricSource | hpa.ContainerResourceMetricSource

GROUP = "fastpath.io"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "FastPathAutoscaler"
PLURAL = "fastpathautoscalers"

HPA_API_VERSION = "autoscaling/v2"
HPA_KIND = "HorizontalPodAutoscaler"

AUTO, ADVISE, PAUSED = "Auto", "Advise", "Paused"
BOOST = "Boost"
"""The mode of a boosted HorizontalPodAutoscaler. A FastPathAutoscaler cannot have it."""

HOLD, FLOOR, LAST_GOOD = "Hold", "Floor", "LastGood"

SYNC_PERIODS = Within(Span(SECOND // 10), Span(60 * SECOND))

FLOOR_METRIC = "fastpath_replicas"
"""The metric by which a boosted HorizontalPodAutoscaler reads its floor; a FastPathAutoscaler has none."""

MOST_METRICS = 50
MOST_POLICIES = 20
"""More of them are refused, so that what the API server spends on checking an object has a bound."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_ANNOTATIONS_OF_THE_OTHER = (LAST_APPLIED, "autoscaling.alpha.kubernetes.io/", f"{GROUP}/")
"""Prefixes of annotations that do not apply to the successor of the other kind."""


class NativeAutoscaler(hpa.HorizontalPodAutoscaler, frozen=True):
    """A HorizontalPodAutoscaler with the metadata that the scaler uses."""

    metadata: Metadata = Metadata()


class Fallback(Struct, frozen=True):
    type: Annotated[str, OneOf(HOLD, FLOOR, LAST_GOOD)] = msgspec.field(default_factory=str)
    """type is what happens while a metric has no value: Hold keeps the current number of replicas, Floor
    keeps at least the number in replicas, and LastGood keeps at least the number that the metrics asked for
    last."""
    after: Annotated[Span, Within(Span(SECOND), Span(3600 * SECOND))] = Span(60 * SECOND)
    """after is how long a metric has no value before the fallback applies, as a duration such as 90s."""
    replicas: Annotated[hpa.Int32 | None, Count(1)] = None
    """replicas is the lower limit for the number of replicas of type Floor."""
    last_good_for: Annotated[Span | None, Within(Span(SECOND), Span(24 * 3600 * SECOND))] = None
    """lastGoodFor is how long the last number is kept of type LastGood, as a duration such as 30m."""


class FastPathAutoscalerSpec(hpa.HorizontalPodAutoscalerSpec, frozen=True):
    sync_period: Annotated[Span, SYNC_PERIODS] = Span(SECOND)
    """syncPeriod is the longest time between two decisions, as a duration such as 5s."""
    mode: Annotated[str, OneOf(AUTO, ADVISE, PAUSED)] = AUTO
    """mode is what the autoscaler does: Auto changes the number of replicas, Advise computes it and reports
    it in status and events without changing it, and Paused does neither."""
    fallback: Fallback | None = None
    """fallback is what happens when a metric has had no value for a while. It keeps or raises the number of
    replicas and never lowers it. If not set, the number of replicas is kept."""
    pending_capacity: Annotated[tuple[PendingCapacity, ...] | None, Items(MOST_METRICS)] = None
    """pendingCapacity are queues whose value is reduced by the work that starting pods would have done by now
    if they had been Ready at once. A queue grows while pods that were already requested start; within their
    learned start-up time that growth requests no more pods. This only withholds raises: it never requests
    more pods than without it, and never scales down. It has no effect before a pod of the target was seen to
    start."""
    forecast: ForecastSpec | None = None
    """forecast is a forecast of the load from its history in Prometheus. It only raises the lower limit for
    the number of replicas, never above maxReplicas, and not at zero."""
    removal_order: ScaleDown | None = msgspec.field(default=None, name="scaleDown")
    """scaleDown is which pods a scale-down removes first. If not set, Kubernetes chooses: not Ready pods,
    then by pod-deletion-cost, then the youngest."""


class PastChange(Struct, frozen=True):
    """A change of the replicas."""

    change: hpa.Int32 = 0
    """change is the difference of the replicas, negative for fewer."""
    time: FineInstant = FineInstant(0)
    """time is when that was."""


class FastPathAutoscalerStatus(hpa.HorizontalPodAutoscalerStatus, frozen=True):
    """The result of the last decision.

    `recent_changes` and `pending_capacity` are for the next owner: policies hold across a change of it. A
    change of `targets` or `limited_by` alone is never a reason to write.
    """

    recent_changes: tuple[PastChange, ...] | None = None
    """recentChanges are the changes that scaling policies still count, oldest first."""
    targets: str = ""
    """targets are the current and the target value of each metric, for kubectl get."""
    limited_by: str = ""
    """limitedBy is what kept the count where it is, for kubectl get."""
    pending_capacity: tuple[BacklogCredit, ...] | None = None
    """pendingCapacity are the credits of the queues in spec.pendingCapacity."""


class FastPathAutoscaler(Struct, frozen=True):
    api_version: str = API_VERSION
    kind: str = KIND
    metadata: Metadata = Metadata()
    spec: FastPathAutoscalerSpec = FastPathAutoscalerSpec()
    status: FastPathAutoscalerStatus | None = None

    @property
    def only_advises(self) -> bool:
        """Whether no count is written."""
        return self.spec.mode == ADVISE


class RefusedAutoscaler(FastPathAutoscaler, frozen=True):
    """What is kept of an object that is too large: its target, and `why` it is refused."""

    why: str = ""


def refused(autoscaler: FastPathAutoscaler, why: str) -> RefusedAutoscaler:
    spec = FastPathAutoscalerSpec(autoscaler.spec.scale_target_ref)
    return RefusedAutoscaler(metadata=autoscaler.metadata, spec=spec, why=why)


def with_defaults(autoscaler: FastPathAutoscaler) -> FastPathAutoscaler:
    """Return the autoscaler that decisions are made from, its defaults filled in.

    An absent `behavior` is an empty one: the legacy algorithm limits each decision and not each second, which
    once a second is no limit.
    """
    spec = autoscaler.spec
    if spec.behavior is None:
        spec = replace(spec, behavior=hpa.HorizontalPodAutoscalerBehavior())
    return replace(autoscaler, spec=hpa.with_defaults(spec))


def native(autoscaler: FastPathAutoscaler) -> hpa.HorizontalPodAutoscaler:
    """Return the HorizontalPodAutoscaler with the same spec, its defaults filled in, without a status.

    Without `behavior` its controller uses the legacy algorithm.
    """
    spec = hpa.with_defaults(plain_spec(autoscaler.spec))
    return hpa.HorizontalPodAutoscaler(HPA_API_VERSION, HPA_KIND, autoscaler.metadata, spec)


def plain_spec(spec: FastPathAutoscalerSpec) -> hpa.HorizontalPodAutoscalerSpec:
    """Return the fields of a spec that a HorizontalPodAutoscaler has too."""
    return hpa.reshape(spec, hpa.HorizontalPodAutoscalerSpec)


def plain_status(status: FastPathAutoscalerStatus) -> hpa.HorizontalPodAutoscalerStatus:
    """Return the part of a status that decisions are made from."""
    return hpa.reshape(status, hpa.HorizontalPodAutoscalerStatus)


def full_status(
    status: hpa.HorizontalPodAutoscalerStatus,
    changes: Iterable[PastChange],
    targets: str = "",
    credited: Iterable[BacklogCredit] = (),
    limited_by: str = "",
) -> FastPathAutoscalerStatus:
    """Return the status to write: that of a decision, the changes that policies count, kubectl's columns.

    `credited` are what metrics counted less at that decision.
    """
    return hpa.reshape(
        status,
        FastPathAutoscalerStatus,
        recent_changes=tuple(changes) or None,
        targets=targets,
        limited_by=limited_by,
        pending_capacity=tuple(credited) or None,
    )


def status_to_plain(status: FastPathAutoscalerStatus) -> dict[str, Any]:
    """Return a status as mappings, lists and scalars, as it is written: the counts of replicas also where 0.

    An HPA leaves out a `currentReplicas` of 0. Here kubectl's column would be empty without it.
    """
    counts = {"currentReplicas": status.current_replicas, "desiredReplicas": status.desired_replicas}
    return counts | hpa.to_plain(status)


def from_hpa(autoscaler: hpa.HorizontalPodAutoscaler) -> FastPathAutoscaler:
    """Return the FastPathAutoscaler with the same spec, without a status."""
    meta = hpa.reshape(autoscaler.metadata, Metadata)
    return FastPathAutoscaler(
        metadata=successor_metadata(meta), spec=hpa.reshape(autoscaler.spec, FastPathAutoscalerSpec)
    )


def successor_metadata(meta: Metadata) -> Metadata:
    """Return the metadata for the other kind: name, namespace, labels, and annotations that still apply."""
    annotations = {name: text for name, text in (meta.annotations or {}).items() if not is_of_one_kind(name)}
    return replace(meta, uid="", resource_version="", generation=0, annotations=annotations or None)


def is_of_one_kind(annotation: str) -> bool:
    """Whether an annotation does not apply to the successor of the other kind."""
    return annotation.startswith(_ANNOTATIONS_OF_THE_OTHER)


def validate(autoscaler: FastPathAutoscaler, *, floor_metric: bool = False) -> list[Violation]:
    """Return every violation with its field path. The status is not checked, nor the time zone of a forecast.

    A zone that the API server accepts and the tz database lacks must not stop the scaling. `floor_metric`
    accepts FLOOR_METRIC, for a reader that removes it or that changes a HorizontalPodAutoscaler.
    """
    if isinstance(autoscaler, RefusedAutoscaler):
        return [Violation("spec", "Too long", "", autoscaler.why)]
    spec = autoscaler.spec
    filled = with_defaults(autoscaler).spec
    shared = hpa.HorizontalPodAutoscaler(metadata=autoscaler.metadata, spec=filled)
    if autoscaler.kind == HPA_KIND:
        # a minimum of zero may rest on the handshake, which is no metric of ours
        least = 1 if spec.min_replicas == 0 else spec.min_replicas
        shared = replace(shared, spec=replace(filled, min_replicas=least))
        return [*validation.validate(shared), *_metrics(spec)]
    own = *_metrics(spec), *_counts(spec), *_own(spec, floor_metric=floor_metric)
    return [*validation.validate(shared), *own]


def _metrics(spec: FastPathAutoscalerSpec) -> Iterator[Violation]:
    """Refuse selectors that are too large, and targets whose thousandths decisions cannot count.

    The API server accepts such a target: the controller decides with what is left of it in 64 bits.
    """
    for index, metric in enumerate(spec.metrics or ()):
        for name, source in hpa.sources(metric).items():
            path = f"spec.metrics[{index}].{name}"
            numbers = {"value": source.target.value, "averageValue": source.target.average_value}
            for field, number in numbers.items():
                if number is not None and number.sign == 1 and not number.has_milli:
                    detail = f"must be at most {GREATEST}, as decisions count thousandths in 64 bits"
                    yield limits.invalid(f"{path}.target.{field}", quote(str(number)), detail)
            selector = None if isinstance(source, _RESOURCES) else source.metric.selector
            if selector is not None and api_selectors.is_too_large(selector):
                yield Violation(f"{path}.metric.selector", "Too long", "", api_selectors.TOO_LARGE)


def floor_source(metric: hpa.MetricSpec) -> str:
    """Return which source of a metric names FLOOR_METRIC, such as ``external``; "" for any other metric."""
    named = {"external": metric.external, "object": metric.object, "pods": metric.pods}
    return next((name for name, source in named.items() if source and source.metric.name == FLOOR_METRIC), "")


def _counts(spec: FastPathAutoscalerSpec) -> Iterator[Violation]:
    yield from Items(MOST_METRICS).faults("spec.metrics", spec.metrics or ())
    behavior = spec.behavior or hpa.HorizontalPodAutoscalerBehavior()
    for name, rules in (("scaleUp", behavior.scale_up), ("scaleDown", behavior.scale_down)):
        policies = (rules or hpa.HPAScalingRules()).policies
        yield from Items(MOST_POLICIES).faults(f"spec.behavior.{name}.policies", policies or ())


def _own(spec: FastPathAutoscalerSpec, *, floor_metric: bool) -> Iterator[Violation]:
    for index, metric in enumerate(spec.metrics or ()):
        # this kind has no floor, so the metric has no value and blocks scale-downs
        if (source := floor_source(metric)) and not floor_metric:
            detail = f"{FLOOR_METRIC} is only for boosted HorizontalPodAutoscalers: remove this metric"
            yield limits.forbidden(f"spec.metrics[{index}].{source}.metric.name", detail)
    yield from limits.check(spec, "spec", FastPathAutoscalerSpec)
    yield from pending_capacity.check(spec.pending_capacity or (), spec.metrics or ())
    if spec.removal_order is not None:
        yield from scale_down.check(spec.removal_order, spec.metrics or ())
    if (fallback := spec.fallback) is None:
        return
    path, count, kept = "spec.fallback", fallback.replicas, fallback.last_good_for
    for name, value, owner in (("replicas", count, FLOOR), ("lastGoodFor", kept, LAST_GOOD)):
        if fallback.type == owner and value is None:
            yield limits.required(f"{path}.{name}", f"is needed for type {owner}")
        elif fallback.type != owner and value is not None:
            yield limits.forbidden(f"{path}.{name}", f"belongs to type {owner} alone")
    if count is not None and count > spec.max_replicas:
        yield limits.invalid(f"{path}.replicas", str(count), "must be less than or equal to `maxReplicas`")
