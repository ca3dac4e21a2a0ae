"""What is changed in a HorizontalPodAutoscaler's document so that it is boosted, advised, or plain again.

Its operations make the annotation and the handshake right, and autoscaling/v2 of autoscaling/v1. Nothing else
is changed, and what is right already stays as it is written. A document that the API server would refuse is
refused.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from adapter.cli.boost.json_patch import ADD, END, REMOVE, REPLACE, TEST, PatchOperation
from adapter.errors import Fault, InputError
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling import documents
from adapter.model.autoscaling import documents as validation_errors
from adapter.model.autoscaling.boost import EXTERNAL, LONGEST_NAME, METRIC, MODE_ANNOTATION, OBJECT
from adapter.model.autoscaling.fastpath_autoscaler import HPA_API_VERSION, HPA_KIND
from adapter.model.autoscaling.hpa import (
    HorizontalPodAutoscalerSpec,
    MetricSpec,
    encode_scalar,
    with_defaults,
)

KIND = HPA_KIND

_V1 = "autoscaling/v1"
_V1_TARGET = "targetCPUUtilizationPercentage"
_V1_STATUS = "currentCPUUtilizationPercentage"
_V1_ANNOTATIONS = ("autoscaling.alpha.kubernetes.io/metrics", "autoscaling.alpha.kubernetes.io/behavior")
"""Where the API server keeps, in its answers in autoscaling/v1, what that version has no fields for."""

_NOWHERE = "a-namespace"
"""Stands in for a namespace that a manifest leaves to `kubectl --namespace`."""

_PERCENT = 80
"""The API's default of a cpu target, in both versions."""


class Wish(NamedTuple):
    """What an autoscaler should be: `mode` is a word of the annotation, or "" for none.

    `way` the handshake's, "" for either.
    """

    mode: str
    way: str = ""


class PatchPlan(NamedTuple):
    """What is done to a document.

    `notes` say to people what they may not expect, a sentence each without the final stop.
    """

    operations: tuple[PatchOperation, ...] = ()
    notes: tuple[str, ...] = ()


def is_autoscaler(tree: object) -> bool:
    """Tell whether a document is a HorizontalPodAutoscaler of Kubernetes, in whatever version."""
    if not isinstance(tree, dict) or tree.get("kind") != HPA_KIND:
        return False
    version = tree.get("apiVersion")
    return not isinstance(version, str) or "/" not in version or version.startswith("autoscaling/")


def plan(tree: dict[str, Any], wish: Wish) -> PatchPlan:
    """Return what makes a HorizontalPodAutoscaler's document what is wished for.

    InputError with all that is wrong in it. Operations come in an order in which each index is that of the
    document given.
    """
    version = tree.get("apiVersion")
    if version not in (HPA_API_VERSION, _V1):
        shown = "absent" if version is None else validation_errors.shown(version)
        expected = (
            f"expected {HPA_API_VERSION} or {_V1}; kubectl get hpa.v2.autoscaling NAME -o yaml gives it"
        )
        raise InputError([Fault("apiVersion", shown, expected)])
    old = version == _V1
    if old and (faults := list(_old_faults(tree))):
        raise InputError(faults)
    read = documents.read_document(_converted(tree) if old else tree, _NOWHERE, floor_metric=True)
    name, metrics = read.metadata.name, read.spec.metrics or ()
    annotation = _annotate(tree["metadata"].get("annotations"), wish.mode)
    if wish.mode != "boost":
        # nothing of the older version is in the way of an annotation
        notes = () if old else _without(read.spec)
        operations = (annotation, *(() if old else _drop(metrics)))
        return PatchPlan(tuple(each for each in operations if each), (*notes, *_hold_notes(tree, wish)))
    way, notes = _way(name, wish.way)
    if old:
        operations = (annotation, *_convert(tree, metrics, model.handshake(name, way or EXTERNAL)))
        notes = (f"{_V1} becomes {HPA_API_VERSION}, which has more than one metric", *notes)
    else:
        operations = (annotation, *_shake(name, metrics, way))
    if not any(not model.is_handshake(each) for each in metrics):
        notes = (*notes, f"it has no metrics, so that the API's default is written out: cpu at {_PERCENT} %")
    return PatchPlan(tuple(each for each in operations if each), (*notes, *_hold_notes(tree, wish)))


def _way(name: str, asked: str) -> tuple[str, tuple[str, ...]]:
    """Return how the handshake is made.

    As asked for, "" for any that is right, and a note where the name leaves no choice.
    """
    if len(name) <= LONGEST_NAME:
        return asked, ()
    note = (
        f"its name has more than {LONGEST_NAME} characters, so that its floor is read as a metric of the "
        "autoscaler itself"
    )
    return OBJECT, (note,)


def _hold_notes(tree: dict[str, Any], wish: Wish) -> tuple[str, ...]:
    """Return what is wrong in the annotations that stay."""
    annotations = tree["metadata"].get("annotations") or {}
    return model.read_annotations(annotations | {MODE_ANNOTATION: wish.mode}).faults if wish.mode else ()


def _annotate(annotations: dict[str, Any] | None, mode: str) -> PatchOperation | None:
    """Return what sets the annotation, or takes it away."""
    place = ("metadata", "annotations")
    if not mode:
        if not annotations or MODE_ANNOTATION not in annotations:
            return None
        return PatchOperation(REMOVE, place if len(annotations) == 1 else (*place, MODE_ANNOTATION))
    if annotations is None:
        return PatchOperation(ADD, place, {MODE_ANNOTATION: mode})
    if annotations.get(MODE_ANNOTATION) == mode:
        return None
    return PatchOperation(REPLACE if MODE_ANNOTATION in annotations else ADD, (*place, MODE_ANNOTATION), mode)


# --- the handshake
# ---------------------------------------------------------------------------------------------------


def _shake(name: str, metrics: Sequence[MetricSpec], way: str) -> Iterator[PatchOperation]:
    """Yield what leaves one handshake among metrics, and a metric beside it.

    `way` "" keeps one that is right.
    """
    place = ("spec", "metrics")
    found = [index for index, each in enumerate(metrics) if model.is_handshake(each)]
    made = _plain(model.handshake(name, way or EXTERNAL))
    if not metrics:
        yield PatchOperation(ADD, place, [_cpu(_PERCENT), made])
        return
    if not found:
        yield PatchOperation(ADD, (*place, END), made)
        return
    right = [index for index in found if _is_right(name, metrics[index], way)]
    kept = (right or found)[0]
    if not right:
        yield from _sure(metrics, kept)
        yield PatchOperation(REPLACE, (*place, str(kept)), made)
    yield from _removed(metrics, [index for index in found if index != kept])
    if len(found) == len(metrics):
        yield PatchOperation(ADD, (*place, "0"), _cpu(_PERCENT))


def _is_right(name: str, metric: MetricSpec, way: str) -> bool:
    """Tell whether a handshake holds, and is made as asked for."""
    beside = with_defaults(HorizontalPodAutoscalerSpec()).metrics or ()
    alone = HorizontalPodAutoscalerSpec(metrics=(*beside, metric))
    return model.check_handshake(name, alone).holds and (not way or metric.type.lower() == way)


def _drop(metrics: Sequence[MetricSpec]) -> Iterator[PatchOperation]:
    """Yield what takes every handshake away.

    If nothing else is left, take the field away: the API server does not accept an empty list.
    """
    found = [index for index, each in enumerate(metrics) if model.is_handshake(each)]
    if found and len(found) == len(metrics):
        yield from _sure(metrics, 0)
        yield PatchOperation(REMOVE, ("spec", "metrics"))
    else:
        yield from _removed(metrics, found)


def _without(spec: HorizontalPodAutoscalerSpec) -> tuple[str, ...]:
    """Return what people may not expect of a spec that loses its handshake."""
    metrics = spec.metrics or ()
    kept = model.without_handshake(metrics) or ()
    if len(kept) == len(metrics):
        return ()
    notes = (
        ()
        if kept
        else (f"it has no metric but {METRIC}; without it the API's default holds: cpu at {_PERCENT} %",)
    )
    if spec.min_replicas == 0 and not any(each.type in {"Object", "External"} for each in kept):
        return (
            *notes,
            (
                "minReplicas 0 needs an Object or External metric, and it has no other; the API server "
                "refuses it"
            ),
        )
    return notes


def _removed(metrics: Sequence[MetricSpec], found: list[int]) -> Iterator[PatchOperation]:
    for index in reversed(found):
        yield from _sure(metrics, index)
        yield PatchOperation(REMOVE, ("spec", "metrics", str(index)))


def _sure(metrics: Sequence[MetricSpec], index: int) -> Iterator[PatchOperation]:
    """Yield the test that an index still means the handshake where the patch is applied."""
    metric = metrics[index]
    source = next(name for name in ("external", "object", "pods") if getattr(metric, name) is not None)
    yield PatchOperation(TEST, ("spec", "metrics", str(index), source, "metric", "name"), METRIC)


def _cpu(percent: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _plain(metric: MetricSpec) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(metric, enc_hook=encode_scalar)
    return plain


# --- autoscaling/v1
# --------------------------------------------------------------------------------------------------


def _old_faults(tree: dict[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong with what only autoscaling/v1 has, or does not have."""
    spec, meta = _mapping(tree.get("spec")), _mapping(tree.get("metadata"))
    percent = spec.get(_V1_TARGET)
    if percent is not None and (type(percent) is not int or not 1 <= percent < 2**31):
        yield Fault(
            f"spec.{_V1_TARGET}", validation_errors.shown(percent), "expected a whole number greater than 0"
        )
    for name in ("metrics", "behavior"):
        if spec.get(name) is not None:
            yield Fault(f"spec.{name}", validation_errors.shown(spec[name]), f"only {HPA_API_VERSION} has it")
    annotations = _mapping(meta.get("annotations"))
    for name in _V1_ANNOTATIONS:
        if annotations.get(name) is not None:
            advice = (
                f"{_V1} hides a part of the autoscaler here; kubectl get hpa.v2.autoscaling NAME -o yaml "
                "gives all of it"
            )
            yield Fault("metadata.annotations", name, advice)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _converted(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a document of autoscaling/v1, right as far as `_old_faults` looks, in autoscaling/v2.

    Without a target as it is.
    """
    converted = tree | {"apiVersion": HPA_API_VERSION}
    if isinstance(spec := tree.get("spec"), dict):
        rest = {name: value for name, value in spec.items() if name != _V1_TARGET}
        percent = spec.get(_V1_TARGET)
        converted["spec"] = rest if percent is None else rest | {"metrics": [_cpu(percent)]}
    return converted


def _convert(
    tree: dict[str, Any], metrics: Sequence[MetricSpec], made: MetricSpec
) -> Iterator[PatchOperation]:
    """Yield what makes autoscaling/v2 of a document: v1's target as `metrics`, and the handshake."""
    yield PatchOperation(REPLACE, ("apiVersion",), HPA_API_VERSION)
    if _V1_TARGET in tree["spec"]:
        yield PatchOperation(REMOVE, ("spec", _V1_TARGET))
    own = [_plain(each) for each in metrics] or [_cpu(_PERCENT)]
    yield PatchOperation(ADD, ("spec", "metrics"), [*own, _plain(made)])
    status = tree.get("status")
    if isinstance(status, dict) and _V1_STATUS in status:
        yield PatchOperation(REMOVE, ("status",) if len(status) == 1 else ("status", _V1_STATUS))
