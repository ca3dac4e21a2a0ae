"""Windows that overlap and whose floor is above the ceiling of the other: the floor wins there."""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.windows import ActiveSpan, Schedule, SingleWindow, Window

_DAY = 86_400
_STEP = 31 * _DAY
"""For how many seconds the spans of two windows are compared at once."""

HORIZON = 366 * _DAY
"""How far ahead, in seconds, an overlap is looked for."""

_OFTEN = 2000
"""A window of more spans in a step overlaps within that step, or is left: a year of them takes seconds."""


class Place(NamedTuple):
    """A window and where it stands: the numbers of its schedule and in its schedule."""

    schedule: int
    window: int


class Conflict(NamedTuple):
    """The window of the floor, that of the ceiling, and the first instant at which both are active."""

    floor: Place
    ceiling: Place
    at: int


def find(schedules: Sequence[Schedule], start: int, meet: Callable[[int, int], bool]) -> Iterator[Conflict]:
    """Yield each pair of windows with the floor of one above the ceiling of the other, from `start` on.

    `meet` tells whether an autoscaler gets the floors of one schedule and the ceilings of another, by their
    numbers. Windows that recur are followed for HORIZON seconds. A single one counts whenever it is.
    """
    placed = {
        Place(number, index): (window, schedule)
        for number, schedule in enumerate(schedules)
        for index, window in enumerate(schedule.windows)
    }

    @functools.cache  # the same steps are compared with those of other windows
    def spans(place: Place, begin: int) -> list[ActiveSpan]:
        return windows.spans_of(*placed[place], begin, begin + _STEP)

    for one, other in itertools.product(placed, repeat=2):
        floor, ceiling = placed[one][0].min, placed[other][0].max
        if floor is None or ceiling is None or floor <= ceiling or not meet(one.schedule, other.schedule):
            continue
        first, limit = _range(start, placed[one], placed[other])
        for begin in range(first, limit, _STEP):
            ones, others = spans(one, begin), spans(other, begin)
            at = _meet(ones, others, begin)
            if at is not None and at < limit:
                yield Conflict(one, other, at)
            if at is not None or max(len(ones), len(others)) > _OFTEN:
                break


def _range(start: int, *placed: tuple[Window, Schedule]) -> tuple[int, int]:
    """Return from when to when two windows can overlap; one that is single bounds it."""
    end = None
    for window, schedule in placed:
        if isinstance(window.times, SingleWindow):
            span = window.times.span(schedule.zone)
            start = max(start, span.begin)
            end = span.end if end is None else min(end, span.end)
    return start, start + HORIZON if end is None else min(end, start + HORIZON)


def _meet(ones: Sequence[ActiveSpan], others: Sequence[ActiveSpan], start: int) -> int | None:
    """Return the first instant from `start` on that is in a span of both; spans are in order."""
    first, second = iter(ones), iter(others)
    one, other = next(first, None), next(second, None)
    while one is not None and other is not None:
        begin, end = max(one.begin, other.begin, start), min(one.end, other.end)
        if begin < end:
            return begin
        if one.end <= other.end:
            one = next(first, None)
        else:
            other = next(second, None)
    return None
