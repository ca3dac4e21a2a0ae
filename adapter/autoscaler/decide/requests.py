"""What a pod asks for of one resource, in thousandths, as the autoscaler counts it.

Three ways, and which one is upstream's choice: one container alone; all containers and sidecars, each of which must ask; or, for a pod
that asks as a whole, the scheduler's sum. Values of the spec count, not those of an in-place resize.
"""

from collections.abc import Mapping

from adapter.autoscaler.decide.numbers import w64
from adapter.autoscaler.decide.observation import Unavailable
from adapter.model.pods import Container, PodFacts, Requests
from adapter.model.quantity import Quantity

_POD_LEVEL = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"


def request_of(pod: PodFacts, resource: str, container: str = "") -> int | Unavailable:
    """Return the request of a pod, or of the named container in it."""
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
    """Tell whether an init container is a sidecar, which goes on running beside the others."""
    return container.restart_policy == "Always"


def _scheduler_request(pod: PodFacts, resource: str) -> Quantity | None:
    """Return what the scheduler reserves, overhead included, or None where nothing in the pod names the resource.

    The containers' sum or, where that is more, what the pod needs at some step of its start; the pod's own request replaces both.
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
