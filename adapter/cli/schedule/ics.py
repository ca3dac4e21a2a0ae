"""Schedules as a calendar file (RFC 5545): one event for each time in which the bounds stay the same."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

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
        for what, bound in (("at least", level.floor), ("at most", level.ceiling))
        if bound is not None
    ]
    yield "BEGIN:VEVENT"
    yield f"UID:{level.begin}-{name.replace('/', '.')}@fastpath.io"
    yield f"DTSTAMP:{_instant(stamp)}"
    yield f"DTSTART:{_instant(level.begin)}"
    yield f"DTEND:{_instant(level.end)}"
    summary = f"{name}: {', '.join(bounds)} replicas"
    yield f"SUMMARY:{_escaped(summary)}"
    yield f"DESCRIPTION:{_escaped(', '.join(level.windows))}"
    yield "TRANSP:TRANSPARENT"
    yield "END:VEVENT"


def _instant(instant: int) -> str:
    return f"{datetime.fromtimestamp(instant, UTC):%Y%m%dT%H%M%SZ}"


def _escaped(text: str) -> str:
    for sign in ("\\", ";", ","):
        text = text.replace(sign, f"\\{sign}")
    return text.replace("\n", "\\n")


def _folded(line: str) -> Iterator[str]:
    """Yield a line in parts of at most 75 octets; each but the first begins with a space."""
    part = ""
    for sign in line:
        if len((part + sign).encode()) > _MOST_OCTETS:
            yield part
            part = " "
        part += sign
    yield part
