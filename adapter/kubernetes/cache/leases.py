"""The cache of the Leases of all scalers: which of them are members, and who owns which slice.

One watch shows both in the order in which they were written, and a scaler writes its own Lease before that of
a slice. So if the view has a slice whose owner is no member, the membership of the owner has ended.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.store import ObjectCache
from adapter.kubernetes.codec import ObjectCodec
from adapter.kubernetes.lease import LEASES, LeaseRecord, read_record
from adapter.model.autoscaling import slices
from adapter.model.clock import Clock
from adapter.model.label_selectors import parse_selector

LABEL = "fastpath.io/scaler"
"""The label of the Leases of scalers. Its value is the name that they have in common."""


class WatchedLease(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    version: str
    record: LeaseRecord


class _LeaseMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Document(msgspec.Struct, frozen=True):
    metadata: _LeaseMetadata = _LeaseMetadata()
    spec: dict[str, Any] | None = None


def _keep(document: _Document) -> WatchedLease:
    meta = document.metadata
    return WatchedLease(meta.namespace, meta.name, meta.resource_version, read_record(document.spec))


_CODEC = ObjectCodec(_Document, _keep)


class Member(NamedTuple):
    """The Lease of a scaler as it was last seen. It `expires` if it does not change until then."""

    lease: str
    record: LeaseRecord
    expires: float


class LeaseView:
    """The Leases of the scalers with a common `name`. `changed` is called after each change."""

    def __init__(self, watching: ReflectorContext, namespace: str, name: str) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._clock: Clock = watching.clock
        self._namespace = namespace
        self._name = name
        self._members: dict[str, Member] = {}
        self.cache: ObjectCache[WatchedLease] = ObjectCache(watching, self._follow)
        self.cache.reflect(_CODEC, LEASES, [namespace], selector=parse_selector(f"{LABEL}={name}"))

    def find_slice(self, number: int) -> WatchedLease | None:
        return self.cache.find(self._namespace, slices.name_of(self._name, number))

    def members(self) -> Iterator[Member]:
        """Yield the members, those that are late too. One whose Lease was deleted is one until it is late."""
        now = self._clock.monotonic()
        for lease, member in list(self._members.items()):
            if member.expires <= now and self.cache.find(self._namespace, lease) is None:
                del self._members[lease]
            else:
                yield member

    def _follow(self, namespace: str, name: str) -> None:
        lease = self.cache.find(namespace, name)
        if lease is not None and slices.number_of(self._name, name) is None:
            known, record = self._members.get(name), lease.record
            if not record.holder:
                self._members.pop(name, None)
            elif known is None or known.record != record:
                self._members[name] = Member(name, record, self._clock.monotonic() + record.duration)
        self.changed()
