"""What a decision is made from: settings, the scale, a reading for each metric, and the pods that count.

A metric that cannot be read is `Unavailable`, never a zero and never an exception: `decision` decides what
follows from that.

The second half mirrors ``groupPods`` and ``calculatePodRequests`` of Kubernetes 1.36. Readiness matters for
cpu only. A request is that of one container, the sum of all containers and sidecars, or for pod-level
resources the scheduler's sum; it is read from the spec, not from the status of an in-place resize.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

import msgspec

from adapter.autoscaler.decide.numbers import w64
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus, PodMetrics
from adapter.model.objects.pods import Container, PodFacts, Requests
from adapter.model.quantity import Quantity
from adapter.model.timestamps import NEVER, SECOND

NO_STATUS = HorizontalPodAutoscalerStatus()

NOT_YET = "NotYet"
"""The reason before the first answer: it is unknown whether there is a value."""


SETTLING = "pods of the target come or go"
"""Why a reading is overdue in the moment of a change of the count, in which nothing is wrong."""


class Unavailable(msgspec.Struct, frozen=True, tag=True):
    """Why there is no value: a reason for programs, and a message, upstream's for upstream's errors."""

    reason: str
    message: str


class PodsReading(msgspec.Struct, frozen=True, tag=True):
    """The values of pods in thousandths by name; there may be values of unknown pods.

    `samples` are the times and windows of the samples in nanoseconds, which matter for cpu; a pod without an
    entry was sampled at Go's zero time. `overdue` says why the values may be out of date, "" if they are not:
    an overdue reading may scale up, not down. That is about `overdue_pods`, () for all pods. `most_then` is
    the largest number of ready pods over the time that the values cover, 0 if it does not matter: a
    scale-down counts with these pods, because they shared the load. `left_out` are the values of pods that
    became ready after the oldest sample; they are not in `values`, and these pods count as missing. When
    scaling down each counts at least its own value. `other_cut` names the pods that are left out in place of
    those by a cut with a larger sum, () without one.
    """

    values: Mapping[str, int]
    samples: Mapping[str, tuple[int, int]] = {}
    overdue: str = ""
    most_then: int = 0
    left_out: Mapping[str, int] = {}
    other_cut: Sequence[str] = ()
    overdue_pods: Sequence[str] = ()

    def with_other_cut(self) -> Self:
        values = {**self.values, **self.left_out}
        left_out = {name: values.pop(name) for name in self.other_cut}
        return msgspec.structs.replace(self, values=values, left_out=left_out, other_cut=())

    @property
    def fresh(self) -> Self | None:
        """It without the pods whose values may be out of date; None if that is any."""
        if not self.overdue:
            return self
        if not self.overdue_pods:
            return None
        late = frozenset(self.overdue_pods)
        return msgspec.structs.replace(
            self,
            values={name: value for name, value in self.values.items() if name not in late},
            left_out={name: value for name, value in self.left_out.items() if name not in late},
            other_cut=[name for name in self.other_cut if name not in late],
            overdue="",
            overdue_pods=(),
        )


class Ways(msgspec.Struct, frozen=True, tag=True):
    """The readings of one metric by several ways, the usual one first.

    The way that asks for the most replicas counts, and the metric lowers the count only if all do. A later
    way that cannot be used has no say.
    """

    ways: tuple[PodsReading, ...]

    @classmethod
    def beside(cls, usual: "Reading", other: PodsReading) -> Self:
        """Return both; a usual way that is unavailable has no values, and may not lower the count."""
        if not isinstance(usual, PodsReading):
            usual = PodsReading({}, overdue=usual.message if isinstance(usual, Unavailable) else "")
        return cls((usual, other))

    @property
    def overdue(self) -> str:
        return self.ways[0].overdue


class ObjectReading(msgspec.Struct, frozen=True, tag=True):
    """The value of one object in thousandths.

    `ready_then` is the number of ready pods at the time of the sample, None if unknown. A value that lags
    behind the pods is a ratio to these pods; multiplied by the pods of now it would overshoot. It applies to
    targets of type Value and to scale-ups only, and never turns one into a scale-down. Without it the pods of
    now count, as upstream. `overdue` and `most_then` are as above.
    """

    value: int
    ready_then: int | None = None
    overdue: str = ""
    most_then: int = 0


class ExternalReading(msgspec.Struct, frozen=True, tag=True):
    """The series of an external metric in thousandths; `ready_then` is as above."""

    values: Sequence[int]
    ready_then: int | None = None
    overdue: str = ""
    most_then: int = 0


Reading = PodsReading | Ways | ObjectReading | ExternalReading | Unavailable


def usual_way(reading: Reading) -> PodsReading | ObjectReading | ExternalReading | Unavailable:
    """Return the reading by the usual way, which is often the only one."""
    return reading.ways[0] if isinstance(reading, Ways) else reading


class OptionState(NamedTuple):
    """The condition of an option of ours: whether it takes effect, a reason and a sentence."""

    holds: bool
    reason: str
    message: str


class Observation(msgspec.Struct, frozen=True):
    """What one sync sees.

    `replicas` is the scale's spec, `status_replicas` its status. `pods` are those that match `selector`,
    terminating ones included; `readings` are those of the metrics, in the order of the spec. `selected_by`
    are the autoscalers (``namespace/name``), this one included, whose selectors match one of these pods; more
    than one is an error. `status` is the autoscaler's before the sync. `write_error` is why the new count
    could not be written, in a second decision on the same observation.

    `ready_within` is the learned start-up time of the pods, from created to Ready, in nanoseconds and
    above 0; None if none is known. `unsure_of_pods` says why the pods may be out of date, "" if they are not.
    `fast_usage` is None if no pods are scraped for their usage. `idle` is the number of pods that may go at
    once, None if a scale-down does not wait for that. `idle_scale_down` is None without the option.

    The times of pods, samples and conditions are times of day. `set_by` is that of the clock of decisions,
    UNSET in place of 0, so that a record has it only if the clock was set.
    """

    replicas: int
    status_replicas: int
    selector: str
    pods: Sequence[PodFacts]
    readings: Sequence[Reading]
    status: HorizontalPodAutoscalerStatus = NO_STATUS
    selected_by: Sequence[str] = ()
    write_error: str = ""
    ready_within: int | None = None
    unsure_of_pods: str = ""
    fast_usage: OptionState | None = None
    idle: int | None = None
    idle_scale_down: OptionState | None = None
    set_by: int | msgspec.UnsetType = msgspec.UNSET

    def time_of_day(self, at: int) -> int:
        """Return the time of day at a time of decisions."""
        return at + (self.set_by or 0)


class Settings(msgspec.Struct, frozen=True):
    """The flags and feature gates of kube-controller-manager, with its defaults; durations are nanoseconds.

    `scale_to_zero` is the feature gate HPAScaleToZero. `strict` is our own: negative values and results that
    overflow count as unavailable. Upstream computes with what amd64 makes of them, which may be any count.
    """

    tolerance: float = 0.1
    cpu_initialization_period: int = 300 * SECOND
    initial_readiness_delay: int = 30 * SECOND
    downscale_stabilization: int = 300 * SECOND
    scale_to_zero: bool = False
    strict: bool = False


class Band(NamedTuple):
    """The ratios within tolerance, both ends included."""

    low: float
    high: float

    def holds(self, ratio: float) -> bool:
        """Tell whether a ratio is within tolerance; NaN never is."""
        return self.low <= ratio <= self.high


def read_usage(items: Sequence[PodMetrics], resource: str, container: str) -> Reading:
    """Return the usage of each pod, or of one container in each.

    A pod is left out if one of its containers lacks the resource, as in ``GetResourceMetric`` upstream.
    """
    values: dict[str, int] = {}
    samples: dict[str, tuple[int, int]] = {}
    for item in items:
        used = sum_usage(item, resource, container)
        if used is not None:
            name = item.metadata.name
            values[name] = used
            samples[name] = (NEVER if item.timestamp is None else item.timestamp, item.window or 0)
    if not items:
        return Unavailable("NoMetrics", "no metrics returned from resource metrics API")
    return PodsReading(values, samples)


def sum_usage(item: PodMetrics, resource: str, container: str) -> int | None:
    """Return the usage of a container, of the whole pod for "", in thousandths; None if a part is unknown."""
    used = [
        part.usage.get(resource) if part.usage else None
        for part in item.containers or ()
        if not container or part.name == container
    ]
    if container:
        del used[1:]  # the first of that name
    known = [quantity.milli for quantity in used if quantity is not None]
    return sum(known) if known and len(known) == len(used) else None


# -- the pods ------------------------------------------------------------------------------------------------

_NO_SAMPLE = (int(NEVER), 0)
_ENDED = frozenset({"Failed", "Succeeded"})


class Groups(msgspec.Struct, frozen=True, gc=False):
    """The number of pods that count, and the names of the others.

    `unready` pods are left out when scaling down and count as 0 when scaling up; `missing` ones have no
    sample; `ignored` ones terminate or have failed.
    """

    ready: int
    unready: Sequence[str]
    missing: Sequence[str]
    ignored: Sequence[str]


def group_pods(
    pods: Sequence[PodFacts], reading: PodsReading, settings: Settings, time: int, *, cpu: bool
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
        elif cpu and _starting_or_unready(pod, samples.get(pod.name, _NO_SAMPLE), settings, time):
            unready.append(pod.name)
        else:
            ready += 1
    return Groups(ready, unready, missing, ignored)


def _starting_or_unready(pod: PodFacts, sample: tuple[int, int], settings: Settings, time: int) -> bool:
    """Tell whether to ignore the cpu usage of a pod.

    A pod within the initialization period must have been ready for the whole window of its sample. An older
    pod may be unready if it was ready once.
    """
    if pod.ready is None or pod.started is None:
        return True
    if pod.started + settings.cpu_initialization_period > time:
        taken, window = sample
        return pod.ready == "False" or taken < pod.ready_since + window
    return pod.ready == "False" and pod.started + settings.initial_readiness_delay > pod.ready_since


def is_active(pod: PodFacts) -> bool:
    """Tell whether a pod neither terminates nor has ended: a ReplicaSet counts it."""
    return not pod.deleting and pod.phase not in _ENDED


def count_ready(pods: Sequence[PodFacts]) -> int:
    """Return the number of running and ready pods, terminating ones included."""
    return sum(pod.running_and_ready for pod in pods)


def read_request(pod: PodFacts, resource: str, container: str = "") -> int | Unavailable:
    """Return the request of a pod, or of one of its containers, in thousandths."""
    if pod.pod_requests and not container and any(map(_is_pod_level, pod.pod_requests)):
        total = _scheduler_request(pod, resource)
        if total is None:
            return _missing(f"missing pod-level request for {resource} in Pod {pod.name}")
        return total.milli
    milli = 0
    for part in (
        (*pod.containers, *filter(_is_sidecar, pod.init_containers))
        if pod.init_containers
        else pod.containers
    ):
        if container and part.name != container:
            continue
        quantity = _container_request(part, resource)
        if quantity is None:
            return _missing(f"missing request for {resource} in container {part.name} of Pod {pod.name}")
        milli += quantity.milli
        if container:
            return milli
    if container:
        return _missing(f"container {container} not found in Pod {pod.name}")
    return w64(milli)


def _missing(message: str) -> Unavailable:
    return Unavailable("MissingRequest", message)


def _is_pod_level(resource: str) -> bool:
    return resource in {"cpu", "memory"} or resource.startswith("hugepages-")


def _is_sidecar(init_container: Container) -> bool:
    return init_container.restart_policy == "Always"


def _scheduler_request(pod: PodFacts, resource: str) -> Quantity | None:
    """Return what the scheduler reserves, overhead included; None if the pod does not request the resource.

    That is the sum of the containers or, if larger, the need of an init step; a pod-level request replaces
    both.
    """
    total: Quantity | None = None
    for container in (*pod.containers, *filter(_is_sidecar, pod.init_containers)):
        total = _plus(total, _container_request(container, resource))
    sidecars: Quantity | None = None
    for container in pod.init_containers:
        step = _plus(sidecars, _container_request(container, resource))
        if _is_sidecar(container):
            sidecars = step
        if step is not None and (total is None or total < step):
            total = step
    own_request: Mapping[str, Quantity] = pod.pod_requests or {}
    if resource in own_request and _is_pod_level(resource):
        total = own_request[resource]
    return _plus(total, (pod.overhead or {}).get(resource))


def _plus(total: Quantity | None, more: Quantity | None) -> Quantity | None:
    if total is None or more is None:
        return more if total is None else total
    return total + more


def _container_request(container: Container, resource: str) -> Quantity | None:
    requests: Requests | None = None if container.resources is None else container.resources.requests
    return requests.get(resource) if requests else None
