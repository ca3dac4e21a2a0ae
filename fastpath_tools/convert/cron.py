"""Cron expressions as robfig/cron reads them, the library of KEDA, and the instants at which they fire.

An expression fires at every instant whose local clock shows one of its times: twice where the clock shows
the time twice, never where it skips the time. One quirk of the library is left out: in zones whose clock
skips midnight, it may pass over that day while it looks for a day of the week from the day before.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

from adapter.model import local_time

DAY = 86_400
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
        found = (day.day in self.days, day.isoweekday() % 7 in self.weekdays)
        return any(found) if self.either else all(found)

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
    found: list[int] = []
    for begin, until in itertools.pairwise(edges):
        offset = local_time.offset_at(begin, zone)
        for midnight in range((begin + offset) // DAY * DAY, until + offset, DAY):
            if expression.has_day((datetime.fromtimestamp(0, UTC) + timedelta(seconds=midnight)).date()):
                found += (at for time in times if begin <= (at := midnight + time - offset) < until)
    return found


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
    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in _runs(sorted(values))
    )


def _runs(values: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of consecutive values."""
    start = 0
    for index in range(1, len(values) + 1):
        if index == len(values) or values[index] != values[index - 1] + 1:
            yield values[start], values[index - 1]
            start = index
