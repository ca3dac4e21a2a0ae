"""Demand on a grid of equal steps, and which steps had the same local time some days earlier.

What repeats each day repeats in local time: after a night on which the clock was set, eight o'clock is 23 or
25 hours after the eight o'clock before. `positions_before` finds, for each step, the step that had the same
local time some days earlier. Where the clock skipped that time it is the last step before the gap, and of a
time that was shown twice the later one.
"""

import itertools
from collections.abc import Iterable
from datetime import date
from typing import NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from adapter.model import local_time

DAY = 86_400

Values = NDArray[np.float64]
Positions = NDArray[np.int64]


class DemandGrid(NamedTuple):
    """Demand in the unit of its metric: `values[i]` at `start + i * step`, NaN in a gap.

    `start` is in seconds since 1970 and `step` in seconds; both are multiples of a step that divides an hour.
    """

    start: int
    step: int
    values: Values
    zone: ZoneInfo

    @property
    def end(self) -> int:
        return self.start + len(self.values) * self.step

    def part(self, begin: int, end: int) -> "DemandGrid":
        """Return the grid from one instant to another, which are multiples of the step within it."""
        first, last = ((instant - self.start) // self.step for instant in (begin, end))
        return self._replace(start=begin, values=self.values[first:last])

    def extended(self, steps: int) -> "DemandGrid":
        """Return the grid with so many unknown steps at its end: those that are forecast."""
        return self._replace(values=np.append(self.values, np.full(steps, np.nan)))


def of_segments(
    segments: Iterable[tuple[int, int, float]], start: int, seconds: int, step: int, zone: ZoneInfo
) -> DemandGrid:
    """Return the grid of a step function: the highest value within each step, NaN if none is known.

    `segments` are begin, end and value, in seconds since `start` and in the order of time.
    """
    values = np.full(-(-seconds // step), np.nan)
    for begin, end, value in segments:
        first, last = begin // step, -(-end // step)
        values[first:last] = np.fmax(values[first:last], value)
    return DemandGrid(start, step, values, zone)


def local_steps(grid: DemandGrid) -> Positions:
    """Return the local time of each step, in steps since 1970 on the clock of the zone."""
    instants = grid.start + np.arange(len(grid.values), dtype=np.int64) * grid.step
    local = np.empty_like(instants)
    edges = [grid.start, *local_time.transitions(grid.start + 1, grid.end, grid.zone), grid.end]
    for begin, end in itertools.pairwise(edges):
        inside = (instants >= begin) & (instants < end)
        local[inside] = instants[inside] + local_time.offset_at(begin, grid.zone)
    return local // grid.step


def positions_before(local: Positions, step: int, days: int) -> Positions:
    """Return for each step the position of the same local time so many days before, -1 if it is not known.

    `local` are the local times of all steps. A position is always before the step itself.
    """
    first = int(local.min())
    positions = np.full(int(local.max()) - first + 1, -1, dtype=np.int64)
    positions[local - first] = np.arange(len(local))  # of a time that comes twice the later position stays
    positions = np.maximum.accumulate(positions)  # a time that was skipped: the last before it
    wanted = local - days * DAY // step - first
    return np.where(wanted >= 0, positions[np.maximum(wanted, 0)], -1)


def same_time_median(
    grid: DemandGrid, local: Positions, days: Iterable[int], exceptions: frozenset[date]
) -> Values:
    """Return for each step the median demand at the same local time so many days before, NaN for none.

    Days in `exceptions` are no examples, and nothing is known about them.
    """
    dates = [(day - date(1970, 1, 1)).days for day in exceptions]
    excepted = np.isin(local * grid.step // DAY, dates)
    values = np.where(excepted, np.nan, grid.values)
    before = np.stack([positions_before(local, grid.step, ago) for ago in days])
    samples = np.where(before >= 0, values[np.maximum(before, 0)], np.nan)
    known = ~np.isnan(samples).all(axis=0) & ~excepted
    medians = np.full(len(values), np.nan)
    medians[known] = np.nanmedian(samples[:, known], axis=0)
    return medians
