"""Windows that overlap and whose floor is above the ceiling of the other: the floor wins there."""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from adapter.model.schedules import windows
from adapter.model.schedules.windows import ActiveSpan, Schedule, SingleWindow, Window

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
    spans = _ConflictSpans(schedules, start)
    listed = [
        Place(number, index)
        for number, schedule in enumerate(schedules)
        for index, _ in enumerate(schedule.windows)
    ]
    for one in listed:
        floor = spans.window(one).floor
        for other in listed:
            ceiling = spans.window(other).ceiling
            if floor is None or ceiling is None or floor <= ceiling:
                continue
            if meet(one.schedule, other.schedule):
                at = _first_overlap(spans, one, other)
                if at is not None:
                    yield Conflict(one, other, at)


class _ConflictSpans:
    """The spans of windows, a step at a time; those of the first steps are kept for other pairs."""

    def __init__(self, schedules: Sequence[Schedule], start: int) -> None:
        self.start = start
        self._schedules = schedules
        self._kept: dict[tuple[Place, int], list[ActiveSpan]] = {}

    def window(self, place: Place) -> Window:
        return self._schedules[place.schedule].windows[place.window]

    def within(self, place: Place, start: int, end: int) -> list[ActiveSpan]:
        key = place, start
        if key not in self._kept:
            schedule = self._schedules[place.schedule]
            self._kept[key] = windows.spans_of(self.window(place), schedule, start, end)
        return self._kept[key]

    def single(self, place: Place) -> ActiveSpan | None:
        """Return the span of a window that is active once."""
        times = self.window(place).times
        return times.span(self._schedules[place.schedule].zone) if isinstance(times, SingleWindow) else None


def _first_overlap(spans: _ConflictSpans, one: Place, other: Place) -> int | None:
    start, end = spans.start, None
    for place in (one, other):
        span = spans.single(place)
        if span is not None:
            start = max(start, span.begin)
            end = span.end if end is None else min(end, span.end)
    limit = start + HORIZON if end is None else min(end, start + HORIZON)
    for begin in range(start, limit, _STEP):
        ones, others = (spans.within(place, begin, begin + _STEP) for place in (one, other))
        at = _meet(ones, others, begin)
        if at is not None:
            return at if at < limit else None
        if max(len(ones), len(others)) > _OFTEN:
            return None
    return None


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
