"""The cache of the Leases of all scalers: which of them are members, and who owns which slice.

One watch shows both in the order in which they were written, and a scaler writes its own Lease before that of
a slice. So if the view has a slice whose owner is no member, the membership of the owner has ended. It
knows who owned a slice whose Lease was deleted, unless it had to list again.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.store import ObjectCache
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import ObjectCodec, PartialMetadata
from adapter.kubernetes.ownership.lease import LEASES, RELEASED, LeaseRecord, read_record
from adapter.kubernetes.ownership.term import Unchanged
from adapter.model.autoscaling import slices
from adapter.model.clock import Clock
from adapter.model.objects.label_selectors import parse_selector

LABEL = "fastpath.io/scaler"
"""The label of the Leases of scalers. Its value is the name that they have in common."""

LEAVING = "fastpath.io/leaving"
"""The label of the Lease of a member that ends soon: others take its slices then."""

POD = "fastpath.io/pod-uid"
"""The label of the Lease of a member with the uid of its Pod, where that is known."""

_SILENCE = 5.0
"""A watch without an event for this long is lost: it would show the renewals of this scaler's own Lease."""

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
        self._looks: dict[str, Unchanged] = {}
        """The versions of Leases, "" for one that does not exist."""
        self._is_listed = False
        self._batch: list[tuple[str, WatchedLease | None]] = []
        """The changes since the last batch of events, or list."""
        self.settled: dict[str, WatchedLease] = {}
        """The Leases after that. In the middle of a list that of a member may be newer than its slices."""
        self._former: dict[str, tuple[str, str | None]] = {}
        """The versions of slices whose Leases were deleted (""), or made, and the scalers that alone may own
        them.
        """
        periods = dataclasses.replace(
            watching.periods,
            silence=_SILENCE,
            backoff_limit=_BACKOFF_LIMIT,
            relist=_RELIST,
            answer=_ANSWER,
            consistent=True,
        )
        watching = dataclasses.replace(watching, periods=periods, scope=None)
        source = ListWatch(_CODEC, LEASES, namespace, parse_selector(f"{LABEL}={name}"))
        self.cache: ObjectCache[WatchedLease] = ObjectCache(
            source, watching, self._follow, listed=self._listed, batched=self._end_batch
        )

    def find(self, name: str) -> WatchedLease | None:
        return self.cache.find(self._namespace, name)

    def find_slice(self, number: int) -> WatchedLease | None:
        return self.find(slices.name_of(self._name, number))

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
        return self._remember(lease.name, lease.version)

    def _remember(self, name: str, version: str) -> str | None:
        known, former = self._former.get(name, ("", None))
        return former if known == version else None

    def look(self, name: str, version: str, gap: float = math.inf) -> float:
        """Note the version of a Lease, "" for none; return for how many seconds all looks have shown it."""
        return self._looks.setdefault(name, Unchanged(self._clock)).see(version, gap)

    def forget(self, name: str) -> None:
        """Forget all looks at a Lease."""
        self._looks.pop(name, None)

    def learn(self, lease: str, record: LeaseRecord, *, leaves: bool = False, pod: str = "") -> None:
        """Keep the record of a member's Lease. One that leaves does not come back."""
        known, now = self._members.get(lease), self._clock.monotonic()
        if not record.holder:
            self._members.pop(lease, None)
            return
        if known is None or known.record != record:
            if known is not None:
                leaves, pod = leaves or known.leaves, pod or known.pod
            self._members[lease] = Member(lease, record, now + record.duration, leaves, pod)

    def _follow(self, namespace: str, name: str) -> None:
        lease = self.cache.find(namespace, name)
        self._batch.append((name, lease))
        if slices.parse_name(self._name, name) is None:
            if lease is not None:
                self.learn(name, lease.record, leaves=lease.leaves, pod=lease.pod)
            else:
                self.forget(name)  # it may have been made again and deleted at once
        self.changed()

    def _end_batch(self) -> None:
        """Note the former owners of slices whose Leases were deleted, and of those that were made."""
        for name, lease in self._batch:
            before = self.settled.pop(name, None)
            if lease is not None:
                self.settled[name] = lease
            if slices.parse_name(self._name, name) is None:
                continue
            if before is None and lease is not None:
                self._former[name] = lease.version, self._remember(name, "")
            elif before is not None and lease is None:
                self._former[name] = "", self.find_former(before)
        self._batch.clear()

    def _listed(self) -> Iterator[None]:
        """Begin again: a list does not tell what was before it.

        If it is the first one, and names no scaler, no slice has an owner.
        """
        self._batch.clear()
        self.settled = {lease.name: lease for lease in self.cache}
        is_clean = not self._is_listed and not any(lease.record.holder for lease in self.cache)
        names = {slices.name_of(self._name, number) for number in range(slices.COUNT)} - self.settled.keys()
        kept = {name: known for name, known in self._former.items() if name in self.settled}
        self._former = kept | (dict.fromkeys(names, ("", "")) if is_clean else {})
        self._is_listed = True
        self.changed()
        yield
