"""What differs between the times at which another scaler is active and those of the windows written for it.

A week is compared by a clock that is never set, and the year after now by the clock of the zone: what
differs there and in no week is due to changes of the clock. Times that differ from year to year are compared
over that year alone.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.windows import ActiveSpan, Schedule
from adapter.model import local_time
from fastpath_tools.convert.cron import DAY, UTC, WEEK, WEEK_START

ActiveSpans = Callable[[int, int, ZoneInfo], Sequence[ActiveSpan]]
"""From a start, an end (seconds since 1970) and a zone to the times in between that are active."""

YEAR = 366 * DAY
_MOST_NAMED = 4
_HOUR = 3600


class Compared(NamedTuple):
    """A scaler by its `name`, when it is active, when the schedule is, and whether all weeks are the same."""

    name: str
    original: ActiveSpans
    schedule: ActiveSpans
    is_weekly: bool


def spans_of_windows(schedule: Schedule, names: Sequence[str]) -> ActiveSpans:
    """Return the times at which one of the windows `names` of a schedule is active."""

    def active(start: int, end: int, zone: ZoneInfo) -> Sequence[ActiveSpan]:
        placed = Schedule(schedule.name, zone, schedule.windows, schedule.excepted)
        chosen = (window for window in placed.windows if window.name in names)
        spans = [span for window in chosen for span in windows.spans_of(window, placed, start, end)]
        return union(spans, start, end)

    return active


def union(spans: Sequence[ActiveSpan], start: int, end: int) -> list[ActiveSpan]:
    """Return spans cut to the time from `start` to `end`, in order; those that touch are one."""
    joined: list[ActiveSpan] = []
    for span in sorted(spans):
        begin, until = max(span.begin, start), min(span.end, end)
        if until <= begin:
            continue
        if joined and begin <= joined[-1].end:
            joined[-1] = ActiveSpan(joined[-1].begin, max(joined[-1].end, until))
        else:
            joined.append(ActiveSpan(begin, until))
    return joined


def without(spans: Sequence[ActiveSpan], others: Sequence[ActiveSpan]) -> list[ActiveSpan]:
    """Return the times of `spans` outside `others`; both are in order and do not overlap."""
    rest = []
    for span in spans:
        begin = span.begin
        for other in others:
            if other.end <= begin or other.begin >= span.end:
                continue
            if begin < other.begin:
                rest.append(ActiveSpan(begin, other.begin))
            begin = other.end
        if begin < span.end:
            rest.append(ActiveSpan(begin, span.end))
    return rest


def sentences(compared: Compared, zone: ZoneInfo, now: int) -> Iterator[str]:
    """Yield what a comparison finds, each a sentence without the final stop; times are local."""
    begin, end, clock, period = WEEK_START, WEEK_START + WEEK, UTC, "a week"
    if not compared.is_weekly:
        begin = now // 60 * 60
        end, clock, period = begin + YEAR, zone, "in the next 366 days"
    original, schedule = _both(compared, begin, end, clock)
    if original == schedule:
        yield f"active {_hours(original)} {period}, as {compared.name} is"
    else:
        yield f"{compared.name} is active {_hours(original)} {period}, the schedule {_hours(schedule)}"
    for who, other, more in _either_way(compared, original, schedule):
        if compared.is_weekly:
            named = f"{_listed(_joined(more), _week_span)} as well ({_hours(more)} a week)"
        else:
            named = f"{_listed(more, lambda span: _week_span(span, zone, '%a %Y-%m-%d %H:%M'))} as well"
        yield f"{who} active {named}; {other} not"
    if compared.is_weekly:
        yield from _at_changes(compared, zone, now)


def _both(
    compared: Compared, start: int, end: int, zone: ZoneInfo
) -> tuple[Sequence[ActiveSpan], Sequence[ActiveSpan]]:
    return (
        union(compared.original(start, end, zone), start, end),
        union(compared.schedule(start, end, zone), start, end),
    )


def _either_way(
    compared: Compared, original: Sequence[ActiveSpan], schedule: Sequence[ActiveSpan]
) -> Iterator[tuple[str, str, list[ActiveSpan]]]:
    for who, other, more in (
        (f"{compared.name} is", "the schedule is", without(original, schedule)),
        ("the schedule is", f"{compared.name} is", without(schedule, original)),
    ):
        if more:
            yield who, other, more


# -- changes of the clock ------------------------------------------------------------------------------------


def _at_changes(compared: Compared, zone: ZoneInfo, now: int) -> Iterator[str]:
    """Yield how the year after now differs where no week does: the clock is set then."""
    start = now // 60 * 60
    week = _either_way(compared, *_both(compared, WEEK_START, WEEK_START + WEEK, UTC))
    usual = {(who, _week_span(span)) for who, _, more in week for span in _joined(more)}
    for who, other, more in _either_way(compared, *_both(compared, start, start + YEAR, zone)):
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
