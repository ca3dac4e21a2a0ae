"""What one pod used lately by its own counter: the mean over any interval of the last minutes.

A container's usage arrives late, as a mean over a window that ended some time ago. To compare it with the
counter, the counter's mean over the same window must still be known. So a history keeps the integral of the
usage over time at instants that lie `STEP` apart, and a mean is the difference of two of them.
"""

import bisect
import math
from array import array

STEP = 2.0
"""Seconds between two instants that are kept. Between them the usage counts as constant."""

LONGEST_GAP = 10.0
"""After so many seconds without a value a history begins again: what happened in between is not known."""


class UsageHistory:
    """The usage of one pod over the last seconds. Times are seconds since the epoch."""

    __slots__ = ("_integrals", "_times", "_total", "latest")

    def __init__(self) -> None:
        self._times = array("d")
        self._integrals = array("d")
        self._total = 0.0
        self.latest = 0.0
        """The time of the last value."""

    @property
    def begun(self) -> float:
        """Since when the usage is known; infinite before the first value."""
        return self._times[0] if self._times else math.inf

    def add(self, time: float, value: float, kept: float) -> None:
        """Take the usage since the last value, and forget what is older than `kept` seconds.

        A value that is not later than the last one is ignored.
        """
        passed = time - self.latest
        if passed <= 0.0:
            return
        if not self._times or passed > LONGEST_GAP:
            self._times, self._integrals, self._total = array("d", [time]), array("d", [0.0]), 0.0
        else:
            self._total += value * passed
            if time - self._times[-1] >= STEP:
                self._times.append(time)
                self._integrals.append(self._total)
                self._forget(time - kept)
        self.latest = time

    def mean(self, begin: float, end: float) -> float | None:
        """Return the mean usage from `begin` to `end`, None if a part of that time is not known."""
        if not self._times or begin < self._times[0] or end > self.latest or begin >= end:
            return None
        return (self._integral(end) - self._integral(begin)) / (end - begin)

    def _integral(self, time: float) -> float:
        """Return the integral up to an instant between the first and the latest."""
        after = bisect.bisect_right(self._times, time)
        start, before = self._times[after - 1], self._integrals[after - 1]
        if after < len(self._times):
            end, total = self._times[after], self._integrals[after]
        else:
            end, total = self.latest, self._total
        return before if end <= start else before + (total - before) * (time - start) / (end - start)

    def _forget(self, limit: float) -> None:
        """Forget the instants before `limit`, except for the last of them."""
        excess = bisect.bisect_right(self._times, limit) - 1
        if excess > 0:
            del self._times[:excess], self._integrals[:excess]
