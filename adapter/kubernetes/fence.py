"""The fence of a leader: the check before every write that this process still holds the lease.

The fence is open only while this process certainly holds the lease. No other candidate can take the lease
before its whole duration has passed since the last confirmed renewal was *sent*. The fence closes earlier, at
the renew deadline, counted from that same instant, and every write ends by then. The time between deadline
and duration covers what the network still delivers and clocks of unequal speed. A closed fence never opens
again. The next term has its own, so nothing that is left over from a former term can write in it.
"""

import math
from typing import NamedTuple, Protocol

from adapter import errors
from adapter.model.clock import Clock


class Fence(Protocol):
    """The check before a write."""

    def check(self) -> float:
        """Return how many seconds a write that starts now may take; raise `NotLeadingError` if none."""


class ClockReading(NamedTuple):
    """Both clocks at one instant."""

    monotonic: float
    wall: float


def read_clocks(clock: Clock) -> ClockReading:
    return ClockReading(clock.monotonic(), clock.wall())


class LeaseFence:
    """The fence of one term. A renewal is valid for `hold` seconds.

    `tolerance` bounds the divergence of the two clocks.

    The monotonic clock stops while a machine is suspended, the wall clock does not. If they diverge by more
    than `tolerance` after a renewal, the clock was set or the machine was suspended. Either closes the fence
    until the next renewal.
    """

    def __init__(self, clock: Clock, sent: ClockReading, *, hold: float, tolerance: float) -> None:
        self._clock = clock
        self._sent = sent
        self._hold = hold
        self._tolerance = tolerance
        self._closed = False

    def renewed(self, sent: ClockReading) -> None:
        """Record the time at which a confirmed renewal was sent."""
        if sent.monotonic > self._sent.monotonic:
            self._sent = sent

    def close(self) -> None:
        """End the term: no writes from now on."""
        self._closed = True

    @property
    def closed(self) -> bool:
        return self._closed

    @property
    def sent(self) -> ClockReading:
        return self._sent

    @property
    def due(self) -> float:
        """Seconds left for the next renewal, by the monotonic clock alone; 0 or less if none."""
        return self._sent.monotonic + self._hold - self._clock.monotonic()

    def left(self) -> float:
        """Return how many seconds a write that starts now may take, 0 for none."""
        now, sent = read_clocks(self._clock), self._sent
        parted = abs((now.wall - sent.wall) - (now.monotonic - sent.monotonic))
        if self._closed or parted > self._tolerance:
            return 0.0
        return max(0.0, sent.monotonic + self._hold - now.monotonic)

    def check(self) -> float:
        """Return `left()`; raise `NotLeadingError` if it is 0."""
        left = self.left()
        if left <= 0:
            raise errors.NotLeadingError(self._why())
        return left

    def _why(self) -> str:
        if self._closed:
            return "the lease is no longer held"
        if self.due > 0:
            return "the clock has jumped since the lease was last renewed"
        return "the lease was not renewed in time"


class Unfenced:
    """The fence without leader election: always open."""

    def check(self) -> float:
        return math.inf
