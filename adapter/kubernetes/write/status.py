"""Writes the statuses of autoscalers: important changes at once, the rest at most every 15 s.

Of each object only the latest status is written. It is urgent if a replica count, or the status or reason of
a condition, differs from what is written. A status that could not be written is retried. Urgent statuses go
first, but for a tenth of the turns, and within each class the namespaces take turns (`model.fairness`): a
tenant with many autoscalers delays the status of another by one turn.
"""

import asyncio
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from adapter import errors
from adapter.kubernetes.heads import WithMetadata
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.autoscaling import status as conditions
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.clock import Clock
from adapter.model.fairness import Precedence, Turns
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

PERIOD = 15.0
"""Seconds between two writes of statuses that differ only in metric values and messages."""

AT_ONCE = 8
"""Number of concurrent writes of a process."""

AGAIN = 5
RETRY, RETRY_LIMIT = 1.0, 15.0
FAULT = "status-write"
_PATCH = "application/json-patch+json"
_OTHER_OBJECT = "OtherObject"
_UNEXPECTED = "unexpected error while writing the status of an autoscaler"
_DOUBLINGS = 10  # cap on the backoff exponent: 2**n stays small after hours of failures
_NO_STATUS = HorizontalPodAutoscalerStatus()


class StatusUpdate(NamedTuple):
    """A status to write.

    `path` is that of the status subresource, `resource_version` the version of the object that the decision
    read. `status` determines the urgency; `document` builds the JSON, which may contain more, when it is
    written.
    """

    namespace: str
    name: str
    uid: str
    path: str
    resource_version: str
    status: HorizontalPodAutoscalerStatus
    document: Callable[[], Mapping[str, object]]


def is_urgent(written: HorizontalPodAutoscalerStatus, wanted: HorizontalPodAutoscalerStatus) -> bool:
    """Whether replicas, or the status or reason of a condition, differ from what is written.

    lastScaleTime counts too: the status carries the scale events that policies count.
    """
    return _matters(written) != _matters(wanted)


def _matters(status: HorizontalPodAutoscalerStatus) -> tuple[object, ...]:
    states = [(condition.type, condition.status, condition.reason) for condition in status.conditions or ()]
    return status.current_replicas, status.desired_replicas, status.last_scale_time, states


@dataclass(slots=True)
class _StatusEntry:
    """The state of one object. `due` is monotonic; `timer` waits for it, and then the entry for its turn."""

    uid: str
    written: HorizontalPodAutoscalerStatus
    wanted: StatusUpdate | None = None
    written_at: float = -math.inf
    due: float = 0.0
    urgent: bool = False
    queued: bool = False
    timer: asyncio.TimerHandle | None = None
    busy: bool = False
    failures: int = 0


class StatusWriters:
    """What the status writers of a process share, one for each slice: the writes at once, and the gauge."""

    def __init__(self, monitoring: Monitoring) -> None:
        self.gate = asyncio.Semaphore(AT_ONCE)
        self.writers: set[StatusWriter] = set()
        gauge = monitoring.write_queue.labels(WriteKind.STATUS.label)
        gauge.set_function(lambda: sum(writer.count_due() for writer in self.writers))


class StatusWriter:
    """Writes statuses through the `Writer` of one term, until `drain`.

    `failed` is called for each status that the API server refuses.
    """

    def __init__(
        self,
        writer: Writer,
        clock: Clock,
        problems: ProblemLog,
        shared: StatusWriters,
        failed: Callable[[StatusUpdate, errors.KubernetesError], None] = lambda _update, _error: None,
    ) -> None:
        self._writer = writer
        self._clock = clock
        self._problems = problems
        self._failed = failed
        self._entries: dict[tuple[str, str], _StatusEntry] = {}
        self._due: tuple[Turns[str], Turns[str]] = Turns(), Turns()
        """The entries that are due, the urgent ones first."""
        self._precedence = Precedence(len(self._due))
        self._wake = asyncio.Event()
        self._shared = shared
        shared.writers.add(self)

    def submit(self, update: StatusUpdate, seen: HorizontalPodAutoscalerStatus | None) -> None:
        """Queue a status; `seen` is the status that the object was read with. Never waits.

        For one period after a write our own status is more recent than the cache. After that `seen` counts,
        because another client may have written.
        """
        key, now = (update.namespace, update.name), self._clock.monotonic()
        entry = self._entries.get(key)
        if entry is None or entry.uid != update.uid:
            self._unqueue(key)
            entry = self._entries[key] = _StatusEntry(update.uid, seen or _NO_STATUS, written_at=now)
        elif not entry.busy and now - entry.written_at > PERIOD:
            entry.written = seen or _NO_STATUS
        entry.wanted = update
        if not entry.busy:
            self._plan(key, entry)

    def forget(self, namespace: str, name: str) -> None:
        self._unqueue((namespace, name))
        self._entries.pop((namespace, name), None)
        self._problems.resolve(FAULT, subject=f"{namespace}/{name}")

    async def run(self) -> None:
        gate = self._shared.gate
        async with asyncio.TaskGroup() as group:
            while True:
                while not any(self._due):
                    self._wake.clear()
                    await self._wake.wait()
                if not await self._acquire():
                    continue
                await gate.acquire()
                key = self._take()
                if key is None:
                    gate.release()
                    continue
                task = group.create_task(self._write(key, self._entries[key]), name="status")
                task.add_done_callback(lambda _: gate.release())

    async def drain(self, seconds: float) -> None:
        """Write the urgent statuses within `seconds`, at the orderly end of a term. The rest is dropped."""
        try:
            async with asyncio.timeout(seconds):
                while self._has_urgent() and await self._acquire():
                    key = self._take()
                    if key is not None:
                        await self._write(key, self._entries[key])
                    else:  # its last write failed and its pause is not over
                        await asyncio.sleep(RETRY / 4)
        except TimeoutError:
            return
        finally:
            self._shared.writers.discard(self)
            for key in self._entries:
                self._unqueue(key)
                self._problems.resolve(FAULT, subject="/".join(key))

    # -- the queue -------------------------------------------------------------------------------------------

    def _plan(self, key: tuple[str, str], entry: _StatusEntry) -> None:
        """Queue an entry for the time at which it is due."""
        wanted, now = entry.wanted, self._clock.monotonic()
        if wanted is None or conditions.same_status(entry.written, wanted.status):
            self._unqueue(key)
            entry.wanted = None
            return
        pause = min(RETRY_LIMIT, RETRY * 2 ** min(entry.failures - 1, _DOUBLINGS)) if entry.failures else 0.0
        urgent = is_urgent(entry.written, wanted.status)
        due = now + pause if urgent else max(now + pause, entry.written_at + PERIOD)
        if entry.queued and urgent == entry.urgent and due >= entry.due:
            return
        self._unqueue(key)
        entry.urgent, entry.due, entry.queued = urgent, due, True
        if due <= now:
            self._become_due(key, entry)
        else:
            entry.timer = asyncio.get_running_loop().call_later(due - now, self._become_due, key, entry)

    def _become_due(self, key: tuple[str, str], entry: _StatusEntry) -> None:
        entry.timer = None
        self._turns(entry).add(*key, key[1])
        self._wake.set()

    def _turns(self, entry: _StatusEntry) -> Turns[str]:
        return self._due[0 if entry.urgent else 1]

    def _unqueue(self, key: tuple[str, str]) -> None:
        entry = self._entries.get(key)
        if entry is None or not entry.queued:
            return
        entry.queued = False
        if entry.timer is None:
            self._turns(entry).discard(*key, key[1])
        else:
            entry.timer.cancel()
            entry.timer = None

    def _take(self) -> tuple[str, str] | None:
        """Take the next due entry for the slot, and mark it busy."""
        chosen = self._precedence.choose(self._due)
        if chosen is None:
            self._writer.give_back()
            return None
        namespace, _, name = self._due[chosen].next()
        key = namespace, name
        self._unqueue(key)
        self._entries[key].busy = True
        return key

    def _has_urgent(self) -> bool:
        """Whether an urgent status is queued, due or not."""
        return any(entry.queued and entry.urgent for entry in self._entries.values())

    async def _acquire(self) -> bool:
        """Wait for the slot of a write; False if the fence is closed now."""
        try:
            await self._writer.acquire(WriteKind.STATUS)
        except errors.NotLeadingError:
            await asyncio.sleep(RETRY / 4)
            return False
        return True

    def count_due(self) -> float:
        now = self._clock.monotonic()
        return sum(entry.wanted is not None and entry.due <= now for entry in self._entries.values())

    # -- the wire --------------------------------------------------------------------------------------------

    async def _write(self, key: tuple[str, str], entry: _StatusEntry) -> None:
        """Write the latest status of an object unless it was deleted, and queue the next one."""
        update = entry.wanted
        if update is None or self._entries.get(key) is not entry:
            entry.busy = False
            self._writer.give_back()
            return
        try:
            await self._patch(update)
        except errors.KubernetesError as error:
            if self._entries.get(key) is entry:
                self._record_failure(key, entry, update, error)
        except errors.NotLeadingError:
            entry.failures += 1
        except Exception as error:  # noqa: BLE001 - the statuses of other objects are written all the same
            entry.failures += 1
            self._problems.defects.note(_UNEXPECTED, error, "/".join(key))
        else:
            entry.written, entry.written_at, entry.failures = update.status, self._clock.monotonic(), 0
            self._problems.resolve(FAULT, subject="/".join(key))
        finally:
            entry.busy = False
            if self._entries.get(key) is entry:
                with self._problems.defects.contain(_UNEXPECTED, "/".join(key)):
                    self._plan(key, entry)

    def _record_failure(
        self, key: tuple[str, str], entry: _StatusEntry, update: StatusUpdate, error: errors.KubernetesError
    ) -> None:
        subject = "/".join(key)
        if error.status == 404 or error.reason == _OTHER_OBJECT:
            self._problems.resolve(FAULT, subject=subject)
            if entry.wanted is update:
                entry.wanted = None
            return
        entry.failures += 1
        self._problems.report(FAULT, "a status could not be written", str(error), subject=subject)
        with self._problems.defects.contain(_UNEXPECTED, subject):
            self._failed(update, error)

    async def _patch(self, update: StatusUpdate) -> None:
        """Replace the status, after a conflict also on a newer version: no other client owns it."""
        version = update.resource_version
        for left in reversed(range(AGAIN + 1)):
            try:
                content = msgspec.json.encode(_operations(update, version))
                await self._writer.send(WriteKind.STATUS, "PATCH", update.path, content, content_type=_PATCH)
            except errors.KubernetesError as error:
                if error.status != 409 or not left:
                    raise
            else:
                return
            path = update.path
            body = await self._writer.client.get(path)
            metadata = body.decode(WithMetadata[_ObjectIdentity], f"get {path}").metadata
            if metadata.uid != update.uid:
                message = f"cannot get {path}: another object has this name now"
                raise errors.KubernetesError(0, _OTHER_OBJECT, message)
            version = metadata.resource_version
            await self._writer.acquire(WriteKind.STATUS)


class _ObjectIdentity(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""


def _operations(update: StatusUpdate, version: str) -> list[dict[str, object]]:
    """Build the JSON patch. Version and uid are preconditions: the API server responds 409 if they differ."""
    bound = {"/metadata/uid": update.uid, "/metadata/resourceVersion": version}
    operations: list[dict[str, object]] = [
        {"op": "replace", "path": path, "value": value} for path, value in bound.items() if value
    ]
    operations.append({"op": "add", "path": "/status", "value": update.document()})
    return operations
