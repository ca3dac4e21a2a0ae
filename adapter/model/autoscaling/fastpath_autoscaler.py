"""FastPathAutoscaler, the object of the scaler: the spec of a HorizontalPodAutoscaler with a few more fields.

Its shape, defaults, validation, and the conversion from and to a HorizontalPodAutoscaler. Status and
conditions are a HorizontalPodAutoscaler's, and decisions are made from `with_defaults`. A field of the spec
is declared here once: what copies a spec takes its fields from the struct. The schema in manifests/chart says
the same.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling import hpa, pending_capacity, scale_down, validation
from adapter.model.autoscaling.forecast import ForecastSpec
from adapter.model.autoscaling.pending_capacity import BacklogCredit, PendingCapacity
from adapter.model.autoscaling.scale_down import ScaleDown
from adapter.model.autoscaling.validation import Violation
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
MODES = (AUTO, ADVISE, PAUSED)
BOOST = "Boost"
"""The mode of a boosted HorizontalPodAutoscaler. A FastPathAutoscaler cannot have it."""

HOLD, FLOOR, LAST_GOOD = "Hold", "Floor", "LastGood"
FALLBACKS = (HOLD, FLOOR, LAST_GOOD)

SYNC_PERIOD = Span(SECOND)
SYNC_PERIODS = (Span(SECOND // 10), Span(60 * SECOND))
"""The shortest and the longest."""

AFTER = Span(60 * SECOND)
AFTERS = (Span(SECOND), Span(3600 * SECOND))
LAST_GOOD_FORS = (Span(SECOND), Span(24 * 3600 * SECOND))

FLOOR_METRIC = "fastpath_replicas"
"""The metric by which a boosted HorizontalPodAutoscaler reads its floor; a FastPathAutoscaler has none."""

MOST_METRICS = 50
MOST_POLICIES = 20
"""More of them are refused, so that what the API server spends on checking an object has a bound."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_ANNOTATIONS_OF_THE_OTHER = (
    LAST_APPLIED,
    "autoscaling.alpha.kubernetes.io/",
    f"{GROUP}/",
)
"""Prefixes of annotations that do not apply to the successor of the other kind."""


class NativeAutoscaler(hpa.HorizontalPodAutoscaler, frozen=True):
    """A HorizontalPodAutoscaler with the metadata that the scaler uses."""

    metadata: Metadata = Metadata()


class Fallback(Struct, frozen=True):
    """What applies once metrics are absent for `after`: no scale-down, and a minimum by `type`.

    Hold has no minimum. Floor has `replicas`. LastGood has, for `last_good_for`, what the metrics asked for
    last.
    """

    type: str = msgspec.field(default_factory=str)
    after: Span = AFTER
    replicas: hpa.Int32 | None = None
    last_good_for: Span | None = None


class FastPathAutoscalerSpec(hpa.HorizontalPodAutoscalerSpec, frozen=True):
    """The desired state.

    `sync_period` is the longest time between two decisions; a new value applies at once. `pending_capacity`
    are the metrics that count less what starting pods will work off. `forecast` is None for no forecast.
    `removal_order` is None for Kubernetes' own order of the pods that go.
    """

    sync_period: Span = SYNC_PERIOD
    mode: str = AUTO
    fallback: Fallback | None = None
    pending_capacity: tuple[PendingCapacity, ...] | None = None
    forecast: ForecastSpec | None = None
    removal_order: ScaleDown | None = msgspec.field(default=None, name="scaleDown")


class PastChange(Struct, frozen=True):
    """A change of the target's replicas that policies count: by how many (down is negative), when."""

    change: hpa.Int32 = 0
    time: FineInstant = FineInstant(0)


class FastPathAutoscalerStatus(hpa.HorizontalPodAutoscalerStatus, frozen=True):
    """The result of the last decision.

    `recent_changes` are for the next owner, oldest first: policies hold across a change of it. So are
    `pending_capacity`, what metrics counted less. `targets` and `limited_by` are the texts of kubectl's
    columns. They follow from the decision, and a change of them alone is never a reason to write.
    """

    recent_changes: tuple[PastChange, ...] | None = None
    targets: str = ""
    limited_by: str = ""
    pending_capacity: tuple[BacklogCredit, ...] | None = None


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
    """Return every violation with its field path. The status is not checked.

    A target of which decisions could not count the thousandths is one, though the API server accepts it: the
    controller decides with what is left of it in 64 bits.

    Nor is the time zone of a forecast: a zone that the API server accepts and the tz database lacks must not
    stop the scaling. `floor_metric` accepts FLOOR_METRIC, for a reader that removes it or that changes a
    HorizontalPodAutoscaler.
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
        return [*validation.validate(shared), *_uncountable(spec), *_selectors(spec)]
    floors = () if floor_metric else _floors(spec)
    own = *_uncountable(spec), *_selectors(spec), *_counts(spec), *floors, *_own(spec)
    return [*validation.validate(shared), *own]


def _uncountable(spec: FastPathAutoscalerSpec) -> Iterator[Violation]:
    for index, metric in enumerate(spec.metrics or ()):
        for name, source in hpa.sources(metric).items():
            numbers = {"value": source.target.value, "averageValue": source.target.average_value}
            for field, number in numbers.items():
                if number is not None and number.sign == 1 and not number.has_milli:
                    path = f"spec.metrics[{index}].{name}.target.{field}"
                    detail = f"must be at most {GREATEST}, as decisions count thousandths in 64 bits"
                    yield validation.invalid(path, quote(str(number)), detail)


def _selectors(spec: FastPathAutoscalerSpec) -> Iterator[Violation]:
    for index, metric in enumerate(spec.metrics or ()):
        for name, source in hpa.sources(metric).items():
            selector = None if isinstance(source, _RESOURCES) else source.metric.selector
            if selector is not None and api_selectors.is_too_large(selector):
                path = f"spec.metrics[{index}].{name}.metric.selector"
                yield Violation(path, "Too long", "", api_selectors.TOO_LARGE)


def floor_source(metric: hpa.MetricSpec) -> str:
    """Return which source of a metric names FLOOR_METRIC, such as ``external``; "" for any other metric."""
    named = {"external": metric.external, "object": metric.object, "pods": metric.pods}
    return next((name for name, source in named.items() if source and source.metric.name == FLOOR_METRIC), "")


def _counts(spec: FastPathAutoscalerSpec) -> Iterator[Violation]:
    yield from validation.too_many("spec.metrics", spec.metrics, MOST_METRICS)
    if behavior := spec.behavior:
        for name, rules in (("scaleUp", behavior.scale_up), ("scaleDown", behavior.scale_down)):
            policies = (rules or hpa.HPAScalingRules()).policies
            yield from validation.too_many(f"spec.behavior.{name}.policies", policies, MOST_POLICIES)


def _floors(spec: FastPathAutoscalerSpec) -> Iterator[Violation]:
    """Refuse FLOOR_METRIC: this kind has no floor, so the metric has no value and blocks scale-downs."""
    for index, metric in enumerate(spec.metrics or ()):
        if source := floor_source(metric):
            detail = f"{FLOOR_METRIC} is only for boosted HorizontalPodAutoscalers: remove this metric"
            yield validation.forbidden(f"spec.metrics[{index}].{source}.metric.name", detail)


def _own(spec: FastPathAutoscalerSpec) -> Iterator[Violation]:
    yield from validation.within("spec.syncPeriod", spec.sync_period, SYNC_PERIODS)
    if spec.mode not in MODES:
        yield validation.unsupported("spec.mode", spec.mode, MODES)
    yield from validation.too_many("spec.pendingCapacity", spec.pending_capacity, MOST_METRICS)
    yield from pending_capacity.check(spec.pending_capacity or (), spec.metrics or ())
    if spec.forecast is not None:
        yield from forecast_spec.check(spec.forecast)
    if spec.removal_order is not None:
        yield from scale_down.check(spec.removal_order, spec.metrics or ())
    if spec.fallback is not None:
        yield from _fallback(spec.fallback, spec.max_replicas)


def _fallback(fallback: Fallback, most: int) -> Iterator[Violation]:
    path, count = "spec.fallback", fallback.replicas
    if fallback.type not in FALLBACKS:
        yield validation.unsupported(f"{path}.type", fallback.type, FALLBACKS)
    yield from validation.within(f"{path}.after", fallback.after, AFTERS)
    for field, value, owner in (
        ("replicas", count, FLOOR),
        ("lastGoodFor", fallback.last_good_for, LAST_GOOD),
    ):
        if fallback.type == owner and value is None:
            yield validation.required(f"{path}.{field}", f"is needed for type {owner}")
        elif fallback.type != owner and value is not None:
            yield validation.forbidden(f"{path}.{field}", f"belongs to type {owner} alone")
    if count is not None and count < 1:
        yield validation.invalid(f"{path}.replicas", str(count), "must be greater than 0")
    elif count is not None and count > most:
        detail = "must be less than or equal to `maxReplicas`"
        yield validation.invalid(f"{path}.replicas", str(count), detail)
    if fallback.last_good_for is not None:
        yield from validation.within(f"{path}.lastGoodFor", fallback.last_good_for, LAST_GOOD_FORS)
