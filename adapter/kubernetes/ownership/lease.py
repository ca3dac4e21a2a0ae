"""The Lease of a scaler or of a slice, its object at the API server, and the fence of its holder.

The fields are those of ``coordination.k8s.io/v1``, used as client-go uses them. A replace names the version
that was read, and keeps everything in the object that we do not know (labels, owners, fields of newer
versions).

The fence is the check before every write. It is open only while this process certainly holds its Lease. No
other process clears the Lease before its whole duration has passed since the last confirmed renewal was
*sent*. The fence closes earlier, at the renew deadline, counted from that same instant, and every write ends
by then. The time between deadline and duration covers what the network still delivers and clocks of unequal
speed. A closed fence never opens again. The next membership has its own, so nothing that is left over from a
former one can write in it.
"""

import asyncio
import datetime as dt
import math
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from adapter import errors
from adapter.kubernetes.client import KubernetesClient, path_of
from adapter.kubernetes.codec import UNREADABLE
from adapter.model.clock import Clock
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


# -- the fence -----------------------------------------------------------------------------------------------


class Fence(Protocol):
    """The check before a write."""

    def check(self) -> float:
        """Return how many seconds a write that starts now may take; raise `NotLeadingError` if none."""


class ClockReading(NamedTuple):
    """Both clocks at one instant."""

    monotonic: float
    wall: float


def read_clocks(clock: Clock) -> ClockReading:
    return ClockReading(clock.monotonic(), clock.wall())


class LeaseFence:
    """The fence of one membership. A renewal is valid for `hold` seconds.

    `tolerance` bounds the divergence of the two clocks.

    The monotonic clock stops while a machine is suspended, the wall clock does not. If they diverge by more
    than `tolerance`, the clock was set or the machine suspended, which closes the fence. Both can cancel out.
    """

    def __init__(self, clock: Clock, sent: ClockReading, *, hold: float, tolerance: float) -> None:
        self.sent = sent
        """When the last confirmed renewal was sent."""
        self._clock = clock
        self._hold = hold
        self._tolerance = tolerance
        self.closed = False

    def renewed(self, sent: ClockReading) -> None:
        """Record the time at which a confirmed renewal was sent."""
        if sent.monotonic > self.sent.monotonic:
            self.sent = sent

    def close(self) -> None:
        """End the membership: no writes from now on."""
        self.closed = True

    @property
    def due(self) -> float:
        """Seconds left for the next renewal, by the monotonic clock alone; 0 or less if none."""
        return self.sent.monotonic + self._hold - self._clock.monotonic()

    def left(self) -> float:
        """Return how many seconds a write that starts now may take, 0 for none."""
        now, sent = read_clocks(self._clock), self.sent
        parted = abs((now.wall - sent.wall) - (now.monotonic - sent.monotonic))
        if self.closed or parted > self._tolerance:
            return 0.0
        return max(0.0, sent.monotonic + self._hold - now.monotonic)

    def check(self) -> float:
        """Return `left()`; raise `NotLeadingError` if it is 0."""
        left = self.left()
        if left > 0:
            return left
        if self.closed:
            why = "the lease is no longer held"
        elif self.due > 0:
            why = "the clock has jumped since the lease was last renewed"
        else:
            why = "the lease was not renewed in time"
        raise errors.NotLeadingError(why)


class SliceFence:
    """The fence of a slice: open until the slice is given up, while that of its owner is.

    If the owner's view of the Leases is old (`sight`), that of the slice may have been deleted.
    """

    def __init__(self, owner: Fence, sight: LeaseFence) -> None:
        self._owner = owner
        self._sight = sight
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def sees(self, since: float) -> bool:
        """Whether the view shows a renewal that was sent after this time, and so what was written before."""
        return self._sight.sent.monotonic > since

    def check(self) -> float:
        if self.closed:
            raise errors.NotLeadingError("the slice belongs to another scaler")
        return min(self._owner.check(), self._sight.check())


class Unfenced:
    """The fence of a scaler without Leases: always open."""

    def check(self) -> float:
        return math.inf
