"""The cache of the Leases of all scalers: which of them are members, and who owns which slice.

One watch shows both in the order in which they were written, and a scaler writes its own Lease before that of
a slice. So if the view has a slice whose owner is no member, the membership of the owner has ended. It
knows who owned a slice whose Lease was deleted, unless it had to list again.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.store import ObjectCache
from adapter.kubernetes.codec import ObjectCodec, PartialMetadata
from adapter.kubernetes.ownership.lease import LEASES, RELEASED, LeaseRecord, read_record
from adapter.model.autoscaling import slices
from adapter.model.clock import Clock
from adapter.model.label_selectors import parse_selector

LABEL = "fastpath.io/scaler"
"""The label of the Leases of scalers. Its value is the name that they have in common."""

LEAVING = "fastpath.io/leaving"
"""The label of the Lease of a member that ends soon: others take its slices then."""

POD = "fastpath.io/pod-uid"
"""The label of the Lease of a member with the uid of its Pod, where that is known."""

_SILENCE = 5.0
"""A watch without an event for this long is lost: it would show the renewals of this scaler's own Lease."""

_REMEMBERED = 3600.0
"""For how many seconds a deletion is remembered: no Lease has a longer duration."""

_BACKOFF_LIMIT = 1.0
"""The longest pause after a failure, without jitter: a scaler that cannot see takes nothing."""

_RELIST = 2.0
"""Interval between lists where Leases cannot be watched: what a member does not see for 10 s, it gives up."""

_ANSWER = 4.0
"""How long the API server may take for a list, which is short."""


class WatchedLease(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    version: str
    record: LeaseRecord
    leaves: bool = False
    pod: str = ""


class _Document(msgspec.Struct, frozen=True):
    metadata: PartialMetadata = PartialMetadata()
    spec: dict[str, Any] | None = None


def _keep(document: _Document) -> WatchedLease:
    meta, labels = document.metadata, document.metadata.labels or {}
    record, leaves, pod = read_record(document.spec), LEAVING in labels, labels.get(POD, "")
    return WatchedLease(meta.namespace, meta.name, meta.resource_version, record, leaves, pod)


_CODEC = ObjectCodec(_Document, _keep)


class Member(NamedTuple):
    """The Lease of a scaler as it was last seen. It `expires` if it does not change until then."""

    lease: str
    record: LeaseRecord
    expires: float
    leaves: bool = False
    pod: str = ""


class LeaseView:
    """The Leases of the scalers with a common `name`. `changed` is called after each change."""

    def __init__(self, watching: ReflectorContext, namespace: str, name: str) -> None:
        self.changed: Callable[[], None] = lambda: None
        self._clock: Clock = watching.clock
        self._namespace = namespace
        self._name = name
        self._members: dict[str, Member] = {}
        self._ended: dict[str, float] = {}
        """Since when members have no holder, by their Leases."""
        self.removed: dict[str, float] = {}
        """When Leases of members were last deleted: one may have been made again and deleted at once."""
        self.settled: dict[str, WatchedLease | None] = {}
        """The Leases of members after the last batch of events, or list.

        In the middle of a list that of a member may be newer than those of its slices.
        """
        self._is_listed = False
        self._batch: list[tuple[str, WatchedLease | None]] = []
        """The changes of slices since the last batch of events, or list."""
        self._slices: dict[str, WatchedLease] = {}
        """The Leases of slices after that."""
        self._former: dict[str, str | None] = {}
        """The scalers that alone may own slices whose Leases do not exist."""
        self._made: dict[str, tuple[str, str | None]] = {}
        """The first versions of Leases that were made, and the scalers that alone may own these slices."""
        periods = dataclasses.replace(
            watching.periods,
            silence=_SILENCE,
            backoff_limit=_BACKOFF_LIMIT,
            relist=_RELIST,
            answer=_ANSWER,
            consistent=True,
        )
        watching = dataclasses.replace(watching, periods=periods, scope=None)
        self.cache: ObjectCache[WatchedLease] = ObjectCache(
            watching, self._follow, listed=self._listed, batched=self._end_batch
        )
        self.cache.reflect(_CODEC, LEASES, namespace, selector=parse_selector(f"{LABEL}={name}"))

    def find(self, name: str) -> WatchedLease | None:
        return self.cache.find(self._namespace, name)

    def find_slice(self, number: int) -> WatchedLease | None:
        return self.find(slices.name_of(self._name, number))

    def slices(self) -> Iterator[WatchedLease]:
        return filter(None, map(self.find_slice, range(slices.COUNT)))

    def members(self) -> Iterator[Member]:
        """Yield the members, those that are late too. One whose Lease was deleted is one until it is late."""
        now = self._clock.monotonic()
        for lease, member in list(self._members.items()):
            if member.expires <= now and self.find(lease) is None:
                del self._members[lease]
            else:
                yield member

    def find_former(self, lease: WatchedLease) -> str | None:
        """Return which scaler alone may own a slice, "" for none; None if that is not known.

        A Lease that was made has no holder. The slice may be that of the one who held the Lease of before.
        """
        record = lease.record
        if record.holder or record.duration <= RELEASED:
            return record.holder
        version, former = self._made.get(lease.name, ("", None))
        return former if version == lease.version else None

    def learn(self, lease: str, record: LeaseRecord, *, leaves: bool = False, pod: str = "") -> None:
        """Keep the record of a member's Lease. One that leaves does not come back."""
        known, now = self._members.get(lease), self._clock.monotonic()
        if not record.holder:
            self._members.pop(lease, None)
            self._ended.setdefault(lease, now)
            return
        self._ended.pop(lease, None)
        if known is None or known.record != record:
            if known is not None:
                leaves, pod = leaves or known.leaves, pod or known.pod
            self._members[lease] = Member(lease, record, now + record.duration, leaves, pod)

    def ended(self, seconds: float) -> Iterator[WatchedLease]:
        """Yield the Leases of members that have had no holder for so long."""
        latest = self._clock.monotonic() - seconds
        for name in [name for name, since in self._ended.items() if since <= latest]:
            self._ended[name] = self._clock.monotonic()  # if it is not deleted then, in a while
            if (lease := self.find(name)) is not None:
                yield lease

    def _follow(self, namespace: str, name: str) -> None:
        lease = self.cache.find(namespace, name)
        is_slice = slices.parse_name(self._name, name) is not None
        if is_slice:
            self._batch.append((name, lease))
        elif lease is not None:
            self.learn(name, lease.record, leaves=lease.leaves, pod=lease.pod)
        else:
            now = self._clock.monotonic()
            self.removed = {one: at for one, at in self.removed.items() if at > now - _REMEMBERED} | {
                name: now
            }
            self._ended.pop(name, None)
        self.changed()

    def _end_batch(self) -> None:
        """Note the former owners of slices whose Leases were deleted, and of those that were made."""
        for name, lease in self._batch:
            before = self._slices.pop(name, None)
            if lease is not None:
                self._slices[name] = lease
            if before is None and lease is not None:
                self._made[name] = lease.version, self._former.pop(name, None)
            elif before is not None and lease is None:
                self._former[name] = self.find_former(before)
        self._batch.clear()
        self._settle()

    def _settle(self) -> None:
        self.settled = {name: self.find(name) for name in self._members}

    def _listed(self) -> Iterator[None]:
        """Begin again: a list does not tell what was before it.

        If it is the first one, and names no scaler, no slice has an owner.
        """
        self._batch.clear()
        self._slices = {lease.name: lease for lease in self.slices()}
        is_clean = not self._is_listed and not any(lease.record.holder for lease in self.cache)
        names = {slices.name_of(self._name, number) for number in range(slices.COUNT)}
        self._former = dict.fromkeys(names - self._slices.keys(), "") if is_clean else {}
        self._is_listed = True
        self._settle()
        self.changed()
        yield
