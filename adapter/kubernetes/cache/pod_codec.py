"""What is kept of a pod, and how it is made from what the API server sends.

What lives here: the record, the part of it that alike pods share, the slim form in which pods are decoded. Not here: where records are
kept (`podwatch`), what the facts mean (`autoscaler.decide.readiness`). The law: a record is never seen by the garbage collector, for there are 100,000 of
them; a field that cannot be read is absent, and spoils no other.
"""

import hashlib
import sys
from collections.abc import Mapping

import msgspec

from adapter.kubernetes.codec import Form
from adapter.model import memo
from adapter.model.autoscaling.hpa import Struct
from adapter.model.pods import Container, PodFacts, Requests, ResourceRequirements
from adapter.model.quantity import Quantity, read
from adapter.model.timestamps import NEVER, read_nanoseconds

_NEVER = int(NEVER)

MOST_RESOURCES = 64
"""Of a container that requests more resources only cpu and memory are kept."""

REQUESTS_BYTES = 4 * 1024 * 1024
"""Room for requests that are read, which outlive the pods."""

_ALWAYS_KEPT = ("cpu", "memory")
_RESOURCE_BYTES = 400
_KEY_BYTES = 1024
"""Estimated memory of one resource, and how long a spec may be that is kept as its own key."""


class SharedSpec(msgspec.Struct, gc=False, eq=False):
    """What the spec of a pod says; pods that say the same share it. `ports` are the named TCP ports of its containers.

    `key` stands for the spec, `users` is how many pods share it.
    """

    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    pod_requests: Requests | None
    overhead: Requests | None
    host_network: bool
    ports: Mapping[str, int]
    key: bytes = b""
    users: int = 0


def _no_spec() -> SharedSpec:
    return SharedSpec((), (), None, None, host_network=False, ports={})


class WatchedPod(PodFacts, frozen=True, gc=False):
    """A pod: the facts that decisions read, and where it is scraped. `ip` is "" until it has one."""

    namespace: str = ""
    ip: str = ""
    spec: SharedSpec = msgspec.field(default_factory=_no_spec)

    @property
    def host_network(self) -> bool:
        """Whether it has its node's address."""
        return self.spec.host_network

    @property
    def ports(self) -> Mapping[str, int]:
        """The named TCP ports of its containers."""
        return self.spec.ports

    @property
    def scrapable(self) -> bool:
        """Whether it runs, is not on its way out, and has an address."""
        return self.phase == "Running" and not self.deleting and bool(self.ip)


# -- what the API server sends -----------------------------------------------------------------------------------------------


class _Port(Struct, frozen=True):
    name: str = ""
    container_port: int = 0
    protocol: str = "TCP"


_Written = str | int | float


class _Resources(Struct, frozen=True):
    requests: dict[str, _Written] | None = None


class _Container(Struct, frozen=True):
    name: str = ""
    resources: _Resources | None = None
    restart_policy: str | None = None
    ports: tuple[_Port, ...] | None = None


class WireSpec(Struct, frozen=True):
    """A pod's spec as it is decoded; pods share a `SharedSpec` by it."""

    containers: tuple[_Container, ...] | None = None
    init_containers: tuple[_Container, ...] | None = None
    resources: _Resources | None = None
    overhead: dict[str, _Written] | None = None
    host_network: bool = False


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _Status(Struct, frozen=True):
    phase: str = ""
    start_time: str | None = None
    conditions: tuple[_Condition, ...] | None = None
    pod_ip: str = msgspec.field(default="", name="podIP")


class _Metadata(Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class WirePod(Struct, frozen=True):
    """A pod as it is decoded: read once, then gone."""

    metadata: _Metadata = _Metadata()
    spec: WireSpec = WireSpec()
    status: _Status = _Status()

    @property
    def namespace(self) -> str:
        """Return where it is."""
        return self.metadata.namespace

    @property
    def name(self) -> str:
        """Return what it is called there."""
        return self.metadata.name


def _itself(pod: WirePod) -> WirePod:
    return pod


FORM = Form(WirePod, _itself)
"""Pods as they are decoded; `build` makes the records."""


def _instant(text: str | None) -> int | None:
    """Return a time of the API; one that cannot be read is as good as none."""
    try:
        return read_nanoseconds(text) if text else None
    except ValueError:
        return None


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
    """Return requests as quantities; what is none is left out, as if nobody had asked."""
    found: dict[str, Quantity] = {}
    for resource, value in written:
        try:
            found[sys.intern(resource)] = read(value if isinstance(value, str) else repr(value))
        except ValueError:
            continue
    return found


def _container(written: _Container) -> Container:
    resources = (
        None if written.resources is None else ResourceRequirements(_requests(written.resources.requests))
    )
    return Container(written.name, resources, written.restart_policy)


def key_of(written: WireSpec) -> bytes:
    """Return what is equal for equal specs: the JSON, or its digest where that is long."""
    text = msgspec.json.encode(written)
    return text if len(text) <= _KEY_BYTES else hashlib.sha256(text).digest()


def share(written: WireSpec, key: bytes) -> SharedSpec:
    """Return what pods with this spec share; `key` is that of `key_of`."""
    sidecars = [each for each in written.init_containers or () if each.restart_policy == "Always"]
    # of two ports of one name the first counts, as for a probe or a Service; init containers that have ended listen to nobody
    every = reversed([*(written.containers or ()), *sidecars])
    ports = {
        port.name: port.container_port
        for container in every
        for port in container.ports or ()
        if port.name and port.protocol == "TCP"
    }
    return SharedSpec(
        tuple(map(_container, written.containers or ())),
        tuple(map(_container, written.init_containers or ())),
        None if written.resources is None else _requests(written.resources.requests),
        _requests(written.overhead),
        written.host_network,
        ports,
        key,
    )


def build(pod: WirePod, namespace: str, labels: Mapping[str, str], spec: SharedSpec) -> WatchedPod:
    """Return the record of a pod; `namespace`, `labels` and `spec` are the ones it shares with others."""
    status = pod.status
    ready, since = None, _NEVER
    for condition in status.conditions or ():
        if condition.type == "Ready":
            ready, since = sys.intern(condition.status), _instant(condition.last_transition_time) or _NEVER
            break
    return WatchedPod(
        pod.name,
        sys.intern(status.phase),
        labels,
        pod.metadata.deletion_timestamp is not None,
        _instant(status.start_time),
        ready,
        since,
        spec.containers,
        spec.init_containers,
        spec.pod_requests,
        spec.overhead,
        namespace,
        status.pod_ip,
        spec,
    )
