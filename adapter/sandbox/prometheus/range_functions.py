"""The functions of PromQL over the samples of a range, one series at a time.

What lives here: a table of name to function. What does not: selecting samples, labels. Its law: each function does what the one of
the same name in Prometheus does, extrapolation and counter resets included, or it is not in the table.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from adapter.sandbox.prometheus.series import Point


class Window(NamedTuple):
    """The time that a range selector covers, in epoch seconds."""

    start: float
    end: float


RangeFunction = Callable[[Sequence[Point], Window], float | None]


def _extrapolated(
    points: Sequence[Point], window: Window, *, is_counter: bool, is_rate: bool
) -> float | None:
    """Mirror extrapolatedRate of Prometheus: what the samples cover, stretched to the window where they reach close to its ends."""
    if len(points) < 2:
        return None
    first, last = points[0], points[-1]
    growth = last.value - first.value
    if is_counter:
        growth += sum(
            before.value for before, after in itertools.pairwise(points) if after.value < before.value
        )
    covered = last.time - first.time
    to_start, to_end = first.time - window.start, window.end - last.time
    average = covered / (len(points) - 1)
    if is_counter and growth > 0 and first.value >= 0:
        to_start = min(to_start, covered * (first.value / growth))
    reach = covered
    reach += to_start if to_start < average * 1.1 else average / 2
    reach += to_end if to_end < average * 1.1 else average / 2
    growth *= reach / covered
    return growth / (window.end - window.start) if is_rate else growth


def _instant(points: Sequence[Point], *, is_rate: bool) -> float | None:
    if len(points) < 2:
        return None
    before, last = points[-2:]
    if not is_rate:
        return last.value - before.value
    growth = last.value if last.value < before.value else last.value - before.value
    return growth / (last.time - before.time)


def _changes(points: Sequence[Point], counts: Callable[[float, float], bool]) -> float:
    return float(sum(counts(before.value, after.value) for before, after in itertools.pairwise(points)))


def _highest(points: Sequence[Point]) -> float:
    numbers = [point.value for point in points if not math.isnan(point.value)]
    return max(numbers) if numbers else math.nan


def _lowest(points: Sequence[Point]) -> float:
    numbers = [point.value for point in points if not math.isnan(point.value)]
    return min(numbers) if numbers else math.nan


def _total(points: Sequence[Point]) -> float:
    return total([point.value for point in points])


def total(values: Sequence[float]) -> float:
    """Return a sum with compensation, in which infinities of both signs come to NaN."""
    try:
        return math.fsum(values)
    except (OverflowError, ValueError):
        return sum(values)


RANGE_FUNCTIONS: dict[str, RangeFunction] = {
    "rate": lambda points, window: _extrapolated(points, window, is_counter=True, is_rate=True),
    "increase": lambda points, window: _extrapolated(points, window, is_counter=True, is_rate=False),
    "delta": lambda points, window: _extrapolated(points, window, is_counter=False, is_rate=False),
    "irate": lambda points, _: _instant(points, is_rate=True),
    "idelta": lambda points, _: _instant(points, is_rate=False),
    "avg_over_time": lambda points, _: _total(points) / len(points),
    "sum_over_time": lambda points, _: _total(points),
    "min_over_time": lambda points, _: _lowest(points),
    "max_over_time": lambda points, _: _highest(points),
    "count_over_time": lambda points, _: float(len(points)),
    "last_over_time": lambda points, _: points[-1].value,
    "present_over_time": lambda _points, _window: 1.0,
    "changes": lambda points, _: _changes(points, lambda before, after: before != after),
    "resets": lambda points, _: _changes(points, lambda before, after: after < before),
}
"""Given at least one sample; None means that there is no result for the series."""
