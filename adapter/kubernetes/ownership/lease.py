"""The Lease of a scaler or of a slice, and its object at the API server.

The fields are those of ``coordination.k8s.io/v1``, used as client-go uses them. A replace names the version
that was read, and keeps everything in the object that we do not know (labels, owners, fields of newer
versions).
"""

import asyncio
import datetime as dt
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from adapter import errors
from adapter.kubernetes.client import KubernetesClient, path_of
from adapter.kubernetes.codec import UNREADABLE
from adapter.model.resources import known_kind

LEASES = known_kind("coordination.k8s.io/v1", "Lease")


class LeaseRecord(msgspec.Struct, frozen=True):
    """The spec of a Lease, duration in seconds. The times are text because no clock is compared with them."""

    holder: str = msgspec.field(default="", name="holderIdentity")
    duration: int = msgspec.field(default=0, name="leaseDurationSeconds")
    acquired: str = msgspec.field(default="", name="acquireTime")
    renewed: str = msgspec.field(default="", name="renewTime")
    transitions: int = msgspec.field(default=0, name="leaseTransitions")


RELEASED = 1
"""The duration of a Lease that was released, as in client-go."""


class Lease(NamedTuple):
    """A record with its object and the version to replace."""

    record: LeaseRecord
    version: str
    document: dict[str, Any]


class KubernetesLeases:
    """The Lease NAMESPACE/NAME of a cluster. Errors are `errors.KubernetesError`, 409 for a lost race.

    One that is written has the `labels`.
    """

    def __init__(
        self, client: KubernetesClient, namespace: str, name: str, labels: Mapping[str, str] | None = None
    ) -> None:
        self._client = client
        self._namespace = namespace
        self.name = name
        self.labels = dict(labels or {})
        self._path = path_of(LEASES, namespace)

    async def fetch(self, seconds: float) -> Lease | None:
        """Return the Lease, None if it does not exist; takes at most `seconds`."""
        what = f"get lease {self._namespace}/{self.name}"
        try:
            async with asyncio.timeout(seconds):
                answer = await self._client.get(f"{self._path}/{self.name}")
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
        document = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": self._namespace, "labels": self.labels},
            "spec": record,
        }
        content = msgspec.json.encode(document)
        answer = await self._client.write("POST", self._path, content, seconds=seconds, check=_unfenced)
        return _decode(answer.content, f"create lease {self._namespace}/{self.name}")

    async def replace(self, lease: Lease, record: LeaseRecord, seconds: float) -> Lease:
        """Replace the record of a Lease in the version that was read; return the new Lease."""
        spec = (lease.document.get("spec") or {}) | msgspec.to_builtins(record)
        metadata = lease.document["metadata"] | {"labels": _read_labels(lease) | self.labels}
        content = msgspec.json.encode(lease.document | {"metadata": metadata, "spec": spec})
        path = f"{self._path}/{self.name}"
        answer = await self._client.write("PUT", path, content, seconds=seconds, check=_unfenced)
        return _decode(answer.content, f"update lease {self._namespace}/{self.name}")

    def has_labels(self, lease: Lease) -> bool:
        return self.labels.items() <= _read_labels(lease).items()

    async def delete(self, version: str, seconds: float) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": version}}
        path, content = f"{self._path}/{self.name}", msgspec.json.encode(options)
        await self._client.write("DELETE", path, content, seconds=seconds, check=_unfenced)


def micro_time(wall: float) -> str:
    """Return epoch seconds as a MicroTime of the API."""
    return dt.datetime.fromtimestamp(wall, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_record(spec: Mapping[str, Any] | None) -> LeaseRecord:
    """Return the record of a spec, whose fields may be null. Raises an error of msgspec for anything else."""
    given = {name: value for name, value in (spec or {}).items() if value is not None}
    return msgspec.convert(given, LeaseRecord)


def _read_labels(lease: Lease) -> dict[str, str]:
    return lease.document["metadata"].get("labels") or {}


def _decode(content: bytes, what: str) -> Lease:
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
        version = document["metadata"]["resourceVersion"]
        return Lease(read_record(document.get("spec")), version, document)
    except (*UNREADABLE, KeyError, TypeError, AttributeError) as error:
        raise errors.KubernetesError(
            0, "Decode", f"cannot {what}: the response is not a Lease object"
        ) from error


def _unfenced() -> None:
    """Check nothing: writes of the Lease itself need no fence."""
