"""When each autoscaler is decided: the clock of decisions, and the queue of keys by the time they are due.

Both are pure: the clocks they use are arguments.
"""

import heapq
import itertools
from typing import NamedTuple

from adapter.autoscaler.interfaces import Key
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND

_SLEWED = SECOND
"""A difference between the clocks that a time daemon may cause, which is not a jump."""

_ROUNDING = 1e-6

_MOST_STALE = 1000
"""Former entries in the heap beside twice those that count; then all are dropped."""


class DecisionClock:
    """The time of day in nanoseconds, advanced by the monotonic clock.

    Ages of recommendations and scale events must not change when the machine's clock is set. So the time of
    day is read once and advanced by the monotonic clock. When the two differ, `jump` returns by how much, and
    the caller shifts everything that it remembers by that.
    """

    __slots__ = ("_clock", "_offset")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = round(clock.wall() * SECOND) - round(clock.monotonic() * SECOND)

    def now(self) -> int:
        """Return the time, which never goes back except by what `jump` returned."""
        return round(self._clock.monotonic() * SECOND) + self._offset

    def monotonic_at(self, instant: int) -> float:
        """Return the monotonic second at which it will be `instant`; not earlier, whatever floats round."""
        return (instant - self._offset) / SECOND + _ROUNDING

    def jump(self) -> int:
        """Return by how many nanoseconds the system clock was set since the last call; `now` follows it."""
        wall, monotonic = self._clock.wall(), self._clock.monotonic()
        difference = round(wall * SECOND) - round(monotonic * SECOND) - self._offset
        if abs(difference) <= _SLEWED:
            return 0
        self._offset += difference
        return difference


class Due(NamedTuple):
    """A key, and when it was due."""

    key: Key
    at: float


class Scheduler:
    """Keys with the times at which they are due, in seconds of one clock; each key is due once."""

    def __init__(self) -> None:
        self._due: dict[Key, float] = {}
        self._heap: list[tuple[float, int, Key]] = []
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
            self._heap = [(at, next(self._numbers), each) for each, at in self._due.items()]
            heapq.heapify(self._heap)

    def remove(self, key: Key) -> None:
        self._due.pop(key, None)

    def next_due(self) -> float | None:
        """Return when the first key is due, None without keys."""
        while self._heap and self._due.get(self._heap[0][2]) != self._heap[0][0]:
            heapq.heappop(self._heap)  # a former time
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> Due | None:
        """Remove and return the key that has been due for the longest time, None if none is due at `now`."""
        first = self.next_due()
        if first is None or first > now:
            return None
        due, _, key = heapq.heappop(self._heap)
        del self._due[key]
        return Due(key, due)
