"""The kept record of a pod, and the codec that decodes pods to it.

There may be 100,000 records, so none is tracked by the garbage collector, and pods with equal specs share one
`SharedSpec`. A field that cannot be parsed is treated as absent and does not affect the others. What the
facts mean is decided in `autoscaler.decide.observation`.
"""

import hashlib
import operator
import re
import sys
from collections.abc import Mapping, Sequence

import msgspec

from adapter.kubernetes.cache import pod_starts
from adapter.kubernetes.cache.pod_starts import WireCondition, read_time
from adapter.kubernetes.codec import ObjectCodec, Unreadable
from adapter.kubernetes.heads import WithMetadata
from adapter.model import memo
from adapter.model.objects.api_objects import Struct
from adapter.model.objects.pods import COST_ANNOTATION, Container, PodFacts, Requests, ResourceRequirements
from adapter.model.quantity import Quantity, read
from adapter.model.timestamps import NEVER

_COST = re.compile("-?[0-9]{1,10}")
_NEVER = int(NEVER)
_LONG_AGO = "1970-01-01T00:00:00Z"

MOST_RESOURCES = 64
"""Limit of resources per container: where there are more, only cpu and memory are kept."""

MOST_LABELS = 64
"""The labels of a pod with more are not kept."""

MOST_CONTAINERS = 256
"""A pod with more has one container without requests in their place."""

MOST_OWNED_PORTS = 64
"""The ports of a pod whose container is known."""

REQUESTS_BYTES = 4 * 1024 * 1024
"""Memory bound of the parsed requests and limits, which outlive their pods."""

UNFINISHED = frozenset({"", "Pending", "Running"})
"""The phases of a pod that may still become Ready."""

_ALWAYS_KEPT = ("cpu", "memory")
_RESOURCE_BYTES = 400  # estimated memory of one resource


class SharedSpec(msgspec.Struct, gc=False, eq=False):
    """The kept part of a pod's spec. `key` identifies it, `users` is the number of pods that share it.

    With `host_network` a pod uses its node's address. `ports` are the named TCP ports of its containers,
    `port_owners` as in `PodFacts`.
    """

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    pod_requests: Requests | None = None
    overhead: Requests | None = None
    host_network: bool = False
    ports: Mapping[str, int] = {}
    port_owners: Mapping[str, str] = {}
    key: bytes = b""
    users: int = 0


class WatchedPod(PodFacts, frozen=True, gc=False):
    """A pod: the facts that decisions read, and its address for scraping. `ip` is "" until it has one.

    `starting` is a sum of the flags of `pod_starts`, 0 for a pod that has been Ready.
    """

    namespace: str = ""
    ip: str = ""
    spec: SharedSpec = msgspec.field(default_factory=SharedSpec)
    starting: int = 0

    @property
    def port_owners(self) -> Mapping[str, str]:
        return self.spec.port_owners


# -- what the API server sends -------------------------------------------------------------------------------


class _WirePort(Struct, frozen=True):
    name: str = ""
    container_port: int = 0
    protocol: str = "TCP"


_Written = str | int | float


class _WireResources(Struct, frozen=True):
    requests: dict[str, _Written] | None = None
    limits: dict[str, _Written] | None = None


class _WireContainer(Struct, frozen=True):
    name: str = ""
    resources: _WireResources | None = None
    restart_policy: str | None = None
    ports: tuple[_WirePort, ...] | None = None


class WireSpec(Struct, frozen=True):
    """A pod's spec as it is decoded. Pods with equal ones share a `SharedSpec`."""

    containers: tuple[_WireContainer, ...] | None = None
    init_containers: tuple[_WireContainer, ...] | None = None
    resources: _WireResources | None = None
    overhead: dict[str, _Written] | None = None
    host_network: bool = False


_TOO_MANY_CONTAINERS = WireSpec(containers=(_WireContainer(name="too-many"),))


class _WireStatus(Struct, frozen=True):
    phase: str = ""
    start_time: str | None = None
    conditions: tuple[WireCondition, ...] | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")
    # Not decoded unless the pod is starting: most pods are not, and a list may have 100,000.
    container_statuses: msgspec.Raw = pod_starts.NO_STATUSES
    init_container_statuses: msgspec.Raw = pod_starts.NO_STATUSES


class _WireAnnotations(msgspec.Struct, frozen=True):
    deletion_cost: str = msgspec.field(default="", name=COST_ANNOTATION)


class _WireMetadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    resource_version: str = ""
    annotations: _WireAnnotations | None = None


class WirePod(Struct, frozen=True):
    """A pod as it is decoded. It lives until `build` has made the record."""

    metadata: _WireMetadata = _WireMetadata()
    spec: WireSpec = WireSpec()
    status: _WireStatus = _WireStatus()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def name(self) -> str:
        return self.metadata.name


POD_CODEC: ObjectCodec[WirePod] = ObjectCodec(
    WirePod, lambda pod: pod, version_of=operator.attrgetter("metadata.resource_version")
)
"""Decodes pods; `build` makes the records."""


def lose(lost: Unreadable) -> WirePod:
    """Return what counts in place of a pod that cannot be read: it is there, and nothing is known of it.

    It is running and Ready, so that no decision leaves it out, and its container requests nothing, so that
    cpu and memory are not compared with requests that are unknown.
    """
    try:
        metadata = msgspec.json.decode(lost.raw, type=WithMetadata[_WireMetadata]).metadata
    except (msgspec.MsgspecError, RecursionError):
        metadata = _WireMetadata(name=lost.name, namespace=lost.namespace)
    ready = WireCondition(type="Ready", status="True")
    return WirePod(
        metadata,
        WireSpec(containers=(_WireContainer(name="unreadable"),)),
        _WireStatus(phase="Running", start_time=_LONG_AGO, conditions=(ready,)),
    )


def _requests(written: Mapping[str, _Written] | None) -> Requests | None:
    if written is None:
        return None
    if len(written) > MOST_RESOURCES:
        written = {resource: written[resource] for resource in _ALWAYS_KEPT if resource in written}
    return _quantities(tuple(written.items()))


def _weigh_requests(written: tuple[tuple[str, _Written], ...]) -> int:
    return 200 + sum(_RESOURCE_BYTES + len(resource) + len(str(value)) for resource, value in written)


@memo.remember(REQUESTS_BYTES, _weigh_requests)
def _quantities(written: tuple[tuple[str, _Written], ...]) -> Requests:
    """Parse requests or limits. Invalid quantities are ignored."""
    quantities: dict[str, Quantity] = {}
    for resource, value in written:
        try:
            quantities[sys.intern(resource)] = read(value if isinstance(value, str) else repr(value))
        except ValueError:
            continue
    return quantities


def _container(written: _WireContainer) -> Container:
    resources = None
    if written.resources is not None:
        requests, limits = _requests(written.resources.requests), _requests(written.resources.limits)
        resources = ResourceRequirements(requests, limits)
    return Container(sys.intern(written.name), resources, written.restart_policy)


def build_key(written: WireSpec) -> bytes:
    """Return a key that is equal for equal specs."""
    return hashlib.sha256(msgspec.json.encode(written)).digest()


def share(written: WireSpec, key: bytes) -> SharedSpec:
    """Build what pods with this spec share; `key` is that of `build_key`."""
    containers, inits = written.containers or (), written.init_containers or ()
    if max(len(containers), len(inits)) > MOST_CONTAINERS:
        return share(_TOO_MANY_CONTAINERS, key)
    # init containers other than sidecars have ended, and their ports with them
    running = [*containers, *(init for init in inits if init.restart_policy == "Always")]
    return SharedSpec(
        tuple(map(_container, containers)),
        tuple(map(_container, inits)),
        None if written.resources is None else _requests(written.resources.requests),
        _requests(written.overhead),
        written.host_network,
        *_find_ports(running),
        key,
    )


def _find_ports(containers: Sequence[_WireContainer]) -> tuple[dict[str, int], dict[str, str]]:
    """Return the named TCP ports, and whose a port is where there are several containers.

    Of two ports with one name the first counts, as for a probe or a Service.
    """
    exposed = [(one, port) for one in containers for port in one.ports or () if port.protocol == "TCP"]
    exposed = exposed[:MOST_OWNED_PORTS]
    ports = {sys.intern(port.name): port.container_port for _, port in reversed(exposed) if port.name}
    owners = {
        sys.intern(key): sys.intern(container.name)
        for container, port in reversed(exposed)
        if len(containers) > 1
        for key in (port.name, str(port.container_port))
        if key
    }
    return ports, owners


def build(
    pod: WirePod, namespace: str, labels: Mapping[str, str], spec: SharedSpec, old: WatchedPod | None = None
) -> WatchedPod:
    """Build the record of a pod; `namespace`, `labels` and `spec` are shared with other pods.

    `old` is its former record, if it has one.
    """
    status = pod.status
    ready, since = None, _NEVER
    for condition in status.conditions or ():
        if condition.type == "Ready":
            ready, since = sys.intern(condition.status), read_time(condition.last_transition_time) or _NEVER
            break
    started, flags = read_time(status.start_time), 0
    if ready != "True" and status.phase in UNFINISHED:
        before = old.starting if old is not None and is_same(old, started) else None
        flags = pod_starts.compute_flags(
            status.conditions, status.container_statuses, status.init_container_statuses, before
        )
    name, ip = pod.name, status.pod_ip
    if old is not None:  # its strings stay, as the keys of the cache do
        name = old.name
        ip = old.ip if ip == old.ip else ip
    return WatchedPod(
        name,
        sys.intern(status.phase),
        labels,
        pod.metadata.deletion_timestamp is not None,
        started,
        ready,
        since,
        spec.containers,
        spec.init_containers,
        spec.pod_requests,
        spec.overhead,
        None if ready == "True" else read_time(pod.metadata.creation_timestamp),
        _read_cost(pod.metadata.annotations),
        namespace,
        ip,
        spec,
        flags,
    )


def _read_cost(annotations: _WireAnnotations | None) -> int | None:
    """Return a deletion cost; the API server admits none that is no number."""
    text = "" if annotations is None else annotations.deletion_cost
    return int(text) if _COST.fullmatch(text) else None


def is_same(old: WatchedPod, started: int | None) -> bool:
    """Tell whether a pod that was `started` then is that of an older record of the name.

    The kubelet sets the start time of a pod once. A pod of a StatefulSet may have been replaced by one of the
    same name while the watch was away.
    """
    return old.started is None or old.started == started
