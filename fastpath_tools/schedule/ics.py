"""Schedules as a calendar file (RFC 5545): one event for each time in which the bounds stay the same."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from adapter.model import visible
from adapter.model.schedules import windows
from adapter.model.schedules.documents import FastPathSchedule
from adapter.model.schedules.windows import Level

_MOST_OCTETS = 75


def render(schedules: Sequence[FastPathSchedule], start: int, end: int) -> str:
    """Return the file for the time from `start` to `end`, in seconds since 1970; times in it are UTC."""
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:-//fastpath//schedule//EN"]
    for each in schedules:
        for level in windows.levels(each.schedule, start, end):
            lines += _event(each.schedule.name, level, start)
    lines.append("END:VCALENDAR")
    return "".join(f"{part}\r\n" for line in lines for part in _folded(line))


def _event(name: str, level: Level, stamp: int) -> Iterator[str]:
    bounds = [
        f"{what} {bound}"
        for what, bound in (("min", level.floor), ("max", level.ceiling))
        if bound is not None
    ]
    yield "BEGIN:VEVENT"
    yield f"UID:{level.begin}-{_escaped(name)}@fastpath.io"
    yield f"DTSTAMP:{_instant(stamp)}"
    yield f"DTSTART:{_instant(level.begin)}"
    yield f"DTEND:{_instant(level.end)}"
    summary = f"{name}: {', '.join(bounds)}"
    yield f"SUMMARY:{_escaped(summary)}"
    yield f"DESCRIPTION:{_escaped(', '.join(level.windows))}"
    # the bounds of an autoscaler make no person busy
    yield "TRANSP:TRANSPARENT"
    yield "END:VEVENT"


def _instant(instant: int) -> str:
    return f"{datetime.fromtimestamp(instant, UTC):%Y%m%dT%H%M%SZ}"


def _escaped(text: str) -> str:
    """Return a text as a value; control characters, which values may not have, become escapes."""
    text = visible.escape(text)
    for sign in ("\\", ";", ","):
        text = text.replace(sign, f"\\{sign}")
    return text


def _folded(line: str) -> Iterator[str]:
    """Yield a line in parts of at most 75 octets; each but the first begins with a space."""
    part, octets = "", 0
    for sign in line:
        size = len(sign.encode())
        if octets + size > _MOST_OCTETS:
            yield part
            part, octets = " ", 1
        part += sign
        octets += size
    yield part
