"""The one door through which a scaler writes all but Scales: statuses, events, ConfigMaps, deletion costs.

There is one `Outbox` in a process. An `Outlet` is a kind of writes: it says how a new value is merged with
the one that is pending under the same key, when a value is due, how it is sent, and what a failure means. All
else is the same for every kind, and is here:

- Values are pending by key, and a key is written by one task at a time. So the writes about one object keep
  their order, and of two values for it the later one is never overtaken.
- Namespaces take turns, and in each its owners (`model.fairness`). At most `Outlet.at_once` values of a kind
  are under way.
- A value is taken when its write slot is granted (`writer.WriteRateLimiter`). So what is sent is never older
  than its slot, however long the queue is.
- Each value belongs to the slice of its namespace. It is sent by the `Writer` of the term in which it was
  submitted, whose fence is checked at the moment of sending. A slice that this process does not own takes no
  values.
- `Outbox.drain` ends a term: what must not be lost is written within some seconds, the rest is dropped. No
  write of the term is in flight when it returns, because the Lease of the slice is released next.

A Scale does not go through here. It is written at once, against the version that it was decided from
(`autoscaler.controller.reconcile`).
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from adapter import errors
from adapter.kubernetes.write.writer import WriteKind, Writer, WriteRateLimiter
from adapter.model.autoscaling import slices
from adapter.model.clock import Clock
from adapter.model.fairness import Precedence, Turns
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects

LAST_SECONDS = 0.5
"""For how long the last writes of a term may go on: the next owner of the slice waits."""

UNEXPECTED_PAUSE = 15.0
"""Seconds until a value is tried again after an error that its kind does not know."""

Value = TypeVar("Value")


class OutboxKey(NamedTuple):
    """What a value is about: the namespace and the owner that take turns, and what it is of that owner."""

    namespace: str
    owner: Hashable
    item: Hashable = None


class SendTime(NamedTuple):
    """When a value is to be sent, in monotonic seconds, and its precedence: 0 comes first."""

    at: float
    rank: int = 0


IDLE = SendTime(math.inf)
"""Nothing is to be sent, and the value is kept."""

_NOW = -math.inf
"""In place of a time that has come."""


@dataclass(slots=True, eq=False)
class _Entry(Generic[Value]):
    """A value on its way. It waits for a timer, then for its turn, then for the task that sends it."""

    key: OutboxKey
    number: int
    writer: Writer
    value: Value
    tries: int = 0
    retry_at: float = _NOW
    due: SendTime = IDLE
    timer: asyncio.TimerHandle | None = None
    sending: asyncio.Task[None] | None = None
    is_ending: bool = False
    is_over: bool = False
    """It is not sent again, but keeps its key while it is sent, so that no newer value is overtaken."""


class Outbox:
    """Sends what its outlets are given, while `run` runs."""

    def __init__(
        self, limiter: WriteRateLimiter, clock: Clock, monitoring: Monitoring, defects: Defects
    ) -> None:
        self.limiter = limiter
        self.clock = clock
        self.defects = defects
        self.outlets: list[Outlet[Any]] = []
        self.writers: dict[int, Writer] = {}
        """Those of the slices that this process owns."""
        for kind in (WriteKind.COST, WriteKind.STATUS, WriteKind.EVENT):

            def count(kind: WriteKind = kind) -> int:
                return sum(outlet.count() for outlet in self.outlets if outlet.kind is kind)

            monitoring.write_queue.labels(kind.label).set_function(count)

    def begin(self, number: int, writer: Writer) -> None:
        """Begin a term: take values of a slice, and send them with this writer."""
        self.writers[number] = writer

    def find_writer(self, namespace: str) -> Writer:
        """Return the writer of the slice of a namespace; NotLeadingError if this process does not own it."""
        writer = self.writers.get(slices.slice_of(namespace))
        if writer is None:
            raise errors.NotLeadingError("this process does not own the slice")
        return writer

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for outlet in self.outlets:
                group.create_task(outlet.send_due(group), name=f"outbox: {type(outlet).__name__}")

    async def drain(self, number: int, seconds: float = LAST_SECONDS) -> None:
        """End a term: write what is last within some seconds, and drop the rest."""
        tasks = [task for outlet in self.outlets for task in outlet.end(number)]
        try:
            async with asyncio.timeout(seconds):
                for outlet in self.outlets:
                    await outlet.wait_for_last(number)
        except TimeoutError:
            pass
        finally:
            self.writers.pop(number, None)
            tasks += [task for outlet in self.outlets for task in outlet.drop_all(number)]
            await asyncio.gather(*tasks, return_exceptions=True)


class Outlet(ABC, Generic[Value]):
    """A kind of writes: what is particular about them, and the values that are pending.

    A subclass has `merge`, `due`, `send` and `failed`, of which only `send` may wait.
    """

    kind: WriteKind
    unexpected: str
    """What the log says of an error that no one expects."""
    at_once: int
    ranks: int = 1
    needs_slot: bool = True
    """Whether `send` is called with a write slot; else it asks for its own."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._entries: dict[OutboxKey, _Entry[Value]] = {}
        self._turns: tuple[Turns[OutboxKey], ...] = tuple(Turns() for _ in range(self.ranks))
        """The keys that are due, by rank."""
        self._precedence = Precedence(self.ranks)
        self._gate = asyncio.Semaphore(self.at_once)
        self._wake, self._removed = asyncio.Event(), asyncio.Event()
        outbox.outlets.append(self)

    # -- what a kind says ------------------------------------------------------------------------------------

    def merge(self, before: Value, new: Value) -> Value:  # noqa: ARG002 - of the signature
        """Return what is pending from now on in place of two values."""
        return new

    @abstractmethod
    def due(self, value: Value, now: float) -> SendTime | None:
        """Return when a value is to be sent; None to forget it."""

    @abstractmethod
    async def send(self, value: Value, writer: Writer) -> None:
        """Write a value: one that needs a slot makes one write with it, or gives it back."""

    @abstractmethod
    def failed(self, value: Value, error: Exception, tries: int) -> float | None:
        """Note that sending has failed so often in a row, with any exception.

        Return the seconds to the next try; None if the value is settled.
        """

    def ends(self, value: Value) -> bool:  # noqa: ARG002 - of the signature
        """Note that the term of a value ends; tell whether it must be written before.

        What is not due then is dropped, and likewise what is not due any more after that write.
        """
        return False

    def dropped(self, value: Value) -> None:
        """Note that the term of a value has ended, or that it was withdrawn while it was sent."""

    def subject(self, value: Value) -> object:  # noqa: ARG002 - of the signature
        """Return what the log names beside `unexpected`."""
        return ""

    def size(self, value: Value) -> int:  # noqa: ARG002 - of the signature
        """Return for how many writes a value counts that is due."""
        return 1

    # -- pending values --------------------------------------------------------------------------------------

    def submit(self, key: OutboxKey, value: Value, number: int | None = None) -> None:
        """Have a value sent when it is due, merged with the one that is pending. Never waits.

        It belongs to the slice `number`, or that of its namespace. If this process does not own that slice
        the value is dropped.
        """
        number = slices.slice_of(key.namespace) if number is None else number
        writer, entry = self.outbox.writers.get(number), self._entries.get(key)
        if writer is None:
            self.dropped(value)
            return
        if entry is None:
            entry = self._entries[key] = _Entry(key, number, writer, value)
        else:
            before = entry.value
            entry.value = value if entry.is_over else self.merge(before, value)
            entry.is_over = False
            if entry.value is not before:
                entry.tries, entry.retry_at = 0, _NOW
        self._plan(entry)

    def withdraw(self, key: OutboxKey, value: Value | None = None) -> bool:
        """Forget what is pending; a write of it goes on. With a `value`, only if that has not begun.

        Return whether something was forgotten.
        """
        entry = self._entries.get(key)
        if entry is None or entry.is_over:
            return False
        if value is not None and (entry.value is not value or entry.sending is not None):
            return False
        entry.is_over = True
        self._plan(entry)
        return True

    def values(self) -> Iterator[Value]:
        return (entry.value for entry in self._entries.values() if not entry.is_over)

    def count(self) -> int:
        """Return how many writes are due, are under way, or are to be tried again."""
        entries = self._entries.values()
        waiting = (one for one in entries if one.sending is not None or one.tries or one.due.at == _NOW)
        return sum(self.size(entry.value) for entry in waiting)

    def _plan(self, entry: _Entry[Value]) -> None:
        """Have a value sent when it is due. One that is being sent is planned when that has ended."""
        if entry.sending is not None:
            return
        now = self.outbox.clock.monotonic()
        due = None if entry.is_over else self.due(entry.value, now)
        if due is None or (entry.is_ending and due.at > now):
            self._remove(entry)
            if entry.is_ending:
                self._drop(entry.value)
            return
        at = max(due.at, entry.retry_at)
        due = SendTime(_NOW if at <= now else at, due.rank)
        if due == entry.due:
            return  # it keeps its turn, or its timer
        self._cancel(entry)
        entry.due = due
        if due.at == _NOW:
            self._become_due(entry)
        elif due.at < math.inf:
            entry.timer = asyncio.get_running_loop().call_later(due.at - now, self._become_due, entry)

    def _become_due(self, entry: _Entry[Value]) -> None:
        entry.timer, entry.due = None, SendTime(_NOW, entry.due.rank)
        self._turns[entry.due.rank].add(*entry.key[:2], entry.key)
        self._wake.set()

    def _cancel(self, entry: _Entry[Value]) -> None:
        """Take a value out of its turn, and stop its timer."""
        self._turns[entry.due.rank].discard(*entry.key[:2], entry.key)
        entry.due = IDLE
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None

    def _remove(self, entry: _Entry[Value]) -> None:
        self._cancel(entry)
        entry.is_over = True
        del self._entries[entry.key]
        self._removed.set()

    # -- sending ---------------------------------------------------------------------------------------------

    async def send_due(self, group: asyncio.TaskGroup) -> None:
        """Send values as they become due.

        The order of the waits matters. A slot is asked for only when a value is due and there is room for one
        more write, so none is held by a kind that cannot use it. The value is chosen last.
        """
        while True:
            while not any(self._turns):
                self._wake.clear()
                await self._wake.wait()
            await self._gate.acquire()
            if self.needs_slot:
                await self.outbox.limiter.acquire(self.kind)
            chosen = self._precedence.choose(self._turns)
            if chosen is None:  # withdrawn while the slot was waited for
                self._give_back()
                self._gate.release()
                continue
            key = self._turns[chosen].take()
            entry = self._entries[key]
            self._cancel(entry)
            name = f"outbox: {type(self).__name__} {key.namespace}"
            entry.sending = group.create_task(self._send(entry), name=name)
            entry.sending.add_done_callback(lambda _: self._gate.release())

    def _give_back(self) -> None:
        if self.needs_slot:
            self.outbox.limiter.give_back()

    async def _send(self, entry: _Entry[Value]) -> None:
        value, pause = entry.value, 0.0
        try:
            if entry.is_over:  # withdrawn before this task began
                self._give_back()
                self._drop(value)
            else:
                await self.send(value, entry.writer)
        except Exception as error:  # noqa: BLE001 - whatever it is, other values are sent all the same
            pause = self._fail(entry, value, error)
        else:
            entry.tries = 0
        finally:
            entry.sending = None
            if self._entries.get(entry.key) is entry:
                is_same = entry.value is value  # a newer value need not wait
                entry.retry_at = self.outbox.clock.monotonic() + pause if pause and is_same else _NOW
                with self.outbox.defects.contain(self.unexpected, self.subject(value)):
                    self._plan(entry)

    def _fail(self, entry: _Entry[Value], value: Value, error: Exception) -> float:
        """Return the seconds to the next try, 0 for none."""
        defects, subject = self.outbox.defects, self.subject(value)
        if not isinstance(error, errors.KubernetesError | errors.NotLeadingError):
            defects.note(self.unexpected, error, subject)
        if entry.is_over:
            self._drop(value)
            return 0.0
        entry.tries += 1
        pause: float | None = UNEXPECTED_PAUSE
        with defects.contain(self.unexpected, subject):
            pause = self.failed(value, error, entry.tries)
        if pause is None:
            entry.tries = 0
        return pause or 0.0

    def _drop(self, value: Value) -> None:
        with self.outbox.defects.contain(self.unexpected, self.subject(value)):
            self.dropped(value)

    # -- the end of a term -----------------------------------------------------------------------------------

    def end(self, number: int) -> list[asyncio.Task[None]]:
        """Send what is last of a slice, and drop the rest; return the tasks that are cancelled for that."""
        tasks = []
        for entry in self._of_slice(number):
            entry.is_ending = True
            with self.outbox.defects.contain(self.unexpected, self.subject(entry.value)):
                if not entry.is_over and self.ends(entry.value):
                    self._plan(entry)
                    continue
            tasks += self._abort(entry)
        return tasks

    async def wait_for_last(self, number: int) -> None:
        """Wait until nothing of a slice is pending or under way."""
        while self._of_slice(number):
            self._removed.clear()
            await self._removed.wait()

    def drop_all(self, number: int) -> list[asyncio.Task[None]]:
        """Drop all values of a slice; return the tasks that are cancelled for that."""
        return [task for entry in self._of_slice(number) for task in self._abort(entry)]

    def _of_slice(self, number: int) -> list[_Entry[Value]]:
        return [entry for entry in self._entries.values() if entry.number == number]

    def _abort(self, entry: _Entry[Value]) -> list[asyncio.Task[None]]:
        self._remove(entry)
        self._drop(entry.value)
        if entry.sending is None:
            return []
        entry.sending.cancel()
        return [entry.sending]
