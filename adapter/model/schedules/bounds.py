"""The bounds that the schedules of one autoscaler give it at an instant.

A floor may begin some seconds before its window, so that the pods are Ready when the window begins; that is
the `lead`. Ceilings, and the ends of windows, never move.
"""

import bisect
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from adapter.model.schedules import windows
from adapter.model.schedules.windows import Schedule, Span, Window

MOST_LEAD = 600
"""The longest lead, in seconds."""

_AHEAD = 24 * 3600
"""For how many seconds spans are computed at once."""


class ScheduledBounds(msgspec.Struct, frozen=True):
    """A floor and a ceiling, None for no bound, and the windows that are active.

    A window is written as ``namespace/schedule window``. Those of `early` have not begun yet: their floor is
    here for the time that pods take to be Ready. `until` is when the window of the floor ends, in seconds
    since 1970. `forecast` is the floor of a forecast, 0 for none; it is never above the ceiling.
    """

    floor: int | None
    ceiling: int | None
    windows: tuple[str, ...]
    early: tuple[str, ...] = ()
    until: int | None = None
    forecast: int = 0

    @property
    def lowest(self) -> int:
        """The floor of windows and forecast, 0 for none."""
        forecast = self.forecast if self.ceiling is None else min(self.forecast, self.ceiling)
        return max(self.floor or 0, forecast)

    def without_ceiling(self) -> "ScheduledBounds":
        return msgspec.structs.replace(self, ceiling=None)


def with_forecast(bounds: ScheduledBounds | None, replicas: int) -> ScheduledBounds | None:
    """Return the bounds with the floor of a forecast, 0 for none."""
    if bounds is None:
        return ScheduledBounds(None, None, (), forecast=replicas) if replicas else None
    if not replicas and not bounds.windows and not bounds.early:
        return None
    return msgspec.structs.replace(bounds, forecast=replicas)


def limits(lowest: int, highest: int, bounds: ScheduledBounds | None) -> tuple[int, int]:
    """Return minReplicas and maxReplicas within bounds; the floor wins, but never above maxReplicas."""
    if bounds is None:
        return lowest, highest
    least = min(max(lowest, bounds.lowest), highest)
    most = highest if bounds.ceiling is None else min(highest, bounds.ceiling)
    return least, max(least, most)


class _Spans(NamedTuple):
    """The spans of a window, its name with that of its schedule, and whether its floor begins early."""

    name: str
    window: Window
    is_early: bool
    spans: Sequence[Span]


class SpansOfDay:
    """The spans of the windows of one schedule. They are computed for a day and kept."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.last = 0
        """Up to this instant the spans that `around` returned are all that begin."""
        self._start = 0
        self._spans: Sequence[_Spans] = ()

    def around(self, instant: int) -> Sequence[_Spans]:
        """Return the spans that are active at an instant, or begin within MOST_LEAD seconds."""
        if not self._start <= instant < self.last:
            self._start, self.last = instant, instant + _AHEAD
            schedule, end = self.schedule, self.last + MOST_LEAD
            self._spans = [
                _Spans(
                    f"{schedule.name} {window.name}",
                    window,
                    schedule.by_start and window.floor is not None,
                    found,
                )
                for window in schedule.windows
                if (found := windows.spans_of(window, schedule, instant, end))
            ]
        return self._spans


class BoundsTimeline:
    """The bounds of some schedules over time. The spans may be shared with other timelines."""

    def __init__(self, schedules: Sequence[Schedule], shared: Sequence[SpansOfDay] = ()) -> None:
        self._parts = (*shared, *map(SpansOfDay, schedules))

    def at(self, instant: int, lead: int = 0) -> ScheduledBounds | None:
        """Return the bounds at an instant, None outside all windows.

        `lead`, at most MOST_LEAD seconds, is for the schedules that are Ready by the start.
        """
        floor: int | None = None
        ceiling: int | None = None
        until: int | None = None
        active, early = [], []
        for name, window, is_early, spans in self._around(instant):
            covering = _covering(spans, instant, lead if is_early else 0)
            if covering is None:
                continue
            if instant < covering.begin:
                early.append(name)
            else:
                active.append(name)
                if window.ceiling is not None:
                    ceiling = window.ceiling if ceiling is None else min(ceiling, window.ceiling)
            if window.floor is not None and (floor is None or window.floor >= floor):
                until = covering.end if until is None or window.floor != floor else max(until, covering.end)
                floor = window.floor
        if not active and not early:
            return None
        if floor is not None and ceiling is not None:
            ceiling = max(floor, ceiling)
        return ScheduledBounds(floor, ceiling, tuple(sorted(active)), tuple(sorted(early)), until)

    def next_change(self, instant: int, lead: int = 0) -> int:
        """Return an instant up to which the bounds stay as they are at `instant`, a day later at most."""
        edges = [at for at in _edges(self._around(instant), lead) if at > instant]
        # a span may end long after the others were computed: what begins in between is not among them
        lasts = [part.last for part in self._parts] or [instant + _AHEAD]
        return min([*lasts, *edges])

    def _around(self, instant: int) -> Iterator[_Spans]:
        for part in self._parts:
            yield from part.around(instant)


def _covering(spans: Sequence[Span], instant: int, lead: int) -> Span | None:
    """Return the span that an instant is in, else the one that begins within the lead."""
    place = bisect.bisect_right(spans, instant, key=_begin)
    if place and instant < spans[place - 1].end:
        return spans[place - 1]
    return spans[place] if place < len(spans) and spans[place].begin - lead <= instant else None


def _begin(span: Span) -> int:
    return span.begin


def _edges(listed: Iterable[_Spans], lead: int) -> Iterator[int]:
    for each in listed:
        for begin, end in each.spans:
            yield from (begin - lead if each.is_early else begin, begin, end)
