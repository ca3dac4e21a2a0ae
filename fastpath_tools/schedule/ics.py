"""Schedules as a calendar file (RFC 5545): one event for each time in which the bounds stay the same."""

from collections.abc import Sequence
from datetime import UTC, datetime

from icalendar import Calendar, Event

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.documents import FastPathSchedule
from adapter.bounds.schedule.windows import Level
from adapter.model import visible


def render(schedules: Sequence[FastPathSchedule], start: int, end: int) -> str:
    """Return the file for the time from `start` to `end`, in seconds since 1970; times in it are UTC."""
    calendar = Calendar()
    calendar.add("VERSION", "2.0")
    calendar.add("PRODID", "-//fastpath//schedule//EN")
    for each in schedules:
        for level in windows.levels(each.schedule, start, end):
            calendar.add_component(_event(each.schedule.name, level, start))
    return str(calendar.to_ical(sorted=False), "utf-8")


def _event(name: str, level: Level, stamp: int) -> Event:
    bounds = [
        f"{what} {bound}" for what, bound in (("min", level.min), ("max", level.max)) if bound is not None
    ]
    event = Event()
    event.add("UID", visible.escape(f"{level.begin}-{name}@fastpath.io"))
    for key, instant in (("DTSTAMP", stamp), ("DTSTART", level.begin), ("DTEND", level.end)):
        event.add(key, datetime.fromtimestamp(instant, UTC))
    event.add("SUMMARY", visible.escape(f"{name}: {', '.join(bounds)}"))
    event.add("DESCRIPTION", visible.escape(", ".join(level.windows)))
    # the bounds of an autoscaler make no person busy
    event.add("TRANSP", "TRANSPARENT")
    return event
