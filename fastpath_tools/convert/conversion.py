"""Conversion of autoscaler documents between HorizontalPodAutoscaler and FastPathAutoscaler.

Target, limits, metrics and behavior mean the same in both kinds and are kept. The annotations of a boosted
HorizontalPodAutoscaler for options of the spec become fields. What only one kind has is left out, and a note
names it: the metric and the other annotations of boost in one direction, `OWN_FIELDS` in the other. So is
metadata that belongs to one object, but for what an API server or kubectl sets. Reading and writing YAML is
`command`'s.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from adapter.errors import InputError
from adapter.model.autoscaling import boost, documents, fastpath_autoscaler, hpa
from adapter.model.autoscaling.fastpath_autoscaler import (
    FLOOR_METRIC,
    HPA_API_VERSION,
    HPA_KIND,
    KIND,
    LAST_APPLIED,
    PAUSED,
    FastPathAutoscaler,
    FastPathAutoscalerSpec,
)
from fastpath_tools.manifests import NOWHERE

OWN_FIELDS = FastPathAutoscalerSpec.__struct_encode_fields__[
    len(hpa.HorizontalPodAutoscalerSpec.__struct_fields__) :
]
"""The fields of a spec that a HorizontalPodAutoscaler does not have, as they are written."""

_KEPT = frozenset({"name", "namespace", "labels", "annotations"})

SERVER_SET = frozenset(
    {
        *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation"),
        *("managedFields", "resourceVersion", "selfLink", "uid"),
    }
)
"""Metadata that an API server sets; it means nothing for another object."""


class Converted(NamedTuple):
    """An autoscaler as mappings, lists and scalars. Each of `notes` is a sentence without the final stop."""

    document: dict[str, Any]
    notes: tuple[str, ...]


def to_fastpath(tree: dict[str, Any]) -> Converted:
    """Return the FastPathAutoscaler for a document of either kind. InputError with all faults."""
    read, notes = _read_without_floor(tree)
    if documents.kind_of(tree) == HPA_KIND:
        read = _with_options(read, tree["metadata"].get("annotations"), notes)
    notes += _metadata_notes(tree)
    kind = {"apiVersion": read.api_version, "kind": read.kind}
    return Converted(_placed(kind | hpa.to_plain(read)), tuple(notes))


def _with_options(
    read: FastPathAutoscaler, annotations: Mapping[str, str | None] | None, notes: list[str]
) -> FastPathAutoscaler:
    """Return an autoscaler with the options that annotations of boost ask for; `notes` grow."""
    given = {name: text for name, text in (annotations or {}).items() if text is not None}
    wishes = boost.read_annotations(given, read.spec.metrics or ())
    fields = {field.name: field.encode_name for field in msgspec.structs.fields(read.spec)}
    options = {name: option.field for name, option in boost.OPTIONS.items()}
    kept = {name: fields[field] for name, field in options.items() if wishes.options[field] is not None}
    notes += (f"annotation {name} becomes spec.{field}" for name, field in kept.items())
    notes += wishes.faults
    notes += _annotation_notes(name for name in given if name not in kept)
    return boost.with_options(read, wishes)


def to_native(tree: dict[str, Any]) -> Converted:
    """Return the HorizontalPodAutoscaler for a FastPathAutoscaler. InputError with all faults."""
    read, dropped = _read_without_floor(tree)
    native = hpa.HorizontalPodAutoscaler(
        HPA_API_VERSION,
        HPA_KIND,
        fastpath_autoscaler.successor_metadata(read.metadata),
        fastpath_autoscaler.plain_spec(read.spec),
    )
    return Converted(
        _placed(hpa.to_plain(native)),
        (
            *dropped,
            *_annotation_notes(tree["metadata"].get("annotations") or {}),
            *_metadata_notes(tree),
            *_native_notes(tree, read),
        ),
    )


def _placed(plain: dict[str, Any]) -> dict[str, Any]:
    """Return a document without the namespace that stands in for none."""
    if plain["metadata"]["namespace"] == NOWHERE:
        del plain["metadata"]["namespace"]
    return plain


def _read_without_floor(tree: dict[str, Any]) -> tuple[FastPathAutoscaler, list[str]]:
    """Return the autoscaler of a document without the metric of boost, and notes on that."""
    autoscaler = documents.read_document(tree, NOWHERE, floor_metric=True)
    notes = []
    metrics = autoscaler.spec.metrics or ()
    remaining = tuple(metric for metric in metrics if not fastpath_autoscaler.floor_source(metric))
    if len(remaining) < len(metrics):
        notes.append(f"left out, only a boosted {HPA_KIND} has it: metric {FLOOR_METRIC}")
        if not remaining:
            notes.append("it has no other metric, so the API's default applies: cpu at 80 %")
        autoscaler = replace(autoscaler, spec=replace(autoscaler.spec, metrics=remaining or None))
    if faults := list(documents.faults_of(autoscaler)):
        raise InputError(faults)
    return autoscaler, notes


def _annotation_notes(given: Iterable[str]) -> Iterator[str]:
    """Yield the annotations among those given that the successor does not have, but for that of kubectl."""
    names = [name for name in given if fastpath_autoscaler.is_of_one_kind(name) and name != LAST_APPLIED]
    if names:
        yield f"left out: annotation {', '.join(names)}"


def _metadata_notes(tree: dict[str, Any]) -> Iterator[str]:
    names = [name for name in tree["metadata"] if name not in _KEPT | SERVER_SET]
    if names:
        yield f"left out: {', '.join(f'metadata.{name}' for name in names)}"


def _native_notes(tree: dict[str, Any], read: FastPathAutoscaler) -> Iterator[str]:
    """Yield what the HorizontalPodAutoscaler lacks, and what its API server may not accept."""
    given = tree["spec"]
    own = [
        f"spec.{name}: {documents.shown(given[name])}" for name in OWN_FIELDS if given.get(name) is not None
    ]
    if own:
        yield f"left out, a {HPA_KIND} does not have it: {', '.join(own)}"
    spec = read.spec
    if spec.mode != fastpath_autoscaler.AUTO:
        done = "did nothing" if spec.mode == PAUSED else "only advised"
        yield f"the {KIND} {done}, and the {HPA_KIND} scales as soon as it is applied"
    if spec.min_replicas == 0:
        yield "spec.minReplicas 0 needs the feature gate HPAScaleToZero of the cluster"
    behavior = spec.behavior or hpa.HorizontalPodAutoscalerBehavior()
    for name, rules in (("scaleUp", behavior.scale_up), ("scaleDown", behavior.scale_down)):
        if rules is not None and rules.tolerance is not None:
            yield (
                f"spec.behavior.{name}.tolerance needs Kubernetes 1.35, or the feature gate "
                "HPAConfigurableTolerance of the cluster"
            )
