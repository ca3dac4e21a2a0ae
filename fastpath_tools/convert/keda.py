"""The cron triggers of a ScaledObject (keda.sh/v1alpha1) as FastPathSchedules.

KEDA serves each active cron trigger as a metric, desiredReplicas with a target of 1 for each pod, and its HPA
takes the highest metric. A floor has the same effect, but for the HPA's tolerance.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from adapter.errors import Fault, InputError
from adapter.model.autoscaling import documents as autoscaler_documents
from adapter.model.autoscaling.fastpath_autoscaler import API_VERSION, KIND
from adapter.model.visible import counted
from fastpath_tools.convert import cron, drafts
from fastpath_tools.convert.conversion import Converted
from fastpath_tools.convert.drafts import WindowDraft
from fastpath_tools.manifests import NOWHERE, listed_at, mapping_at

SCALED_OBJECT = "ScaledObject"

_DEFAULT_MOST = 100
_DEFAULT_COOLDOWN = 300
_TOLERANCE = 0.1
_EXTERNAL = {"metric": {"name": "x"}, "target": {"type": "AverageValue", "averageValue": 1}}
_NAME = re.compile(r"[A-Za-z_]\w*")

_GROUP = "autoscaling.keda.sh/"
_PAUSED, _PAUSED_REPLICAS = f"{_GROUP}paused", f"{_GROUP}paused-replicas"
_PAUSED_WAYS = {f"{_GROUP}paused-scale-in": "scaleDown", f"{_GROUP}paused-scale-out": "scaleUp"}
_FALSE = frozenset({"false", "f", "0"})

_BEHAVIOR = "spec.advanced.horizontalPodAutoscalerConfig.behavior"
_RESTORED = "spec.advanced.restoreToOriginalReplicaCount"

_FIELDS = """
spec.cooldownPeriod spec.fallback spec.idleReplicaCount spec.maxReplicaCount spec.minReplicaCount
spec.scaleTargetRef.apiVersion spec.scaleTargetRef.kind spec.scaleTargetRef.name
spec.triggers[].metadata.desiredReplicas spec.triggers[].metadata.end spec.triggers[].metadata.start
spec.triggers[].metadata.timezone spec.triggers[].metricType spec.triggers[].type
"""
_ANNOTATIONS = (f"metadata.annotations.{name}" for name in (_PAUSED, *_PAUSED_WAYS))
READ = frozenset({*_ANNOTATIONS, _BEHAVIOR, _RESTORED, *_FIELDS.split()})
"""The fields that make a schedule, or a note of their own."""

AutoscalerOf = Callable[[dict[str, Any], str | None], str]
"""From a target reference and a namespace to the name of its autoscaler in the files, "" for none."""


def is_scaled_object(tree: object) -> bool:
    return isinstance(tree, dict) and tree.get("kind") == SCALED_OBJECT


def _spec_of(tree: object) -> dict[str, Any]:
    """Return the spec without nulls, which the API server takes as absent."""
    return {key: value for key, value in mapping_at(tree, "spec").items() if value is not None}


def cron_triggers(tree: object) -> list[tuple[int, dict[str, Any]]]:
    """Return the cron triggers of a ScaledObject with their indices."""
    triggers = listed_at(tree, "spec", "triggers")
    return [(index, trigger) for index, trigger in enumerate(triggers) if _is_cron(trigger)]


def reasons_left_out(tree: Any) -> list[str]:
    """Return why no schedule is made for a ScaledObject, and what its autoscaler needs instead.

    Nothing for one that has a schedule, and for another kind.
    """
    if not is_scaled_object(tree):
        return []
    if why := paused(tree):
        return [f"left out: {why}, which a floor would change: convert it without the annotation"]
    if cron_triggers(tree):
        return []
    spec = _spec_of(tree)
    types = ", ".join(_other_types(spec)) or "none"
    limits, refused = _successor(
        tree, spec.get("minReplicaCount", 0), spec.get("maxReplicaCount", _DEFAULT_MOST)
    )
    reason = (
        f"left out: it has no cron trigger, so it has no schedule: make a {KIND} with {limits}, "
        f"and a metric for each trigger ({types}); delete the {SCALED_OBJECT} before you apply it"
    )
    return [reason, *autoscaler_notes(tree), *refused]


def convert(tree: dict[str, Any], autoscaler_of: AutoscalerOf, now: int) -> list[Converted]:
    """Return the schedules for the cron triggers of a ScaledObject. InputError with all faults.

    The report of the last schedule ends with what concerns the whole document.
    """
    faults: list[Fault] = []
    spec = _spec_of(tree)
    if not str(version := tree.get("apiVersion")).startswith("keda.sh/"):
        old = (
            "the API group of KEDA 1, whose fields have other names"
            if "keda." in str(version)
            else "not KEDA's"
        )
        drafts.refuse(faults, "apiVersion", version, f"expected keda.sh/v1alpha1; this is {old}")
        raise InputError(faults)
    name, namespace = drafts.named(tree, faults)
    if formula := mapping_at(spec, "advanced", "scalingModifiers").get("formula"):
        names = {str(trigger.get("name")) for _, trigger in cron_triggers(tree)}
        why = "KEDA scales by it alone, and it does not read the cron trigger, which has no effect: remove it"
        if names & {*_NAME.findall(str(formula))}:
            why = "it computes with the value of the cron trigger, and a FastPathSchedule has no value"
        expected = f"expected no formula: {why}"
        drafts.refuse(faults, "spec.advanced.scalingModifiers.formula", formula, expected)
    entries = [entry for index, trigger in cron_triggers(tree) for entry in _entry(index, trigger, faults)]
    lowest = drafts.integer_at(spec, "minReplicaCount", "spec.minReplicaCount", faults, 0)
    highest = drafts.integer_at(spec, "maxReplicaCount", "spec.maxReplicaCount", faults, _DEFAULT_MOST)
    if faults:
        raise InputError(faults)
    reference = mapping_at(spec, "scaleTargetRef")
    existing = autoscaler_of(reference, namespace)
    target = {"kind": KIND, "name": existing or name}
    schedules = list(drafts.write(name, namespace, target, entries, now))
    notes = list(_notes(spec, entries, highest))
    if existing:
        notes.append(
            f"minReplicaCount is {lowest} and maxReplicaCount {highest}: {KIND} {existing} has limits of its "
            "own"
        )
    else:
        limits, refused = _successor(tree, lowest, highest)
        notes += [_missing_autoscaler(name, spec, limits), *refused]
    notes += [*autoscaler_notes(tree), *drafts.left_out(tree, READ)]
    schedules[-1] = schedules[-1]._replace(notes=(*schedules[-1].notes, *notes))
    return schedules


def _entry(index: int, trigger: dict[str, Any], faults: list[Fault]) -> Iterator[WindowDraft]:
    path = f"spec.triggers[{index}]"
    before = len(faults)
    meta = mapping_at(trigger, "metadata")
    zone = drafts.zone_of(meta.get("timezone"), f"{path}.metadata.timezone", faults)
    start = _expression(meta, "start", path, faults)
    end = _expression(meta, "end", path, faults)
    replicas = drafts.integer_at(meta, "desiredReplicas", f"{path}.metadata.desiredReplicas", faults, None)
    if len(faults) == before and replicas < 1:
        drafts.refuse(faults, f"{path}.metadata.desiredReplicas", replicas, "expected 1 or more")
    if (trigger.get("metricType") or "AverageValue") != "AverageValue":
        expected = "expected AverageValue: with another type KEDA multiplies the count at every sync"
        drafts.refuse(faults, f"{path}.metricType", trigger["metricType"], expected)
    if start is not None and start == end:
        drafts.refuse(faults, f"{path}.metadata.end", meta["end"], "expected another than start")
    if len(faults) > before:
        return
    assert zone is not None
    assert start is not None
    assert end is not None
    read = cron.KedaCronTrigger(start, end)
    try:
        windows = cron.windows_of(read)
    except ValueError as error:
        drafts.refuse(faults, f"{path}.metadata", f"{meta['start']} to {meta['end']}", str(error))
        return
    named = drafts.with_names(windows, f"cron-{index + 1}")
    label = f"trigger {index + 1} ({replicas} replicas, {zone.key})"
    yield WindowDraft(label, zone, named, replicas, read)


def _expression(meta: dict[str, Any], key: str, path: str, faults: list[Fault]) -> cron.CronExpression | None:
    text = meta.get(key)
    try:
        return cron.read(text if isinstance(text, str) else "")
    except ValueError as error:
        drafts.refuse(faults, f"{path}.metadata.{key}", text, str(error))
        return None


# -- the report ----------------------------------------------------------------------------------------------


def _notes(spec: dict[str, Any], entries: Sequence[WindowDraft], highest: int) -> Iterator[str]:
    for replicas in sorted({entry.replicas for entry in entries}):
        least, reached = _least_tolerated(replicas), min(replicas, highest)
        if least < reached:
            left = counted(least, "replica", "replicas")
            if least < reached - 1:
                left = f"{least} to {reached - 1} replicas"
            yield (
                f"KEDA leaves {left} at that count where {replicas} are desired, "
                f"since its HPA tolerates 10 %; the schedule raises to {reached}"
            )
        if replicas > highest:
            yield (
                f"{replicas} replicas are desired, and KEDA stops at maxReplicaCount, {highest}: "
                "the schedule stops at maxReplicas of the autoscaler"
            )
    if not spec.get("minReplicaCount") or spec.get("idleReplicaCount") is not None:
        idle, cooldown = spec.get("idleReplicaCount") or 0, spec.get("cooldownPeriod", _DEFAULT_COOLDOWN)
        yield (
            f"KEDA scales to {idle} {cooldown} s after the last trigger ends (cooldownPeriod); with the "
            "schedule the autoscaler's minReplicas and scale-down rules decide"
        )
    elif "cooldownPeriod" in spec:
        yield f"cooldownPeriod {spec['cooldownPeriod']} has no effect: KEDA never scales it to zero"
    if others := _other_types(spec):
        one = len(others) == 1
        yield (
            f"left out: trigger{'' if one else 's'} {', '.join(others)}; the autoscaler needs "
            f"{'a metric' if one else 'metrics'} for {'it' if one else 'them'}"
        )


def _is_cron(trigger: object) -> bool:
    return isinstance(trigger, dict) and trigger.get("type") == "cron"


def _other_types(spec: dict[str, Any]) -> list[str]:
    """Return the types of the triggers that are not cron triggers."""
    triggers = (trigger for trigger in listed_at(spec, "triggers") if isinstance(trigger, dict))
    return [str(trigger.get("type")) for trigger in triggers if not _is_cron(trigger)]


def _least_tolerated(replicas: int) -> int:
    """Return the lowest count that an HPA with the default tolerance leaves as it is; in floats, as there."""
    count = replicas
    while count > 1 and replicas / (count - 1) <= 1.0 + _TOLERANCE:
        count -= 1
    return count


def _missing_autoscaler(name: str, spec: dict[str, Any], limits: str) -> str:
    reference = mapping_at(spec, "scaleTargetRef")
    target = f"{reference.get('kind') or 'Deployment'} {reference.get('name')}"
    metric = "" if _other_types(spec) else " Without a metric of its own it scales on cpu at 80 %."
    return (
        f"the files have no autoscaler for {target}: make {KIND} {name} with {limits}, "
        f"and delete the {SCALED_OBJECT} before you apply it.{metric}"
    ).removesuffix(".")


def _successor(tree: dict[str, Any], lowest: object, highest: object) -> tuple[str, list[str]]:
    """Return the limits of the autoscaler that takes KEDA's place, and why `fastpath check` refuses it.

    A count of 0 needs a metric that has a value without pods.
    """
    spec = _spec_of(tree)
    metrics = (
        [{"type": "External", "external": _EXTERNAL}] if {*_other_types(spec)} - {"cpu", "memory"} else None
    )
    limits = f"minReplicas {lowest} and maxReplicas {highest}"
    if lowest == 0 and not metrics:
        lowest = 1
        limits = f"minReplicas 1 (0 needs a metric of type Object or External) and maxReplicas {highest}"
    given = {
        "minReplicas": lowest,
        "maxReplicas": highest,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"},
        "behavior": mapping_at(spec, "advanced", "horizontalPodAutoscalerConfig").get("behavior"),
        "metrics": metrics,
    }
    if "fallback" in spec:
        given["fallback"] = {"type": "Floor", "replicas": mapping_at(spec, "fallback").get("replicas")}
    document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "x"}, "spec": given}
    try:
        autoscaler_documents.read_document(document, NOWHERE)
    except InputError as error:
        return limits, [f"`fastpath check` refuses that autoscaler: {fault}" for fault in error.faults]
    return limits, []


def paused(tree: object) -> str:
    """Return how a ScaledObject is paused, "" for one that is not."""
    annotations = mapping_at(tree, "metadata", "annotations")
    if _PAUSED_REPLICAS in annotations:
        return f"{_PAUSED_REPLICAS} keeps it at {annotations[_PAUSED_REPLICAS]} replicas"
    return f"{_PAUSED} keeps its count" if _is_set(annotations, _PAUSED) else ""


def autoscaler_notes(tree: dict[str, Any]) -> Iterator[str]:
    """Yield what the autoscaler needs, because a schedule has no field for it."""
    annotations = mapping_at(tree, "metadata", "annotations")
    for name, rules in _PAUSED_WAYS.items():
        if _is_set(annotations, name):
            yield f"annotation {name}: the autoscaler needs spec.behavior.{rules}.selectPolicy: Disabled"
    spec = _spec_of(tree)
    advanced = mapping_at(spec, "advanced")
    behavior = mapping_at(advanced, "horizontalPodAutoscalerConfig").get("behavior")
    if behavior is not None:
        yield f"{_BEHAVIOR}: the autoscaler needs spec.behavior: {drafts.whole(behavior)}"
    if (fallback := spec.get("fallback")) is not None:
        yield (
            f"spec.fallback: {drafts.whole(fallback)}: the autoscaler needs spec.fallback of type Floor with "
            "these replicas, and scales nothing down while a metric is absent"
        )
    if advanced.get("restoreToOriginalReplicaCount"):
        yield f"{_RESTORED}: KEDA sets the count back when it is deleted: set it to false before that"


def _is_set(annotations: dict[str, Any], name: str) -> bool:
    return name in annotations and str(annotations[name]).lower() not in _FALSE
