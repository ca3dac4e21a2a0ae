"""What a target and its pods say beside the Scale: the last writer of the count, and pods of others."""

from collections import Counter
from collections.abc import Iterable, Sequence

from adapter.model.autoscaling.hpa import CrossVersionObjectReference
from fastpath_tools.live.api_objects import PodDocument, PodEvent, WorkloadDocument
from fastpath_tools.live.facts import CountWriter

_HASHES = {"pod-template-hash": "Deployment", "rollouts-pod-template-hash": "Rollout"}
"""The labels by which the names of ReplicaSets end, and the kind that makes these."""


def find_writer(workload: WorkloadDocument) -> CountWriter | None:
    """Return what last changed the count; None if the object does not say."""
    writers = [
        CountWriter(entry.manager, entry.time)
        for entry in workload.metadata.managed_fields or ()
        if entry.time is not None and entry.owns("spec", "replicas")
    ]
    return max(writers, key=lambda writer: writer.at, default=None)


def find_refusal(workload: WorkloadDocument, events: Iterable[PodEvent]) -> str:
    """Return why the API server refuses new pods, "" if it does not; of events the last counts."""
    for condition in workload.status.conditions or ():
        if (condition.type, condition.status) == ("ReplicaFailure", "True"):
            return condition.message
    return next(iter(reversed([event.message for event in events])), "")


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
