"""client-go's event correlator as a pure function of its history.

Merge similar events, count repetitions, limit the rate.

In this order, with client-go's numbers: ten messages within ten minutes that differ in nothing else become
one "combined" event; a repeated event raises the count of the first one; and of one object and type 25 events
pass at once, then one in five minutes.
"""

import datetime as dt
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cachetools import LRUCache

REMEMBERED = 4096
ALIKE = 10
ALIKE_SECONDS = 600.0
BURST = 25.0
REFILL = 1 / 300
_NAME_LENGTH = 253 - 17
COMBINED = "(combined from similar events): "


class Regarding(NamedTuple):
    """The involved object of an event."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event of core/v1. Times are epoch seconds, written as whole seconds."""

    name: str
    regarding: Regarding
    type: str
    reason: str
    message: str
    first: float
    last: float
    count: int = 1


class Correlated(NamedTuple):
    """The result: drop (`event` None), create, or if `repeated` patch the event of that name."""

    event: EventRecord | None
    repeated: bool = False


def first_record(regarding: Regarding, kind: str, reason: str, message: str, nanoseconds: int) -> EventRecord:
    """Build an event at a time in nanoseconds since 1970, which must be unique for the object.

    As in client-go's recorder the name is that of the object, cut if necessary, and the time in hex.
    """
    name = f"{regarding.name[:_NAME_LENGTH].rstrip('-.')}.{nanoseconds:x}"
    wall = nanoseconds / 1e9
    return EventRecord(name, regarding, kind, reason, message, wall, wall)


_Key = tuple[str, ...]


@dataclass(slots=True)
class _EventGroup:
    messages: set[str] = field(default_factory=set)
    last: float = float("-inf")


@dataclass(slots=True)
class _Bucket:
    tokens: float
    counted: float


class Correlator:
    """The recent events, in LRU caches."""

    def __init__(self) -> None:
        self._groups: LRUCache[_Key, _EventGroup] = LRUCache(REMEMBERED)
        self._seen: LRUCache[_Key, EventRecord] = LRUCache(REMEMBERED)
        self._buckets: LRUCache[_Key, _Bucket] = LRUCache(REMEMBERED)

    def correlate(self, event: EventRecord) -> Correlated:
        """Correlate an event with the history, at `event.last`."""
        merged, key = self._aggregate(event)
        before = self._seen.get(key)
        if before is not None:
            merged = replace(merged, name=before.name, first=before.first, count=before.count + 1)
        self._seen[key] = merged
        if not self._may_pass(merged):
            return Correlated(None)
        return Correlated(merged, repeated=merged.count > 1)

    def _aggregate(self, event: EventRecord) -> tuple[EventRecord, _Key]:
        """Return the event, or the combined one that replaces it, and the key under which it is counted."""
        likeness = (*_about(event.regarding), event.type, event.reason)
        group = self._groups.get(likeness)
        if group is None or event.last - group.last > ALIKE_SECONDS:
            group = _EventGroup()
        group.messages.add(event.message)
        group.last = event.last
        self._groups[likeness] = group
        if len(group.messages) < ALIKE:
            return event, (*likeness, event.message)
        group.messages.pop()
        return replace(event, message=COMBINED + event.message, first=event.last, count=1), likeness

    def _may_pass(self, event: EventRecord) -> bool:
        key = (*_about(event.regarding), event.type)
        now = event.last
        bucket = self._buckets.get(key) or _Bucket(BURST, now)
        bucket.tokens = min(BURST, bucket.tokens + max(0.0, now - bucket.counted) * REFILL)
        bucket.counted = now
        self._buckets[key] = bucket
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _about(regarding: Regarding) -> _Key:
    return regarding.api_version, regarding.kind, regarding.namespace, regarding.name, regarding.uid


def timestamp(wall: float) -> str:
    """Format epoch seconds as a Time of the API."""
    return dt.datetime.fromtimestamp(int(wall), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
