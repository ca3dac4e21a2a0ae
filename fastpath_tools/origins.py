"""What the document of an HPA says about other projects: its owner, and the sources of its metrics.

KEDA makes the HPA of a ScaledObject and serves its metrics. kube-metrics-adapter collects what annotations of
an HPA ask for, as long as the HPA exists. Both end, or begin again, when an HPA is replaced.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from adapter.model.autoscaling import boost
from adapter.model.autoscaling.fastpath_autoscaler import GROUP, HPA_KIND, KIND
from fastpath_tools.manifests import listed_at, mapping_at

COLLECTOR = "kube-metrics-adapter"
COLLECTED = "metric-config."
"""Begins the annotations by which an HPA asks kube-metrics-adapter for metrics."""

KEDA_LABEL = "scaledobject.keda.sh/name"

_KEDA_METRIC = re.compile(r"s\d+-.+")
_ABSENT = "a metric without a value blocks every scale-down"


def owner_of(tree: Mapping[str, Any]) -> str:
    """Return the object of another autoscaling project that manages an HPA, "" for none."""
    labels = mapping_at(tree, "metadata", "labels")
    owners = (
        (str(owner.get("apiVersion")), str(owner.get("kind")), str(owner.get("name")))
        for owner in _owners(tree)
    )
    return boost.find_owner(owners, {name: text for name, text in labels.items() if isinstance(text, str)})


def unknown_annotations(annotations: Mapping[str, str] | None) -> Iterator[tuple[str, str]]:
    """Yield the annotations of an HPA that look like ours and are not, each with what was expected."""
    prefix = f"{GROUP}/"
    known = [name.removeprefix(prefix) for name in boost.ANNOTATIONS]
    for name in annotations or {}:
        if name.startswith(prefix) and name not in boost.ANNOTATIONS:
            near = difflib.get_close_matches(name.removeprefix(prefix), known, n=1)
            names = ", ".join(boost.ANNOTATIONS)
            hint = f"did you mean {prefix}{near[0]}?" if near else f"expected one of {names}"
            yield name, f"unknown annotation, {hint}"


def controller_of(tree: Mapping[str, Any]) -> str:
    """Return the object whose controller made an HPA, "" for none."""
    if owner := owner_of(tree):
        return owner
    controllers = (reference for reference in _owners(tree) if reference.get("controller") is True)
    return next((f"the {reference.get('kind')} {reference.get('name')}" for reference in controllers), "")


def replacement_notes(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield what ends, or comes back, when an HPA is deleted for its successor; nothing for another kind."""
    if tree.get("kind") != HPA_KIND:
        return
    if owner := controller_of(tree):
        yield (
            f"it belongs to {owner}, whose controller makes the {HPA_KIND} again: delete {owner}, or end its "
            f"control, before you apply the {KIND}"
        )
    if metrics := keda_metrics(tree):
        yield (
            f"KEDA serves {_listed('metric', metrics)} as long as its ScaledObject exists: give each a rule "
            f"of Fastpath before that is deleted; {_ABSENT}"
        )
    if annotations := collected(tree):
        yield (
            f"{COLLECTOR} serves the metrics of {_listed('annotation', annotations)} as long as the "
            f"{HPA_KIND} exists: give each a rule of Fastpath before it is deleted; {_ABSENT}"
        )

    for kind, name in scheduled(tree):
        yield (
            f"{COLLECTOR} serves the metric of {kind} {name} as long as the {HPA_KIND} exists: write a "
            f"FastPathSchedule in its place, and remove the metric; {_ABSENT}"
        )


def target_of(tree: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return namespace, kind and name of what an autoscaler, or a ScaledObject, scales."""
    target = mapping_at(tree, "spec", "scaleTargetRef")
    namespace = str(mapping_at(tree, "metadata").get("namespace") or "")
    return namespace, str(target.get("kind") or "Deployment"), str(target.get("name"))


def rivalry(tree: Mapping[str, Any], others: Iterable[Mapping[str, Any]]) -> str:
    """Return why an autoscaler is not the only one of its target among the others, "" if it is."""
    target = target_of(tree)
    for other in others:
        if other is not tree and target_of(other) == target:
            name = f"{other.get('kind')} {mapping_at(other, 'metadata').get('name')}"
            return f"{name} scales {target[1]} {target[2]} too: keep only one autoscaler for it"
    return ""


def boost_notes(tree: Mapping[str, Any]) -> Iterator[str]:
    """Yield why an HPA that stays is not boosted, or not for long."""
    if owner := owner_of(tree):
        yield f"it is only advised: {boost.owned_by(owner)}"
    elif owner := controller_of(tree):
        yield f"it belongs to {owner}, whose controller may put its spec back, without {boost.METRIC}"


def collected(tree: Mapping[str, Any]) -> list[str]:
    """Return the annotations of an HPA that ask kube-metrics-adapter for a metric."""
    annotations = mapping_at(tree, "metadata", "annotations")
    return [name for name in annotations if name.startswith(COLLECTED)]


def keda_metrics(tree: Mapping[str, Any]) -> list[str]:
    """Return the names of the external metrics that KEDA serves for an HPA."""
    names = []
    for spec in listed_at(tree, "spec", "metrics"):
        metric = mapping_at(spec, "external", "metric")
        name = str(metric.get("name"))
        if KEDA_LABEL in mapping_at(metric, "selector", "matchLabels") or _KEDA_METRIC.fullmatch(name):
            names.append(name)
    return names


def scheduled(tree: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return kind and name of the schedules of kube-metrics-adapter that an HPA reads."""
    metrics = listed_at(tree, "spec", "metrics")
    described = [mapping_at(described_object, "object", "describedObject") for described_object in metrics]
    return [
        (str(described_object.get("kind")), str(described_object.get("name")))
        for described_object in described
        if str(described_object.get("apiVersion")).startswith("zalando.org/")
    ]


def _owners(tree: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [mapping_at(reference) for reference in listed_at(tree, "metadata", "ownerReferences")]


def _listed(what: str, names: list[str]) -> str:
    return f"{what} {names[0]}" if len(names) == 1 else f"{what}s {', '.join(names)}"
