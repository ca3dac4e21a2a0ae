"""The control loop: decides each autoscaler when its inputs have changed, and once per period.

Deciding never waits: a write runs in a task of its own, and its autoscaler is not decided again before it has
ended. No step holds the event loop for more than a few milliseconds.
"""

import asyncio
import heapq
import itertools
import logging
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.controller.reconcile import PendingScale, Reconciler, SyncResult
from adapter.autoscaler.controller.state import AutoscalerState
from adapter.autoscaler.interfaces import Forecasts, Key
from adapter.model.clock import DecisionClock
from adapter.model.fairness import Turns
from adapter.model.timestamps import SECOND
from adapter.runtime.waits import wait_for
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects

_log = logging.getLogger(__name__)

_STEP = 0.004
"""For how long, in seconds, autoscalers are decided in a row before other tasks may run."""

UNEXPECTED = "unexpected error while deciding an autoscaler"

_CLOCK_PERIOD = 1.0
_LAST_WRITES = 0.5
"""For how many seconds writes in progress may go on when a slice ends; its fence may allow less."""

_MOST_STALE = 1000
"""Former entries in the heap beside twice those that count; then all are dropped."""

_MOST_NEW = 64
"""The most keys that begin to wait for a turn in one step: at a start all are due."""


class Due(NamedTuple):
    key: Key
    at: float


class Scheduler:
    """Keys with the times at which they are due, in seconds of one clock; each key is due once.

    Those that are due are taken in turns of their namespaces: one that has many, or costly ones, keeps no
    other waiting.
    """

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
        self._turns: Turns[Key] = Turns()
        self._numbers = itertools.count()

    def schedule(self, key: Key, due: float) -> None:
        """Make a key due at a time, unless it is due sooner anyway."""
        known = self._due.get(key)
        if known is not None and due >= known:
            return
        self._due[key] = due
        # A former entry of the key stays in the heap; `next_due` drops it when it comes up.
        heapq.heappush(self._heap, (due, next(self._numbers), key))
        if len(self._heap) > _MOST_STALE + 2 * len(self._due):
            self._heap = [(at, next(self._numbers), other) for other, at in self._due.items()]
            heapq.heapify(self._heap)

    def remove(self, key: Key) -> None:
        self._due.pop(key, None)
        self._turns.discard(key.namespace, None, key)

    def next_due(self) -> float | None:
        """Return when the first key is due, None without keys."""
        if self._turns:
            return -math.inf
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # a former time
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> Due | None:
        """Remove and return a key that is due at `now`, None without one.

        Of the namespace whose turn it is, that is the one that has been due for the longest time.
        """
        heap, new = self._heap, 0
        while heap and heap[0][0] <= now and new < _MOST_NEW:
            due, _, key = heapq.heappop(heap)
            if self._due.get(key) == due:  # else a former time
                self._turns.add(key.namespace, None, key)
                new += 1
        if not self._turns:
            return None
        key = self._turns.take()
        return Due(key, self._due.pop(key))


@dataclass(slots=True, eq=False)
class DecisionLoop:
    """When autoscalers are decided. `find` and `names` tell which there are, as the `Controller` has them."""

    find: Callable[[Key], AutoscalerState | None]
    names: Callable[[], Iterable[Key]]
    reconciler: Reconciler
    forecasts: Forecasts
    changes: Changes
    clock: DecisionClock
    monitoring: Monitoring
    _defects: Defects = field(init=False)
    _scheduler: Scheduler = field(default_factory=Scheduler, init=False)
    _again: dict[Key, float] = field(default_factory=dict, init=False)
    _writes: dict[asyncio.Task[None], AutoscalerState] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._defects = Defects(self.monitoring)

    def seconds_until(self, time: int) -> float:
        """Return the seconds to a time of day, in nanoseconds; less than 0 after it."""
        return self.clock.monotonic_at(time) - self.clock.monotonic()

    def begin(self, key: Key, again: float) -> None:
        """Decide an autoscaler now, and after `again` seconds, which spread what follows over a period."""
        self._again[key] = again
        self._scheduler.schedule(key, self.clock.monotonic())
        self.changes.wake.set()

    def touch(self, key: Key) -> None:
        """Note that inputs of an autoscaler have changed: decide it now, or soon if it was just decided."""
        state = self.find(key)
        if state is None:
            return
        turn = state.turn
        if turn.is_writing:
            turn.has_changed = True
            return
        self._scheduler.schedule(key, max(self.clock.monotonic(), turn.decided + turn.rest))
        self.changes.wake.set()

    def remove(self, key: Key) -> None:
        self._scheduler.remove(key)
        self._again.pop(key, None)

    async def run(self) -> None:
        while True:
            self._take_changes()  # what is noted from now on wakes it
            await self._wait()
            await self.tick()

    def _take_changes(self) -> None:
        keys, events = self.changes.take()
        for key in keys:
            self.touch(key)
        for key, event in events:
            if (state := self.find(key)) is not None:
                with self._defects.contain(UNEXPECTED, key):
                    self.reconciler.actuator.event(state.spec.object, event)

    async def end(self, states: Collection[AutoscalerState]) -> None:
        """Return when the writes in progress of some autoscalers have ended, or are cancelled.

        A cancelled write may still be carried out by the API server, when the slice has another owner.
        """
        ending = set(states)
        writes = [task for task, state in self._writes.items() if state in ending]
        try:
            if writes:
                await asyncio.wait(writes, timeout=_LAST_WRITES)
        finally:
            for task in writes:
                task.cancel()
            await asyncio.gather(*writes, return_exceptions=True)

    async def _wait(self) -> None:
        """Wait until an autoscaler is due, or the clock is to be looked at."""
        due = self._scheduler.next_due()
        wait = _CLOCK_PERIOD if due is None else due - self.clock.monotonic()
        if wait <= 0:
            await asyncio.sleep(0)
            return
        await wait_for(self.changes.wake, min(wait, _CLOCK_PERIOD))

    async def tick(self) -> None:
        """Decide all autoscalers that are due."""
        self._take_changes()
        if by := self.clock.jump():
            self._follow_clock(by)
        started = now = self.clock.monotonic()
        while (due := self._scheduler.pop(now)) is not None:
            state = self.find(due.key)
            if state is None or state.turn.is_writing:
                continue
            self.monitoring.scaler_lag.observe(now - due.at)
            state.turn.decided = now
            try:
                result = self.reconciler.sync(state)
            except Exception as error:  # noqa: BLE001 - one autoscaler's defect writes nothing for it and leaves the others alone
                self._defects.note(UNEXPECTED, error, state.key)
                result = self.reconciler.fail(state)
            now = self.clock.monotonic()
            if result.write is None:
                self._follow(state, result, now)
            else:
                state.turn.is_writing = True
                task = asyncio.create_task(self._write(state, result.write), name=f"write {state.key}")
                self._writes[task] = state
                task.add_done_callback(self._writes.pop)
            if now - started > _STEP:
                await asyncio.sleep(0)
                started = now = self.clock.monotonic()

    def _follow(self, state: AutoscalerState, result: SyncResult, now: float) -> None:
        """Have an autoscaler decided again when the result of a sync, or of a write, says so."""
        state.turn.rest = result.rest
        again = min(result.again, max(result.rest, self._again.pop(state.key, math.inf)))
        if not state.turn.is_closed:
            self._scheduler.schedule(state.key, now + again)

    def _follow_clock(self, by: int) -> None:
        """Look at once at what begins and ends at times of day."""
        clock = facts(seconds=round(by / SECOND, 3))
        _log.warning("the system clock was set; times of day are looked at again", extra=clock)
        for key in self.names():
            state = self.find(key)
            if state is not None and state.bounds.until is not None:
                self.touch(key)
        self.forecasts.clock_set()

    async def _write(self, state: AutoscalerState, pending: PendingScale) -> None:
        turn = state.turn
        try:
            result = await self.reconciler.write(state, pending)
        except Exception as error:  # noqa: BLE001 - as above
            self._defects.note(UNEXPECTED, error, state.key)
            result = self.reconciler.fail(state)
        finally:
            turn.is_writing = False
        self._follow(state, result, self.clock.monotonic())
        self.changes.wake.set()
        if turn.has_changed:
            turn.has_changed = False
            self.touch(state.key)
