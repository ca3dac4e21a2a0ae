"""The windows of a schedule as spans of instants, and the bounds that follow from them.

Everything here is pure: spans follow from the document and the tz database alone.
"""

import bisect
import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim

from adapter.model import local_time

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)

_ANY_TIME = datetime.combine(date(2000, 1, 1), time())


class ActiveSpan(NamedTuple):
    """Instants from `begin` to `end`, the end exclusive, in seconds since 1970."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class DayWindow:
    """Each day of `weekdays` (Monday is 0) from one local time to another.

    `end` is less than `begin` for an end on the next day; both are since midnight, `end` may be 24 hours.
    """

    weekdays: frozenset[int]
    begin: timedelta
    end: timedelta

    def spans(self, start: int, end: int, zone: ZoneInfo, excepted: frozenset[date]) -> Iterator[ActiveSpan]:
        """Yield the spans that may overlap the instants from `start` to `end`, and some around them."""
        length = self.end - self.begin
        day = local_time.local_at(start, zone).date() - 3 * DAY
        last = local_time.local_at(end, zone).date() + DAY
        while day <= last:
            if day.weekday() in self.weekdays and day not in excepted:
                yield self._span(day, length if length > timedelta() else length + DAY, zone)
            day += DAY

    def _span(self, day: date, length: timedelta, zone: ZoneInfo) -> ActiveSpan:
        steady = local_time.steady_midnight(day, zone)
        if steady is not None:
            begin = steady + self.begin // SECOND
            return ActiveSpan(begin, begin + length // SECOND)
        local = datetime.combine(day, time()) + self.begin
        return ActiveSpan(local_time.first_at(local, zone), local_time.end_of(local + length, zone))


class _DayRuns:
    """When a cron expression begins on a day, in seconds since midnight, as runs of windows that touch.

    A run is its first and its last begin. To work with runs keeps a window of many begins as cheap as one of
    a few, also on a day on which the clock is set.
    """

    __slots__ = ("begins", "runs", "seconds")

    def __init__(self, matches: CronSim, seconds: int) -> None:
        self.seconds = seconds
        hours, minutes = sorted(matches.hours), sorted(matches.minutes)
        self.begins = [hour * 3600 + minute * 60 for hour in hours for minute in minutes]
        self.runs: list[tuple[int, int]] = []
        for begin in self.begins:
            if self.runs and begin - self.runs[-1][1] <= seconds:
                self.runs[-1] = self.runs[-1][0], begin
            else:
                self.runs.append((begin, begin))

    def steady(self, midnight: int) -> Iterator[ActiveSpan]:
        """Yield the spans of a day on which the clock is not set."""
        for first, last in self.runs:
            yield ActiveSpan(midnight + first, midnight + last + self.seconds)

    def unsteady(self, day: date, zone: ZoneInfo) -> Iterator[ActiveSpan]:
        """Yield the spans of a day on which, or around which, the clock is set: each begin is `first_at`."""
        midnight, pieces = local_time.pieces_of(day, zone)
        place = 0
        for start, end, offset in pieces:
            # what this piece shows, and what the clock skipped right before it
            after = bisect.bisect_left(self.begins, end + offset - midnight, place)
            shown = bisect.bisect_left(self.begins, start + offset - midnight, place, after)
            if shown > place:
                yield ActiveSpan(start, start + self.seconds)
            if after > shown:
                yield from self._within(self.begins[shown], self.begins[after - 1], midnight - offset)
            place = after

    def _within(self, least: int, most: int, midnight: int) -> Iterator[ActiveSpan]:
        """Yield the spans of the begins from `least` to `most`, which are two of them."""
        index = bisect.bisect_left(self.runs, least, key=operator.itemgetter(1))
        while index < len(self.runs) and self.runs[index][0] <= most:
            first, last = self.runs[index]
            yield ActiveSpan(midnight + max(first, least), midnight + min(last, most) + self.seconds)
            index += 1


@dataclass(frozen=True, slots=True)
class CronWindow:
    """Windows of `seconds` that begin at the local times of a cron expression."""

    expression: str
    seconds: int

    def spans(self, start: int, end: int, zone: ZoneInfo, excepted: frozenset[date]) -> Iterator[ActiveSpan]:
        matches = read_cron(self.expression)
        runs = _DayRuns(matches, self.seconds)
        day = local_time.local_at(start - self.seconds, zone).date() - 2 * DAY
        last = local_time.local_at(end, zone).date() + 2 * DAY
        while day <= last:
            if day.month in matches.months and day not in excepted and matches.match_day(day):
                midnight = local_time.steady_midnight(day, zone)
                yield from runs.unsteady(day, zone) if midnight is None else runs.steady(midnight)
            day += DAY


@functools.lru_cache(maxsize=512)
def read_cron(expression: str) -> CronSim:
    """Return what a cron expression matches. CronSimError if it is invalid."""
    return CronSim(expression, _ANY_TIME)


@dataclass(frozen=True, slots=True)
class SingleWindow:
    begin: datetime
    end: datetime

    def span(self, zone: ZoneInfo) -> ActiveSpan:
        return ActiveSpan(local_time.first_at(self.begin, zone), local_time.end_of(self.end, zone))


@dataclass(frozen=True, slots=True)
class Window:
    """A window by its name, and the bounds that hold in it; one of them may be None."""

    name: str
    times: DayWindow | CronWindow | SingleWindow
    min: int | None
    max: int | None


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule. `name` is `namespace/name`; no window of days or cron begins on the days `excepted`.

    With `by_start` its minimums begin early, by the time that pods take to be Ready.
    """

    name: str
    zone: ZoneInfo
    windows: tuple[Window, ...]
    excepted: frozenset[date] = frozenset()
    by_start: bool = False


def begins_a_day(schedule: Schedule) -> int:
    """Return how often the windows of a schedule begin on a day, at most: what its evaluation costs.

    It counts each begin, also of windows that touch or overlap: these cost before they are joined.
    """
    crons = [window.times for window in schedule.windows if isinstance(window.times, CronWindow)]
    matches = (read_cron(times.expression) for times in crons)
    begins = (len(cron.hours) * len(cron.minutes) for cron in matches)
    return len(schedule.windows) - len(crons) + sum(begins)


def spans_a_day(schedule: Schedule) -> int:
    """Return how many spans the windows of a schedule have on a day, at most; those that touch are one."""
    crons = [window.times for window in schedule.windows if isinstance(window.times, CronWindow)]
    runs = (_DayRuns(read_cron(times.expression), times.seconds).runs for times in crons)
    return len(schedule.windows) - len(crons) + sum(map(len, runs))


class Boundary(NamedTuple):
    """The `begin` or the `end` of a window."""

    at: int
    schedule: str
    window: str
    edge: str


class Level(NamedTuple):
    """The bounds from `begin` to `end`, None for no bound, and the windows that they come from.

    Where `min` is above `max`, it is the maximum as well; `conflict` names the two windows.
    """

    begin: int
    end: int
    min: int | None
    max: int | None
    windows: tuple[str, ...]
    conflict: tuple[str, str] | None = None


def spans_of(window: Window, schedule: Schedule, start: int, end: int) -> list[ActiveSpan]:
    """Return the spans of a window that overlap or touch `start` to `end`; those that touch are one."""
    times, zone = window.times, schedule.zone
    if isinstance(times, SingleWindow):
        every: Iterable[ActiveSpan] = (times.span(zone),)
    else:
        every = times.spans(start, end, zone, schedule.excepted)
    return [span for span in joined(every) if span.end >= start and span.begin <= end]


def joined(spans: Iterable[ActiveSpan]) -> list[ActiveSpan]:
    """Return spans in their order, without empty ones; those that overlap or touch are one."""
    joined: list[ActiveSpan] = []
    for span in sorted(spans):
        if span.end <= span.begin:
            continue
        if joined and span.begin <= joined[-1].end:
            joined[-1] = ActiveSpan(joined[-1].begin, max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def boundaries(schedules: Sequence[Schedule], start: int, end: int) -> list[Boundary]:
    """Return the boundaries from `start` to `end`, exclusive, by time, schedule and window."""
    return sorted(
        boundary
        for schedule in schedules
        for window in schedule.windows
        for boundary in boundaries_of(window, schedule, start, end)
    )


def boundaries_of(window: Window, schedule: Schedule, start: int, end: int) -> list[Boundary]:
    """Return the boundaries of one window from `start` to `end`, exclusive, by time."""
    return [
        Boundary(at, schedule.name, window.name, edge)
        for span in spans_of(window, schedule, start, end)
        for at, edge in ((span.begin, "begin"), (span.end, "end"))
        if start <= at < end
    ]


def levels(schedule: Schedule, start: int, end: int) -> list[Level]:
    """Return the bounds of a schedule from `start` to `end`; time without an active window is left out."""
    return [level for level in levels_in_steps(schedule, start, end) if level is not None]


def levels_in_steps(schedule: Schedule, start: int, end: int) -> Iterator[Level | None]:
    """Yield the same one by one, and None after each window whose spans were computed."""
    edges: dict[int, list[int]] = {start: [], end: []}
    for index, window in enumerate(schedule.windows):
        for span in spans_of(window, schedule, start, end):
            for at in span:
                edges.setdefault(min(max(at, start), end), []).append(index)
        yield None
    active: set[int] = set()
    # each edge begins or ends a window, as spans of one never touch: levels that follow each other differ
    for one, other in itertools.pairwise(sorted(edges)):
        for index in edges[one]:
            active ^= {index}
        if active:
            yield level_of(one, other, [schedule.windows[index] for index in sorted(active)])


def level_of(begin: int, end: int, active: Sequence[Window]) -> Level:
    """Return the bounds of active windows, at least one, from `begin` to `end`."""
    least = max((window.min for window in active if window.min is not None), default=None)
    most = min((window.max for window in active if window.max is not None), default=None)
    conflict = None
    if least is not None and most is not None and least > most:
        raising = next(window.name for window in active if window.min == least)
        limiting = next(window.name for window in active if window.max == most)
        conflict, most = (raising, limiting), least
    return Level(begin, end, least, most, tuple(sorted(window.name for window in active)), conflict)
