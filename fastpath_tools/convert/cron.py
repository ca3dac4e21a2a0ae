"""Cron expressions as robfig/cron reads them, the library of KEDA, and the triggers that KEDA makes of two.

An expression fires at every instant whose local clock shows one of its times: twice where the clock shows
the time twice, never where it skips the time. One quirk of the library is left out: in zones whose clock
skips midnight, it may pass over that day while it looks for a day of the week from the day before.

KEDA computes the next start and the next end after now, and takes the trigger as active if the next end does
not come after the next start. So before each end the trigger is active since the last start or end. With
`start: 0 6 * * 1-5` and `end: 0 20 * * *` it is active on the weekend too: from the end on Friday to the end
on Saturday, and from there to the end on Sunday.
"""

import bisect
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.documents import DAYS, LONGEST_FOR
from adapter.bounds.schedule.windows import ActiveSpan
from adapter.model import local_time
from adapter.model.timestamps import SECOND

UTC = ZoneInfo("UTC")
"""A clock that is never set: in it, local times are compared as such."""

WEEK_START = 1_704_067_200
"""Monday, 1 January 2024, as UTC. The year has a 29 February."""

DAY = 86_400
WEEK = 7 * DAY
_CYCLE = 4 * 366 * DAY
_MOST_DAY_WINDOWS = 7
_MOST_STARTS = 24
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    lowest: int
    highest: int
    words: tuple[str, ...] = ()

    @property
    def all(self) -> frozenset[int]:
        return frozenset(range(self.lowest, self.highest + 1))


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of the month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of the week", 0, 6, _WEEKDAYS),
)


@dataclass(frozen=True, slots=True)
class CronExpression:
    """The times of an expression; Sunday is 0.

    A day has to be one of `days` and of `weekdays`; with `either` one of the two is enough.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either: bool

    @property
    def is_weekly(self) -> bool:
        """Whether each week has the same times."""
        return self.days == _FIELDS[2].all and self.months == _FIELDS[3].all

    @property
    def times(self) -> Sequence[int]:
        """Return the times of a day in minutes since midnight."""
        return [hour * 60 + minute for hour in sorted(self.hours) for minute in sorted(self.minutes)]

    def has_day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        holds = (day.day in self.days, day.isoweekday() % 7 in self.weekdays)
        return any(holds) if self.either else all(holds)

    def __str__(self) -> str:
        """Return the expression in the form that every cron reads the same."""
        values = (self.minutes, self.hours, self.days, self.months, self.weekdays)
        return " ".join(
            "*" if value == field.all else _listed(value)
            for value, field in zip(values, _FIELDS, strict=True)
        )


def read(text: str) -> CronExpression:
    """Return an expression of five fields. ValueError with what was expected."""
    parts = text.split()
    if len(parts) != len(_FIELDS):
        raise ValueError("expected a cron expression of five fields such as 0 8 * * 1-5")
    read_fields = [_read_field(part, field) for part, field in zip(parts, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = (values for values, _ in read_fields)
    either = not (read_fields[2][1] or read_fields[4][1])
    if either and (days == _FIELDS[2].all or weekdays == _FIELDS[4].all):
        days, weekdays, either = _FIELDS[2].all, _FIELDS[4].all, False
    return CronExpression(minutes, hours, days, months, weekdays, either)


def fires(expression: CronExpression, start: int, end: int, zone: ZoneInfo) -> list[int]:
    """Return the instants from `start` to `end`, exclusive, at which an expression fires, in order."""
    edges = [start, *local_time.transitions(start + 1, end, zone), end]
    times = [60 * minutes for minutes in expression.times]
    instants: list[int] = []
    for begin, until in itertools.pairwise(edges):
        offset = local_time.offset_at(begin, zone)
        for midnight in range((begin + offset) // DAY * DAY, until + offset, DAY):
            if expression.has_day((datetime.fromtimestamp(0, UTC) + timedelta(seconds=midnight)).date()):
                instants += (at for time in times if begin <= (at := midnight + time - offset) < until)
    return instants


def _read_field(text: str, field: _Field) -> tuple[frozenset[int], bool]:
    """Return the values of a field, and whether it has a star that robfig/cron counts as one."""
    values: set[int] = set()
    is_star = False
    for part in text.split(","):
        span, _, step_text = part.partition("/")
        step = _number(step_text, _Field("step", 1, 10_000), text, field) if "/" in part else 1
        if span in {"*", "?"}:
            low, high = field.lowest, field.highest
            is_star = is_star or step == 1
        else:
            first, dash, last = span.partition("-")
            low = _number(first, field, text, field)
            high = field.highest if "/" in part and not dash else low
            high = _number(last, field, text, field) if dash else high
        if high < low:
            raise ValueError(_expected(field, text))
        values.update(range(low, high + 1, step))
    return frozenset(values), is_star


def _number(text: str, bounds: _Field, whole: str, field: _Field) -> int:
    if text.upper() in bounds.words:
        return bounds.words.index(text.upper()) + bounds.lowest
    if not (text.isascii() and text.isdigit()) or not bounds.lowest <= int(text[:9]) <= bounds.highest:
        raise ValueError(_expected(field, whole))
    return int(text[:9])


def _expected(field: _Field, text: str) -> str:
    return f"expected a {field.name} from {field.lowest} to {field.highest}, not {text[:40]}"


def _listed(values: frozenset[int]) -> str:
    """Return values as a list, consecutive ones as a range."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


# -- triggers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KedaCronTrigger:
    start: CronExpression
    end: CronExpression

    @property
    def is_weekly(self) -> bool:
        return self.start.is_weekly and self.end.is_weekly

    def spans(self, start: int, end: int, zone: ZoneInfo) -> list[ActiveSpan]:
        """Return when KEDA takes the trigger as active, from `start` to `end` in seconds since 1970."""
        around = 9 * DAY if self.is_weekly else 400 * DAY
        first, last = start - around, end + around
        ends = fires(self.end, first, last, zone)
        events = sorted({first, *fires(self.start, first, last, zone), *ends})
        spans = [ActiveSpan(events[bisect.bisect_left(events, at) - 1], at) for at in ends]
        return union(spans, start, end)


def union(spans: Sequence[ActiveSpan], start: int, end: int) -> list[ActiveSpan]:
    """Return spans cut to the time from `start` to `end`, in order; those that touch are one."""
    return windows.joined(ActiveSpan(max(span.begin, start), min(span.end, end)) for span in spans)


def windows_of(trigger: KedaCronTrigger) -> list[dict[str, Any]]:
    """Return the windows that a trigger evidently means, as documents without name and bounds.

    Each start begins a window. It lasts as long as the shortest time from a start to the next end, if at
    least half of the starts have that. ValueError with what was expected.
    """
    start = trigger.start
    if not trigger.is_weekly and len(start.times) > _MOST_STARTS:
        raise ValueError(f"expected at most {_MOST_STARTS} starts a day beside days of the month or months")
    length = _length(trigger)
    if trigger.is_weekly and len(start.times) <= _MOST_DAY_WINDOWS:
        return [window for time in start.times for window in _day_windows(start, time * 60, length)]
    if length * SECOND > LONGEST_FOR:
        days = LONGEST_FOR // SECOND // DAY
        raise ValueError(f"the windows last {length // DAY} days; expected at most {days} days")
    return [{"cron": str(start), "for": length_of(length)}]


def _length(trigger: KedaCronTrigger) -> int:
    """Return the length of the windows of a trigger in seconds, by a clock that is never set."""
    cycle = WEEK if trigger.is_weekly else _CYCLE
    starts = fires(trigger.start, WEEK_START, WEEK_START + cycle, UTC)
    ends = fires(trigger.end, WEEK_START, WEEK_START + 2 * cycle, UTC)
    if not starts or not ends:
        raise ValueError("expected times that come: one of start and end never does")
    lengths = Counter(ends[bisect.bisect_right(ends, at)] - at for at in starts)
    shortest = min(lengths)
    if 2 * lengths[shortest] < len(starts):
        shown = ", ".join(length_of(length) for length in sorted(lengths)[:4])
        more = ", ..." if len(lengths) > 4 else ""
        raise ValueError(f"expected windows of one length; from start to the next end it is {shown}{more}")
    return shortest


def _day_windows(start: CronExpression, begin: int, length: int) -> list[dict[str, Any]]:
    """Return windows that begin `begin` seconds after midnight of the days of `start`.

    A window of 24 hours or more is several, cut at midnight: only so it ends by the clock.
    """
    end = begin + length
    days = sorted((day - 1) % 7 for day in start.weekdays)
    if length < DAY or end == DAY:
        return [_day_window(days, begin, end if end <= DAY else end - DAY)]
    middle = {(day + after) % 7 for day in days for after in range(1, end // DAY)}
    last = sorted((day + end // DAY) % 7 for day in days)
    if begin == 0:
        middle |= set(days)
    windows = [_day_window(days, begin, DAY)] if begin else []
    windows += [_day_window(sorted(middle), 0, DAY)] if middle else []
    return windows + ([_day_window(last, 0, end % DAY)] if end % DAY else [])


def _day_window(days: Sequence[int], begin: int, end: int) -> dict[str, Any]:
    window = {"from": clock(begin), "to": clock(end)}
    return window if len(days) == 7 else {"days": [DAYS[day] for day in days], **window}


def length_of(seconds: int) -> str:
    """Return whole minutes as a duration such as 1h30m."""
    hours, minutes = divmod(seconds // 60, 60)
    return (f"{hours}h" if hours else "") + (f"{minutes}m" if minutes or not hours else "")


def clock(seconds: int) -> str:
    """Return seconds since midnight as HH:MM."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
