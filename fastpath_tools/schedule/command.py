"""`fastpath schedule`: when the windows of schedules begin and end, and which bounds follow."""

import sys
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.documents import FastPathSchedule
from adapter.cli import command_line, verbs
from adapter.compose.clock import SystemClock
from adapter.config.option_fields import Command, CommandOptions, arguments, text_option
from adapter.errors import Fault, InputError
from adapter.model import local_time, timestamps
from adapter.model.timestamps import SECOND
from fastpath_tools.manifests import read_schedules
from fastpath_tools.schedule import calendar

DEFAULT_DAYS = 30
MOST_DAYS = 3660
MOST_TIMES = 100_000
"""How often windows may begin within the range: what is shown takes memory and time for each."""

_DAY = 86_400
_FIRST, _LAST = (round(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (1900, 9900))
_INSTANT = "expected an instant such as 2026-11-27T07:00:00Z, from 1900 to 9899"


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(CommandOptions):
    files: tuple[str, ...] = arguments(are_files=True)
    from_: str = text_option(
        "Begin at this instant (RFC 3339) instead of now.", metavar="instant", name="from"
    )
    until: str = text_option(
        f"End at this instant instead of {DEFAULT_DAYS} days later; at most {MOST_DAYS} days later.",
        metavar="instant",
    )
    output: str = command_line.output(
        "text", "json", "ics", help_="Format of the output: text, json, or ics (a calendar file)."
    )

    def faults(self, given: AbstractSet[str]) -> Iterator[Fault]:
        yield from super().faults(given)
        for flag, text in (("--from", self.from_), ("--until", self.until)):
            if text and _instant(text) is None:
                yield Fault(flag, text, _INSTANT)


COMMAND = Command(
    verb="schedule",
    options=ScheduleOptions,
    usage="[FILE...] [flags]",
    about="""\
Shows when the windows of FastPathSchedules begin and end, and which floors and ceilings they give, from the
documents alone. It contacts no cluster. FILE is YAML or JSON; - or no FILE: standard input. Objects of other
kinds are left out.
""",
)


@command_line.verb(COMMAND)
def main(options: ScheduleOptions) -> int:
    """Show the windows; exit status 2 if a document is refused."""
    start, end = _range(options)
    schedules = read_schedules(
        command_line.given_files("schedule", options.files),
        left_out=lambda what: command_line.tell("schedule", f"{what}: left out"),
    )
    _check_size(schedules, start, end)
    if options.output == "json":
        command_line.show(command_line.to_json(show(schedules, start, end)))
    elif options.output == "ics":
        verbs.require("icalendar")
        sys.stdout.write(calendar.render_ics(schedules, start, end))
    else:
        command_line.show(calendar.render(schedules, start, end))
    return 0


def _range(options: ScheduleOptions) -> tuple[int, int]:
    start = _instant(options.from_) if options.from_ else int(SystemClock().wall())
    assert start is not None
    end = _instant(options.until) if options.until else start + DEFAULT_DAYS * _DAY
    assert end is not None
    if not 0 < end - start <= MOST_DAYS * _DAY:
        first = f"--from, {options.from_}" if options.from_ else "now"
        expected = f"expected an instant after {first}, and at most {MOST_DAYS} days later"
        raise InputError([Fault("--until", options.until, expected)])
    return start, end


def _check_size(schedules: Sequence[FastPathSchedule], start: int, end: int) -> None:
    """Raise InputError for more windows than can be shown: ten years of one a minute take a gigabyte."""
    begins = 0
    for schedule in (document.schedule for document in schedules):
        begins += windows.spans_a_day(schedule) * -(-(end - start) // _DAY)
        if begins > MOST_TIMES:
            expected = f"expected an earlier instant: up to {schedule.name} more than {MOST_TIMES}"
            raise InputError([Fault("--until", write_instant(end), f"{expected} windows may begin")])


def show(schedules: Sequence[FastPathSchedule], start: int, end: int) -> dict[str, Any]:
    """Return the boundaries and levels from `start` to `end`, in seconds since 1970."""
    plain = [document.schedule for document in schedules]
    zones = {schedule.name: schedule.zone for schedule in plain}
    return {
        "boundaries": [
            {
                "at": write_instant(boundary.at),
                "local": write_local(boundary.at, zones[boundary.schedule]),
                "schedule": boundary.schedule,
                "window": boundary.window,
                "edge": boundary.edge,
            }
            for boundary in windows.boundaries(plain, start, end)
        ],
        "levels": [
            {
                "from": write_instant(level.begin),
                "until": write_instant(level.end),
                "schedule": name,
                "minReplicas": level.min,
                "maxReplicas": level.max,
                "windows": list(level.windows),
            }
            for level, name in sorted(
                (
                    (level, schedule.name)
                    for schedule in plain
                    for level in windows.levels(schedule, start, end)
                ),
                key=lambda pair: (pair[0].begin, pair[1]),
            )
        ],
    }


def write_instant(instant: int) -> str:
    return timestamps.write_instant(instant * SECOND)


def write_local(instant: int, zone: ZoneInfo) -> str:
    """Return an instant with the offset of a zone."""
    offset = timezone(timedelta(seconds=local_time.offset_at(instant, zone)))
    return datetime.fromtimestamp(instant, UTC).astimezone(offset).isoformat()


def _instant(text: str) -> int | None:
    """Return an instant in seconds since 1970; None for a faulty text, or for a year without calendars."""
    try:
        instant = timestamps.read_instant(text) // SECOND
    except ValueError:
        return None
    return instant if _FIRST <= instant < _LAST else None
