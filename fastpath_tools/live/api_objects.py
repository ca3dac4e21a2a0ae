"""API objects with the fields that `fastpath doctor` reads, and how long pods took to start, from these."""

import contextlib
import re
import statistics
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Generic, TypeVar

from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscaler, Scale
from adapter.model.objects.api_objects import Metadata, Struct
from adapter.model.objects.pods import ResourceRequirements
from adapter.model.ready_times import MOST_PODS, PodStart, PodTimes, measure, summarize
from adapter.model.timestamps import Instant, parse_go_duration
from fastpath_tools.live.facts import Probe, Pulls, Starts

T = TypeVar("T")


class ItemList(Struct, Generic[T], frozen=True):
    items: tuple[T, ...] = ()


class OwnerReference(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    controller: bool = False


class HPAMetadata(Metadata, frozen=True):
    owner_references: tuple[OwnerReference, ...] | None = None


class HPA(HorizontalPodAutoscaler, frozen=True):
    metadata: HPAMetadata = HPAMetadata()


class TargetScale(Scale, frozen=True):
    metadata: Metadata = Metadata()  # the version is that of the target


class RunningState(Struct, frozen=True):
    started_at: Instant | None = None


class WaitingState(Struct, frozen=True):
    reason: str = ""
    message: str = ""


class TerminatedState(Struct, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: Instant | None = None


class ContainerState(Struct, frozen=True):
    waiting: WaitingState | None = None
    running: RunningState | None = None
    terminated: TerminatedState | None = None


class ContainerStatus(Struct, frozen=True):
    name: str = ""
    ready: bool = False
    started: bool | None = None
    restart_count: int = 0
    state: ContainerState | None = None
    last_state: ContainerState | None = None
    resources: ResourceRequirements | None = None
    """Those in effect."""

    @property
    def started_at(self) -> Instant | None:
        """When it was started; None if it does not run."""
        return None if self.state is None or self.state.running is None else self.state.running.started_at


class PodDocumentStatus(Struct, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] | None = None
    init_container_statuses: tuple[ContainerStatus, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Mount(Struct, frozen=True):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class ProbeDocument(Struct, frozen=True):
    """A probe, with Kubernetes' defaults."""

    initial_delay_seconds: int = 0
    period_seconds: int = 10


class ContainerPort(Struct, frozen=True):
    name: str = ""
    container_port: int = 0
    protocol: str = "TCP"


class ContainerDocument(Struct, frozen=True):
    name: str = ""
    image: str = ""
    restart_policy: str = ""
    """Of an init container Always, which makes it a sidecar."""
    ports: tuple[ContainerPort, ...] | None = None
    resources: ResourceRequirements | None = None
    readiness_probe: ProbeDocument | None = None
    startup_probe: ProbeDocument | None = None
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    volume_mounts: tuple[Mount, ...] | None = None

    @property
    def words(self) -> tuple[str, ...]:
        return (*(self.command or ()), *(self.args or ()))


class Item(Struct, frozen=True):
    """A key of a ConfigMap, and the file that shows it."""

    key: str = ""
    path: str = ""


class ConfigMapVolume(Struct, frozen=True):
    name: str = ""
    items: tuple[Item, ...] | None = None


class Volume(Struct, frozen=True):
    name: str = ""
    config_map: ConfigMapVolume | None = None


class PodDocumentSpec(Struct, frozen=True):
    containers: tuple[ContainerDocument, ...] = ()
    init_containers: tuple[ContainerDocument, ...] | None = None
    resources: ResourceRequirements | None = None
    node_name: str = ""
    service_account_name: str = "default"
    volumes: tuple[Volume, ...] | None = None


class ManagedFields(Struct, frozen=True):
    """What one field manager owns of an object; `fields_v1` has a key for each field."""

    manager: str = ""
    time: Instant | None = None
    subresource: str = ""
    fields_v1: Any = None

    def owns(self, *path: str) -> bool:
        """Tell whether the manager owns the field at a path."""
        fields = self.fields_v1
        for key in path:
            if not isinstance(fields, dict) or f"f:{key}" not in fields:
                return False
            fields = fields[f"f:{key}"]
        return True


class PodMetadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    managed_fields: tuple[ManagedFields, ...] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None
    deletion_grace_period_seconds: int | None = None


class PodDocument(Struct, frozen=True):
    """A pod as doctor reads it; `kubernetes.cache.pod_codec` keeps neither volumes nor restarts."""

    metadata: PodMetadata = PodMetadata()
    spec: PodDocumentSpec = PodDocumentSpec()
    status: PodDocumentStatus = PodDocumentStatus()

    @property
    def ready(self) -> Condition | None:
        """The condition Ready if it is True and the pod is not terminating."""
        if self.metadata.deletion_timestamp is not None:
            return None
        conditions = self.status.conditions or ()
        return next((one for one in conditions if (one.type, one.status) == ("Ready", "True")), None)


class InvolvedObject(Struct, frozen=True):
    name: str = ""


class EventSeries(Struct, frozen=True):
    last_observed_time: Instant | None = None


class ObjectEvent(Struct, frozen=True):
    """An event; `last_timestamp` is when it happened last, which the scheduler writes to other fields."""

    involved_object: InvolvedObject = InvolvedObject()
    message: str = ""
    reason: str = ""
    first_timestamp: Instant | None = None
    last_timestamp: Instant | None = None
    event_time: Instant | None = None
    series: EventSeries | None = None

    @property
    def at(self) -> int:
        observed = None if self.series is None else self.series.last_observed_time
        return max(self.last_timestamp or 0, self.event_time or 0, observed or 0)


class WorkloadStatus(Struct, frozen=True):
    conditions: tuple[Condition, ...] | None = None


class WorkloadDocument(Struct, frozen=True):
    """A target of any kind, as far as its Scale does not say it, or a ReplicaSet of one."""

    metadata: PodMetadata = PodMetadata()
    status: WorkloadStatus = WorkloadStatus()


class ServiceSpec(Struct, frozen=True):
    selector: dict[str, str] | None = None


class Service(Struct, frozen=True):
    spec: ServiceSpec = ServiceSpec()


class ServerVersion(Struct, frozen=True):
    git_version: str = ""


class ConfigMap(Struct, frozen=True):
    data: dict[str, str] | None = None


class LeaseDocumentSpec(Struct, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: Instant | None = None
    acquire_time: Instant | None = None


class NamedDocument(Struct, frozen=True):
    metadata: Metadata = Metadata()


class LeaseDocument(NamedDocument, frozen=True):
    spec: LeaseDocumentSpec = LeaseDocumentSpec()


# -- how long pods took to start -----------------------------------------------------------------------------

_PULLED = re.compile(
    r'Successfully pulled image ".{1,1000}?" in (?P<took>[0-9][0-9.a-zµ]{0,30}s)'
    r"(?: \((?P<waited>[0-9][0-9.a-zµ]{0,30}s) including waiting\))?(?:\..*)?",
    re.DOTALL,
)
"""The kubelet's event Pulled. An image that is there already has another message."""


def measure_pulls(events: Iterable[ObjectEvent], pods: Collection[str]) -> Pulls | None:
    """Return how long the images of pods took to be pulled; None without an event that says so."""
    sums: dict[str, float] = {}
    for event in events:
        pull, name = _PULLED.fullmatch(event.message), event.involved_object.name
        if pull is None or name not in pods:
            continue
        with contextlib.suppress(ValueError):
            sums[name] = sums.get(name, 0.0) + parse_go_duration(pull["waited"] or pull["took"])
    return Pulls(statistics.median(sums.values()), len(sums)) if sums else None


def slowest_probe(containers: Sequence[ContainerDocument]) -> Probe | None:
    """Return the probe that can delay a pod most, None without probes."""
    probes = []
    for container in containers:
        kind, written = "startup", container.startup_probe
        if written is None:
            kind, written = "readiness", container.readiness_probe
        if written is not None:
            title = f"{kind} probe of container {container.name}"
            probes.append(Probe(title, float(written.initial_delay_seconds), float(written.period_seconds)))
    return max(probes, key=lambda probe: probe.delay + probe.period, default=None)


def measure_starts(pods: Sequence[PodDocument]) -> Starts | None:
    """Return how long Ready pods took, of those that never restarted; None without one."""
    oldest_first = sorted(pods, key=lambda pod: pod.metadata.creation_timestamp or 0)
    measured = [measure(_times_of(pod)) for pod in oldest_first]
    starts = [start for start in measured if isinstance(start, PodStart)][-MOST_PODS:]
    if not starts:
        return None
    return Starts(summarize(starts), slowest_probe(oldest_first[-1].spec.containers))


def _times_of(pod: PodDocument) -> PodTimes:
    statuses = pod.status.container_statuses or ()
    since = {  # the first of two conditions of a type counts
        condition.type: condition.last_transition_time if condition.status == "True" else None
        for condition in reversed(pod.status.conditions or ())
    }
    started = [status.started_at for status in statuses]
    known = [at for at in started if at is not None]
    return PodTimes(
        pod.metadata.creation_timestamp,
        since.get("PodScheduled"),
        since.get("Initialized"),
        max(known, default=None) if len(known) == len(started) else None,
        since.get("Ready"),
        sum(status.restart_count for status in statuses),
    )
