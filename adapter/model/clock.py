"""The clock as a protocol, and the two times that decisions know.

The *time of decisions*, `now`, is the monotonic clock in nanoseconds, counted from the time of day at which
the process began. It never jumps. What is remembered counts in it, so windows, policies, pauses and floors
keep their ages when the machine's clock is set. The *time of day*, `time`, is later by `set_by`, which is
what the clock was set by since. It is made where an API object, a calendar, a sample or a person needs it.
What was read as a time of day becomes a time of decisions where it is adopted. Until the clock is set both
are the same number.
"""

from typing import Protocol

from adapter.model.timestamps import SECOND

_SLEWED = SECOND
"""A difference between the clocks that a time daemon may cause, which is not a jump."""

_ROUNDING = 1e-6


class Clock(Protocol):
    """Time as an argument. Only the composition root reads the system clock."""

    def wall(self) -> float:
        """Return the time of day in seconds since the epoch; may jump."""

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back; only differences have a meaning."""


class DecisionClock:
    """Both times in nanoseconds, made from a clock whose `monotonic` this is."""

    __slots__ = ("_origin", "_wall", "monotonic", "set_by")

    def __init__(self, clock: Clock) -> None:
        self.monotonic, self._wall = clock.monotonic, clock.wall
        self._origin = round(clock.wall() * SECOND) - round(clock.monotonic() * SECOND)
        self.set_by = 0

    def now(self) -> int:
        return round(self.monotonic() * SECOND) + self._origin

    def time_of_day(self, now: int | None = None) -> int:
        """Return the time of day at a time of decisions, None for now."""
        return (self.now() if now is None else now) + self.set_by

    def monotonic_at(self, time: int) -> float:
        """Return the monotonic second at a time of day; not earlier, whatever floats round."""
        return (time - self.set_by - self._origin) / SECOND + _ROUNDING

    def jump(self) -> int:
        """Return by how many nanoseconds the clock was set since the last call, and follow it."""
        wall, monotonic = self._wall(), self.monotonic()
        by = round(wall * SECOND) - round(monotonic * SECOND) - self._origin - self.set_by
        if abs(by) <= _SLEWED:
            return 0
        self.set_by += by
        return by
