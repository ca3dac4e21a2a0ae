"""The Lease of a scaler or of a slice, and its object at the API server.

The fields are those of ``coordination.k8s.io/v1``, used as client-go uses them. A replace names the version
that was read, and keeps everything in the object that we do not know (labels, owners, fields of newer
versions).
"""

import asyncio
import datetime as dt
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from adapter import errors
from adapter.kubernetes.client import KubernetesClient, ResponseBody, path_of
from adapter.kubernetes.codec import UNREADABLE
from adapter.model.objects.resources import known_kind

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


def next_record(before: Lease | None, holder: str, duration: float, wall: float) -> LeaseRecord:
    """Return the record with which a Lease is taken. A renewal keeps acquireTime and leaseTransitions."""
    stamp = micro_time(wall)
    if before is None:
        return LeaseRecord(holder, int(duration), stamp, stamp, 0)
    if before.record.holder == holder:
        return LeaseRecord(holder, int(duration), before.record.acquired, stamp, before.record.transitions)
    return LeaseRecord(holder, int(duration), stamp, stamp, before.record.transitions + 1)


def unowned(duration: float, wall: float) -> LeaseRecord:
    """Return the record of a slice whose Lease is made: no holder, and maybe one that does not know of it."""
    stamp = micro_time(wall)
    return LeaseRecord("", max(RELEASED + 1, int(duration)), stamp, stamp, 0)


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
        self._new: dict[str, Any] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
        }

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

    async def write(self, before: Lease | None, record: LeaseRecord, seconds: float) -> Lease:
        """Replace the Lease in the version that was read, or make it; return the new one."""
        document = before.document if before is not None else self._new
        metadata = document["metadata"] | {"labels": _read_labels(document) | self.labels}
        spec = (document.get("spec") or {}) | msgspec.to_builtins(record)
        content = document | {"metadata": metadata, "spec": spec}
        if before is None:
            answer = await self._send("POST", self._path, content, seconds)
            return _decode(answer.content, f"create lease {self._namespace}/{self.name}")
        answer = await self._send("PUT", f"{self._path}/{self.name}", content, seconds)
        return _decode(answer.content, f"update lease {self._namespace}/{self.name}")

    async def clear(self, lease: Lease, wall: float, seconds: float) -> Lease:
        """Remove the holder in the version that was read, and as in client-go the duration."""
        stamp = micro_time(wall)
        record = LeaseRecord("", RELEASED, stamp, stamp, lease.record.transitions)
        return await self.write(lease, record, seconds)

    def has_labels(self, lease: Lease) -> bool:
        return self.labels.items() <= _read_labels(lease.document).items()

    async def delete(self, version: str, seconds: float) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"resourceVersion": version}}
        await self._send("DELETE", f"{self._path}/{self.name}", options, seconds)

    async def _send(
        self, method: Literal["POST", "PUT", "DELETE"], path: str, document: dict[str, Any], seconds: float
    ) -> ResponseBody:
        content = msgspec.json.encode(document)
        try:
            return await self._client.write(method, path, content, seconds=seconds, check=_check_nothing)
        except errors.KubernetesError as error:
            if error.status == 404 and method != "POST":  # it was deleted; on POST there is no such namespace
                raise errors.KubernetesError(409, error.reason, str(error)) from error
            raise


def micro_time(wall: float) -> str:
    """Return epoch seconds as a MicroTime of the API."""
    return dt.datetime.fromtimestamp(wall, dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def read_record(spec: Mapping[str, Any] | None) -> LeaseRecord:
    """Return the record of a spec, whose fields may be null. Raises an error of msgspec for anything else."""
    given = {name: value for name, value in (spec or {}).items() if value is not None}
    return msgspec.convert(given, LeaseRecord)


def _read_labels(document: dict[str, Any]) -> dict[str, str]:
    return document["metadata"].get("labels") or {}


def _decode(content: bytes, what: str) -> Lease:
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
        version = document["metadata"]["resourceVersion"]
        return Lease(read_record(document.get("spec")), version, document)
    except (*UNREADABLE, KeyError, TypeError, AttributeError) as error:
        raise errors.KubernetesError(
            0, "Decode", f"cannot {what}: the response is not a Lease object"
        ) from error


def _check_nothing() -> None:
    """Check nothing: writes of the Lease itself need no fence, as they name the version that was read."""
