"""API objects with the fields that `fastpath doctor` reads; all others are ignored."""

from typing import Generic, TypeVar

from adapter.model.autoscaling.fastpath_autoscaler import AUTO, Metadata
from adapter.model.autoscaling.hpa import (
    Condition,
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    ObjectMeta,
    Struct,
)
from adapter.model.timestamps import Instant


class OwnerReference(Struct, frozen=True):
    """Who made an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""


class HPAMetadata(Metadata, frozen=True):
    """Metadata of an autoscaler, with who made it."""

    owner_references: tuple[OwnerReference, ...] | None = None


T = TypeVar("T")


class ItemList(Struct, Generic[T], frozen=True):
    """A list of objects."""

    items: tuple[T, ...] = ()


class HPA(HorizontalPodAutoscaler, frozen=True):
    """An autoscaler as the API server has it."""

    metadata: HPAMetadata = HPAMetadata()


class FPASpec(Struct, frozen=True):
    """What a FastPathAutoscaler scales, between which limits, and in which mode."""

    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: int = 1
    max_replicas: int = 0
    mode: str = AUTO


class FPAStatus(Struct, frozen=True):
    """What the last decision came to."""

    current_replicas: int = 0
    conditions: tuple[Condition, ...] | None = None


class FPA(Struct, frozen=True):
    """A FastPathAutoscaler as far as it is examined."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FPASpec = FPASpec()
    status: FPAStatus = FPAStatus()


class ContainerStatus(Struct, frozen=True):
    """How often a container began again."""

    restart_count: int = 0


class PodDocumentStatus(Struct, frozen=True):
    """How a pod is."""

    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Mount(Struct, frozen=True):
    """Where a container sees a volume."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class ContainerDocument(Struct, frozen=True):
    """How a container is started, and what it sees."""

    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    volume_mounts: tuple[Mount, ...] | None = None

    @property
    def words(self) -> tuple[str, ...]:
        """Return its command line."""
        return (*(self.command or ()), *(self.args or ()))


class Item(Struct, frozen=True):
    """A key of a ConfigMap under another name."""

    key: str = ""
    path: str = ""


class ConfigMapVolume(Struct, frozen=True):
    """Which ConfigMap a volume shows, and which keys of it."""

    name: str = ""
    items: tuple[Item, ...] | None = None


class Volume(Struct, frozen=True):
    """A volume of a pod; only ConfigMaps matter."""

    name: str = ""
    config_map: ConfigMapVolume | None = None


class PodDocumentSpec(Struct, frozen=True):
    """What a pod is made of."""

    containers: tuple[ContainerDocument, ...] = ()
    volumes: tuple[Volume, ...] | None = None


class PodMetadata(Struct, frozen=True):
    """Name and times of a pod."""

    name: str = ""
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None


class PodDocument(Struct, frozen=True):
    """A pod."""

    metadata: PodMetadata = PodMetadata()
    spec: PodDocumentSpec = PodDocumentSpec()
    status: PodDocumentStatus = PodDocumentStatus()

    @property
    def ready(self) -> Condition | None:
        """Return the condition Ready where it holds."""
        if self.metadata.deletion_timestamp is not None:
            return None
        return next(
            (each for each in self.status.conditions or () if (each.type, each.status) == ("Ready", "True")),
            None,
        )


class ServiceSpec(Struct, frozen=True):
    """Which pods a Service selects."""

    selector: dict[str, str] | None = None


class Service(Struct, frozen=True):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()


class ConfigMap(Struct, frozen=True):
    """Texts by key."""

    data: dict[str, str] | None = None


class LeaseDocumentSpec(Struct, frozen=True):
    """The holder of a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: Instant | None = None


class LeaseDocument(Struct, frozen=True):
    """A Lease."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseDocumentSpec = LeaseDocumentSpec()
