"""The Lease of a leader election: its object at the API server.

The fields are those of ``coordination.k8s.io/v1``, used as client-go uses them. A replace names the version
that was read, and keeps everything in the object that we do not know (labels, owners, fields of newer
versions).
"""

import asyncio
import datetime as dt
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import msgspec

from adapter import errors
from adapter.kubernetes.client import KubernetesClient, path_of
from adapter.kubernetes.codec import PARTIAL_METADATA, UNREADABLE
from adapter.model.resources import APIResource

_LEASES = APIResource(
    "coordination.k8s.io", "v1", "leases", "lease", "Lease", True, frozenset(), preferred=True
)
_WATCH_SECONDS = 300.0
_SILENCE = _WATCH_SECONDS + 30.0


class LeaseRecord(msgspec.Struct, frozen=True):
    """The spec of a Lease, duration in seconds. The times are text because no clock is compared with them."""

    holder: str = msgspec.field(default="", name="holderIdentity")
    duration: int = msgspec.field(default=0, name="leaseDurationSeconds")
    acquired: str = msgspec.field(default="", name="acquireTime")
    renewed: str = msgspec.field(default="", name="renewTime")
    transitions: int = msgspec.field(default=0, name="leaseTransitions")


class Lease(NamedTuple):
    """A record with its object and the version to replace."""

    record: LeaseRecord
    version: str
    document: dict[str, Any]


class LeaseStore(Protocol):
    """The storage of one Lease. Errors are `errors.KubernetesError`, with status 409 for a lost race."""

    async def fetch(self, seconds: float) -> Lease | None:
        """Return the Lease, None if it does not exist."""

    async def create(self, record: LeaseRecord, seconds: float) -> Lease:
        """Create the Lease and return it."""

    async def replace(self, lease: Lease, record: LeaseRecord, seconds: float) -> Lease:
        """Replace the record of `lease`; return the new Lease."""

    async def watch(self, version: str, changed: Callable[[], None]) -> None:
        """Call `changed` whenever the Lease may have changed after `version`; return when the watch ends."""


class KubernetesLeases:
    """The Lease NAMESPACE/NAME of a cluster."""

    def __init__(self, client: KubernetesClient, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._path = path_of(_LEASES, namespace)

    async def fetch(self, seconds: float) -> Lease | None:
        """Return the Lease, None if it does not exist; takes at most `seconds`."""
        what = f"get lease {self._namespace}/{self._name}"
        try:
            async with asyncio.timeout(seconds):
                answer = await self._client.get(f"{self._path}/{self._name}")
        except TimeoutError as error:
            raise errors.KubernetesError(
                0, "Timeout", f"cannot {what}: no answer within {seconds:g} s"
            ) from error
        except errors.KubernetesError as error:
            if error.status == 404:
                return None
            raise
        return _decode(answer.content, what)

    async def create(self, record: LeaseRecord, seconds: float) -> Lease:
        """Create the Lease; status 409 (AlreadyExists) if it exists."""
        document = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": record,
        }
        content = msgspec.json.encode(document)
        answer = await self._client.write("POST", self._path, content, seconds=seconds, check=_unfenced)
        return _decode(answer.content, f"create lease {self._namespace}/{self._name}")

    async def replace(self, lease: Lease, record: LeaseRecord, seconds: float) -> Lease:
        """Replace the Lease in the version that was read; status 409 if that is not the current one."""
        spec = (lease.document.get("spec") or {}) | msgspec.to_builtins(record)
        content = msgspec.json.encode(lease.document | {"spec": spec})
        path = f"{self._path}/{self._name}"
        answer = await self._client.write("PUT", path, content, seconds=seconds, check=_unfenced)
        return _decode(answer.content, f"update lease {self._namespace}/{self._name}")

    async def watch(self, version: str, changed: Callable[[], None]) -> None:
        """Call `changed` at every event of the Lease, bookmarks included: these cost one read."""
        async with self._client.watch_objects(
            PARTIAL_METADATA,
            _LEASES,
            namespace=self._namespace,
            fields=f"metadata.name={self._name}",
            resource_version=version,
            duration=_WATCH_SECONDS,
            silence=_SILENCE,
        ) as events:
            async for _ in events:
                changed()


def micro_time(wall: float) -> str:
    """Return epoch seconds as a MicroTime of the API."""
    return dt.datetime.fromtimestamp(wall, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _decode(content: bytes, what: str) -> Lease:
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
        version = document["metadata"]["resourceVersion"]
        spec = {name: value for name, value in (document.get("spec") or {}).items() if value is not None}
        return Lease(msgspec.convert(spec, LeaseRecord), version, document)
    except (*UNREADABLE, KeyError, TypeError, AttributeError) as error:
        raise errors.KubernetesError(
            0, "Decode", f"cannot {what}: the response is not a Lease object"
        ) from error


def _unfenced() -> None:
    """Check nothing: writes of the Lease itself need no fence."""
