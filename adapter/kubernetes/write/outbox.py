"""The one door through which a scaler writes all but Scales: statuses, events, ConfigMaps, deletion costs.

There is one `Outbox` in a process. An `Outlet` is a kind of writes: it says how a new value is merged with
the one that waits under the same key, when a value is due, how it is sent, and what a failure means. All else
is the same for every kind, and is here:

- Values wait by key, and a key is written by one task at a time. So the writes about one object keep their
  order, and of two values for it the later one is never overtaken.
- Namespaces take turns, and in each its owners (`model.fairness`). At most `Outlet.at_once` values of a kind
  are under way.
- A value is taken when its write slot is granted (`writer.WriteRateLimiter`). What is sent is so never older
  than its slot, however long the queue is.
- Each value belongs to the slice of its namespace. It is sent by the `Writer` of the term in which it was
  submitted, whose fence is checked at the moment of sending. A slice that this process does not own takes
  no values.
- `drain` ends a term: what must not be lost is written within some seconds, the rest is dropped. No write of
  the term is in flight when it returns, because the Lease of the slice is released next.

A Scale does not go through here. It is written at once, against the version that it was decided from
(`autoscaler.reconcile`).
"""

import asyncio
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
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
"""Seconds until a value is tried again whose kind has a defect even in what it does about errors."""

Value = TypeVar("Value")


class Place(NamedTuple):
    """What a value is about: the namespace and the owner that take turns, and what it is of that owner."""

    namespace: str
    owner: Hashable
    item: Hashable = None


class Due(NamedTuple):
    """When a value is to be sent, in monotonic seconds, and its precedence: 0 comes first."""

    at: float
    rank: int = 0


IDLE = Due(math.inf)
"""Nothing is to be sent, and the value is kept."""

_NOW = -math.inf
"""In place of a time that has come."""


class Outlet(ABC, Generic[Value]):
    """A kind of writes. Only `send` may wait."""

    kind: WriteKind
    unexpected: str
    """What the log says of an error that no one expects."""
    at_once: int
    ranks: int = 1
    needs_slot: bool = True
    """Whether `send` is called with a write slot; else it asks for its own."""

    def merge(self, before: Value, new: Value) -> Value:  # noqa: ARG002 - of the signature
        """Return what waits from now on in place of two values: the latest, unless a kind says otherwise."""
        return new

    @abstractmethod
    def due(self, value: Value, now: float) -> Due | None:
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
        """Note that a value is not settled: its term has ended, or it was withdrawn while it was sent."""

    def subject(self, value: Value) -> object:  # noqa: ARG002 - of the signature
        """Return what the log names beside `unexpected`."""
        return ""

    def size(self, value: Value) -> int:  # noqa: ARG002 - of the signature
        """Return for how many writes a value counts that is due."""
        return 1


@dataclass(slots=True, eq=False)
class _Entry(Generic[Value]):
    """A value on its way. It is scheduled by a timer, then by its turn, then by the task that sends it."""

    place: Place
    number: int
    writer: Writer
    value: Value
    tries: int = 0
    retry_at: float = -math.inf
    due: Due = IDLE
    timer: asyncio.TimerHandle | None = None
    sending: asyncio.Task[None] | None = None
    is_ending: bool = False


@dataclass(slots=True, eq=False)
class _Queue(Generic[Value]):
    """The values of one outlet."""

    outlet: Outlet[Value]
    clock: Clock
    entries: dict[Place, _Entry[Value]] = field(default_factory=dict)
    turns: tuple[Turns[Place], ...] = field(init=False)
    """The places that are due, by rank."""
    precedence: Precedence = field(init=False)
    gate: asyncio.Semaphore = field(init=False)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    removed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        ranks = range(self.outlet.ranks)
        self.turns, self.precedence = tuple(Turns() for _ in ranks), Precedence(len(ranks))
        self.gate = asyncio.Semaphore(self.outlet.at_once)

    def plan(self, entry: _Entry[Value]) -> None:
        """Have a value sent when it is due. One that is being sent is planned when that has ended."""
        if entry.sending is not None:
            return
        now = self.clock.monotonic()
        due = self.outlet.due(entry.value, now)
        if due is None or (entry.is_ending and due.at > now):
            self.remove(entry)
            return
        at = max(due.at, entry.retry_at)
        due = Due(_NOW if at <= now else at, due.rank)
        if due == entry.due:
            return  # it keeps its turn, or its timer
        self.cancel(entry)
        entry.due = due
        if due.at == _NOW:
            self.become_due(entry)
        elif due.at < math.inf:
            loop = asyncio.get_running_loop()
            entry.timer = loop.call_later(due.at - now, self.become_due, entry)

    def become_due(self, entry: _Entry[Value]) -> None:
        entry.timer, entry.due = None, Due(_NOW, entry.due.rank)
        self.turns[entry.due.rank].add(*entry.place[:2], entry.place)
        self.wake.set()

    def cancel(self, entry: _Entry[Value]) -> None:
        """Take a value out of its turn, and stop its timer."""
        self.turns[entry.due.rank].discard(*entry.place[:2], entry.place)
        entry.due = IDLE
        if entry.timer is not None:
            entry.timer.cancel()
            entry.timer = None

    def take(self) -> _Entry[Value] | None:
        """Take the value whose turn it is; None if it was withdrawn meanwhile."""
        chosen = self.precedence.choose(self.turns)
        if chosen is None:
            return None
        *_, place = self.turns[chosen].next()
        entry = self.entries[place]
        self.cancel(entry)
        return entry

    def remove(self, entry: _Entry[Value]) -> None:
        self.cancel(entry)
        if self.entries.get(entry.place) is entry:
            del self.entries[entry.place]
        self.removed.set()

    def count(self) -> int:
        """Return how many writes are due, are under way, or are to be tried again."""
        return sum(
            self.outlet.size(entry.value)
            for entry in self.entries.values()
            if entry.sending is not None or entry.tries or entry.due.at == _NOW
        )


class Outbox:
    """Sends what outlets submit, while `run` runs."""

    def __init__(
        self, limiter: WriteRateLimiter, clock: Clock, monitoring: Monitoring, defects: Defects
    ) -> None:
        self._limiter = limiter
        self._clock = clock
        self._defects = defects
        self._queues: dict[Outlet[Any], _Queue[Any]] = {}
        self._writers: dict[int, Writer] = {}
        """Those of the slices that this process owns."""
        for kind in (WriteKind.COST, WriteKind.STATUS, WriteKind.EVENT):

            def count(kind: WriteKind = kind) -> int:
                queues = self._queues.values()
                return sum(queue.count() for queue in queues if queue.outlet.kind is kind)

            monitoring.write_queue.labels(kind.label).set_function(count)

    # -- the terms of slices ---------------------------------------------------------------------------------

    def begin(self, number: int, writer: Writer) -> None:
        """Begin a term: take values of a slice, and send them with this writer."""
        self._writers[number] = writer

    def find_writer(self, namespace: str) -> Writer:
        """Return the writer of the slice of a namespace; NotLeadingError if this process does not own it."""
        writer = self._writers.get(slices.slice_of(namespace))
        if writer is None:
            raise errors.NotLeadingError("this process does not own the slice")
        return writer

    async def drain(self, number: int, seconds: float = LAST_SECONDS) -> None:
        """End a term: write what is last within some seconds, and drop the rest."""
        left = [
            (queue, entry)
            for queue in self._queues.values()
            for entry in list(queue.entries.values())
            if entry.number == number
        ]
        for queue, entry in left:
            entry.is_ending = True
            with self._defects.contain(queue.outlet.unexpected, queue.outlet.subject(entry.value)):
                if queue.outlet.ends(entry.value):
                    queue.plan(entry)
                    continue
            queue.remove(entry)
            if entry.sending is not None:
                entry.sending.cancel()
        try:
            async with asyncio.timeout(seconds):
                for queue, entry in left:
                    while queue.entries.get(entry.place) is entry:
                        queue.removed.clear()
                        await queue.removed.wait()
        except TimeoutError:
            pass
        finally:
            self._writers.pop(number, None)
            sending = [entry.sending for _, entry in left if entry.sending is not None]
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            for queue, entry in left:
                queue.remove(entry)
                self._drop(queue.outlet, entry.value)

    # -- values ----------------------------------------------------------------------------------------------

    def open(self, outlet: Outlet[Any]) -> None:
        """Take the values of one more kind, before `run`."""
        self._queues[outlet] = _Queue(outlet, self._clock)

    def submit(self, outlet: Outlet[Value], place: Place, value: Value, number: int | None = None) -> bool:
        """Have a value sent when it is due, merged with the one that waits. Never waits.

        It belongs to the slice `number`, or that of its namespace. Return False if this process does not own
        that slice: the value is dropped.
        """
        number = slices.slice_of(place.namespace) if number is None else number
        writer, queue = self._writers.get(number), self._queues[outlet]
        if writer is None:
            outlet.dropped(value)
            return False
        entry = queue.entries.get(place)
        if entry is None:
            entry = queue.entries[place] = _Entry(place, number, writer, value)
        else:
            before, entry.value = entry.value, outlet.merge(entry.value, value)
            if entry.value is not before:
                entry.tries, entry.retry_at = 0, -math.inf
        queue.plan(entry)
        return True

    def withdraw(self, outlet: Outlet[Value], place: Place, value: Value | None = None) -> bool:
        """Forget what there is at a place; a write of it goes on. With a `value`, only if that still waits.

        Return whether something was forgotten.
        """
        queue = self._queues[outlet]
        entry = queue.entries.get(place)
        if entry is None or (value is not None and (entry.value is not value or entry.sending is not None)):
            return False
        queue.remove(entry)
        return True

    def values(self, outlet: Outlet[Value]) -> Iterator[Value]:
        return (entry.value for entry in self._queues[outlet].entries.values())

    # -- sending ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for outlet, queue in self._queues.items():
                group.create_task(self._send_due(queue, group), name=f"outbox: {type(outlet).__name__}")

    async def _send_due(self, queue: _Queue[Any], group: asyncio.TaskGroup) -> None:
        """Send the values of a kind as they become due.

        The order of the waits matters. A slot is asked for only when a value is due and there is room for one
        more write, so none is held by a kind that cannot use it. The value is chosen last.
        """
        while True:
            while not any(queue.turns):
                queue.wake.clear()
                await queue.wake.wait()
            await queue.gate.acquire()
            if queue.outlet.needs_slot:
                await self._limiter.acquire(queue.outlet.kind)
            entry = queue.take()
            if entry is None:  # withdrawn while the slot was waited for
                self._give_back(queue)
                queue.gate.release()
                continue
            name = f"outbox: {type(queue.outlet).__name__} {entry.place.namespace}"
            entry.sending = group.create_task(self._send(queue, entry), name=name)
            entry.sending.add_done_callback(lambda _: queue.gate.release())

    def _give_back(self, queue: _Queue[Any]) -> None:
        if queue.outlet.needs_slot:
            self._limiter.give_back()

    async def _send(self, queue: _Queue[Any], entry: _Entry[Any]) -> None:
        outlet, value, pause = queue.outlet, entry.value, 0.0
        if queue.entries.get(entry.place) is not entry:  # withdrawn before this task began
            self._give_back(queue)
            self._drop(outlet, value)
            return
        try:
            await outlet.send(value, entry.writer)
        except Exception as error:  # noqa: BLE001 - whatever it is, other values are sent all the same
            if not isinstance(error, errors.KubernetesError | errors.NotLeadingError):
                self._defects.note(outlet.unexpected, error, outlet.subject(value))
            pause = self._fail(queue, entry, value, error)
        else:
            entry.tries = 0
        finally:
            entry.sending = None
            if queue.entries.get(entry.place) is entry:
                is_same = entry.value is value  # a newer value need not wait
                entry.retry_at = self._clock.monotonic() + pause if pause and is_same else -math.inf
                with self._defects.contain(outlet.unexpected, outlet.subject(value)):
                    queue.plan(entry)

    def _fail(self, queue: _Queue[Any], entry: _Entry[Any], value: Any, error: Exception) -> float:
        """Return the seconds to the next try, 0 for none."""
        outlet = queue.outlet
        if queue.entries.get(entry.place) is not entry:
            self._drop(outlet, value)
            return 0.0
        entry.tries += 1
        pause: float | None = UNEXPECTED_PAUSE
        with self._defects.contain(outlet.unexpected, outlet.subject(value)):
            pause = outlet.failed(value, error, entry.tries)
        if pause is None:
            entry.tries = 0
        return pause or 0.0

    def _drop(self, outlet: Outlet[Any], value: Any) -> None:
        with self._defects.contain(outlet.unexpected, outlet.subject(value)):
            outlet.dropped(value)
