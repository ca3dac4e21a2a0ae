"""Records events of core/v1 about autoscalers, as client-go's recorder does for the HPA controller.

`Correlator` is client-go's event correlator as a pure function of its history, with client-go's numbers. Ten
messages within ten minutes that differ in nothing else become one "combined" event. A repeated event raises
the count of the first one. Of one object and type 25 events pass at once, then one in five minutes.

`EventRecorder` never waits and never fails. Events wait in a queue while the API server cannot be reached;
what cannot be written is dropped and counted. Events of one object keep their order. Namespaces take turns
(`model.fairness`). The recorders of a process, one for each slice, share an `EventBacklog`: when that is
full, the namespace with the most events loses one, so a tenant with many autoscalers does not displace the
events of others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import msgspec
from cachetools import LRUCache

from adapter import errors
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.clock import Clock
from adapter.model.fairness import Turns
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


class EventBacklog:
    """What the recorders of a process share: room for `QUEUED` events, and the memory of recent ones."""

    def __init__(self, monitoring: Monitoring) -> None:
        self.correlator = Correlator()
        self._counts: Counter[str] = Counter()
        monitoring.write_queue.labels(WriteKind.EVENT.label).set_function(self._counts.total)
        self._recorders: dict[str, EventRecorder] = {}

    def add(self, namespace: str, recorder: "EventRecorder") -> bool:
        """Count one more event of a namespace; tell whether there is room for it.

        Without room the namespace with the most events loses its latest one.
        """
        if self._counts.total() >= QUEUED:
            ((largest, count),) = self._counts.most_common(1)
            if count <= self._counts[namespace] + 1:
                return False
            self._recorders[largest].drop_latest(largest)
        self._counts[namespace] += 1
        self._recorders[namespace] = recorder
        return True

    def remove(self, namespace: str) -> None:
        self._counts[namespace] -= 1
        if not self._counts[namespace]:
            del self._counts[namespace], self._recorders[namespace]


class EventRecorder:
    """Records events; `run` writes them through the `Writer` of one term, until `drain`."""

    def __init__(
        self,
        writer: Writer,
        clock: Clock,
        random: Callable[[], float],
        monitoring: Monitoring,
        problems: ProblemLog,
        backlog: EventBacklog,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._random = random
        self._monitoring = monitoring
        self._problems = problems
        self._backlog = backlog
        self._queue: Turns[EventRecord] = Turns()
        self._next: EventRecord | None = None
        """The event that is being written, which no longer waits."""
        self._stamp = 0
        self._wake = asyncio.Event()

    def record(self, regarding: Regarding, kind: str, reason: str, message: str) -> None:
        """Record an event of `kind` Normal or Warning. A message longer than the API allows is cut."""
        if not self._backlog.add(regarding.namespace, self):
            self._drop("queue")
            return
        text = message[:_MESSAGE_LENGTH]
        self._stamp = max(self._stamp + 1, round(self._clock.wall() * 1e9))
        owner = (regarding.kind, regarding.name, regarding.uid)
        event = first_record(regarding, kind, reason, text, self._stamp)
        self._queue.add(regarding.namespace, owner, event)
        self._wake.set()

    def drop_latest(self, namespace: str) -> None:
        """Drop the latest event of a namespace, to make room for one of another."""
        *_, latest = (item for item in self._queue if item[0] == namespace)
        self._remove(*latest)
        self._drop("queue")

    async def run(self) -> None:
        while True:
            while not self._is_pending:
                self._wake.clear()
                await self._wake.wait()
            await self._record_next()

    async def drain(self, seconds: float) -> None:
        """Write the recorded events within `seconds`, at the orderly end of a term. The rest is dropped."""
        try:
            async with asyncio.timeout(seconds):
                while self._is_pending:
                    await self._record_next()
        except TimeoutError:
            pass
        finally:
            if self._next is not None:
                self._drop("fenced")
            for item in tuple(self._queue):
                self._remove(*item)
                self._drop("fenced")
            self._next = None
            self._problems.resolve(FAULT)

    @property
    def _is_pending(self) -> bool:
        return bool(self._queue) or self._next is not None

    def _remove(self, namespace: str, owner: Hashable, event: EventRecord) -> None:
        self._queue.discard(namespace, owner, event)
        self._backlog.remove(namespace)

    async def _record_next(self) -> None:
        """Write the next event of the queue. It stays the next one until it is written or dropped."""
        try:
            if self._next is None:
                namespace, owner, event = self._queue.next()
                self._remove(namespace, owner, event)
                self._next = self._backlog.correlator.correlate(event)
                if self._next is None:
                    self._drop("spam")
                    return
            await self._send(self._next)
        except Exception as error:  # noqa: BLE001 - the event is dropped, and the next ones are written
            self._drop("unexpected")
            self._problems.defects.note("unexpected error while writing an event", error)
        self._next = None

    async def _send(self, event: EventRecord) -> None:
        for tries in range(TRIES):
            if tries:
                await asyncio.sleep(RETRY * (self._random() if tries == 1 else 1))
            try:
                await self._writer.acquire(WriteKind.EVENT)
                await self._write(event)
            except errors.NotLeadingError:
                self._drop("fenced")
                return
            except errors.KubernetesError as error:
                if error.status and error.status != 429 and error.status < 500:
                    # An event that exists, or a terminating namespace, is not a problem.
                    if error.status not in {404, 409} and "because it is being terminated" not in str(error):
                        self._problems.report(FAULT, "an event was refused", str(error))
                    self._drop("refused")
                    return
                self._problems.report(FAULT, "an event could not be written", str(error))
            else:
                self._problems.resolve(FAULT)
                return
        self._drop("refused")

    async def _write(self, event: EventRecord) -> None:
        events = f"/api/v1/namespaces/{event.regarding.namespace}/events"
        if event.count > 1:
            changed = {
                "count": event.count,
                "lastTimestamp": write_instant(int(event.last) * SECOND),
                "message": event.message,
            }
            content = msgspec.json.encode(changed)
            try:
                await self._writer.send(
                    WriteKind.EVENT, "PATCH", f"{events}/{event.name}", content, content_type=_MERGE
                )
            except errors.KubernetesError as error:
                if error.status != 404:  # 404: the event expired; create it again
                    raise
                await self._writer.acquire(WriteKind.EVENT)
            else:
                return
        await self._writer.send(WriteKind.EVENT, "POST", events, msgspec.json.encode(_document(event)))

    def _drop(self, reason: str) -> None:
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
