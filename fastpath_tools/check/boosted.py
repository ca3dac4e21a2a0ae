"""What `fastpath check` says about the annotations and the handshake of a HorizontalPodAutoscaler.

The functions are those with which the scaler reads the object, so that a file without a fault is boosted.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from adapter.model.autoscaling import boost, fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, KIND, FastPathAutoscaler
from fastpath_tools import origins


class BoostFinding(NamedTuple):
    """A place in an autoscaler's document, and a sentence on it."""

    path: str
    sentence: str


def faults_of(autoscaler: FastPathAutoscaler, tree: Mapping[str, Any]) -> Iterator[BoostFinding]:
    """Yield why an HPA that asks for it is not boosted, or lacks an option; `tree` is its document."""
    spec = fastpath_autoscaler.plain_spec(autoscaler.spec)
    asked = boost.read_annotations(_annotations(tree), boost.without_handshake(spec.metrics) or ())
    for fault in asked.faults:
        name, _, sentence = fault.removeprefix("annotation ").partition(": ")
        yield BoostFinding(_path(name), sentence)
    handshake = boost.check_handshake(autoscaler.metadata.name, spec)
    if asked.mode == BOOST and not handshake.holds:
        yield BoostFinding("spec.metrics", f"{handshake.fault}; `fastpath boost` writes it")


def warnings_of(tree: Mapping[str, Any], kind: str) -> Iterator[BoostFinding]:
    """Yield annotations that nothing reads, and why an HPA is only advised."""
    annotations = _annotations(tree)
    if kind == KIND:
        for name in annotations:
            if name in boost.ANNOTATIONS:
                yield BoostFinding(_path(name), f"only a HorizontalPodAutoscaler has it: a {KIND} has fields")
        return
    for name, expected in boost.unknown_annotations(annotations):
        yield BoostFinding(_path(name), expected)
    owner = origins.owner_of(tree)
    if owner and boost.read_annotations(annotations).mode == BOOST:
        yield BoostFinding("metadata", f"it is only advised: {boost.owned_by(owner)}")


def _annotations(tree: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of a document that was read before, so that they are texts."""
    found = tree["metadata"].get("annotations") or {}
    return {name: text for name, text in found.items() if text is not None}


def _path(name: str) -> str:
    return f"metadata.annotations[{json.dumps(name, ensure_ascii=False)}]"
