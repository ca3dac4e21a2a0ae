"""What a target and its pods say beside the Scale: the last writer of the count, and pods of others."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence

from adapter.kubernetes.write.deletion_costs import MANAGER
from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from adapter.model.objects.pods import COST_ANNOTATION, ResourceRequirements
from adapter.model.timestamps import SECOND
from fastpath_tools.live.api_objects import ObjectEvent, PodDocument, PodMetadata, WorkloadDocument
from fastpath_tools.live.facts import ContainerFacts, CountWriter, Reversal

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


def find_containers(pods: Iterable[PodDocument]) -> tuple[ContainerFacts, ...]:
    """Return the containers of the newest pod that run as long as it does, sidecars among them.

    The requests of a pod as a whole stand in for those that a container does not have.
    """
    newest = max(pods, key=lambda pod: pod.metadata.creation_timestamp or 0, default=PodDocument())
    whole = (newest.spec.resources or ResourceRequirements()).requests or {}
    sidecars = (one for one in newest.spec.init_containers or () if one.restart_policy == "Always")
    return tuple(
        ContainerFacts(one.name, {**whole, **(resources.requests or {})}, resources.limits or {})
        for one in (*newest.spec.containers, *sidecars)
        for resources in [one.resources or ResourceRequirements()]
    )


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
        if pod.status.phase not in {"Succeeded", "Failed"} and (names := find_owners(pod.metadata)):
            owners[names[-1]] += f"{reference.kind} {reference.name}" not in names
    return tuple(sorted((+owners).items()))


def find_owners(meta: PodMetadata) -> list[str]:
    """Return kind and name of the controller of an object, and of the workload that made that, if any."""
    labels, owners = meta.labels or {}, []
    for owner in meta.owner_references or ():
        if owner.controller:
            owners.append(f"{owner.kind} {owner.name}")
            owners += [
                f"{kind} {owner.name.removesuffix(f'-{labels[label]}')}"
                for label, kind in _HASHES.items()
                if owner.kind == "ReplicaSet" and owner.name.endswith(f"-{labels.get(label, '/')}")
            ]
    return owners


def find_cost_writers(pods: Iterable[PodDocument]) -> tuple[tuple[str, str], ...]:
    """Return each field manager that owns a deletion cost, but for ours, with the first pod where it does."""
    writers: dict[str, str] = {}
    for pod in pods:
        for entry in pod.metadata.managed_fields or ():
            if entry.manager != MANAGER and entry.owns("metadata", "annotations", COST_ANNOTATION):
                writers.setdefault(entry.manager, pod.metadata.name)
    return tuple(writers.items())
