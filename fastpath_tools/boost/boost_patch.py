"""The JSON patch (RFC 6902) that makes a HorizontalPodAutoscaler boosted, advised, or plain again.

`plan` returns the operations that make the annotation and the handshake right, and autoscaling/v2 of
autoscaling/v1. Nothing else is changed, and what is right already stays as it is written. A document that the
API server would refuse is refused.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jsonpatch

from adapter.errors import Fault, InputError
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling import documents
from adapter.model.autoscaling.boost import EXTERNAL, LONGEST_NAME, METRIC, MODE_ANNOTATION, OBJECT
from adapter.model.autoscaling.fastpath_autoscaler import HPA_API_VERSION, HPA_KIND
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerSpec, MetricSpec, to_plain, with_defaults
from fastpath_tools import origins
from fastpath_tools.manifests import NOWHERE, mapping_at

ADD, REMOVE, REPLACE, TEST = "add", "remove", "replace", "test"

END = "-"
"""The place after the last item of a list."""


class PatchOperation(NamedTuple):
    """One step of a JSON patch; `value` is what stands at `path` afterwards, or has to for `test`."""

    op: str
    path: tuple[str, ...]
    value: Any = None

    def plain(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        names = (name.replace("~", "~0").replace("/", "~1") for name in self.path)
        shown = {"op": self.op, "path": "".join(f"/{name}" for name in names)}
        return shown if self.op == REMOVE else shown | {"value": self.value}


def apply(document: Any, operations: Iterable[PatchOperation]) -> Any:
    """Return a changed copy of a document."""
    own = [operation._replace(value=_copied(operation.value)) for operation in operations]
    return apply_to(_copied(document), own)


def apply_to(document: Any, operations: Iterable[PatchOperation]) -> Any:
    """Apply operations to the document itself, and return it; their values become part of it."""
    return jsonpatch.apply_patch(document, [operation.plain() for operation in operations], in_place=True)


def _copied(value: Any) -> Any:
    """Return a deep copy that shares nothing, not even what an anchor and its aliases share."""
    if isinstance(value, dict):
        return {name: _copied(below) for name, below in value.items()}
    return [_copied(below) for below in value] if isinstance(value, list) else value


# -- boosting ------------------------------------------------------------------------------------------------

_V1 = "autoscaling/v1"
_V1_TARGET = "targetCPUUtilizationPercentage"
_V1_STATUS = "currentCPUUtilizationPercentage"
_V1_ANNOTATIONS = ("autoscaling.alpha.kubernetes.io/metrics", "autoscaling.alpha.kubernetes.io/behavior")
"""Where the API server keeps, in its answers in autoscaling/v1, what that version has no fields for."""

_PERCENT = 80
"""The API's default of a cpu target, in both versions."""

KEEP, FAST = "keep", "fast"
"""What becomes of the policies of a scale-up."""
_FAST_POLICIES = [{"type": "Percent", "value": 900, "periodSeconds": 15}]
_FAST_NOTE = "a scale-up may go to ten times the replicas in 15 s, up to maxReplicas, also by a wrong value"


class Wish(NamedTuple):
    """What an autoscaler becomes: `mode` is a value of the annotation, or "" for none.

    `way` is the type of the handshake, "" for either. `scale_up` is KEEP or FAST.
    """

    mode: str
    way: str = ""
    scale_up: str = KEEP


class PatchPlan(NamedTuple):
    """The operations on a document, and sentences without a full stop on what users may not expect."""

    operations: tuple[PatchOperation, ...] = ()
    notes: tuple[str, ...] = ()


def is_autoscaler(tree: object) -> bool:
    """Tell whether a document is a HorizontalPodAutoscaler of Kubernetes, in any version."""
    if not isinstance(tree, dict) or tree.get("kind") != HPA_KIND:
        return False
    version = tree.get("apiVersion")
    return not isinstance(version, str) or "/" not in version or version.startswith("autoscaling/")


def plan(tree: dict[str, Any], wish: Wish) -> PatchPlan:
    """Return what makes a HorizontalPodAutoscaler's document what is wished for.

    Operations come in an order in which each index is that of the document given. InputError with all faults.
    """
    version = tree.get("apiVersion")
    if version not in (HPA_API_VERSION, _V1):
        shown = "absent" if version is None else documents.shown(version)
        expected = (
            f"expected {HPA_API_VERSION} or {_V1}; kubectl get hpa.v2.autoscaling NAME -o yaml gives it"
        )
        raise InputError([Fault("apiVersion", shown, expected)])
    old = version == _V1
    if old and (faults := list(_v1_faults(tree))):
        raise InputError(faults)
    read = documents.read_document(_converted(tree) if old else tree, NOWHERE, floor_metric=True)
    name, metrics = read.metadata.name, read.spec.metrics or ()
    notes: list[str] = []
    operations = list(_annotate(tree["metadata"].get("annotations"), wish.mode))
    if wish.mode == "boost":
        way = wish.way
        if old:
            notes.append(f"converted from {_V1} to {HPA_API_VERSION}: {_V1} has only one metric")
        if len(name) > LONGEST_NAME:
            way = OBJECT
            notes.append(
                f"its name has more than {LONGEST_NAME} characters, so the floor is added as an Object metric"
            )
        if all(map(model.is_handshake, metrics)):
            notes.append(f"it has no metrics, so the API's default is written out: cpu at {_PERCENT} %")
        operations += _convert(tree, name, metrics, way) if old else _shake(name, metrics, way)
        if wish.scale_up == FAST:
            operations += _hasten(mapping_at(tree, "spec"))
            notes.append(_FAST_NOTE)
    elif not old:  # nothing of the older version is in the way of an annotation
        operations += _drop(metrics)
        notes += _without_handshake(read.spec)
    if wish.mode:
        annotations = tree["metadata"].get("annotations") or {}
        annotations = annotations | {MODE_ANNOTATION: wish.mode}
        notes += model.read_annotations(annotations, model.without_handshake(metrics) or ()).faults
        unknown = origins.unknown_annotations(annotations)
        notes += (f"annotation {name}: {expected}" for name, expected in unknown)
        notes += origins.boost_notes(tree)
    return PatchPlan(tuple(operations), tuple(notes))


def _annotate(annotations: dict[str, Any] | None, mode: str) -> Iterator[PatchOperation]:
    """Yield what sets the annotation, or takes it away."""
    place = ("metadata", "annotations")
    present = MODE_ANNOTATION in (annotations or {})
    if not mode:
        if annotations and present:
            yield PatchOperation(REMOVE, place if len(annotations) == 1 else (*place, MODE_ANNOTATION))
    elif annotations is None:
        yield PatchOperation(ADD, place, {MODE_ANNOTATION: mode})
    elif annotations.get(MODE_ANNOTATION) != mode:
        yield PatchOperation(REPLACE if present else ADD, (*place, MODE_ANNOTATION), mode)


def _hasten(spec: dict[str, Any]) -> Iterator[PatchOperation]:
    """Yield what makes the policies of a scale-up fast; its window and selectPolicy stay."""
    behavior, up = mapping_at(spec, "behavior"), mapping_at(spec, "behavior", "scaleUp")
    rules = {"policies": _FAST_POLICIES}
    if up.get("policies") == _FAST_POLICIES:
        return
    for above, path, value in (
        (up, ("behavior", "scaleUp", "policies"), _FAST_POLICIES),
        (behavior, ("behavior", "scaleUp"), rules),
        (spec, ("behavior",), {"scaleUp": rules}),
    ):
        if above:
            yield PatchOperation(REPLACE if path[-1] in above else ADD, ("spec", *path), value)
            return


# -- the handshake -------------------------------------------------------------------------------------------


def _shake(name: str, metrics: Sequence[MetricSpec], way: str) -> Iterator[PatchOperation]:
    """Yield what leaves one handshake among metrics, and a metric beside it.

    `way` "" keeps one that is right.
    """
    place = ("spec", "metrics")
    handshakes = _handshakes(metrics)
    handshake = to_plain(model.handshake(name, way or EXTERNAL))
    if not metrics:
        yield PatchOperation(ADD, place, [_cpu(_PERCENT), handshake])
        return
    if not handshakes:
        yield PatchOperation(ADD, (*place, END), handshake)
        return
    right = [index for index in handshakes if _is_right(name, metrics[index], way)]
    kept = (right or handshakes)[0]
    if not right:
        yield _same(metrics, kept)
        yield PatchOperation(REPLACE, (*place, str(kept)), handshake)
    yield from _removed(metrics, [index for index in handshakes if index != kept])
    if len(handshakes) == len(metrics):
        yield PatchOperation(ADD, (*place, "0"), _cpu(_PERCENT))


def _handshakes(metrics: Sequence[MetricSpec]) -> list[int]:
    return [index for index, metric in enumerate(metrics) if model.is_handshake(metric)]


def _is_right(name: str, metric: MetricSpec, way: str) -> bool:
    """Tell whether a handshake holds, and is made as asked for."""
    beside = with_defaults(HorizontalPodAutoscalerSpec()).metrics or ()
    alone = HorizontalPodAutoscalerSpec(metrics=(*beside, metric))
    return model.check_handshake(name, alone).holds and (not way or metric.type.lower() == way)


def _drop(metrics: Sequence[MetricSpec]) -> Iterator[PatchOperation]:
    """Yield what takes every handshake away.

    If nothing else is left, the field goes too: the API server does not accept an empty list.
    """
    handshakes = _handshakes(metrics)
    if handshakes and len(handshakes) == len(metrics):
        yield _same(metrics, 0)
        yield PatchOperation(REMOVE, ("spec", "metrics"))
    else:
        yield from _removed(metrics, handshakes)


def _without_handshake(spec: HorizontalPodAutoscalerSpec) -> Iterator[str]:
    """Yield what users may not expect of a spec that loses its handshake."""
    metrics = spec.metrics or ()
    kept = model.without_handshake(metrics) or ()
    if len(kept) == len(metrics):
        return
    if not kept:
        yield f"it has no metric but {METRIC}; without it the API's default applies: cpu at {_PERCENT} %"
    if spec.min_replicas == 0 and not any(metric.type in {"Object", "External"} for metric in kept):
        other = "minReplicas 0 needs an Object or External metric, and it has no other"
        yield f"{other}; the API server refuses it"


def _removed(metrics: Sequence[MetricSpec], found: list[int]) -> Iterator[PatchOperation]:
    for index in reversed(found):
        yield _same(metrics, index)
        yield PatchOperation(REMOVE, ("spec", "metrics", str(index)))


def _same(metrics: Sequence[MetricSpec], index: int) -> PatchOperation:
    """Return the test that an index still means the handshake where the patch is applied."""
    metric = metrics[index]
    source = next(name for name in ("external", "object", "pods") if getattr(metric, name) is not None)
    return PatchOperation(TEST, ("spec", "metrics", str(index), source, "metric", "name"), METRIC)


def _cpu(percent: int) -> dict[str, Any]:
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


# -- autoscaling/v1 ------------------------------------------------------------------------------------------


def _v1_faults(tree: dict[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong with the fields that autoscaling/v1 alone has, or that it lacks."""
    spec = mapping_at(tree, "spec")
    percent = spec.get(_V1_TARGET)
    if percent is not None and (type(percent) is not int or not 1 <= percent < 2**31):
        expected = "expected a whole number greater than 0"
        yield Fault(f"spec.{_V1_TARGET}", documents.shown(percent), expected)
    for name in ("metrics", "behavior"):
        if spec.get(name) is not None:
            yield Fault(f"spec.{name}", documents.shown(spec[name]), f"only {HPA_API_VERSION} has it")
    annotations = mapping_at(tree, "metadata", "annotations")
    for name in _V1_ANNOTATIONS:
        if annotations.get(name) is not None:
            advice = (
                f"{_V1} hides a part of the autoscaler here; kubectl get hpa.v2.autoscaling NAME -o yaml "
                "gives all of it"
            )
            yield Fault("metadata.annotations", name, advice)


def _converted(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a document of autoscaling/v1 without `_v1_faults` in autoscaling/v2."""
    converted = tree | {"apiVersion": HPA_API_VERSION}
    if isinstance(spec := tree.get("spec"), dict):
        rest = {name: value for name, value in spec.items() if name != _V1_TARGET}
        percent = spec.get(_V1_TARGET)
        converted["spec"] = rest if percent is None else rest | {"metrics": [_cpu(percent)]}
    return converted


def _convert(
    tree: dict[str, Any], name: str, metrics: Sequence[MetricSpec], way: str
) -> Iterator[PatchOperation]:
    """Yield what makes autoscaling/v2 of a document: v1's target as `metrics`, and the handshake."""
    yield PatchOperation(REPLACE, ("apiVersion",), HPA_API_VERSION)
    if _V1_TARGET in tree["spec"]:
        yield PatchOperation(REMOVE, ("spec", _V1_TARGET))
    own = [to_plain(metric) for metric in metrics] or [_cpu(_PERCENT)]
    handshake = to_plain(model.handshake(name, way or EXTERNAL))
    yield PatchOperation(ADD, ("spec", "metrics"), [*own, handshake])
    status = tree.get("status")
    if isinstance(status, dict) and _V1_STATUS in status:
        yield PatchOperation(REMOVE, ("status",) if len(status) == 1 else ("status", _V1_STATUS))
