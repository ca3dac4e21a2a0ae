"""Records events about autoscalers as client-go's recorder does for the HPA controller.

Core/v1, correlated and rate-limited.

Recording never waits and never fails. Events wait in a queue while the API server cannot be reached; what
cannot be written is dropped and counted. Events of one object keep their order. Namespaces take turns
(`model.fairness`), and when the queue is full, the namespace with the most events loses one, so a tenant with
many autoscalers does not displace the events of others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable

import msgspec

from adapter import errors
from adapter.kubernetes.write.client import Writer
from adapter.kubernetes.write.event_correlator import (
    Correlated,
    Correlator,
    EventRecord,
    Regarding,
    first_record,
    timestamp,
)
from adapter.kubernetes.write.rate_limiter import WriteKind
from adapter.model.clock import Clock
from adapter.model.fairness import Turns
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

COMPONENT = "fastpath"
"""``source.component`` of our events, which `kubectl describe` shows."""

QUEUED = 1000
TRIES = 12
RETRY = 10.0
FAULT = "event-write"
_MERGE = "application/merge-patch+json"
_MESSAGE_LENGTH = 1024


class EventRecorder:
    """Records events; `run` writes them through the `Writer` of one term."""

    def __init__(
        self,
        writer: Writer,
        clock: Clock,
        random: Callable[[], float],
        monitoring: Monitoring,
        faults: ProblemLog,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._random = random
        self._monitoring = monitoring
        self._faults = faults
        self._correlator = Correlator()
        self._queue: Turns[EventRecord] = Turns()
        self._counts: Counter[str] = Counter()
        self._next: Correlated | None = None
        self._stamp = 0
        self._wake = asyncio.Event()
        monitoring.write_queue.labels(WriteKind.EVENT.label).set_function(self._waiting)

    def record(self, regarding: Regarding, kind: str, reason: str, message: str) -> None:
        """Record an event of `kind` Normal or Warning. A message longer than the API allows is cut."""
        if self._waiting() >= QUEUED:
            self._drop("queue")
            if not self._make_room(regarding.namespace):
                return
        text = message[:_MESSAGE_LENGTH]
        self._stamp = max(self._stamp + 1, round(self._clock.wall() * 1e9))
        owner = (regarding.kind, regarding.name, regarding.uid)
        self._queue.add(regarding.namespace, owner, first_record(regarding, kind, reason, text, self._stamp))
        self._counts[regarding.namespace] += 1
        self._wake.set()

    def _waiting(self) -> int:
        return self._counts.total() + (self._next is not None)

    def _make_room(self, namespace: str) -> bool:
        """Remove the latest event of the largest namespace, unless `namespace` would then be the largest."""
        ((largest, count),) = self._counts.most_common(1)
        if count <= self._counts[namespace] + 1:
            return False
        *_, latest = (item for item in self._queue if item[0] == largest)
        self._remove(*latest)
        return True

    def _remove(self, namespace: str, owner: Hashable, event: EventRecord) -> None:
        self._queue.discard(namespace, owner, event)
        self._counts[namespace] -= 1
        if not self._counts[namespace]:
            del self._counts[namespace]

    async def run(self) -> None:
        """Write the recorded events until cancelled."""
        while True:
            while not self._waiting():
                self._wake.clear()
                await self._wake.wait()
            await self._record_next()

    async def drain(self, seconds: float) -> None:
        """Write the recorded events within `seconds`, at the orderly end of a term. The rest is dropped."""
        try:
            async with asyncio.timeout(seconds):
                while self._waiting():
                    await self._record_next()
        except TimeoutError:
            for _ in range(self._waiting()):
                self._drop("fenced")
            self._queue, self._counts, self._next = Turns(), Counter(), None
        finally:
            self._faults.resolve(FAULT)

    async def _record_next(self) -> None:
        """Write the next event of the queue. It stays the next one until it is written or dropped."""
        if self._next is None:
            namespace, owner, found = self._queue.next()
            self._remove(namespace, owner, found)
            self._next = self._correlator.correlate(found)
        event, repeated = self._next
        if event is None:
            self._drop("spam")
        else:
            await self._send(event, repeated=repeated)
        self._next = None

    async def _send(self, event: EventRecord, *, repeated: bool) -> None:
        for tries in range(TRIES):
            if tries:
                await asyncio.sleep(RETRY * (self._random() if tries == 1 else 1))
            try:
                await self._writer.acquire(WriteKind.EVENT)
                await self._write(event, repeated=repeated)
            except errors.NotLeadingError:
                self._drop("fenced")
                return
            except errors.KubernetesError as error:
                if error.status and error.status != 429 and error.status < 500:
                    self._give_up(error)
                    return
                self._faults.report(FAULT, "an event could not be written", str(error))
            else:
                self._faults.resolve(FAULT)
                return
        self._drop("refused")

    async def _write(self, event: EventRecord, *, repeated: bool) -> None:
        events = f"/api/v1/namespaces/{event.regarding.namespace}/events"
        if repeated:
            changed = {"count": event.count, "lastTimestamp": timestamp(event.last), "message": event.message}
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

    def _give_up(self, error: errors.KubernetesError) -> None:
        """Drop an event that the API server refuses.

        An existing one, or a terminating namespace, is not a problem.
        """
        if error.status not in {404, 409} and "because it is being terminated" not in str(error):
            self._faults.report(FAULT, "an event was refused", str(error))
        self._drop("refused")

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
        "firstTimestamp": timestamp(event.first),
        "lastTimestamp": timestamp(event.last),
        "count": event.count,
        "type": event.type,
        "eventTime": None,
        "reportingComponent": COMPONENT,
        "reportingInstance": "",
    }
