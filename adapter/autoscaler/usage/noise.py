"""How much the usage of a workload varies by chance: what a difference must exceed to count as a change.

A rate over seconds varies although the load does not: requests come at random, and counters have steps. So
the means of one window after another are kept, and the standard deviation of such a mean is taken from the
differences between neighbours: their median, so that a step of the load, which is one difference of many,
does not count as noise.
"""

import math
from collections import deque
from itertools import pairwise
from statistics import median

MOST = 61
"""The means that are kept."""

FEWEST = 13
"""The means before which the noise is not known."""

BEYOND = 5.0
"""How many standard deviations a difference must exceed."""

_TO_DEVIATION = 1.4826 / math.sqrt(2)
"""From the median of the absolute differences of two normal values to the standard deviation of one."""


class Noise:
    """The noise of one workload's mean usage over windows of `window` seconds."""

    __slots__ = ("_latest", "_means", "_window")

    def __init__(self, window: float) -> None:
        self._window = window
        self._means: deque[float] = deque(maxlen=MOST)
        self._latest = -math.inf

    def add(self, time: float, mean: float) -> None:
        """Take the mean over the window before `time`; one that overlaps with the last is ignored."""
        if time - self._latest >= self._window:
            self._means.append(mean)
            self._latest = time

    @property
    def share(self) -> float | None:
        """The difference, as a share of the usage, that chance does not explain; None if not yet known."""
        if len(self._means) < FEWEST:
            return None
        differences = [
            abs(one - other) / (one + other) * 2 if one + other else 0.0
            for one, other in pairwise(self._means)
        ]
        return BEYOND * _TO_DEVIATION * median(differences)
