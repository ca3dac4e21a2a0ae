"""A term: one process owns one slice, from when it has taken the Lease until it gives the slice up.

The term is the fence of its owner, the check before every write. It is open only while this process certainly
holds its Lease. No other process clears the Lease before its whole duration has passed since the last
confirmed renewal was *sent*. The fence closes earlier, at the renew deadline, counted from that same instant,
and every write ends by then. The time between deadline and duration covers what the network still delivers
and clocks of unequal speed. A term that has ended never begins again: nothing that is left over from it can
write in the next one.
"""

import math
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from adapter import errors
from adapter.model.clock import Clock


class ClockReading(NamedTuple):
    """Both clocks at one instant."""

    monotonic: float
    wall: float


def read_clocks(clock: Clock) -> ClockReading:
    return ClockReading(clock.monotonic(), clock.wall())


class LeaseFence:
    """The fence of one membership. A renewal is valid for `hold` seconds.

    `tolerance` bounds the divergence of the two clocks.

    The monotonic clock stops while a machine is suspended, the wall clock does not. If they diverge by more
    than `tolerance`, the clock was set or the machine suspended, which closes the fence. Both can cancel out.
    """

    def __init__(self, clock: Clock, sent: ClockReading, *, hold: float, tolerance: float) -> None:
        self.sent = sent
        """When the last confirmed renewal was sent."""
        self._clock = clock
        self._hold = hold
        self._tolerance = tolerance
        self.closed = False

    def renewed(self, sent: ClockReading) -> None:
        """Record the time at which a confirmed renewal was sent."""
        if sent.monotonic > self.sent.monotonic:
            self.sent = sent

    def close(self) -> None:
        """End the membership: no writes from now on."""
        self.closed = True

    @property
    def due(self) -> float:
        """Seconds left for the next renewal, by the monotonic clock alone; 0 or less if none."""
        return self.sent.monotonic + self._hold - self._clock.monotonic()

    def left(self) -> float:
        """Return how many seconds a write that starts now may take, 0 for none."""
        now, sent = read_clocks(self._clock), self.sent
        parted = abs((now.wall - sent.wall) - (now.monotonic - sent.monotonic))
        if self.closed or parted > self._tolerance:
            return 0.0
        return max(0.0, sent.monotonic + self._hold - now.monotonic)

    def check(self) -> float:
        """Return `left()`; raise `NotLeadingError` if it is 0."""
        left = self.left()
        if left > 0:
            return left
        if self.closed:
            why = "the lease is no longer held"
        elif self.due > 0:
            why = "the clock has jumped since the lease was last renewed"
        else:
            why = "the lease was not renewed in time"
        raise errors.NotLeadingError(why)


class Term:
    """The ownership of the slice with this `number`, until it ends; without Leases that of any slice.

    It is open while all `fences` are: that of the owner's membership, and that of its view of the Leases. If
    the view is old, the Lease of the slice may have been deleted.
    """

    def __init__(self, number: int, *fences: LeaseFence) -> None:
        self.number = number
        self._fences = fences
        self._has_ended = False

    def end(self) -> None:
        """Give the slice up: no writes from now on."""
        self._has_ended = True

    def check(self) -> float:
        """Return how many seconds a write that starts now may take; raise `NotLeadingError` if none."""
        if self._has_ended:
            raise errors.NotLeadingError("the slice belongs to another scaler")
        return min((fence.check() for fence in self._fences), default=math.inf)


Work = Callable[[Term], Awaitable[None]]
"""What the owner of a slice does, cancelled when the slice is given up. It must leave no write in flight."""
