"""The bounds that the schedules of one autoscaler give it at an instant.

A floor may begin some seconds before its window, so that the pods are Ready when the window begins; that is
the `lead`. Ceilings, and the ends of windows, never move.
"""

import bisect
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from adapter.model.schedules import windows
from adapter.model.schedules.windows import Boundary, Schedule, Window

MOST_LEAD = 600
"""The longest lead, in seconds."""

_AHEAD = 24 * 3600
"""For how many seconds spans are computed at once."""

_RENEWED = 3600
"""Spans are computed for another day when they are known for so many seconds only."""

_NO_END = 1 << 40


class ScheduledBounds(msgspec.Struct, frozen=True):
    """A floor and a ceiling, None for no bound, and the windows that are active.

    A window is written as ``namespace/schedule window``. Those of `early` have not begun yet: their floor is
    here for the time that pods take to be Ready. `until` is when the window of the floor ends, in seconds
    since 1970. `forecast` is the floor of a forecast, 0 for none; it is never above the ceiling. `excess`
    says which schedules do not count because they are too many, "" if all do.
    """

    floor: int | None
    ceiling: int | None
    windows: tuple[str, ...]
    early: tuple[str, ...] = ()
    until: int | None = None
    forecast: int = 0
    excess: str = ""

    @property
    def lowest(self) -> int:
        """The floor of windows and forecast, 0 for none."""
        forecast = self.forecast if self.ceiling is None else min(self.forecast, self.ceiling)
        return max(self.floor or 0, forecast)

    def without_ceiling(self) -> "ScheduledBounds":
        return msgspec.structs.replace(self, ceiling=None)

    def holding(self, replicas: int) -> "ScheduledBounds":
        """Return the bounds with a floor of at least so many replicas, for as long as these bounds hold."""
        if replicas <= (self.floor or 0):
            return self
        return msgspec.structs.replace(self, floor=replicas, until=_NO_END)


def with_forecast(bounds: ScheduledBounds | None, replicas: int) -> ScheduledBounds | None:
    """Return the bounds with the floor of a forecast, 0 for none."""
    if bounds is None:
        return ScheduledBounds(None, None, (), forecast=replicas) if replicas else None
    if not (replicas or bounds.windows or bounds.early or bounds.excess):
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
    begins: "array[int]"
    ends: "array[int]"


class SpansOfDay:
    """The spans of the windows of one schedule. They are computed for a day and kept."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        self.last = 0
        """Up to this instant the spans that `around` returned are all that begin."""
        self._start = 0
        self._spans: Sequence[_Spans] = ()

    def covers(self, instant: int) -> bool:
        """Tell whether the spans around an instant are known."""
        return self._start <= instant < self.last

    def is_ending(self, instant: int) -> bool:
        """Tell whether the spans are to be computed again, now or soon."""
        return not self._start <= instant < self.last - _RENEWED

    def around(self, instant: int) -> Sequence[_Spans]:
        """Return the spans that are active at an instant, or begin within MOST_LEAD seconds."""
        if not self.covers(instant):
            for _ in self.renew(instant):
                pass
        return self._spans

    def renew(self, instant: int) -> Iterator[None]:
        """Compute the spans of the day from an instant on; yield after each window."""
        schedule, last = self.schedule, instant + _AHEAD
        made = []
        for window in schedule.windows:
            if found := windows.spans_of(window, schedule, instant, last + MOST_LEAD):
                is_early = schedule.by_start and window.floor is not None
                begins, ends = (array("q", instants) for instants in zip(*found, strict=True))
                made.append(_Spans(f"{schedule.name} {window.name}", window, is_early, begins, ends))
            yield
        self._start, self.last, self._spans = instant, last, made

    def active(self, instant: int) -> list[Window]:
        """Return the windows that are active at an instant, in the order of the schedule."""
        return [each.window for each in self.around(instant) if _active_until(each, instant) is not None]

    def next_boundary(self, instant: int) -> Boundary | None:
        """Return the first boundary after an instant, None if that is not before `last`."""
        found = [_next_boundary(each, self.schedule.name, instant) for each in self.around(instant)]
        return min((each for each in found if each is not None and each.at < self.last), default=None)


def _active_until(spans: _Spans, instant: int) -> int | None:
    place = bisect.bisect_right(spans.begins, instant)
    return spans.ends[place - 1] if place and instant < spans.ends[place - 1] else None


def _next_boundary(spans: _Spans, schedule: str, instant: int) -> Boundary | None:
    at, edge = _active_until(spans, instant), "end"
    if at is None:
        place, edge = bisect.bisect_right(spans.begins, instant), "begin"
        at = spans.begins[place] if place < len(spans.begins) else None
    return None if at is None else Boundary(at, schedule, spans.window.name, edge)


class _KeptSpans(NamedTuple):
    """The bounds with a lead from one instant until another."""

    lead: int
    since: int
    until: int
    bounds: ScheduledBounds | None


_NOTHING = _KeptSpans(0, 0, 0, None)


class BoundsTimeline:
    """The bounds of some schedules over time. The spans may be shared with other timelines.

    Bounds are kept until they change. `excess` is that of the bounds.
    """

    def __init__(
        self, schedules: Sequence[Schedule], shared: Sequence[SpansOfDay] = (), excess: str = ""
    ) -> None:
        self.parts = (*shared, *map(SpansOfDay, schedules))
        self._shared = shared
        self._excess = excess
        self._kept = _NOTHING

    def keeps(self, instant: int, lead: int) -> bool:
        """Tell whether the bounds at an instant are known."""
        return self._kept.lead == lead and self._kept.since <= instant < self._kept.until

    def at(self, instant: int, lead: int = 0) -> ScheduledBounds | None:
        """Return the bounds at an instant, None outside all windows.

        `lead`, at most MOST_LEAD seconds, is for the schedules that are Ready by the start.
        """
        if not self.keeps(instant, lead):
            self._kept = self._evaluate(instant, lead)
        return self._kept.bounds

    def next_change(self, instant: int, lead: int = 0) -> int:
        """Return an instant up to which the bounds stay as they are at `instant`, a day later at most."""
        self.at(instant, lead)
        return self._kept.until

    def _evaluate(self, instant: int, lead: int) -> _KeptSpans:
        floor: int | None = None
        ceiling: int | None = None
        until: int | None = None
        active, early = [], []
        change = instant + _AHEAD
        for name, window, is_early, begins, ends in self._around(instant):
            place = bisect.bisect_right(begins, instant)
            ahead = lead if is_early else 0
            following = _next_begin(begins, place, instant, ahead)
            if place and instant < ends[place - 1]:
                end = ends[place - 1]
                change = min(change, end, following)
                active.append(name)
                if window.ceiling is not None:
                    ceiling = window.ceiling if ceiling is None else min(ceiling, window.ceiling)
            else:
                change = min(change, following)
                # A window that is `early` counts before it begins, so that its pods are Ready by then.
                if place == len(begins) or begins[place] - ahead > instant:
                    continue
                end = ends[place]
                early.append(name)
            # The highest minimum counts, until the last window that asks for it ends.
            if window.floor is not None and (floor is None or window.floor >= floor):
                until = end if until is None or window.floor != floor else max(until, end)
                floor = window.floor
        # A span may end long after the others were computed: what begins in between is not among them.
        change = min([change, *(part.last for part in self.parts)])
        # Shared spans are computed for another day by their owner, who looks before they end.
        endings = (part.last - _RENEWED for part in self._shared)
        change = min([change, *(ending for ending in endings if ending > instant)])
        found = None
        if active or early or self._excess:
            # A minimum wins over a lower maximum of another window: too few pods harm more than too many.
            if floor is not None and ceiling is not None:
                ceiling = max(floor, ceiling)
            names = tuple(sorted(active)), tuple(sorted(early))
            found = ScheduledBounds(floor, ceiling, *names, until, excess=self._excess)
        return _KeptSpans(lead, instant, change, found)

    def _around(self, instant: int) -> Iterator[_Spans]:
        for part in self.parts:
            yield from part.around(instant)


def _next_begin(begins: "array[int]", place: int, instant: int, lead: int) -> int:
    """Return when the next of some spans begins, or its floor; at `place` is the first after `instant`."""
    found = begins[place] if place < len(begins) else _NO_END
    if lead:
        place = bisect.bisect_right(begins, instant + lead)
        if place < len(begins):
            found = min(found, begins[place] - lead)
    return found
