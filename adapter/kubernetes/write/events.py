"""Records events of core/v1 about autoscalers, as client-go's recorder does for the HPA controller.

`Correlator` is client-go's event correlator as a pure function of its history, with client-go's numbers. Ten
messages within ten minutes that differ in nothing else become one "combined" event. A repeated event raises
the count of the first one. Of one object and type 25 events pass at once, then one in five minutes.

`EventOutlet` never waits and never fails. Events wait while the API server cannot be reached; what cannot be
written is lost and counted. Events of one object keep their order. When `QUEUED` events wait, the namespace
with the most of them loses one, so a tenant with many autoscalers does not displace the events of others.
"""

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
from cachetools import LRUCache

from adapter import errors
from adapter.kubernetes.write.outbox import Outbox, OutboxKey, Outlet, SendTime
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.timestamps import SECOND, write_instant
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

REMEMBERED = 4096
ALIKE = 10
ALIKE_SECONDS = 600.0
BURST = 25.0
REFILL = 1 / 300
COMBINED = "(combined from similar events): "
_NAME_LENGTH = 253 - 17  # leaves room for the dot and the time in hex

COMPONENT = "fastpath"
"""``source.component`` of our events, which `kubectl describe` shows."""

AT_ONCE = 8
"""The number of events that a process writes at once."""

QUEUED = 1000
TRIES = 12
RETRY = 10.0
FAULT = "event-write"
_MERGE = "application/merge-patch+json"
_MESSAGE_LENGTH = 1024
_Key = tuple[str, ...]


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


def first_record(regarding: Regarding, kind: str, reason: str, message: str, nanoseconds: int) -> EventRecord:
    """Build an event at a time in nanoseconds since 1970, which must be unique for the object.

    As in client-go's recorder the name is that of the object, cut if necessary, and the time in hex.
    """
    name = f"{regarding.name[:_NAME_LENGTH].rstrip('-.')}.{nanoseconds:x}"
    wall = nanoseconds / 1e9
    return EventRecord(name, regarding, kind, reason, message, wall, wall)


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

    def correlate(self, event: EventRecord) -> EventRecord | None:
        """Return the event to create, or to patch if its count is not 1; None to drop it."""
        merged, key = self._aggregate(event)
        before = self._seen.get(key)
        if before is not None:
            merged = replace(merged, name=before.name, first=before.first, count=before.count + 1)
        self._seen[key] = merged
        return merged if self._may_pass(merged) else None

    def _aggregate(self, event: EventRecord) -> tuple[EventRecord, _Key]:
        """Return the event, or the combined one that replaces it, and the key under which it is counted."""
        likeness = (*_identity(event), event.reason)
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
        key, now = _identity(event), event.last
        bucket = self._buckets.get(key) or _Bucket(BURST, now)
        bucket.tokens = min(BURST, bucket.tokens + max(0.0, now - bucket.counted) * REFILL)
        bucket.counted = now
        self._buckets[key] = bucket
        if bucket.tokens < 1:
            return False
        bucket.tokens -= 1
        return True


def _identity(event: EventRecord) -> _Key:
    """Return the involved object without its version, and the type of the event."""
    return (*event.regarding._replace(resource_version=""), event.type)


@dataclass(slots=True, eq=False)
class ObjectEvents:
    """The events of one object, in their order."""

    namespace: str
    waiting: deque[EventRecord]
    current: EventRecord | None = None
    """The one that is being written, as the correlator made it."""


class EventOutlet(Outlet[ObjectEvents]):
    """Records events."""

    kind = WriteKind.EVENT
    unexpected = "unexpected error while writing an event"
    at_once = AT_ONCE

    def __init__(
        self, outbox: Outbox, random: Callable[[], float], monitoring: Monitoring, problems: ProblemLog
    ) -> None:
        super().__init__(outbox)
        self._random = random
        self._monitoring = monitoring
        self._problems = problems
        self._correlator = Correlator()
        self._counts: Counter[str] = Counter()
        """The events that wait, by namespace."""
        self._stamp = 0

    def record(self, regarding: Regarding, kind: str, reason: str, message: str) -> None:
        """Record an event of `kind` Normal or Warning. A message longer than the API allows is cut."""
        namespace = regarding.namespace
        if not self._has_room(namespace):
            self._lose("queue")
            return
        self._counts[namespace] += 1
        self._stamp = max(self._stamp + 1, round(self.outbox.clock.wall() * 1e9))
        event = first_record(regarding, kind, reason, message[:_MESSAGE_LENGTH], self._stamp)
        key = OutboxKey(namespace, (regarding.kind, regarding.name, regarding.uid))
        self.submit(key, ObjectEvents(namespace, deque([event])))

    def _has_room(self, namespace: str) -> bool:
        """Tell whether one more event of a namespace may wait.

        Without room the namespace with the most events loses its latest one.
        """
        if self._counts.total() < QUEUED:
            return True
        ((largest, count),) = self._counts.most_common(1)
        if count <= self._counts[namespace] + 1:
            return False
        theirs = (one for one in self.values() if one.namespace == largest and one.waiting)
        latest = max(theirs, key=lambda one: one.waiting[-1].first)
        latest.waiting.pop()
        self._count_off(largest)
        self._lose("queue")
        return True

    def _count_off(self, namespace: str) -> None:
        self._counts[namespace] -= 1
        if not self._counts[namespace]:
            del self._counts[namespace]

    def merge(self, before: ObjectEvents, new: ObjectEvents) -> ObjectEvents:
        before.waiting.extend(new.waiting)
        return before

    def due(self, value: ObjectEvents, now: float) -> SendTime | None:
        return SendTime(now) if value.waiting or value.current else None

    def ends(self, value: ObjectEvents) -> bool:
        return bool(value.waiting or value.current)

    def size(self, value: ObjectEvents) -> int:
        return len(value.waiting) + (value.current is not None)

    async def send(self, value: ObjectEvents, writer: Writer) -> None:
        """Write the next event of an object. It stays the next one until it is written or lost."""
        while value.current is None and value.waiting:
            event = value.waiting.popleft()
            self._count_off(value.namespace)
            value.current = self._correlator.correlate(event)
            if value.current is None:
                self._lose("spam")
        if value.current is None:
            writer.give_back()
            return
        await self._write(value.current, writer)
        value.current = None
        self._problems.resolve(FAULT)

    def failed(self, value: ObjectEvents, error: Exception, tries: int) -> float | None:
        """Lose an event that is refused, or failed too often; else try it again, as client-go does."""
        lost = "refused"
        if isinstance(error, errors.NotLeadingError):
            lost = "fenced"
        elif not isinstance(error, errors.KubernetesError):
            lost = "unexpected"
        elif error.status and error.status != 429 and error.status < 500:
            # An event that exists, or a terminating namespace, is not a problem.
            if error.status not in {404, 409} and "because it is being terminated" not in str(error):
                self._problems.report(FAULT, "an event was refused", str(error))
        else:
            self._problems.report(FAULT, "an event could not be written", str(error))
            if tries < TRIES:
                return RETRY * (self._random() if tries == 1 else 1)
        value.current = None
        self._lose(lost)
        return None

    def dropped(self, value: ObjectEvents) -> None:
        for _ in range(len(value.waiting)):
            self._count_off(value.namespace)
            self._lose("fenced")
        if value.current is not None:
            self._lose("fenced")
        value.waiting.clear()
        value.current = None
        self._problems.resolve(FAULT)

    async def _write(self, event: EventRecord, writer: Writer) -> None:
        events = f"/api/v1/namespaces/{event.regarding.namespace}/events"
        if event.count > 1:
            changed = {
                "count": event.count,
                "lastTimestamp": write_instant(int(event.last) * SECOND),
                "message": event.message,
            }
            content = msgspec.json.encode(changed)
            try:
                await writer.send(
                    WriteKind.EVENT, "PATCH", f"{events}/{event.name}", content, content_type=_MERGE
                )
            except errors.KubernetesError as error:
                if error.status != 404:  # 404: the event expired; create it again
                    raise
                await writer.acquire(WriteKind.EVENT)
            else:
                return
        await writer.send(WriteKind.EVENT, "POST", events, msgspec.json.encode(_document(event)))

    def _lose(self, reason: str) -> None:
        self._monitoring.events_dropped.labels(reason).inc()


def _document(event: EventRecord) -> dict[str, object]:
    regarding = event.regarding
    involved = {
        "kind": regarding.kind,
        "namespace": regarding.namespace,
        "name": regarding.name,
        "uid": regarding.uid,
        "apiVersion": regarding.api_version,
        "resourceVersion": regarding.resource_version,
    }
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {"name": event.name, "namespace": regarding.namespace},
        "involvedObject": {name: value for name, value in involved.items() if value},
        "reason": event.reason,
        "message": event.message,
        "source": {"component": COMPONENT},
        "firstTimestamp": write_instant(int(event.first) * SECOND),
        "lastTimestamp": write_instant(int(event.last) * SECOND),
        "count": event.count,
        "type": event.type,
        "eventTime": None,
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
    }
