"""Which pods count, and what they request: upstream's groups of pods, and the requests of a pod.

It mirrors ``groupPods`` and ``calculatePodRequests`` of Kubernetes 1.36. Readiness matters for cpu only. A
request is that of one container, the sum of all containers and sidecars, or for pod-level resources the
scheduler's sum; it is read from the spec, not from the status of an in-place resize.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adapter.autoscaler.decide.numbers import w64
from adapter.autoscaler.decide.observation import PodsReading, Settings, Unavailable
from adapter.model.pods import Container, PodFacts, Requests
from adapter.model.quantity import Quantity
from adapter.model.timestamps import NEVER

_NO_SAMPLE = (int(NEVER), 0)


class Groups(NamedTuple):
    """The number of pods that count, and the names of the others.

    `unready` pods are left out when scaling down and count as 0 when scaling up; `missing` ones have no
    sample; `ignored` ones terminate or have failed.
    """

    ready: int
    unready: list[str]
    missing: list[str]
    ignored: list[str]


def group_pods(
    pods: Sequence[PodFacts], reading: PodsReading, settings: Settings, now: int, *, cpu: bool
) -> Groups:
    """Group the pods; the first matching rule decides. Completed pods count as missing, as upstream."""
    ready = 0
    unready: list[str] = []
    missing: list[str] = []
    ignored: list[str] = []
    values, samples = reading.values, reading.samples
    for pod in pods:
        if pod.deleting or pod.phase == "Failed":
            ignored.append(pod.name)
        elif pod.phase == "Pending":
            unready.append(pod.name)
        elif pod.name not in values:
            missing.append(pod.name)
        elif cpu and _starting_or_unready(pod, samples.get(pod.name, _NO_SAMPLE), settings, now):
            unready.append(pod.name)
        else:
            ready += 1
    return Groups(ready, unready, missing, ignored)


def _starting_or_unready(pod: PodFacts, sample: tuple[int, int], settings: Settings, now: int) -> bool:
    """Tell whether to ignore the cpu usage of a pod.

    A pod within the initialization period must have been ready for the whole window of its sample. An older
    pod may be unready if it was ready once.
    """
    if pod.ready is None or pod.started is None:
        return True
    if pod.started + settings.cpu_initialization_period > now:
        taken, window = sample
        return pod.ready == "False" or taken < pod.ready_since + window
    return pod.ready == "False" and pod.started + settings.initial_readiness_delay > pod.ready_since


def count_ready(pods: Sequence[PodFacts]) -> int:
    """Return the number of running and ready pods, terminating ones included."""
    return sum(pod.running_and_ready for pod in pods)


_POD_LEVEL = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"


def request_of(pod: PodFacts, resource: str, container: str = "") -> int | Unavailable:
    """Return the request of a pod, or of one of its containers, in thousandths."""
    if pod.pod_requests and not container and any(map(_is_pod_level, pod.pod_requests)):
        total = _scheduler_request(pod, resource)
        if total is None:
            return _missing(f"missing pod-level request for {resource} in Pod {pod.name}")
        return total.milli
    milli = 0
    for each in (
        (*pod.containers, *filter(_stays, pod.init_containers)) if pod.init_containers else pod.containers
    ):
        if container and each.name != container:
            continue
        quantity = _asked(each, resource)
        if quantity is None:
            return _missing(f"missing request for {resource} in container {each.name} of Pod {pod.name}")
        milli += quantity.milli
        if container:
            return milli
    if container:
        return _missing(f"container {container} not found in Pod {pod.name}")
    return w64(milli)


def _missing(message: str) -> Unavailable:
    return Unavailable("MissingRequest", message)


def _is_pod_level(resource: str) -> bool:
    return resource in _POD_LEVEL or resource.startswith(_HUGE_PAGES)


def _stays(container: Container) -> bool:
    """Tell whether an init container is a sidecar."""
    return container.restart_policy == "Always"


def _scheduler_request(pod: PodFacts, resource: str) -> Quantity | None:
    """Return what the scheduler reserves, overhead included; None if the pod does not request the resource.

    That is the sum of the containers or, if larger, the need of an init step; a pod-level request replaces
    both.
    """
    total = _sum_of([*pod.containers, *filter(_stays, pod.init_containers)], resource)
    sidecars: Quantity | None = None
    for container in pod.init_containers:
        own = _asked(container, resource)
        if _stays(container):
            sidecars = step = _plus(sidecars, own)
        else:
            step = _plus(own, sidecars)
        if step is not None and (total is None or total < step):
            total = step
    own_request: Mapping[str, Quantity] = pod.pod_requests or {}
    if resource in own_request and _is_pod_level(resource):
        total = own_request[resource]
    return _plus(total, (pod.overhead or {}).get(resource))


def _sum_of(containers: list[Container], resource: str) -> Quantity | None:
    total: Quantity | None = None
    for container in containers:
        total = _plus(total, _asked(container, resource))
    return total


def _plus(total: Quantity | None, more: Quantity | None) -> Quantity | None:
    if total is None or more is None:
        return more if total is None else total
    return total + more


def _asked(container: Container, resource: str) -> Quantity | None:
    requests: Requests | None = None if container.resources is None else container.resources.requests
    return requests.get(resource) if requests else None
