"""Which requests count while an in-place resize of pods is not actuated.

A utilization is a share of the requests in a pod's spec, as in Kubernetes. Until the kubelet has actuated a
resize, a container runs with other requests: those in its status.
"""

from collections import Counter
from collections.abc import Iterable

from adapter.model.quantity import Format, from_milli
from adapter.rules import matchers
from fastpath_tools.live.api_objects import PodDocument
from fastpath_tools.live.facts import Resize

_CONDITIONS = ("PodResizePending", "PodResizeInProgress")


def find(pods: Iterable[PodDocument]) -> tuple[Resize, ...]:
    return tuple(resize for pod in pods if (resize := _read(pod)) is not None and resize.requests)


def _read(pod: PodDocument) -> Resize | None:
    """Return the resize of a pod, None unless a condition says that one is not actuated."""
    conditions = {one.type: one for one in pod.status.conditions or () if one.status == "True"}
    condition = next((conditions[kind] for kind in _CONDITIONS if kind in conditions), None)
    if condition is None:
        return None
    effective = {
        status.name: status.resources.requests or {}
        for status in pod.status.container_statuses or ()
        if status.resources is not None
    }
    requests = {
        (container.name, resource): (wanted, actual)
        for container in pod.spec.containers
        if container.resources is not None
        for resource, wanted in (container.resources.requests or {}).items()
        if (actual := effective.get(container.name, {}).get(resource)) is not None
    }
    words = ": ".join(filter(None, (condition.reason, condition.message)))
    return Resize(matchers.shorten(f"{condition.type}{', ' if words else ''}{words}"), requests)


def describe(resizes: Iterable[Resize], pods: int, resource: str, container: str = "") -> str:
    """Return which requests a utilization counts against, "" if those of the spec are in effect.

    `pods` is how many there are; with `container` it is the utilization of one in each.
    """
    shown = Counter(
        (f"{resource} {wanted}", actual, resize.why)
        for resize in resizes
        for wanted, actual in [_sums(resize, resource, container)]
        if wanted != actual
    )
    if not shown:
        return ""
    ((wanted, actual, why), count), *_ = shown.most_common(1)
    return (
        f"the utilization is of the requests in the spec, {wanted}; the resize of {count} of {pods} pods is "
        f"not actuated, and {actual} is in effect there ({why})"
    )


def _sums(resize: Resize, resource: str, container: str) -> tuple[str, str]:
    """Return the requests of the spec and those in effect, of all containers or of one."""
    pairs = [
        pair for (name, kind), pair in resize.requests.items() if kind == resource and container in {"", name}
    ]
    form = pairs[0][0].form if pairs else Format.DECIMAL_SI
    wanted, actual = (sum(pair[side].milli for pair in pairs) for side in (0, 1))
    return str(from_milli(wanted, form)), str(from_milli(actual, form))
