"""An entry of a ScalingSchedule: when kube-metrics-adapter takes it as active, and the window that it means.

kube-metrics-adapter looks at the local day of now only: a Repeating entry is active from its start on that
day to its end on that day, so that nothing of it is left after midnight, and an end before the start leaves
nothing at all. The end is endTime, or durationMinutes after the start, whichever is later.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from adapter.bounds.schedule.documents import DAYS
from adapter.bounds.schedule.windows import ActiveSpan
from adapter.model import local_time
from fastpath_tools.convert.keda_cron import clock, length_of

_MINUTE = 60
_DAY = timedelta(days=1)
_EPOCH = datetime.combine(date(1970, 1, 1), time())


@dataclass(frozen=True, slots=True)
class RepeatingEntry:
    """`weekdays` (Monday is 0); `begin` and `end` in minutes since midnight, `duration` in minutes."""

    weekdays: frozenset[int]
    begin: int
    end: int | None
    duration: int

    def spans(self, start: int, end: int, zone: ZoneInfo) -> list[ActiveSpan]:
        """Return when kube-metrics-adapter takes the entry as active, without its ramps."""
        return list(self._spans(start, end, zone))

    def _spans(self, start: int, end: int, zone: ZoneInfo) -> Iterator[ActiveSpan]:
        day = local_time.local_at(start, zone).date() - 2 * _DAY
        last = local_time.local_at(end, zone).date() + 2 * _DAY
        while day <= last:
            if day.weekday() in self.weekdays:
                begin = go_date(day, self.begin, zone)
                until = begin + self.duration * _MINUTE
                if self.end is not None:
                    until = max(until, go_date(day, self.end, zone))
                midnight = datetime.combine(day, time())
                begin = max(begin, local_time.first_at(midnight, zone))
                until = min(until, local_time.end_of(midnight + _DAY, zone))
                if begin < until:
                    yield ActiveSpan(begin, until)
            day += _DAY

    def window(self) -> dict[str, Any] | None:
        """Return the window as a document without name and bounds, None where the entry has no length.

        An end before the start is one on the next day, and a duration may go on after midnight.
        """
        clocked = 0 if self.end is None else (self.end - self.begin) % (24 * _MINUTE)
        if self.end is not None and clocked and (not self.duration or self._is_longer(clocked)):
            window = {"from": clock(self.begin * _MINUTE), "to": clock((self.end or 24 * _MINUTE) * _MINUTE)}
            days = {"days": [DAYS[day] for day in sorted(self.weekdays)]}
            return window if len(self.weekdays) == len(DAYS) else days | window
        if not self.duration:
            return None
        days_field = ",".join(str(day) for day in sorted((day + 1) % 7 for day in self.weekdays))
        fields = f"{self.begin % _MINUTE} {self.begin // _MINUTE} * * "
        everyday = len(self.weekdays) == len(DAYS)
        return {"cron": fields + ("*" if everyday else days_field), "for": length_of(self.duration * _MINUTE)}

    def _is_longer(self, clocked: int) -> bool:
        """Whether endTime is later than the end of the duration; an endTime before the start never is."""
        return self.end is not None and self.end > self.begin and clocked >= self.duration


def single_window(span: ActiveSpan, zone: ZoneInfo) -> dict[str, Any] | None:
    """Return a window for one span, None if the zone's clock cannot say it."""
    begin, end = (local_time.local_at(at, zone) for at in span)
    exact = ActiveSpan(local_time.first_at(begin, zone), local_time.end_of(end, zone)) == span
    return {"start": _local(begin), "end": _local(end)} if exact else None


def go_date(day: date, minutes: int, zone: ZoneInfo) -> int:
    """Return the instant of a local time as Go's time.Date does.

    A skipped time is taken with the offset after the gap or with that before it, and a time that is shown
    twice is its first or its second instant. Which of the two depends on the zone.
    """
    local = round((datetime.combine(day, time()) - _EPOCH).total_seconds()) + minutes * _MINUTE
    offset = local_time.offset_at(local, zone)
    first, second = sorted((local, local - offset))
    if local_time.transitions(first + 1, second + 1, zone):
        offset = local_time.offset_at(local - offset, zone)
    return local - offset


def _local(local: datetime) -> str:
    return f"{local:%Y-%m-%dT%H:%M}" + (f":{local:%S}" if local.second else "")
