"""Whether a counter that pods expose shows what their container uses, and by which factor.

A process is not a container. A server with several processes exposes the counter of one; a client library
without a process collector exposes none; a counter may lie. So before the counter counts, the usage that it
shows is compared with the usage of the container over the same time, as often as the latter is sampled. The
*ratio* of a workload is the median of the last comparisons of its pods, and it counts while

- there are `FEWEST` comparisons,
- it is in the `BAND`. Beyond it, a part of the usage is not in the counter, and nothing says that this part
  grows with the other. Within the band an error stays within the default tolerance of an autoscaler;
- most comparisons are close to it. They are not where each scrape reaches another worker process.

A pod whose own last comparison is far from the ratio is *apart*: it has no fast value until one is close.
While the load moves, the counter's means over shifted windows differ. Such a comparison shows no ratio, and
the container's usage agrees if it lies between them. New pods have the ratio of the others.
"""

from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

MOST = 32
"""The comparisons that count."""

FEWEST = 3
"""The comparisons before which nothing is known."""

BAND = (0.9, 1.1)
"""The ratios that count: the default tolerance of an autoscaler around 1."""

SPREAD = 0.1
"""How far a comparison may be from the ratio, as a part of it, and still be close."""

CLOSE = 0.75
"""The part of the comparisons that must be close."""

STEADY = 1.05
"""How much the counter's means may differ while the window is shifted, as a ratio, to show the ratio."""

JUMP = 0.5
"""Below this ratio a steady counter cannot be explained: the container would use half of what it shows."""

MOST_PROCESSES = 64
"""The most processes that a ratio is explained by."""


class Comparison(NamedTuple):
    """The usage of a pod's container, and what its counter shows over the same time, in one unit.

    When a window began and ended is not known exactly. `lowest` and `highest` are the counter's means over
    windows that are shifted. A container that uses less than `least` uses too little for a ratio.
    """

    pod: str
    container: float
    counter: float
    lowest: float
    highest: float
    least: float = 0.0

    @property
    def ratio(self) -> float | None:
        """The usage of the container as a multiple of the counter; None if it is not known."""
        if self.container < self.least or not self.counter or self.highest > STEADY * self.lowest:
            return None
        return self.container / self.counter

    def agrees(self, ratio: float) -> bool:
        """Tell whether the counter shows what the container uses, at the ratio of the workload."""
        if self.container < self.least:
            return self.lowest * ratio <= self.least
        low, high = self.lowest * ratio * (1.0 - SPREAD), self.highest * ratio * (1.0 + SPREAD)
        return low <= self.container <= high


class Calibration(msgspec.Struct, frozen=True):
    """The last ratios of a workload, oldest first, and the pods that are apart."""

    ratios: tuple[float, ...] = ()
    apart: frozenset[str] = frozenset()


class CalibrationVerdict(NamedTuple):
    """The ratio that counts, or None and why: the reason of a condition, and one sentence."""

    ratio: float | None
    reason: str = "Agrees"
    why: str = ""


UNKNOWN = Calibration()


def follow(before: Calibration, comparisons: Sequence[Comparison]) -> Calibration:
    shown = (comparison.ratio for comparison in comparisons)
    ratios = (*before.ratios, *(ratio for ratio in shown if ratio is not None))[-MOST:]
    if not ratios:
        return before
    middle = median(ratios)
    agreeing = {comparison.pod: comparison.agrees(middle) for comparison in comparisons}
    apart = before.apart.union(pod for pod, agrees in agreeing.items() if not agrees)
    return Calibration(ratios, apart.difference(pod for pod, agrees in agreeing.items() if agrees))


def without(before: Calibration, gone: Iterable[str]) -> Calibration:
    return Calibration(before.ratios, before.apart.difference(gone))


def judge(calibration: Calibration, counter: str) -> CalibrationVerdict:
    """Return the ratio that counts, or why none does; `counter` names what the pods expose."""
    ratios = calibration.ratios
    if len(ratios) < FEWEST:
        return CalibrationVerdict(
            None,
            "NotCompared",
            f"{counter} has been compared with the container's usage {len(ratios)} times: "
            f"{FEWEST} are needed",
        )
    middle = median(ratios)
    close = sum(abs(ratio - middle) <= SPREAD * middle for ratio in ratios)
    if close < CLOSE * len(ratios):
        # A counter that jumps between processes reads as a rate of any size, which says nothing.
        jumps = min(ratios) < JUMP
        how = "" if jumps else f", which is {min(ratios):.2g} to {max(ratios):.2g} times as much"
        may = "each scrape may reach another process" if jumps else "it may be that of one process of several"
        why = f"{counter} does not follow the container's usage{how}: {may}"
        return CalibrationVerdict(None, "Unsteady", why)
    if BAND[0] <= middle <= BAND[1]:
        return CalibrationVerdict(middle)
    if middle < 1.0:
        return CalibrationVerdict(
            None, "TooMuch", f"{counter} shows {1 / middle:.3g} times the container's usage"
        )
    why = f"{_missing(middle)} in {counter}: the container uses {middle:.3g} times as much"
    return CalibrationVerdict(None, "TooLittle", why)


def _missing(ratio: float) -> str:
    """Return what is not in the counter, from the container's usage as a multiple of it."""
    processes = round(min(ratio, MOST_PROCESSES))
    if processes < 2 or abs(ratio - processes) > SPREAD * ratio:
        return "a part of the usage is not"
    return f"{processes - 1} of {processes} processes {'is' if processes == 2 else 'are'} not"
