"""API objects as `fastpath doctor` decodes them: slim, unknown fields ignored. Nothing is read or judged here."""

from adapter.model.autoscaling import hpa
from adapter.model.autoscaling.fastpath_autoscaler import AUTO, Metadata
from adapter.model.autoscaling.hpa import (
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


class HPA(HorizontalPodAutoscaler, frozen=True):
    """An autoscaler as the API server has it."""

    metadata: HPAMetadata = HPAMetadata()


class HPAList(Struct, frozen=True):
    """Autoscalers."""

    items: tuple[HPA, ...] = ()


class FPASpec(Struct, frozen=True):
    """What a FastPathAutoscaler scales, between which limits, and in which mode."""

    scale_target_ref: CrossVersionObjectReference = CrossVersionObjectReference()
    min_replicas: int = 1
    max_replicas: int = 0
    mode: str = AUTO


class FPAStatus(Struct, frozen=True):
    """What the last decision came to."""

    current_replicas: int = 0
    conditions: tuple[hpa.Condition, ...] | None = None


class FPA(Struct, frozen=True):
    """A FastPathAutoscaler as far as it is examined."""

    metadata: ObjectMeta = ObjectMeta()
    spec: FPASpec = FPASpec()
    status: FPAStatus = FPAStatus()


class FPAList(Struct, frozen=True):
    """FastPathAutoscalers."""

    items: tuple[FPA, ...] = ()


class Condition(Struct, frozen=True):
    """A condition of a pod."""

    type: str = ""
    status: str = ""
    last_transition_time: Instant | None = None


class ContainerStatus(Struct, frozen=True):
    """How often a container began again."""

    restart_count: int = 0


class PodStatus(Struct, frozen=True):
    """How a pod is."""

    conditions: tuple[Condition, ...] | None = None
    container_statuses: tuple[ContainerStatus, ...] | None = None


class Mount(Struct, frozen=True):
    """Where a container sees a volume."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""


class Container(Struct, frozen=True):
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


class ConfigMapSource(Struct, frozen=True):
    """Which ConfigMap a volume shows, and which keys of it."""

    name: str = ""
    items: tuple[Item, ...] | None = None


class Volume(Struct, frozen=True):
    """A volume of a pod; only ConfigMaps matter."""

    name: str = ""
    config_map: ConfigMapSource | None = None


class PodSpec(Struct, frozen=True):
    """What a pod is made of."""

    containers: tuple[Container, ...] = ()
    volumes: tuple[Volume, ...] | None = None


class PodMetadata(Struct, frozen=True):
    """Name and times of a pod."""

    name: str = ""
    creation_timestamp: Instant | None = None
    deletion_timestamp: Instant | None = None


class Pod(Struct, frozen=True):
    """A pod, as far as it matters here."""

    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def ready(self) -> Condition | None:
        """Return the condition Ready where it holds."""
        if self.metadata.deletion_timestamp is not None:
            return None
        return next(
            (each for each in self.status.conditions or () if (each.type, each.status) == ("Ready", "True")),
            None,
        )


class PodList(Struct, frozen=True):
    """Pods."""

    items: tuple[Pod, ...] = ()


class ServiceSpec(Struct, frozen=True):
    """Which pods a Service selects."""

    selector: dict[str, str] | None = None


class Service(Struct, frozen=True):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()


class ConfigMap(Struct, frozen=True):
    """Texts by key."""

    data: dict[str, str] | None = None


class ConfigMapList(Struct, frozen=True):
    """ConfigMaps."""

    items: tuple[ConfigMap, ...] = ()


class LeaseSpec(Struct, frozen=True):
    """Who holds a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: Instant | None = None


class LeaseMetadata(Struct, frozen=True):
    """The name of a Lease."""

    name: str = ""


class Lease(Struct, frozen=True):
    """A Lease."""

    metadata: LeaseMetadata = LeaseMetadata()
    spec: LeaseSpec = LeaseSpec()


class LeaseList(Struct, frozen=True):
    """Leases."""

    items: tuple[Lease, ...] = ()
