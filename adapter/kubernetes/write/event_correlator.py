"""Which events are written, and as what: look-alikes are merged, repetitions counted, floods stopped. Pure.

What lives here: client-go's event correlator with its numbers, time as an argument. Not here: sending (`events`). The law, in this
order: ten texts within ten minutes that differ in nothing else become one "combined" event; the same event again raises the count of
the first; and of one object and type 25 events go at once, then one in five minutes.
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
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class EventRecord:
    """An event in the form of core/v1. Times are epoch seconds; they are written in whole ones."""

    name: str
    regarding: Regarding
    type: str
    reason: str
    message: str
    first: float
    last: float
    count: int = 1


class Correlated(NamedTuple):
    """What to do: nothing for `event` None; else create it, or patch the one of its name where `repeated`."""

    event: EventRecord | None
    repeated: bool = False


def first_record(regarding: Regarding, kind: str, reason: str, message: str, nanoseconds: int) -> EventRecord:
    """Return an event that happens at that many nanoseconds since 1970, which no other event of the object may share.

    Its name is the recorder's: the object's (cut where the whole would be too long), and the nanoseconds in hex.
    """
    name = f"{regarding.name[:_NAME_LENGTH].rstrip('-.')}.{nanoseconds:x}"
    wall = nanoseconds / 1e9
    return EventRecord(name, regarding, kind, reason, message, wall, wall)


_Key = tuple[str, ...]


@dataclass(slots=True)
class _Group:
    messages: set[str] = field(default_factory=set)
    last: float = float("-inf")


@dataclass(slots=True)
class _Bucket:
    tokens: float
    counted: float


class Correlator:
    """What has been seen of late, by the least recently used."""

    def __init__(self) -> None:
        self._groups: LRUCache[_Key, _Group] = LRUCache(REMEMBERED)
        self._seen: LRUCache[_Key, EventRecord] = LRUCache(REMEMBERED)
        self._buckets: LRUCache[_Key, _Bucket] = LRUCache(REMEMBERED)

    def correlate(self, event: EventRecord) -> Correlated:
        """Judge an event that happens at `event.last`."""
        merged, key = self._aggregate(event)
        before = self._seen.get(key)
        if before is not None:
            merged = replace(merged, name=before.name, first=before.first, count=before.count + 1)
        self._seen[key] = merged
        if not self._may_pass(merged):
            return Correlated(None)
        return Correlated(merged, repeated=merged.count > 1)

    def _aggregate(self, event: EventRecord) -> tuple[EventRecord, _Key]:
        """Return the event, or the combined one that stands for it, and under which key it is counted."""
        likeness = (*_about(event.regarding), event.type, event.reason)
        group = self._groups.get(likeness)
        if group is None or event.last - group.last > ALIKE_SECONDS:
            group = _Group()
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
    """Return epoch seconds as a Time of the API, which has whole seconds."""
    return dt.datetime.fromtimestamp(int(wall), dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
