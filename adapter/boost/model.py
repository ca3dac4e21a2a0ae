"""HorizontalPodAutoscalers that ask for help: the annotations, the handshake, and what is decided for them.

Here: what the annotations ``fastpath.io/mode`` and ``fastpath.io/hold`` say, the metric by which an autoscaler reads the floor of a
raise, and the autoscaler without it, which is what decisions are made for. Not here: the floor itself (`floors`), what is raised when
(`autoscaler.decide.boost`). Law: the handshake counts only if everything in it is right; the metric never is an input of a decision of ours.
"""

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import (
    ADVISE,
    BOOST,
    HPA_API_VERSION,
    HPA_KIND,
    FastPathAutoscaler,
    FastPathAutoscalerSpec,
    Metadata,
)
from adapter.model.autoscaling.hpa import (
    CrossVersionObjectReference,
    ExternalMetricSource,
    HorizontalPodAutoscaler,
    HorizontalPodAutoscalerSpec,
    MetricIdentifier,
    MetricSpec,
    MetricTarget,
    ObjectMetricSource,
    encode_scalar,
)
from adapter.model.go_text import quote
from adapter.model.quantity import read as read_quantity
from adapter.model.selectors.api_selectors import APISelector
from adapter.model.timestamps import SECOND, Span, read_span, write_span

MODE_ANNOTATION = "fastpath.io/mode"
HOLD_ANNOTATION = "fastpath.io/hold"

ANNOTATIONS = (MODE_ANNOTATION, HOLD_ANNOTATION)

WORDS = {"advise": ADVISE, "boost": BOOST}
"""What the annotation may say, and the mode that it is."""

METRIC = fastpath_autoscaler.FLOOR_METRIC
"""The floor as a metric, external or of the autoscaler itself."""

LABEL = "autoscaler"
"""Which autoscaler's floor an external metric asks for."""

LONGEST_NAME = 63
"""Of a label's value. An autoscaler with a longer name reads its floor as a metric of itself."""

HOLDS = (Span(SECOND), Span(600 * SECOND))
"""The shortest and the longest `fastpath.io/hold`; the longest is also the end of every floor."""

EXTERNAL, OBJECT = "external", "object"

_OWNING_LABELS = {
    "scaledobject.keda.sh/name": "the ScaledObject",
    "autoscaling.crane.io/effective-hpa-name": "the EffectiveHorizontalPodAutoscaler",
}
"""Labels by which other autoscaling projects mark the HorizontalPodAutoscalers that they make."""


class Wishes(NamedTuple):
    """What the annotations of a HorizontalPodAutoscaler say: `mode` is "" where nothing is asked of us; `hold` None where it is open."""

    mode: str
    hold: Span | None
    faults: tuple[str, ...] = ()


class Handshake(NamedTuple):
    """Whether an autoscaler reads its floor; where it does not, `fault` is what is wrong in a sentence."""

    holds: bool
    fault: str = ""


class Boosted(NamedTuple):
    """A HorizontalPodAutoscaler that is advised or boosted.

    `autoscaler` is what is decided for: its spec without the handshake, by the behavior algorithm, with a mode. `digest` tells one state
    of spec and annotations from another.
    """

    autoscaler: FastPathAutoscaler
    wishes: Wishes
    handshake: Handshake
    digest: str


def wishes_of(annotations: Mapping[str, str] | None) -> Wishes:
    """Return what annotations ask for. A mode that is none asks for nothing and is a fault; a hold that is none is a fault and open."""
    found = annotations or {}
    faults = []
    word, text = found.get(MODE_ANNOTATION), found.get(HOLD_ANNOTATION)
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
    return Wishes(mode, hold, tuple(faults))


def owner_of(owners: Iterable[tuple[str, str, str]], labels: Mapping[str, str] | None) -> str:
    """Return which object of another autoscaling project an autoscaler belongs to, "" for none: its owner, or who has labelled it.

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


def owned(owner: str) -> str:
    """Return why an autoscaler that belongs to `owner` is only advised."""
    return f"it belongs to {owner}, which writes its spec"


def is_handshake(metric: MetricSpec) -> bool:
    """Tell whether a metric of a spec is meant to be the handshake, right or wrong: by its name."""
    return fastpath_autoscaler.floor_source(metric) != ""


def handshake_of(name: str, spec: HorizontalPodAutoscalerSpec) -> Handshake:
    """Return whether the spec of the autoscaler `name` has its handshake."""
    found = [each for each in spec.metrics or () if is_handshake(each)]
    if not found:
        return Handshake(False, f"spec.metrics has no {METRIC}: nothing would hold what is raised")
    faults = [fault for each in found if (fault := _fault(name, each))]
    if faults:
        return Handshake(False, faults[0])
    if len(found) == len(spec.metrics or ()):
        return Handshake(False, f"spec.metrics has nothing but {METRIC}: there is nothing to decide from")
    return Handshake(True)


def _fault(name: str, metric: MetricSpec) -> str:
    """Return what is wrong with a handshake, "" for nothing."""
    if metric.external is not None and metric.type == "External":
        selector, target = metric.external.metric.selector, metric.external.target
        if len(name) > LONGEST_NAME:
            return (
                f"a label has no value of more than {LONGEST_NAME} characters, as the autoscaler's name has: "
                f"the metric {METRIC} has to be one of the autoscaler itself"
            )
        if selector != APISelector({LABEL: name}):
            return f"the selector of the metric {METRIC} has to be matchLabels with {LABEL}: {name} and nothing else"
    elif metric.object is not None and metric.type == "Object":
        described, target = metric.object.described_object, metric.object.target
        group = described.api_version.partition("/")[0]
        if (group, described.kind, described.name) != ("autoscaling", HPA_KIND, name):
            return f"the metric {METRIC} has to describe the autoscaler itself: {HPA_API_VERSION} {HPA_KIND} {name}"
        if metric.object.metric.selector is not None:
            return f"the metric {METRIC} of the autoscaler itself takes no selector"
    else:
        return f"the metric {METRIC} has to be of type External or Object"
    value = target.average_value
    if target.type != "AverageValue" or value is None or value != _ONE:
        return f'the target of the metric {METRIC} has to be type AverageValue with averageValue "1"'
    return ""


_ONE = read_quantity("1")


def handshake(name: str, way: str) -> MetricSpec:
    """Return the metric by which the autoscaler `name` reads its floor: EXTERNAL or OBJECT."""
    target = MetricTarget("AverageValue", average_value=_ONE)
    if way == EXTERNAL:
        metric = MetricIdentifier(METRIC, APISelector({LABEL: name}))
        return MetricSpec("External", external=ExternalMetricSource(metric, target))
    described = CrossVersionObjectReference(HPA_KIND, name, HPA_API_VERSION)
    return MetricSpec("Object", object=ObjectMetricSource(MetricIdentifier(METRIC), target, described))


def without_handshake(metrics: tuple[MetricSpec, ...] | None) -> tuple[MetricSpec, ...] | None:
    """Return metrics without the handshake, right or wrong."""
    return metrics and tuple(each for each in metrics if not is_handshake(each))


def read_boosted(hpa: HorizontalPodAutoscaler) -> Boosted | None:
    """Return a HorizontalPodAutoscaler as it is decided for, None where its annotations ask for nothing (a wrong mode included).

    Its status is left out: decisions remember their own. An autoscaler of nothing but the handshake has no metric.
    """
    meta, spec = hpa.metadata, hpa.spec
    wishes = wishes_of(meta.annotations if isinstance(meta, Metadata) else None)
    if not wishes.mode:
        return None
    assert isinstance(meta, Metadata)
    plain = FastPathAutoscalerSpec(
        spec.scale_target_ref,
        spec.min_replicas,
        spec.max_replicas,
        without_handshake(spec.metrics),
        spec.behavior,
        mode=wishes.mode,
    )
    autoscaler = FastPathAutoscaler(HPA_API_VERSION, HPA_KIND, meta, plain)
    return Boosted(autoscaler, wishes, handshake_of(meta.name, spec), digest_of(spec, wishes))


def digest_of(spec: HorizontalPodAutoscalerSpec, wishes: Wishes) -> str:
    """Return a text that is another whenever the spec or what is asked of us is another."""
    plain = msgspec.json.encode(msgspec.to_builtins(spec, enc_hook=encode_scalar), order="deterministic")
    return hashlib.blake2b(plain + repr(wishes[:2]).encode(), digest_size=8).hexdigest()
