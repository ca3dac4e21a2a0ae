"""What differs between the times at which KEDA is active and those of the windows written for it.

A week is compared by a clock that is never set, and the year after now by the clock of the zone: what
differs there and in no week is due to changes of the clock. Times that differ from year to year are compared
over that year alone.
"""

import bisect
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.windows import ActiveSpan, Schedule
from adapter.model import local_time
from fastpath_tools.convert.cron import DAY, UTC, WEEK, WEEK_START, KedaCronTrigger, union

YEAR = 366 * DAY
_MOST_NAMED = 4
_HOUR = 3600


class Compared(NamedTuple):
    """A trigger of KEDA, and the windows `names` of the schedule that is written for it."""

    trigger: KedaCronTrigger
    schedule: Schedule
    names: Sequence[str]

    def both(self, start: int, end: int, zone: ZoneInfo) -> tuple[list[ActiveSpan], list[ActiveSpan]]:
        """Return when KEDA is active by the clock of a zone, and when one of the windows is."""
        placed = Schedule(self.schedule.name, zone, self.schedule.windows, self.schedule.excepted)
        chosen = (window for window in placed.windows if window.name in self.names)
        spans = [span for window in chosen for span in windows.spans_of(window, placed, start, end)]
        return self.trigger.spans(start, end, zone), union(spans, start, end)


def without(spans: Sequence[ActiveSpan], others: Sequence[ActiveSpan]) -> list[ActiveSpan]:
    """Return the times of `spans` outside `others`; both are in order and do not overlap."""
    rest = []
    for span in spans:
        begin = span.begin
        first = bisect.bisect_right(others, begin, key=lambda other: other.end)
        last = bisect.bisect_left(others, span.end, key=lambda other: other.begin)
        for other in others[first:last]:
            if begin < other.begin:
                rest.append(ActiveSpan(begin, other.begin))
            begin = other.end
        if begin < span.end:
            rest.append(ActiveSpan(begin, span.end))
    return rest


def sentences(compared: Compared, now: int) -> Iterator[str]:
    """Yield what a comparison finds, each a sentence without the final stop; times are local."""
    zone, is_weekly = compared.schedule.zone, compared.trigger.is_weekly
    begin, end, clock, period = WEEK_START, WEEK_START + WEEK, UTC, "a week"
    if not is_weekly:
        begin = now // 60 * 60
        end, clock, period = begin + YEAR, zone, "in the next 366 days"
    original, schedule = compared.both(begin, end, clock)
    if original == schedule:
        yield f"active {_hours(original)} {period}, as KEDA is"
    else:
        yield f"KEDA is active {_hours(original)} {period}, the schedule {_hours(schedule)}"
    for who, other, more in _either_way(original, schedule):
        if is_weekly:
            named = f"{_listed(_joined(more), _week_span)} as well ({_hours(more)} a week)"
        else:
            named = f"{_listed(more, lambda span: _week_span(span, zone, '%a %Y-%m-%d %H:%M'))} as well"
        yield f"{who} active {named}; {other} not"
    if is_weekly:
        yield from _at_changes(compared, zone, now)


def _either_way(
    original: Sequence[ActiveSpan], schedule: Sequence[ActiveSpan]
) -> Iterator[tuple[str, str, list[ActiveSpan]]]:
    if more := without(original, schedule):
        yield "KEDA is", "the schedule is", more
    if more := without(schedule, original):
        yield "the schedule is", "KEDA is", more


# -- changes of the clock ------------------------------------------------------------------------------------


def _at_changes(compared: Compared, zone: ZoneInfo, now: int) -> Iterator[str]:
    """Yield how the year after now differs where no week does: the clock is set then."""
    start = now // 60 * 60
    week = _either_way(*compared.both(WEEK_START, WEEK_START + WEEK, UTC))
    usual = {(who, _week_span(span)) for who, _, more in week for span in _joined(more)}
    for who, other, more in _either_way(*compared.both(start, start + YEAR, zone)):
        unusual = [
            span
            for span in more
            if start < span.begin and span.end < start + YEAR and (who, _week_span(span, zone)) not in usual
        ]
        if unusual:
            named = _listed(unusual, lambda span: _offset_span(span, zone))
            yield f"the clock is set: {who} active {named}; {other} not"


# -- words ---------------------------------------------------------------------------------------------------


def _joined(spans: Sequence[ActiveSpan]) -> Sequence[ActiveSpan]:
    """Return the spans of a week with one over its end as one."""
    end = WEEK_START + WEEK
    if len(spans) > 1 and spans[0].begin == WEEK_START and spans[-1].end == end:
        return [*spans[1:-1], ActiveSpan(spans[-1].begin, spans[0].end + WEEK)]
    return spans


def _listed(spans: Sequence[ActiveSpan], write: Callable[[ActiveSpan], str]) -> str:
    named = ", ".join(write(span) for span in spans[:_MOST_NAMED])
    more = len(spans) - _MOST_NAMED
    return f"{named} and {more} more times" if more > 0 else named


def _week_span(span: ActiveSpan, zone: ZoneInfo = UTC, form: str = "%a %H:%M") -> str:
    if span == (WEEK_START, WEEK_START + WEEK):
        return "always"
    begin, end = (local_time.local_at(at, zone) for at in span)
    return f"{begin.strftime(form)} to {end.strftime('%H:%M' if begin.date() == end.date() else form)}"


def _offset_span(span: ActiveSpan, zone: ZoneInfo) -> str:
    """Write a span with the offset of each end: near a change of the clock, only that is unambiguous."""
    ends = []
    for at in span:
        minutes = local_time.offset_at(at, zone) // 60
        hours, rest = divmod(abs(minutes), 60)
        sign = "-" if minutes < 0 else "+"
        ends.append(f"{local_time.local_at(at, zone):%a %Y-%m-%d %H:%M}{sign}{hours:02d}:{rest:02d}")
    return " to ".join(ends)


def _hours(spans: Sequence[ActiveSpan]) -> str:
    return f"{round(sum(end - begin for begin, end in spans) / _HOUR, 1):g} h"
