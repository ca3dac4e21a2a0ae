"""The fence before every write: open only while the lease is surely held.

What lives here: the arithmetic of "surely". Not here: the lease itself (`leaderelection`), the writes (`writes`). The law: nobody else
can take the lease before its whole duration has passed since the last confirmed renewal was *sent*; a fence shuts a good deal
earlier, at the renew deadline, counted from that same instant. Everything that is written is over by then, so what lies between
deadline and duration is room for what a network still delivers and for clocks of unequal pace. A fence that was closed never opens
again: the next term has one of its own, and nothing left over from a former term can write in it.
"""

import math
from typing import NamedTuple, Protocol

from adapter.errors import NotLeadingError
from adapter.model.clock import Clock


class Fence(Protocol):
    """What has to be asked before a write."""

    def check(self) -> float:
        """Return for how many seconds a write that starts now may be under way; raise `NotLeadingError` for none."""
        ...


class Reading(NamedTuple):
    """Both clocks at one instant."""

    monotonic: float
    wall: float


def read(clock: Clock) -> Reading:
    """Return both clocks now."""
    return Reading(clock.monotonic(), clock.wall())


class LeaseFence:
    """The fence of one term. `hold` is how many seconds a renewal is good for, `tolerance` how far the two clocks may part.

    The monotonic clock stands still while a machine sleeps, the time of day does not: when they part by more than `tolerance`
    since the renewal, either somebody set the clock or time has passed unseen. Both shut the fence until the lease was renewed.
    """

    def __init__(self, clock: Clock, sent: Reading, *, hold: float, tolerance: float) -> None:
        self._clock = clock
        self._sent = sent
        self._hold = hold
        self._tolerance = tolerance
        self._closed = False

    def renewed(self, sent: Reading) -> None:
        """Note that a renewal sent at that instant was confirmed."""
        if sent.monotonic > self._sent.monotonic:
            self._sent = sent

    def close(self) -> None:
        """End the term: no write from now on."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """Whether the term is over."""
        return self._closed

    @property
    def sent(self) -> Reading:
        """Return when the last renewal that was confirmed had been sent."""
        return self._sent

    @property
    def due(self) -> float:
        """Return how many seconds are left for the next renewal, by the monotonic clock alone; not more than 0 if none."""
        return self._sent.monotonic + self._hold - self._clock.monotonic()

    def left(self) -> float:
        """Return for how many seconds a write that starts now may be under way, 0 for none."""
        if self._closed or self._parted() > self._tolerance:
            return 0.0
        return max(0.0, self.due)

    def check(self) -> float:
        """Return as `left`; raise `NotLeadingError` for 0."""
        left = self.left()
        if left <= 0:
            raise NotLeadingError(self._why())
        return left

    def _parted(self) -> float:
        now = read(self._clock)
        return abs((now.wall - self._sent.wall) - (now.monotonic - self._sent.monotonic))

    def _why(self) -> str:
        if self._closed:
            return "the lease is no longer held"
        if self._parted() > self._tolerance:
            return "the clock has jumped since the lease was last renewed"
        return "the lease was not renewed in time"


class Unfenced:
    """The fence of a process that runs without leader election: always open."""

    def check(self) -> float:
        """Return infinity."""
        return math.inf
