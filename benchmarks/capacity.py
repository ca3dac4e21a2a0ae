"""How long pods take to start, and when a workload had the capacity that it needed: arithmetic, no IO.

Start-up times are lognormal. They are never negative, most lie near the median, and a few are much longer, as
those of images that are pulled and of nodes that are busy. With `SIGMA` the 95th percentile is 1.6 times the
median. Every autoscaler gets the same draws, so that they differ in nothing but their own delay.
"""

import math
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SIGMA = 0.3
"""The standard deviation of the logarithm of a start-up time."""

STARTED_SHARE = 0.3
"""The part of a start-up time after which the containers run: what is left, the application is not ready."""

SHARE = 0.9
"""The part of the needed pods that is waited for. Within its tolerance of 10 % an HPA asks for no more."""


class Startup(NamedTuple):
    """Seconds after the creation of a pod: until its containers run, and until it is Ready."""

    started: float
    ready: float


def draw_startups(median: float, count: int, seed: str) -> list[Startup]:
    """Return the start-up times of `count` pods; `median` is in seconds. Equal seeds give equal times."""
    draws = random.Random(seed)
    times = [median * draws.lognormvariate(0.0, SIGMA) for _ in range(count)]
    return [Startup(STARTED_SHARE * time, time) for time in times]


def enough_of(needed: int) -> int:
    """Return the number of pods that is `SHARE` of the needed ones."""
    return math.ceil(SHARE * needed - 1e-9)  # 0.9 * 10 is a little more than 9


@dataclass(slots=True)
class PodTimes:
    """When a pod was Ready, was read as such for its autoscaler, and was deleted, in seconds of one clock."""

    ready: float = math.inf
    counted: float = math.inf
    ended: float = math.inf


@dataclass(slots=True)
class WorkloadTimes:
    """What became of a workload whose load stepped at `step`: its pods, and the counts it was scaled to."""

    step: float
    needed: int
    pods: Sequence[PodTimes]
    asked: Sequence[tuple[float, int]] = field(default_factory=list)

    @property
    def enough(self) -> int:
        return enough_of(self.needed)

    def seconds_asked(self) -> float | None:
        """Return the seconds until enough pods were asked for, None if they never were."""
        return next(
            (time - self.step for time, count in self.asked if time >= self.step and count >= self.enough),
            None,
        )

    def seconds_ready(self) -> float | None:
        """Return the seconds until enough pods were Ready."""
        return self._reached(_counts((each.ready, each.ended) for each in self.pods))

    def seconds_counted(self) -> float | None:
        """Return the seconds until enough pods were Ready and counted."""
        return self._reached(_counts((each.counted, each.ended) for each in self.pods))

    def shortage(self, end: float) -> float:
        """Return the pods that were missing from enough Ready ones, times the seconds, from step to `end`."""
        missing = 0.0
        before, ready = self.step, 0
        for time, count in [*_counts((each.ready, each.ended) for each in self.pods), (end, 0)]:
            until = min(max(time, self.step), end)
            missing += max(0, self.enough - ready) * (until - before)
            before, ready = until, count
        return missing

    def ready_counts(self, end: float) -> list[tuple[float, int]]:
        """Return each change of the number of Ready pods until `end`, with its seconds since the step."""
        counts = _counts((each.ready, each.ended) for each in self.pods)
        return [(time - self.step, count) for time, count in counts if time <= end]

    def overshoot(self) -> float:
        """Return the highest count that was asked for after the step, as a multiple of the needed count."""
        return max((count for time, count in self.asked if time >= self.step), default=0) / self.needed

    def _reached(self, counts: Iterable[tuple[float, int]]) -> float | None:
        since = {max(time, self.step): count for time, count in counts}  # the last before the step stays
        return next((time - self.step for time, count in since.items() if count >= self.enough), None)


def _counts(spans: Iterable[tuple[float, float]]) -> list[tuple[float, int]]:
    """Return the number of pods over time: each change with its time, from spans of begin and end."""
    changes: dict[float, int] = {}
    for begin, end in spans:
        if begin < end:
            changes[begin] = changes.get(begin, 0) + 1
            changes[end] = changes.get(end, 0) - 1
    changes.pop(math.inf, None)
    count, counts = 0, []
    for time in sorted(changes):
        count += changes[time]
        counts.append((time, count))
    return counts


def p95(times: Sequence[float]) -> float:
    """Return the 95th percentile, interpolated between the two times beside it."""
    if len(times) < 2:
        return times[0]
    return statistics.quantiles(times, n=20, method="inclusive")[-1]
