"""Schedules as a calendar for people: the bounds with their local times, and the changes of the clock."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from adapter.model.schedules import local_time, windows
from adapter.model.schedules.documents import FastPathSchedule
from adapter.model.schedules.windows import Level, Schedule

_NOTHING = "no window is active from {} to {}\n"


class _Row(NamedTuple):
    """A line of the calendar; `at` sorts it."""

    at: int
    day: str
    times: str
    text: str


def render(schedules: Sequence[FastPathSchedule], start: int, end: int) -> str:
    """Return the calendars of schedules from `start` to `end`, in seconds since 1970."""
    return "\n".join(_calendar(each.schedule, start, end) for each in schedules)


def _calendar(schedule: Schedule, start: int, end: int) -> str:
    zone = schedule.zone
    lines = [f"{schedule.name} ({zone.key})"]
    found = windows.levels(schedule, start, end)
    if not found:
        first, last = (_shown(instant, zone) for instant in (start, end))
        return lines[0] + "\n  " + _NOTHING.format(first, last)
    rows = sorted([*(_level(level, zone) for level in found), *_changes(start, end, zone)])
    width = max(len(row.times) for row in rows)
    before = ""
    for row in rows:
        day = "" if row.day == before else row.day
        lines.append(f"  {day:14}  {row.times:{width}}  {row.text}".rstrip())
        before = row.day
    conflicts = sorted({level.conflict for level in found if level.conflict is not None})
    lines += [f"  {one} has a floor above the ceiling of {other}: the floor wins" for one, other in conflicts]
    return "\n".join(lines) + "\n"


def _level(level: Level, zone: ZoneInfo) -> _Row:
    begin = local_time.local_at(level.begin, zone)
    bounds = [
        f"{name} {bound}"
        for name, bound in (("min", level.floor), ("max", level.ceiling))
        if bound is not None
    ]
    text = f"{', '.join(bounds)}  ({', '.join(level.windows)})"
    return _Row(level.begin, _day(begin), f"{_clock(begin)} - {_until(level, begin, zone)}", text)


def _until(level: Level, begin: datetime, zone: ZoneInfo) -> str:
    """Return the local end: midnight as 24:00, with the day if that is another one."""
    end = local_time.local_at(level.end, zone)
    last = local_time.local_at(level.end - 1, zone)
    clock = "24:00" if _clock(end) == "00:00" and last.date() < end.date() else _clock(end)
    day = last if clock == "24:00" else end
    return clock if day.date() == begin.date() else f"{day:%a} {clock}"


def _changes(start: int, end: int, zone: ZoneInfo) -> Iterator[_Row]:
    """Yield a row for each time at which the clock is set."""
    for at in local_time.transitions(start, end, zone):
        before, after = local_time.offset_at(at - 1, zone), local_time.offset_at(at, zone)
        old = local_time.local_at(at - 1, zone)
        way = "forward" if after > before else "back"
        text = f"the clock is set {way} from {_next_clock(old)} to {_clock(local_time.local_at(at, zone))}"
        yield _Row(at, _day(old), "", text)


def _next_clock(local: datetime) -> str:
    """Return the clock a second later, which it does not show: 24:00 for midnight."""
    seconds = local.hour * 3600 + local.minute * 60 + local.second + 1
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}" + (
        f":{seconds % 60:02d}" if seconds % 60 else ""
    )


def _day(local: datetime) -> str:
    return f"{local:%a %Y-%m-%d}"


def _clock(local: datetime) -> str:
    return f"{local:%H:%M:%S}".removesuffix(":00") if local.second == 0 else f"{local:%H:%M:%S}"


def _shown(instant: int, zone: ZoneInfo) -> str:
    local = local_time.local_at(instant, zone)
    return f"{_day(local)} {_clock(local)}"
