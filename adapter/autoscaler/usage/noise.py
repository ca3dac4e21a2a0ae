"""How much the usage of a workload varies by chance: what a difference must exceed to count as a change.

A rate over seconds varies although the load does not: requests come at random, and counters have steps. So
the means of one window after another are kept, and neighbors are compared. What most of their differences
stay within is the noise: a step of the load is one difference of many and does not count. Real servers are
less even than a normal distribution. A median would miss their bursts, so a high quantile is taken.
"""

import math
from collections import deque
from itertools import pairwise

MOST = 61
"""The means that are kept."""

FEWEST = 13
"""The means before which the noise is not known."""

QUANTILE = 0.8
"""The part of the differences that is noise: up to a fifth may be steps of the load."""

BEYOND = 3.5
"""What a difference must exceed, in those of the quantile: six deviations of a normal distribution."""


class Noise:
    """The noise of one workload's mean usage over windows of `window` seconds."""

    __slots__ = ("_latest", "_means", "_window", "share")

    def __init__(self, window: float, share: float | None = None) -> None:
        """`share` is that of before, until it is known again."""
        self._window = window
        self._means: deque[float] = deque(maxlen=MOST)
        self._latest = -math.inf
        self.share = share
        """The difference, as a share of the usage, that chance may explain; None if not yet known."""

    def add(self, time: float, mean: float) -> None:
        """Take the mean over the window before `time`; one that overlaps with the last is ignored."""
        if time - self._latest >= self._window:
            self._means.append(mean)
            self._latest = time
            if len(self._means) >= FEWEST:
                differences = sorted(
                    abs(one - other) / (one + other) * 2 if one + other else 0.0
                    for one, other in pairwise(self._means)
                )
                self.share = BEYOND * differences[int(QUANTILE * len(differences))]
