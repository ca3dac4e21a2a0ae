"""A second reading of schedules: from a table of what a clock shows at each minute or second alone.

It shares no code with the evaluation that it is compared with. It knows the tz database through the clock of
`zoneinfo` alone, reads the documents itself, has a cron of its own, and marks each minute of each window.
"""

import bisect
import itertools
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

DAY = 86_400
HOUR = 3600
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_EPOCH = date(1970, 1, 1)


class Piece(NamedTuple):
    """A floor and a ceiling from `begin` to `end`, and the names of the windows."""

    begin: int
    end: int
    floor: int | None
    ceiling: int | None
    windows: tuple[str, ...]


class Clock:
    """What the clock of a zone shows each `step` seconds from `start` to `end`, as seconds since 1970."""

    def __init__(self, zone: str, start: int, end: int, step: int = 60) -> None:
        self.start, self.step = start, step
        self.local = array("q")
        for hour in range(start, end, HOUR):
            self.local.extend(_shown_in(range(hour, min(hour + HOUR, end), step), ZoneInfo(zone)))
        self._latest = array("q", itertools.accumulate(self.local, max))
        backwards = itertools.accumulate(reversed(self.local), min)
        self._earliest = array("q", reversed(array("q", backwards)))

    def first(self, local: int) -> int:
        """Return the first instant at which the clock shows a local time or a later one."""
        return self.start + self.step * bisect.bisect_left(self._latest, local)

    def end(self, local: int) -> int:
        """Return the instant after the last at which the clock shows a time before a local time."""
        return self.start + self.step * bisect.bisect_left(self._earliest, local)

    def days(self) -> Iterator[date]:
        """Yield each day of the calendar, also one that the clock skips."""
        first, last = min(self.local) // DAY, max(self.local) // DAY
        return (_EPOCH + timedelta(days=number) for number in range(first, last + 1))


def _shown_in(hour: range, tz: ZoneInfo) -> Iterable[int]:
    """Return what a clock shows at instants. No zone sets its clock twice within an hour."""
    first, last = _shown(hour[0], tz), _shown(hour[-1], tz)
    if last - first == hour[-1] - hour[0]:
        return range(first, last + 1, hour.step)
    return (_shown(instant, tz) for instant in hour)


def _shown(instant: int, tz: ZoneInfo) -> int:
    offset = datetime.fromtimestamp(instant, tz).utcoffset()
    assert offset is not None
    return instant + offset.days * DAY + offset.seconds


class MarkedWindows:
    """The windows of a schedule, marked at each step of a clock from `start` to `end`."""

    def __init__(self, spec: Mapping[str, Any], clock: Clock, start: int, end: int) -> None:
        self.start, self.end, self.step = start, end, clock.step
        self.windows = spec["windows"]
        excepted = {date.fromisoformat(day) for day in spec.get("except", ())}
        self._spans = [
            [span for span in _spans(window, clock, excepted) if span[0] < span[1]] for window in self.windows
        ]
        self.marks = [self._marked(spans, 0) for spans in self._spans]

    def _marked(self, spans: Sequence[tuple[int, int]], lead: int) -> bytearray:
        steps = (self.end - self.start) // self.step
        marks = bytearray(steps)
        for begin, end in spans:
            low, high = ((at - self.start) // self.step for at in (begin - lead, end))
            low, high = max(low, 0), min(high, steps)
            if low < high:
                marks[low:high] = b"\1" * (high - low)
        return marks

    def boundaries(self, start: int, end: int) -> list[tuple[int, str, str]]:
        """Return when a mark begins or ends from `start` to `end`: the instant, the window, and which."""
        found = []
        for window, marks in zip(self.windows, self.marks, strict=True):
            for place, (before, after) in enumerate(itertools.pairwise(marks), 1):
                at = self.start + place * self.step
                if before != after and start <= at < end:
                    found.append((at, str(window["name"]), "begin" if after else "end"))
        return sorted(found)

    def levels(self, start: int, end: int) -> list[Piece]:
        """Return the bounds from `start` to `end`, step by step; steps without a window are left out."""
        low, high = ((at - self.start) // self.step for at in (start, end))
        begin, found = start, []
        for active, steps in itertools.groupby(zip(*(each[low:high] for each in self.marks), strict=True)):
            finish = begin + self.step * sum(1 for _ in steps)
            if any(active):
                now = [window for window, mark in zip(self.windows, active, strict=True) if mark]
                names = tuple(sorted(str(window["name"]) for window in now))
                found.append(Piece(begin, finish, *_bounds(now, now), names))
            begin = finish
        return found

    def with_leads(self, leads: Sequence[int]) -> list[tuple[int | None, int | None] | None]:
        """Return the bounds of each step if the floor of each window begins some seconds early.

        None stands for a step without a window.
        """
        early = [
            self._marked(spans, 0 if window.get("minReplicas") is None else lead)
            for window, spans, lead in zip(self.windows, self._spans, leads, strict=True)
        ]
        known: dict[tuple[tuple[int, ...], ...], tuple[int | None, int | None] | None] = {}
        found = []
        for marks in zip(zip(*early, strict=True), zip(*self.marks, strict=True), strict=True):
            if marks not in known:
                floored, ceiled = ([*itertools.compress(self.windows, each)] for each in marks)
                known[marks] = _bounds(floored, ceiled) if floored or ceiled else None
            found.append(known[marks])
        return found


def _bounds(
    floored: Sequence[Mapping[str, Any]], ceiled: Sequence[Mapping[str, Any]]
) -> tuple[int | None, int | None]:
    floors = [each["minReplicas"] for each in floored if each.get("minReplicas") is not None]
    ceilings = [each["maxReplicas"] for each in ceiled if each.get("maxReplicas") is not None]
    floor, ceiling = max(floors, default=None), min(ceilings, default=None)
    if floor is not None and ceiling is not None and floor > ceiling:
        ceiling = floor
    return floor, ceiling


def _spans(window: Mapping[str, Any], clock: Clock, excepted: set[date]) -> Iterator[tuple[int, int]]:
    if "start" in window:
        yield clock.first(_local(window["start"])), clock.end(_local(window["end"]))
        return
    for day in clock.days():
        midnight = (day - _EPOCH).days * DAY
        if day in excepted:
            continue
        if "cron" in window:
            for time in _cron_times(window["cron"], day):
                begin = clock.first(midnight + time)
                yield begin, begin + _seconds(window["for"])
        elif DAYS[day.weekday()] in window.get("days", DAYS):
            begin, end = _time(window["from"]), _time(window["to"])
            following = DAY if end < begin else 0
            yield clock.first(midnight + begin), clock.end(midnight + following + end)


def _local(text: str) -> int:
    day, _, time = text.partition("T")
    return (date.fromisoformat(day) - _EPOCH).days * DAY + _time(time)


def _time(text: str) -> int:
    hours, minutes, seconds = [*map(int, text.split(":")), 0][:3]
    return hours * 3600 + minutes * 60 + seconds


def _seconds(text: str) -> int:
    units = {"h": 3600, "m": 60, "s": 1}
    return sum(int(number) * units[unit] for number, unit in re.findall(r"(\d+)([hms])", text))


def _cron_times(expression: str, day: date) -> Iterator[int]:
    minutes, hours, days, months, weekdays = expression.split()
    on_day = day.day in _values(days, 1, 31)
    on_weekday = bool({day.isoweekday(), day.isoweekday() % 7} & _values(weekdays, 0, 7))
    both = days.startswith("*") or weekdays.startswith("*")
    if day.month in _values(months, 1, 12) and (on_day and on_weekday if both else on_day or on_weekday):
        for hour in _values(hours, 0, 23):
            for minute in _values(minutes, 0, 59):
                yield hour * 3600 + minute * 60


def _values(field: str, lowest: int, highest: int) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        listed, _, step = part.partition("/")
        one, _, other = listed.partition("-")
        low, high = (lowest, highest) if listed == "*" else (int(one), int(other or one))
        found |= set(range(low, high + 1, int(step or 1)))
    return found


def utc(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())
