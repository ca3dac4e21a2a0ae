"""The bounds of one autoscaler, and those that its schedules give it over time.

A minimum may begin some seconds before its window, so that the pods are Ready when the window begins; that is
its lead. Maximums, and the ends of windows, never move.
"""

import bisect
import itertools
import math
import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from adapter.bounds.schedule import windows
from adapter.bounds.schedule.windows import Boundary, Schedule, Window
from adapter.model.start_ups import StartUps

MOST_LEAD = 600
"""The longest lead, in seconds."""


class Lead(NamedTuple):
    """What the lead of a minimum follows from.

    `start_ups` are those of the pods, None if none is known. `lowest` and `highest` are minReplicas and
    maxReplicas. `delay` is the seconds from a raise to the pods that are created for it.
    """

    start_ups: StartUps | None = None
    lowest: int = 0
    highest: int = sys.maxsize
    delay: int = 0

    def of_raise(self, before: int, after: int) -> int:
        """Return the lead in seconds of a minimum that rises from `before` to `after`.

        There are at most so many new pods: where metrics ask for more than `before`, they are fewer.
        """
        if self.start_ups is None:
            return 0
        pods = min(after, self.highest) - max(before, self.lowest)
        seconds = math.ceil(self.start_ups.until_last(max(pods, 1), MOST_LEAD))
        return min(seconds + self.delay, MOST_LEAD)


NO_LEAD = Lead()


_NO_END = 1 << 40
"""In seconds since 1970, after all windows."""


class Bounds(msgspec.Struct, frozen=True, rename={"min": "floor", "max": "ceiling"}):
    """The least and the most replicas that windows give, None for no bound, and what else counts.

    A window is written as ``namespace/schedule window``. Those of `early` have not begun yet: their minimum
    is here for the time that pods take to be Ready. `until` is when the window of the minimum ends, in
    seconds since 1970. `forecast` is the minimum of a forecast, 0 for none; it is never above `max`. `excess`
    says which schedules do not count because they are too many, "" if all do.
    """

    min: int | None = None
    max: int | None = None
    windows: tuple[str, ...] = ()
    early: tuple[str, ...] = ()
    until: int | None = None
    forecast: int = 0
    excess: str = ""

    @property
    def lowest(self) -> int:
        """The minimum of windows and forecast, 0 for none."""
        forecast = self.forecast if self.max is None else min(self.forecast, self.max)
        return max(self.min or 0, forecast)

    def limits(self, lowest: int, highest: int) -> tuple[int, int]:
        """Return minReplicas and maxReplicas within bounds; a minimum wins, but never above maxReplicas."""
        least = min(max(lowest, self.lowest), highest)
        most = highest if self.max is None else min(highest, self.max)
        return least, max(least, most)

    def with_forecast(self, replicas: int) -> "Bounds":
        """Return the bounds with the minimum of a forecast, 0 for none."""
        return self if replicas == self.forecast else msgspec.structs.replace(self, forecast=replicas)

    def without_max(self) -> "Bounds":
        """Return the bounds of a HorizontalPodAutoscaler, to which only minimums apply."""
        if self.min is None and not self.excess:
            return NO_BOUNDS
        return self if self.max is None else msgspec.structs.replace(self, max=None)

    def holding(self, replicas: int) -> "Bounds":
        """Return the bounds with a minimum of at least so many replicas, for as long as these bounds hold."""
        if replicas <= (self.min or 0):
            return self
        return msgspec.structs.replace(self, min=replicas, until=_NO_END)


NO_BOUNDS = Bounds()


_AHEAD = 24 * 3600
"""For how many seconds spans are computed at once."""

_RENEWED = 3600
"""Spans are computed for another day when they are known for so many seconds only."""


class _Spans(NamedTuple):
    """The spans of a window, its name with that of its schedule, and whether its minimum begins early."""

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
        computed = []
        for window in schedule.windows:
            if active := windows.spans_of(window, schedule, instant, last + MOST_LEAD):
                is_early = schedule.by_start and window.min is not None
                begins, ends = (array("q", instants) for instants in zip(*active, strict=True))
                computed.append(_Spans(f"{schedule.name} {window.name}", window, is_early, begins, ends))
            yield
        self._start, self.last, self._spans = instant, last, computed

    def active(self, instant: int) -> list[Window]:
        """Return the windows that are active at an instant, in the order of the schedule."""
        return [spans.window for spans in self.around(instant) if _active_until(spans, instant) is not None]

    def next_boundary(self, instant: int) -> Boundary | None:
        """Return the first boundary after an instant, None if that is not before `last`."""
        following = [_next_boundary(spans, self.schedule.name, instant) for spans in self.around(instant)]
        known = (boundary for boundary in following if boundary is not None and boundary.at < self.last)
        return min(known, default=None)


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

    lead: Lead
    since: int
    until: int
    bounds: Bounds


_NOTHING = _KeptSpans(NO_LEAD, 0, 0, NO_BOUNDS)


class _WindowSpan(NamedTuple):
    """A span of a window, with its bounds, None for none."""

    begin: int
    end: int
    name: str
    min: int | None
    max: int | None


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

    def keeps(self, instant: int, lead: Lead) -> bool:
        return self._kept.lead == lead and self._kept.since <= instant < self._kept.until

    def at(self, instant: int, lead: Lead = NO_LEAD) -> Bounds:
        """Return the bounds at an instant; `lead` is for the schedules that are Ready by the start."""
        if not self.keeps(instant, lead):
            self._kept = self._evaluate(instant, lead)
        return self._kept.bounds

    def next_change(self, instant: int, lead: Lead = NO_LEAD) -> int:
        """Return an instant up to which the bounds stay as they are at `instant`, a day later at most."""
        self.at(instant, lead)
        return self._kept.until

    def changes(self, instant: int, end: int, lead: Lead = NO_LEAD) -> Iterator[tuple[int, Bounds]]:
        """Yield the next bounds after an instant, before `end` and as far as the spans are computed.

        Nothing is computed for another day, and nothing is kept: looking ahead changes nothing.
        """
        at, before = instant, None
        while at < end and all(part.covers(at) for part in self.parts):
            following = self._evaluate(at, lead)
            if before is not None and following.bounds != before:
                yield at, following.bounds
            at, before = following.until, following.bounds

    def _evaluate(self, instant: int, lead: Lead) -> _KeptSpans:
        active, ahead, change = self._spans_around(instant)
        early, following = _early(ahead, active, instant, lead)
        # The highest minimum counts, until the last window that asks for it ends.
        minimums = [(span.min, span.end) for span in (*active, *early) if span.min is not None]
        least, until = max(minimums, default=(None, None))
        most = min((span.max for span in active if span.max is not None), default=None)
        # A minimum wins over a lower maximum of another window: too few pods harm more than too many.
        if least is not None and most is not None:
            most = max(least, most)
        bounds = Bounds(least, most, _names(active), _names(early), until, excess=self._excess)
        return _KeptSpans(lead, instant, min(change, following), bounds)

    def _spans_around(self, instant: int) -> tuple[list[_WindowSpan], list[_WindowSpan], int]:
        """Return the spans that are active, the next ones that may be early, and until when they stay so."""
        change = instant + _AHEAD
        active: list[_WindowSpan] = []
        ahead: list[_WindowSpan] = []
        around = (part.around(instant) for part in self.parts)
        for name, window, is_early, begins, ends in itertools.chain.from_iterable(around):
            place = bisect.bisect_right(begins, instant)
            if place and instant < ends[place - 1]:
                change = min(change, ends[place - 1])
                active.append(_WindowSpan(begins[place - 1], ends[place - 1], name, window.min, window.max))
            elif place < len(begins):
                change = min(change, begins[place])
                if is_early:
                    ahead.append(_WindowSpan(begins[place], ends[place], name, window.min, window.max))
        # A span may end long after the others were computed: what begins in between is not among them.
        change = min([change, *(part.last for part in self.parts)])
        # Shared spans are computed for another day by their owner, who looks before they end.
        endings = (part.last - _RENEWED for part in self._shared)
        return active, ahead, min([change, *(ending for ending in endings if ending > instant)])


def _names(listed: Iterable[_WindowSpan]) -> tuple[str, ...]:
    return tuple(sorted(span.name for span in listed))


def _early(
    ahead: Sequence[_WindowSpan], active: Sequence[_WindowSpan], instant: int, lead: Lead
) -> tuple[list[_WindowSpan], int]:
    """Return the windows ahead whose minimum counts already, and when the next one is to be looked at.

    A minimum rises from that of the windows that are active, and were MOST_LEAD before it begins. So what
    begins meanwhile does not shorten a lead, and a minimum that is early stays.
    """
    steps = sorted((span.begin, span.min) for span in active if span.min is not None)
    begins, minimums = [at for at, _ in steps], [0, *itertools.accumulate((low for _, low in steps), max)]
    early, following = [], instant + _AHEAD
    for span in ahead:
        if (starts := span.begin - MOST_LEAD) <= instant:
            before = minimums[bisect.bisect_right(begins, starts)]
            starts = span.begin - lead.of_raise(before, span.min or 0)
        if starts <= instant:
            early.append(span)
        else:
            following = min(following, starts)
    return early, following
