"""Pods as the autoscaler sees them: decoded slim, then flattened once to the facts that decisions read.

`Pod` is the API object without what nobody here reads; `facts_of` turns it into `PodFacts`. What the facts mean is `autoscaler.decide.readiness`'.
"""

from collections.abc import Mapping

import msgspec

from adapter.model.autoscaling.hpa import Struct
from adapter.model.quantity import Quantity
from adapter.model.timestamps import NEVER, Instant

Requests = Mapping[str, Quantity]

_NOTHING: Mapping[str, str] = {}


class ResourceRequirements(Struct, frozen=True):
    """What a container or a pod asks for."""

    requests: Requests | None = None


class Container(Struct, frozen=True):
    """A container of a pod; among the init containers a `restart_policy` of Always makes it a sidecar that stays."""

    name: str = ""
    resources: ResourceRequirements | None = None
    restart_policy: str | None = None


class PodSpec(Struct, frozen=True):
    """What a pod is made of."""

    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    resources: ResourceRequirements | None = None
    overhead: Requests | None = None


class PodCondition(Struct, frozen=True):
    """One condition of a pod."""

    type: str = ""
    status: str = ""
    last_transition_time: Instant | None = None


class PodStatus(Struct, frozen=True):
    """How a pod is doing."""

    phase: str = ""
    start_time: Instant | None = None
    conditions: tuple[PodCondition, ...] | None = None


class PodMeta(Struct, frozen=True):
    """What a pod is called."""

    name: str = ""
    namespace: str = ""
    labels: Mapping[str, str] | None = None
    deletion_timestamp: Instant | None = None


class Pod(Struct, frozen=True):
    """A pod as the API serves it, without the rest."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class PodFacts(msgspec.Struct, frozen=True):
    """One pod, flattened.

    `started` is None before the kubelet has seen it. `ready` is the status of its Ready condition, None without one, and
    `ready_since` when that last changed. `pod_requests` are those of the pod as a whole.
    """

    name: str
    phase: str = "Running"
    labels: Mapping[str, str] = _NOTHING
    deleting: bool = False
    started: int | None = None
    ready: str | None = None
    ready_since: int = NEVER
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    pod_requests: Requests | None = None
    overhead: Requests | None = None

    @property
    def running_and_ready(self) -> bool:
        """Whether it serves, as far as readiness tells; a terminating pod may."""
        return self.phase == "Running" and self.ready == "True"


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
        meta.labels or _NOTHING,
        meta.deletion_timestamp is not None,
        status.start_time,
        ready,
        since,
        spec.containers or (),
        spec.init_containers or (),
        None if spec.resources is None else spec.resources.requests,
        spec.overhead,
    )
