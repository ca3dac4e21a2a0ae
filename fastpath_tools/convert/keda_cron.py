"""A cron trigger of KEDA: when KEDA takes it as active, and the windows that it evidently means.

KEDA computes the next start and the next end after now, and takes the trigger as active if the next end does
not come after the next start. So before each end the trigger is active since the last start or end. With
`start: 0 6 * * 1-5` and `end: 0 20 * * *` it is active on the weekend too: from the end on Friday to the end
on Saturday, and from there to the end on Sunday.
"""

import bisect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from adapter.bounds.schedule.documents import DAYS, LONGEST_FOR
from adapter.bounds.schedule.windows import ActiveSpan
from adapter.model.timestamps import SECOND
from fastpath_tools.convert.cron import DAY, CronExpression, fires

UTC = ZoneInfo("UTC")
"""A clock that is never set: in it, local times are compared as such."""

WEEK_START = 1_704_067_200
"""Monday, 1 January 2024, as UTC. The year has a 29 February."""

WEEK = 7 * DAY
_CYCLE = 4 * 366 * DAY
_MOST_DAY_WINDOWS = 7
_MOST_STARTS = 24


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
        events = sorted({*fires(self.start, first, last, zone), *ends})
        found: list[ActiveSpan] = []
        for at in ends:
            place = bisect.bisect_left(events, at)
            begin = events[place - 1] if place else first
            if begin >= end or at <= start:
                continue
            if found and found[-1].end == begin:
                found[-1] = ActiveSpan(found[-1].begin, at)
            else:
                found.append(ActiveSpan(begin, at))
        return [ActiveSpan(max(begin, start), min(at, end)) for begin, at in found]


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
    found = [_day_window(days, begin, DAY)] if begin else []
    found += [_day_window(sorted(middle), 0, DAY)] if middle else []
    return found + ([_day_window(last, 0, end % DAY)] if end % DAY else [])


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
