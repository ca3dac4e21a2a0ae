"""HorizontalPodAutoscalers that ask to be boosted: annotations, handshake, and what decisions are made for.

The annotations ``fastpath.io/mode`` and ``fastpath.io/hold`` ask for boosting, and
``fastpath.io/pending-capacity``, ``fastpath.io/forecast`` and ``fastpath.io/scale-down`` set the options of
these names. The handshake is the metric by which the HPA reads the floor of a raise; it counts only if every
field of it is right, because a wrong one would scale the target by the floor. Decisions are made for the HPA
without its handshake: the floor is never an input of a decision.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from adapter.model.autoscaling import fastpath_autoscaler, hpa, pending_capacity, scale_down
from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling.fastpath_autoscaler import (
    ADVISE,
    BOOST,
    HPA_API_VERSION,
    HPA_KIND,
    FastPathAutoscaler,
    FastPathAutoscalerSpec,
)
from adapter.model.go_text import quote
from adapter.model.objects.api_objects import Metadata
from adapter.model.objects.api_selectors import APISelector
from adapter.model.quantity import read as read_quantity
from adapter.model.timestamps import SECOND, Span, read_span, write_span

MODE_ANNOTATION = "fastpath.io/mode"
HOLD_ANNOTATION = "fastpath.io/hold"


class _Option(NamedTuple):
    """A field of a FastPathAutoscaler's spec that an HPA has in an annotation."""

    field: str
    read: Callable[[str, Sequence[hpa.MetricSpec] | None], Any]
    write: Callable[[Any], str]


OPTIONS = {
    pending_capacity.ANNOTATION: _Option(
        "pending_capacity", pending_capacity.read_annotation, pending_capacity.write_annotation
    ),
    forecast_spec.ANNOTATION: _Option(
        "forecast", lambda text, _: forecast_spec.read_annotation(text), forecast_spec.write_annotation
    ),
    scale_down.ANNOTATION: _Option("removal_order", scale_down.read_annotation, scale_down.write_annotation),
}
"""The annotations of an HPA that stand for fields of a FastPathAutoscaler's spec."""

_NO_OPTIONS: Mapping[str, Any] = {option.field: None for option in OPTIONS.values()}

ANNOTATIONS = (MODE_ANNOTATION, HOLD_ANNOTATION, *OPTIONS)

WORDS = {"advise": ADVISE, "boost": BOOST}
"""The values of the mode annotation."""

METRIC = fastpath_autoscaler.FLOOR_METRIC
"""The metric of the floor: an external metric, or one of the HPA object."""

LABEL = "autoscaler"
"""The label that names the HPA in the selector of the external metric."""

LONGEST_NAME = 63
"""The limit of a label value. An HPA with a longer name has to read its floor as an object metric."""

HOLDS = (Span(SECOND), Span(600 * SECOND))
"""The shortest and the longest `fastpath.io/hold`; no floor lasts longer than the longest."""

EXTERNAL, OBJECT = "external", "object"

_OWNING_LABELS = {
    "scaledobject.keda.sh/name": "the ScaledObject",
    "autoscaling.crane.io/effective-hpa-name": "the EffectiveHorizontalPodAutoscaler",
}
"""Labels by which other projects mark the HPAs that they manage."""


class BoostAnnotations(NamedTuple):
    """The annotations of an HPA. `mode` is "" without a valid mode, `hold` None without a valid hold.

    `options` are the fields of the spec that the annotations stand for; None for one without a valid value.
    """

    mode: str
    hold: Span | None
    faults: tuple[str, ...] = ()
    options: Mapping[str, Any] = _NO_OPTIONS


class Handshake(NamedTuple):
    """Whether an HPA reads its floor; if not, `fault` says why."""

    holds: bool
    fault: str = ""


class BoostedHPA(NamedTuple):
    """An HPA that is advised or boosted.

    Decisions are made for `autoscaler`: the spec without the handshake, with the behavior algorithm and a
    mode. `digest` changes with spec and annotations.
    """

    autoscaler: FastPathAutoscaler
    annotations: BoostAnnotations
    handshake: Handshake
    digest: str


def read_annotations(
    annotations: Mapping[str, str] | None, metrics: Sequence[hpa.MetricSpec] | None = None
) -> BoostAnnotations:
    """Read the annotations of an HPA. An invalid value is a fault, and counts as absent.

    So is, if the HPA's `metrics` are given, an option for a metric that cannot have it.
    """
    annotations = annotations or {}
    faults = []
    word, text = annotations.get(MODE_ANNOTATION), annotations.get(HOLD_ANNOTATION)
    mode = "" if word is None else WORDS.get(word, "")
    if word is not None and not mode:
        faults.append(f"annotation {MODE_ANNOTATION}: {quote(word)}: expected advise or boost")
    hold: Span | None = None
    if text is not None:
        least, greatest = HOLDS
        with contextlib.suppress(ValueError):
            hold = read_span(text)
        if hold is None or not least <= hold <= greatest:
            bounds = f"a duration from {write_span(least)} to {write_span(greatest)}"
            faults.append(f"annotation {HOLD_ANNOTATION}: {quote(text)}: expected {bounds}, such as 45s")
            hold = None
    options = {**_NO_OPTIONS}
    for name, option in OPTIONS.items():
        if (text := annotations.get(name)) is not None:
            try:
                options[option.field] = option.read(text, metrics)
            except ValueError as error:
                faults.append(f"annotation {name}: {error}")
    return BoostAnnotations(mode, hold, tuple(faults), options)


def with_options(autoscaler: FastPathAutoscaler, annotations: BoostAnnotations) -> FastPathAutoscaler:
    """Return an autoscaler with the fields that the annotations of an HPA stand for."""
    return replace(autoscaler, spec=replace(autoscaler.spec, **annotations.options))


def find_owner(owners: Iterable[tuple[str, str, str]], labels: Mapping[str, str] | None) -> str:
    """Return the object of another autoscaling project that manages an HPA, "" for none.

    `owners` are API version, kind and name of each owner reference.
    """
    for api_version, kind, name in owners:
        group = api_version.partition("/")[0]
        if group == "keda.sh" or group.startswith("autoscaling.") or kind.endswith("Autoscaler"):
            return f"the {kind} {name}"
    for label, what in _OWNING_LABELS.items():
        if marked := (labels or {}).get(label):
            return f"{what} {marked}"
    return ""


def owned_by(owner: str) -> str:
    """Return why an HPA that `owner` manages is only advised."""
    return f"it belongs to {owner}, which writes its spec"


def is_handshake(metric: hpa.MetricSpec) -> bool:
    """Tell by its name whether a metric is meant as the handshake, right or wrong."""
    return fastpath_autoscaler.floor_source(metric) != ""


def check_handshake(name: str, spec: hpa.HorizontalPodAutoscalerSpec) -> Handshake:
    metrics = spec.metrics or ()
    meant = [metric for metric in metrics if is_handshake(metric)]
    if not meant:
        return Handshake(False, f"spec.metrics has no {METRIC}, so the HPA would undo every raise")
    if fault := next(filter(None, (_fault(name, metric) for metric in meant)), ""):
        return Handshake(False, fault)
    if len(meant) == len(metrics):
        return Handshake(False, f"spec.metrics has only {METRIC}, so there is nothing to decide from")
    return Handshake(True)


def _fault(name: str, metric: hpa.MetricSpec) -> str:
    if metric.external is not None and metric.type == "External":
        selector, target = metric.external.metric.selector, metric.external.target
        if len(name) > LONGEST_NAME:
            return (
                f"the name of the autoscaler is longer than the {LONGEST_NAME} characters of a label: "
                f"the metric {METRIC} must have type Object"
            )
        if selector != APISelector({LABEL: name}):
            return f"the selector of the metric {METRIC} must be matchLabels with only {LABEL}: {name}"
    elif metric.object is not None and metric.type == "Object":
        described, target = metric.object.described_object, metric.object.target
        group = described.api_version.partition("/")[0]
        if (group, described.kind, described.name) != ("autoscaling", HPA_KIND, name):
            return f"describedObject of the metric {METRIC} must be {HPA_API_VERSION} {HPA_KIND} {name}"
        if metric.object.metric.selector is not None:
            return f"the metric {METRIC} of type Object takes no selector"
    else:
        return f"the metric {METRIC} must have type External or Object"
    value = target.average_value
    if target.type != "AverageValue" or value is None or value != _ONE:
        return f'the target of the metric {METRIC} must have type AverageValue and averageValue "1"'
    return ""


_ONE = read_quantity("1")


def handshake(name: str, way: str) -> hpa.MetricSpec:
    """Return the metric by which the HPA `name` reads its floor; `way` is EXTERNAL or OBJECT."""
    target = hpa.MetricTarget("AverageValue", average_value=_ONE)
    if way == EXTERNAL:
        metric = hpa.MetricIdentifier(METRIC, APISelector({LABEL: name}))
        return hpa.MetricSpec("External", external=hpa.ExternalMetricSource(metric, target))
    described = hpa.CrossVersionObjectReference(HPA_KIND, name, HPA_API_VERSION)
    return hpa.MetricSpec(
        "Object", object=hpa.ObjectMetricSource(hpa.MetricIdentifier(METRIC), target, described)
    )


def without_handshake(metrics: tuple[hpa.MetricSpec, ...] | None) -> tuple[hpa.MetricSpec, ...] | None:
    return metrics and tuple(metric for metric in metrics if not is_handshake(metric))


def read_boosted(native: hpa.HorizontalPodAutoscaler) -> BoostedHPA | None:
    """Return an HPA as decisions are made for it, None without a valid mode annotation.

    The status is left out, because decisions remember their own.
    """
    meta, spec = native.metadata, native.spec
    if not isinstance(meta, Metadata):
        return None
    metrics = without_handshake(spec.metrics)
    annotations = read_annotations(meta.annotations, metrics or ())
    if not annotations.mode:
        return None
    own = hpa.reshape(spec, FastPathAutoscalerSpec, metrics=metrics, mode=annotations.mode)
    autoscaler = with_options(FastPathAutoscaler(HPA_API_VERSION, HPA_KIND, meta, own), annotations)
    return BoostedHPA(autoscaler, annotations, check_handshake(meta.name, spec), _digest(spec, annotations))


def _digest(spec: hpa.HorizontalPodAutoscalerSpec, annotations: BoostAnnotations) -> str:
    plain = msgspec.json.encode(hpa.to_plain(spec), order="deterministic")
    options = ((option, annotations.options[option.field]) for option in OPTIONS.values())
    written = " ".join("" if value is None else option.write(value) for option, value in options)
    values = repr(annotations[:2]) + written.rstrip()
    return hashlib.blake2b(plain + values.encode(), digest_size=8).hexdigest()
