"""Pods as the autoscaler sees them: decoded without unused fields, then flattened to the facts of decisions.

`Pod` is the API object without the fields that are not read; `facts_of` turns it into `PodFacts`. What the
facts mean is decided in `autoscaler.decide.observation`.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from adapter.model.objects.api_objects import Struct
from adapter.model.quantity import Quantity
from adapter.model.timestamps import NEVER, Instant

Requests = Mapping[str, Quantity]

COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"
"""The annotation of a pod by which the ReplicaSet controller orders Ready pods: lower costs go first."""

PodT = TypeVar("PodT", bound="PodFacts")

_NO_LABELS: Mapping[str, str] = {}


class ResourceRequirements(Struct, frozen=True):
    requests: Requests | None = None
    limits: Requests | None = None


class Container(Struct, frozen=True):
    """A container of a pod. An init container with the `restart_policy` Always is a sidecar."""

    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class PodSpec(Struct, frozen=True):
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    resources: ResourceRequirements | None = None
    overhead: Requests | None = None


class PodCondition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: Instant | None = None


class PodStatus(Struct, frozen=True):
    phase: str = ""
    start_time: Instant | None = None
    conditions: tuple[PodCondition, ...] | None = None


class PodMeta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: Mapping[str, str] | None = None
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None


class Pod(Struct, frozen=True):
    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodFacts(msgspec.Struct, frozen=True):
    """One pod, flattened.

    `created` may be None for a Ready pod. `started` is None before the kubelet has seen it. `ready` is the
    status of its Ready condition, None without one, and `ready_since` when that last changed. `pod_requests`
    are those of the pod as a whole. `cost` is its cost for a ReplicaSet that has too many pods; None without
    one, or if it is not known.
    """

    name: str
    phase: str = "Running"
    labels: Mapping[str, str] = _NO_LABELS
    deleting: bool = False
    started: int | None = None
    ready: str | None = None
    ready_since: int = NEVER
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    pod_requests: Requests | None = None
    overhead: Requests | None = None
    created: int | None = None
    cost: int | None = None

    @property
    def running_and_ready(self) -> bool:
        """Whether the pod runs and is ready; a terminating pod may be."""
        return self.phase == "Running" and self.ready == "True"

    @property
    def port_owners(self) -> Mapping[str, str]:
        """The container of each TCP port, by name and number, of a pod with several; {} if not known."""
        return {}


class PodList(tuple[PodT, ...]):  # noqa: SLOT001 - a tuple cannot have a slot
    """The pods of a selection. They never change, so what is computed from them is kept with them."""

    prepared: Any = None
    """The roster of `autoscaler.decide`."""


def facts_of(pod: Pod) -> PodFacts:
    """Return the facts of a decoded pod. The first condition of type Ready counts."""
    meta, spec, status = pod.metadata, pod.spec, pod.status
    ready, since = None, NEVER
    for condition in status.conditions or ():
        if condition.type == "Ready":
            ready, since = condition.status, condition.last_transition_time or NEVER
            break
    return PodFacts(
        meta.name,
        status.phase,
        meta.labels or _NO_LABELS,
        meta.deletion_timestamp is not None,
        status.start_time,
        ready,
        since,
        spec.containers or (),
        spec.init_containers or (),
        None if spec.resources is None else spec.resources.requests,
        spec.overhead,
        meta.creation_timestamp,
    )
