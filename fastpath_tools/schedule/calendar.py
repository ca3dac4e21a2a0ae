"""Schedules as a calendar: for people, with local times and changes of the clock, and as a calendar file."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.documents import BY_START, FastPathSchedule
from adapter.bounds.schedule.windows import Level, Schedule
from adapter.model import local_time, visible
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from fastpath_tools import tables

_SECOND = timedelta(seconds=1)


class _CalendarRow(NamedTuple):
    """A line of the calendar; `at` sorts it."""

    at: int
    day: str
    times: str
    text: str


def render(schedules: Sequence[FastPathSchedule], start: int, end: int) -> str:
    """Return the calendars of schedules from `start` to `end`, in seconds since 1970."""
    return "\n".join(_calendar(schedule, start, end) for schedule in schedules)


def render_ics(schedules: Sequence[FastPathSchedule], start: int, end: int) -> str:
    """Return a calendar file (RFC 5545): an event for each time in which the bounds stay the same, in UTC."""
    from icalendar import Calendar, Event  # noqa: PLC0415 - only this output needs it

    calendar = Calendar()
    calendar.add("VERSION", "2.0")
    calendar.add("PRODID", "-//fastpath//schedule//EN")
    for schedule in (document.schedule for document in schedules):
        for level in windows.levels(schedule, start, end):
            event = Event()
            event.add("UID", visible.escape(f"{level.begin}-{schedule.name}@fastpath.io"))
            for key, instant in (("DTSTAMP", start), ("DTSTART", level.begin), ("DTEND", level.end)):
                event.add(key, datetime.fromtimestamp(instant, UTC))
            event.add("SUMMARY", visible.escape(f"{schedule.name}: {_bounds(level)}"))
            event.add("DESCRIPTION", visible.escape(", ".join(level.windows)))
            # the bounds of an autoscaler make no person busy
            event.add("TRANSP", "TRANSPARENT")
            calendar.add_component(event)
    return str(calendar.to_ical(sorted=False), "utf-8")


def _bounds(level: Level) -> str:
    bounds = (("min", level.min), ("max", level.max))
    return ", ".join(f"{name} {bound}" for name, bound in bounds if bound is not None)


def _calendar(document: FastPathSchedule, start: int, end: int) -> str:
    schedule = document.schedule
    ends = (local_time.local_at(instant, schedule.zone) for instant in (start, end))
    first, last = (f"{_day(local)} {_clock(local)}" for local in ends)
    lines = [f"{schedule.name}, {schedule.zone.key}, from {first} to {last}"]
    levels = windows.levels(schedule, start, end)
    if not levels:
        return visible.join([f"{lines[0]}: no window is active"])
    starts_within, ends_within = _is_boundary(schedule, start), _is_boundary(schedule, end)
    rows = [
        _level(
            level,
            schedule.zone,
            has_begin=level.begin > start or starts_within,
            has_end=level.end < end or ends_within,
        )
        for level in levels
    ]
    rows = sorted([*_changes(start, end, schedule.zone), *rows], key=lambda row: row.at)
    width = max(len(row.times) for row in rows)
    before = ""
    for row in rows:
        day = "" if row.day == before else row.day
        lines.append(f"  {day:14}  {row.times:{width}}  {row.text}".rstrip())
        before = row.day
    lines += [f"  Note: {note}." for note in _notes(document, levels)]
    return visible.join(lines)


def _is_boundary(schedule: Schedule, instant: int) -> bool:
    return bool(windows.boundaries([schedule], instant, instant + 1))


def _notes(document: FastPathSchedule, levels: Sequence[Level]) -> Iterator[str]:
    for one, other in sorted({level.conflict for level in levels if level.conflict is not None}):
        yield f"the floor of {one} is above the ceiling of {other}; the floor wins"
    hpas = [target.name for target in document.targets if target.kind == HPA_KIND]
    if hpas and any(level.max is not None for level in levels):
        yield f"a {HPA_KIND} gets no ceiling; here: {', '.join(hpas)}"
    if document.ready == BY_START:
        yield "floors begin earlier by the time that new pods need to be Ready, at most 10 minutes (ByStart)"


def _level(level: Level, zone: ZoneInfo, *, has_begin: bool, has_end: bool) -> _CalendarRow:
    """Return the row of a level. What begins before the calendar, or ends after it, has one time."""
    begin = local_time.local_at(level.begin, zone)
    first, last = _time(level.begin, zone), _until(level, begin, zone)
    times = f"{first} - {last}"
    if not has_begin or not has_end:
        times = f"from {first}" if has_begin else f"until {last}" if has_end else "all the time"
    text = f"{_bounds(level)}  ({', '.join(level.windows)})"
    if has_begin and has_end and local_time.transitions(level.begin + 1, level.end, zone):
        text += f", lasts {tables.short_duration(level.end - level.begin, blank=' ')}"
    return _CalendarRow(level.begin, _day(begin), times, text)


def _until(level: Level, begin: datetime, zone: ZoneInfo) -> str:
    """Return the local end: midnight as 24:00, with the day if that is another one."""
    end = local_time.local_at(level.end, zone)
    last = local_time.local_at(level.end - 1, zone)
    is_midnight = _clock(end) == "00:00" and last + _SECOND == end
    clock = "24:00" if is_midnight else _time(level.end, zone)
    day = last if is_midnight else end
    if day.date() == begin.date():
        return clock
    # a week later the name of the day is not enough
    return f"{day:%a} {clock}" if day.date() - begin.date() < timedelta(days=7) else f"{_day(day)} {clock}"


def _changes(start: int, end: int, zone: ZoneInfo) -> Iterator[_CalendarRow]:
    """Yield a row for each time at which the clock is set."""
    for at in local_time.transitions(start, end, zone):
        last, new = local_time.local_at(at - 1, zone), local_time.local_at(at, zone)
        old = last + _SECOND
        way = "forward" if new > old else "back"
        if old.date() == new.date():
            day, times = new, f"from {_clock(old)} to {_clock(new)}"
        elif last.date() == new.date():
            day, times = new, f"from 24:00 to {_clock(new)}"
        else:
            day, times = last, f"from {_day(old)} {_clock(old)} to {_day(new)} {_clock(new)}"
        yield _CalendarRow(at, _day(day), "", f"the clock is set {way} {times}")


def _time(instant: int, zone: ZoneInfo) -> str:
    """Return what the clock shows; with the offset from UTC if it shows that twice."""
    local = local_time.local_at(instant, zone)
    if local_time.first_at(local, zone) == local_time.end_of(local, zone):
        return _clock(local)
    minutes = local_time.offset_at(instant, zone) // 60
    sign = "-" if minutes < 0 else "+"
    return f"{_clock(local)} ({sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d})"


def _day(local: datetime) -> str:
    return f"{local:%a %Y-%m-%d}"


def _clock(local: datetime) -> str:
    return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"
