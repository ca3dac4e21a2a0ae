"""Start-up times of pods, and how long the last of several pods takes.

A raise is complete when the last of its pods is Ready. If F is the share of pods that are Ready within a
time, all of k pods are with a probability of F ** k. So the time that is enough for 95 of 100 raises is the
percentile 100 * 0.95 ** (1 / k) of pods: the 95th for one pod, the 99.7th for sixteen.

That is beyond what 50 pods show: the slowest of n is the slowest of k more with a probability of n / (n + k)
only. So the tail beyond the 95th percentile is taken as exponential. From the 50th to the 95th percentile the
share of slower pods falls to a tenth, so each tenfold of pods adds this difference once more. Where single
pods are far slower than the others, as on a new node, the measured percentile is more, and counts.

The slowest of n pods is slower than a new pod with a probability of n / (n + 1). With fewer than 19 pods the
95th percentile that was measured is therefore a lower one.

Pods of one raise are not independent: they may wait for the same node or the same registry. Then they are
late together, and the last of them is less late than that of independent ones.
"""

import bisect
import itertools
import math
from array import array
from collections.abc import Iterable

LATE = 0.05
"""The share of raises whose last pod may take longer."""

_MEDIAN = 0.5


class StartUps:
    """Start-up times in seconds with their weights, at least one. Of those, the slowest are kept.

    A percentile is the smallest time that pods with so much of the weight do not exceed.
    """

    __slots__ = ("_count", "_reached", "_slowest", "p50", "p95")

    def __init__(self, times: Iterable[tuple[float, int]]) -> None:
        ordered = sorted(times)
        seconds = [time for time, _ in ordered]
        reached = [*itertools.accumulate(weight for _, weight in ordered)]
        middle, high = (bisect.bisect_left(reached, reached[-1] * percent / 100) for percent in (50, 95))
        self.p50, self.p95 = seconds[middle], seconds[high]
        self._count = len(seconds)
        self._slowest, self._reached = array("d", seconds[high:]), array("I", reached[high:])

    @classmethod
    def of(cls, seconds: Iterable[float]) -> "StartUps":
        """Return times of the same weight."""
        return cls((time, 1) for time in seconds)

    def until_last(self, pods: int, most: int) -> float:
        """Return the seconds until the last of `pods` is Ready in 95 of 100 raises, at most `most`.

        Single pods beyond `most` do not count: nothing that ends there helps them.
        """
        if self.p95 >= most:
            return most
        slowest = bisect.bisect_right(self._slowest, most) - 1
        wanted = self._reached[slowest] * (1 - LATE) ** (1 / pods)
        last = self._slowest[bisect.bisect_left(self._reached, wanted, 0, slowest)]
        if self._count > 1:
            slower = max(LATE, 1 / (self._count + 1))  # the share of pods that take longer than p95
            scale = (self.p95 - self.p50) / math.log(_MEDIAN / slower)
            last = max(last, self.p95 + scale * math.log(pods * slower / LATE))
        return min(last, most)
