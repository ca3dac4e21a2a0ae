"""API objects with the fields that `fastpath doctor` reads; all others are ignored."""

from typing import Generic, TypeVar

from adapter.model.autoscaling.fastpath_autoscaler import Metadata
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscaler, ObjectMeta, Struct
from adapter.model.timestamps import Instant

T = TypeVar("T")


class ItemList(Struct, Generic[T], frozen=True):
    items: tuple[T, ...] = ()


class OwnerReference(Struct, frozen=True):
    api_version: str = ""
    kind: str = ""
    name: str = ""


class HPAMetadata(Metadata, frozen=True):
    owner_references: tuple[OwnerReference, ...] | None = None


class HPA(HorizontalPodAutoscaler, frozen=True):
    metadata: HPAMetadata = HPAMetadata()


class RunningState(Struct, frozen=True):
    started_at: Instant | None = None


class ContainerState(Struct, frozen=True):
    running: RunningState | None = None


class ContainerStatus(Struct, frozen=True):
    restart_count: int = 0
    state: ContainerState | None = None

    @property
    def started_at(self) -> Instant | None:
        """When it was started; None if it does not run."""
        return None if self.state is None or self.state.running is None else self.state.running.started_at


class PodDocumentStatus(Struct, frozen=True):
    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Mount(Struct, frozen=True):
    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class ProbeDocument(Struct, frozen=True):
    """A probe, with Kubernetes' defaults."""

    initial_delay_seconds: int = 0
    period_seconds: int = 10


class ContainerDocument(Struct, frozen=True):
    name: str = ""
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
    volumes: tuple[Volume, ...] | None = None


class PodMetadata(Struct, frozen=True):
    name: str = ""
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None


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
        ready = ("Ready", "True")
        return next(
            (each for each in self.status.conditions or () if (each.type, each.status) == ready), None
        )


class InvolvedObject(Struct, frozen=True):
    name: str = ""


class PodEvent(Struct, frozen=True):
    involved_object: InvolvedObject = InvolvedObject()
    message: str = ""


class ServiceSpec(Struct, frozen=True):
    selector: dict[str, str] | None = None


class Service(Struct, frozen=True):
    spec: ServiceSpec = ServiceSpec()


class ConfigMap(Struct, frozen=True):
    data: dict[str, str] | None = None


class LeaseDocumentSpec(Struct, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: Instant | None = None


class NamedDocument(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class LeaseDocument(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseDocumentSpec = LeaseDocumentSpec()
