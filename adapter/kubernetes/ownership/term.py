"""For how long a Lease holds: for its owner, whose ownership of a slice is a term, and for all others.

The fence is the check before every write. It is open only while this process certainly holds its Lease. No
other process clears the Lease before its whole duration has passed since the last confirmed renewal was
*sent*. The fence closes earlier, at the renew deadline, counted from that same instant, and every write ends
by then (`LeaseFence`). The time between deadline and duration covers what the network still delivers and
clocks of unequal speed.

Others count the duration from when they have *seen* the last change, which is later, each by a clock of its
own (`Unchanged`). Then they clear the Lease in the version that has not changed: of a renewal that lands in
between, the version is another one.

A closed fence never opens again, and a term that has ended never begins again. The next membership has its
own, so nothing that is left over from a former one can write in it.
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
        try:
            return self.check()
        except errors.NotLeadingError:
            return 0.0

    def check(self) -> float:
        """Return how many seconds a write that starts now may take; raise `NotLeadingError` if none."""
        sent, since_sent = self.sent, self._clock.monotonic() - self.sent.monotonic
        left = self._hold - since_sent
        if self.closed:
            raise errors.NotLeadingError("the lease is no longer held")
        if left <= 0:
            raise errors.NotLeadingError("the lease was not renewed in time")
        if abs(self._clock.wall() - sent.wall - since_sent) > self._tolerance:
            raise errors.NotLeadingError("the clock has jumped since the lease was last renewed")
        return left


class Unchanged:
    """For how long something has been the same, by all looks of this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._state: object = self  # like nothing that is seen
        self._since = self._looked = -math.inf

    def see(self, state: object, gap: float = math.inf) -> float:
        """Note what a look shows; return for how many seconds all looks have shown that.

        It begins again after a `gap` between two looks, in which other things may have been true.
        """
        now = self._clock.monotonic()
        if state != self._state or now - self._looked > gap:
            self._state, self._since = state, now
        self._looked = now
        return now - self._since


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
