"""The document that `fastpath evaluate` reads: the input of one sync, decoded and checked.

Any input ends in an `EvaluateDocument` or in an `InputError` with the JSON path of each fault. `readings`
answers the metrics from the lists of a document.
"""

from typing import Annotated

import msgspec
from msgspec.structs import replace

from adapter.autoscaler.decide.history import History, Recommendation, RecommendationList, ScaleEvent
from adapter.autoscaler.decide.observation import Settings
from adapter.errors import Fault, InputError
from adapter.model import timestamps
from adapter.model.autoscaling import documents, validation
from adapter.model.autoscaling.hpa import (
    CustomMetricValue,
    ExternalMetricValue,
    HorizontalPodAutoscaler,
    Int32,
    PodMetrics,
    Scale,
    Struct,
    decode_scalar,
    with_defaults,
)
from adapter.model.pods import Pod
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
    """A recommendation of an earlier sync."""

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
        """Return the options as settings."""
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
            Recommendation(each.replicas, now - timestamps.span_of(each.age_seconds))
            for each in past.recommendations or ()
        )
        ups, downs = (
            tuple(
                ScaleEvent(each.change, now - timestamps.span_of(each.age_seconds)) for each in changes or ()
            )
            for changes in (past.scale_up_events, past.scale_down_events)
        )
        return History(RecommendationList(tuple(recommendations)), ups, downs)


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
    place = (
        "it belongs under hpa"
        if kind == "HorizontalPodAutoscaler"
        else "its key is hpa, scale or an item of pods"
    )
    expected = (
        f"expected a document with now, hpa and scale, not a single object: {place} (docs/guides/evaluate.md)"
    )
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


def name_of(text: bytes) -> str | None:
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
    if hpa.api_version not in {"", "autoscaling/v2"}:
        faults.append(
            Fault("hpa.apiVersion", documents.shown(hpa.api_version), "expected autoscaling/v2", source)
        )
    if hpa.kind not in {"", "HorizontalPodAutoscaler"}:
        faults.append(
            Fault("hpa.kind", documents.shown(hpa.kind), "expected HorizontalPodAutoscaler", source)
        )
    if not meta.namespace:
        # that of its target, else where kubectl puts what names no namespace
        meta = replace(meta, namespace=document.scale.metadata.namespace or "default")
    hpa = replace(hpa, metadata=meta, spec=with_defaults(hpa.spec))
    violations = [("hpa", each) for each in validation.validate(hpa, stored=True)]
    violations += [("scale", each) for each in validation.validate_scale(document.scale)]
    faults += [
        Fault(f"{where}.{path}", ": ".join(filter(None, (problem, value))), detail, source)
        for where, (path, problem, value, detail) in violations
    ]
    if faults:
        raise InputError(faults)
    return replace(document, hpa=hpa)
