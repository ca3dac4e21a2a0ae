"""What a target and its pods say beside the Scale: the last writer of the count, and pods of others."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.timestamps import SECOND
from fastpath_tools.live.api_objects import ObjectEvent, PodDocument, WorkloadDocument
from fastpath_tools.live.facts import CountWriter, Reversal

_HASHES = {"pod-template-hash": "Deployment", "rollouts-pod-template-hash": "Rollout"}
"""The labels by which the names of ReplicaSets end, and the kind that makes these."""

_STEPPED = re.compile(
    r"Scaled (?P<way>up|down) replica set (?P<set>\S+) (?:from [0-9]+ )?to (?P<count>[0-9]+)\b"
)
_RESCALED = re.compile(r"New size: ([0-9]+);")
_APART = 15 * SECOND
"""How far apart two events about the same write are at most."""


def find_writer(workload: WorkloadDocument) -> CountWriter | None:
    """Return what last changed the count; None if the object does not say."""
    writers = [
        CountWriter(entry.manager, entry.time)
        for entry in workload.metadata.managed_fields or ()
        if entry.time is not None and entry.owns("spec", "replicas")
    ]
    return max(writers, key=lambda writer: writer.at, default=None)


def find_reversal(
    workload: WorkloadDocument, changes: Iterable[ObjectEvent], rescales: Iterable[ObjectEvent], since: int
) -> Reversal | None:
    """Return the last count that was lowered by something else than the autoscaler, None if none was seen.

    `changes` are events of the Deployment, `rescales` those of the autoscaler. A ReplicaSet went down after
    `since` and up again, the autoscaler asked for the second and not for the first.
    """
    sizes: dict[int, int] = {}
    for event in rescales:
        if (size := _RESCALED.match(event.message)) is not None:
            sizes[int(size[1])] = max(event.last_timestamp or 0, sizes.get(int(size[1]), 0))
    steps = [
        (event.last_timestamp or 0, step["way"], step["set"], int(step["count"]))
        for event in changes
        if (step := _STEPPED.match(event.message)) is not None
    ]
    raised = {
        (name, at) for at, way, name, count in steps if way == "up" and sizes.get(count, 0) >= at - _APART
    }
    for at, way, name, count in sorted(steps, reverse=True):
        is_raised = any(other == name and later >= at for other, later in raised)
        if way == "down" and at >= since and is_raised and sizes.get(count, 0) < at - _APART:
            return Reversal(_find_manager(workload, at), count, at)
    return None


def _find_manager(workload: WorkloadDocument, at: int) -> str:
    """Return the field manager that wrote at an instant, "" if none is known; of several the nearest."""
    written = [
        (abs(entry.time - at), entry.manager)
        for entry in workload.metadata.managed_fields or ()
        if entry.time is not None and not entry.subresource
    ]
    apart, manager = min(written, default=(_APART + 1, ""))
    return manager if apart <= _APART else ""


def find_refusal(workload: WorkloadDocument, events: Iterable[ObjectEvent]) -> str:
    """Return why the API server refuses new pods, "" if it does not; of events the last counts."""
    for condition in workload.status.conditions or ():
        if (condition.type, condition.status) == ("ReplicaFailure", "True"):
            return condition.message
    return next(iter(reversed([event.message for event in events])), "")


def find_unplaced(pods: Iterable[PodDocument]) -> tuple[int, str]:
    """Return how many pods no node has room for, and what the scheduler says of the first."""
    messages = [
        condition.message
        for pod in pods
        if pod.metadata.deletion_timestamp is None
        for condition in pod.status.conditions or ()
        if (condition.type, condition.reason) == ("PodScheduled", "Unschedulable")
    ]
    return len(messages), next(iter(messages), "")


def find_strangers(
    pods: Sequence[PodDocument], reference: CrossVersionObjectReference
) -> tuple[tuple[str, int], ...]:
    """Return the workloads beside the target that have pods among these, each with their number.

    What a custom kind makes its pods by is not known: then nothing is a stranger.
    """
    if reference.kind not in {*_HASHES.values(), "ReplicaSet", "StatefulSet"}:
        return ()
    owners: Counter[str] = Counter()
    for pod in pods:
        if pod.status.phase not in {"Succeeded", "Failed"} and (names := _owners(pod)):
            owners[names[-1]] += f"{reference.kind} {reference.name}" not in names
    return tuple(sorted((+owners).items()))


def _owners(pod: PodDocument) -> list[str]:
    """Return kind and name of the controller of a pod, and of the workload that made that, if any."""
    labels, owners = pod.metadata.labels or {}, []
    for owner in pod.metadata.owner_references or ():
        if owner.controller:
            owners.append(f"{owner.kind} {owner.name}")
            owners += [
                f"{kind} {owner.name.removesuffix(f'-{labels[label]}')}"
                for label, kind in _HASHES.items()
                if owner.kind == "ReplicaSet" and owner.name.endswith(f"-{labels.get(label, '/')}")
            ]
    return owners
