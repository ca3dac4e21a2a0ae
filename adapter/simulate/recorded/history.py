"""A load from the history of a metric: which times are asked for, and what the answers say.

The history is a grid of times, one each `step`. A value holds until the next time of the grid; a time without
a value is a gap, and nothing is invented there. The grid and its chunks begin at multiples of the step and of
a chunk, so that the same times are asked for tomorrow, and what is cached can be used again.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from adapter.simulate.load import GREATEST, Load, LoadSpan, of_points

CHUNK_POINTS = 2_000
"""Points of one query: at most 11,000 are allowed, and a query over fewer is easier on Prometheus."""

MOST_POINTS = 3_000_000
"""The longest history, in points of one metric: a year at 15 s."""

SATURATED_FROM = 0.95
"""From which share of its capacity a pod counts as saturated: measured values vary a little around it."""

Values = Mapping[int, float]
"""Values by time in epoch seconds."""


class Grid(NamedTuple):
    """The times from `start` to `end`, the end exclusive, in epoch seconds."""

    start: int
    end: int
    step: int

    @property
    def points(self) -> int:
        return (self.end - self.start) // self.step

    def chunks(self) -> Iterator["Grid"]:
        """Yield the parts of the grid that one query asks for, oldest first."""
        length = self.step * CHUNK_POINTS
        at = self.start
        while at < self.end:
            end = min(self.end, at - at % length + length)
            yield Grid(at, end, self.step)
            at = end


class RecordedHistory(NamedTuple):
    """What was recorded of a metric.

    `total` is the demand of all pods. `least` is the smallest value of a pod, without a value where that is
    not known.
    """

    total: Values
    least: Values


def build_grid(until: float, length: float, step: int) -> Grid:
    """Return the grid that ends at a time in epoch seconds; `length` is in seconds."""
    end = math.floor(until / step) * step
    return Grid(end - max(1, math.ceil(length / step)) * step, end, step)


def build_load(history: RecordedHistory, grid: Grid, capacity: float) -> Load:
    """Return the load of a history; `capacity` is what one pod serves, in the unit of the metric.

    A negative total, and one that the metrics APIs cannot hold, is no demand, and a gap. Where every pod was
    within 5 % of its capacity or above, the load is marked as saturated.
    """
    points = []
    spans: list[LoadSpan] = []
    for second in range(0, grid.end - grid.start, grid.step):
        at = grid.start + second
        total = history.total.get(at, math.nan)
        if not 0 <= total <= GREATEST:
            total = math.nan
        points.append((float(second), total))
        if not math.isnan(total) and history.least.get(at, -math.inf) >= SATURATED_FROM * capacity:
            if spans and spans[-1].end == second:
                spans[-1] = LoadSpan(spans[-1].start, second + grid.step)
            else:
                spans.append(LoadSpan(second, second + grid.step))
    return of_points(points, grid.end - grid.start, tuple(spans))
