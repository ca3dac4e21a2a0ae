"""What calculations ask of the pods of a target, prepared once while the pods stay the same.

Decisions are made each second and more often, and most of them see the pods of the decision before. A
`Roster` has what they would find by walking these pods again: who counts, since when the cpu usage of all
that count is used, and the requests. It answers only the usual case: no pod lacks its value, and for cpu none
is starting or unready. Else `observation.group_pods` walks the pods, by the rules of Kubernetes.
"""

from collections.abc import KeysView, Mapping, Sequence

import msgspec

from adapter.autoscaler.decide.observation import (
    Groups,
    PodsReading,
    Settings,
    Unavailable,
    count_ready,
    group_pods,
    read_request,
)
from adapter.model.objects.pods import PodFacts, PodList

_Requests = Mapping[str, int] | Unavailable

_NOTHING = PodsReading({})
_NOT_COUNTED = frozenset({"Failed", "Pending"})

_MOST_REQUESTS = 32
"""For how many resources and containers a roster keeps the requests."""


class Roster(msgspec.Struct):
    """What was found of pods.

    `counted` are the names of the `count` pods that neither terminate nor have failed nor are Pending; the
    others are `unready` or `ignored`. `started` is when the last of `counted` started if all of them are
    ready, None if one is not. `ready` is the number of running and ready pods, terminating ones included.

    A roster has no reference to the pods, because their list refers to it. Such a cycle would stay in memory
    long after the list was replaced.
    """

    counted: KeysView[str]
    count: int
    unready: tuple[str, ...]
    ignored: tuple[str, ...]
    started: int | None
    ready: int
    requests: dict[tuple[str, str], _Requests] = {}


def group(
    pods: Sequence[PodFacts], reading: PodsReading, settings: Settings, time: int, *, cpu: bool
) -> Groups:
    """Return what `group_pods` returns."""
    roster = prepare(pods)
    if reading.values.keys() >= roster.counted and (
        not cpu
        or (roster.started is not None and roster.started + settings.cpu_initialization_period <= time)
    ):
        return Groups(roster.count, roster.unready, (), roster.ignored)
    return group_pods(pods, reading, settings, time, cpu=cpu)


def read_requests(pods: Sequence[PodFacts], resource: str, container: str) -> _Requests:
    """Return the requests of all pods by name, ignored ones included; a pod without one fails all."""
    requests = prepare(pods).requests
    if (resource, container) not in requests:
        if len(requests) >= _MOST_REQUESTS:  # an owner may rename a container in the spec again and again
            requests.clear()
        requests[resource, container] = _find_requests(pods, resource, container)
    return requests[resource, container]


def _find_requests(pods: Sequence[PodFacts], resource: str, container: str) -> _Requests:
    by_pod: dict[str, int] = {}
    for pod in pods:
        request = read_request(pod, resource, container)
        if isinstance(request, Unavailable):
            return request
        by_pod[pod.name] = request
    return by_pod


def prepare(pods: Sequence[PodFacts]) -> Roster:
    """Return the roster of pods, from the list if that never changes."""
    if not isinstance(pods, PodList):
        return _make(pods)
    if pods.prepared is None:
        pods.prepared = _make(pods)
    roster: Roster = pods.prepared
    return roster


def _make(pods: Sequence[PodFacts]) -> Roster:
    groups = group_pods(pods, _NOTHING, Settings(), 0, cpu=False)
    counted = [pod for pod in pods if not (pod.deleting or pod.phase in _NOT_COUNTED)]
    are_ready = all(pod.ready == "True" and pod.started is not None for pod in counted)
    return Roster(
        dict.fromkeys(pod.name for pod in counted).keys(),  # half the size of a set
        len(counted),
        tuple(groups.unready),
        tuple(groups.ignored),
        max((pod.started or 0 for pod in counted), default=0) if are_ready else None,
        count_ready(pods),
    )
