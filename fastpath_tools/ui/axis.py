"""One time axis of an autoscaler: demand, counts and bounds of the last hour, and what is known ahead.

The shapes stretch to the width of the page, and the words keep their size. Each change of the count is a mark
to focus, and the time between two points has a title, so that both tell their numbers without a script. A
ribbon names what limited the count; for readers that do not see it there is a table. Pure.
"""

import datetime as dt
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from adapter.autoscaler.decide.restraint import Restraint
from adapter.model.autoscaling.view import AutoscalerView, BoundsAhead, HistoryPoint
from fastpath_tools import charts
from fastpath_tools.charts import AREA, LINE, MARK, Frame, Look, TrackStep
from fastpath_tools.simulate.picture import RESTRAINTS
from fastpath_tools.ui import steps
from fastpath_tools.ui.steps import Move, Stretch, epoch

_WIDTH = 1000
TOP, HEIGHT = 40, 220

_SHORTEST, _FARTHEST = 300.0, 3600.0
"""How many seconds the axis goes back at least, and back and ahead at most."""

SPANS = {"5m": ("5 minutes", 300.0), "15m": ("15 minutes", 900.0), "1h": ("an hour", _FARTHEST)}
"""What a reader may choose, and how many seconds it goes back then; it goes ahead as far at most."""

_NARROWEST = _WIDTH / 250
"""The least width of what tells its points."""

_LINES = {
    "demand": Look(AREA, charts.GRAY, "demand", "fill-opacity: 0.3"),
    "desired": Look(LINE, charts.VIOLET, "desired", "stroke-width: 1.5"),
    "ready": Look(LINE, charts.BLUE, "ready", "stroke-width: 2"),
    "floor": Look(LINE, charts.GREEN, "floor", "stroke-width: 1.5"),
    "min": Look(LINE, charts.SLATE, "min", "stroke-width: 1; stroke-dasharray: 2 3"),
    "max": Look(LINE, charts.RED, "max", "stroke-width: 1; stroke-dasharray: 6 3"),
    "reaction": Look(AREA, charts.VIOLET, "from a demand to Ready pods", "fill-opacity: 0.15"),
    "ahead": Look(LINE, charts.TEAL, "bounds ahead", "stroke-width: 2; stroke-dasharray: 5 3"),
    "step": Look(MARK, charts.VIOLET, "a change of the count"),
    "next": Look(LINE, charts.ORANGE, "next change", "stroke-width: 2; stroke-dasharray: 2 2"),
}
_MORE = {
    Restraint.FAILED: charts.ORANGE,
    Restraint.WITHHELD: charts.GRAY,
    Restraint.DRAINING: charts.LAVENDER,
    Restraint.DISABLED: charts.DIM,
    Restraint.TOLERATED: charts.Color("#dfe5ec", "#262d36"),
}
_COLORS = RESTRAINTS | _MORE
KINDS = {restraint.value: f"cause-{restraint.name.lower()}" for restraint in _COLORS}
"""The classes of causes by their texts."""
LOOKS = _LINES | {KINDS[cause.value]: Look(AREA, color, cause.value) for cause, color in _COLORS.items()}

STYLE = charts.stylesheet(LOOKS, ".axis")
"""The rules for the stylesheet of a page."""

_STEP = 5.0
"""The picture moves on each so many seconds, and when anything else changes."""


class Axis(NamedTuple):
    """What the template places. `causes` have their seconds, the longest first, `span` is of `SPANS`."""

    shapes: Markup
    frame: Frame
    now: float
    spans: Sequence[Stretch]
    changes: Sequence[Move]
    causes: Mapping[str, float]
    span: str

    @property
    def lines(self) -> Mapping[str, Look]:
        """The looks of its lines by the class of their marks."""
        drawn = str(self.shapes) + 'class="step"' * bool(self.changes)
        return {kind: look for kind, look in _LINES.items() if f'class="{kind}"' in drawn}

    def left(self, at: float) -> str:
        return f"{max(0.0, self.frame.x(at)) * 100 / _WIDTH:.2f}%"

    def width(self, start: float, end: float, least: float) -> str:
        return f"{max((self.frame.x(end) - self.frame.x(start)) * 100 / _WIDTH, least):.2f}%"

    def zones(self) -> Iterator[Sequence[Stretch]]:
        """Yield the parts of the axis that tell what was then, each wide enough to point at."""
        zone: list[Stretch] = []
        for span in self.spans:
            zone.append(span)
            if self.frame.x(span.end) - self.frame.x(zone[0].start) >= _NARROWEST or span is self.spans[-1]:
                yield zone
                zone = []

    def ribbon(self) -> Iterator[tuple[str, float, float, str]]:
        """Yield kind, start, end and text of each cause; neighbors of the same cause are one."""
        for text, group in itertools.groupby(self.spans, key=lambda span: span.point.limited_by):
            held = list(group)
            if text in KINDS:
                yield KINDS[text], held[0].start, held[-1].end, text


def draw(view: AutoscalerView, shown: str = "") -> Axis:
    """Return the axis of a document; without a history it shows what is known ahead alone.

    It goes back as far as the history, or as far as one of `SPANS`.
    """
    now = math.ceil(epoch(view.time) / _STEP) * _STEP  # no point of the history is later
    whole = steps.spans(view.history, now)
    length = min(max([_SHORTEST, *(now - span.start for span in whole[:1])]), _FARTHEST)
    farthest = _FARTHEST
    if shown in SPANS:
        length = farthest = SPANS[shown][1]
    begin = now - length
    spans = [span._replace(start=max(span.start, begin)) for span in whole if span.end > begin]
    bounds = [ahead for ahead in view.ahead if epoch(ahead.start) < now + farthest]
    known = [epoch(ahead.end) for ahead in bounds] + ([epoch(view.next.at) + 60] if view.next else [])
    end = now + min(max([length / 6, *(at - now for at in known)]), farthest)
    frame = Frame(TOP, HEIGHT, begin, end, charts.ceiling(_highest(view, spans, bounds)), 0, 0, _WIDTH)
    changes = [step for step in steps.find(whole) if step.at > begin]
    shapes = "".join((*_history(frame, spans, changes, now), *_ahead(frame, view, bounds, now)))
    span = next((name for name, (_, seconds) in SPANS.items() if seconds == length), "")
    return Axis(Markup(shapes), frame, now, spans, changes, _totals(spans), span)  # noqa: S704 - no texts


def _highest(view: AutoscalerView, spans: Sequence[Stretch], bounds: Sequence[BoundsAhead]) -> float:
    """Return the most pods that the axis has to show; a maximum far above all else is left out."""
    values = [view.target.replicas, view.target.ready, view.limits.min, view.limits.floor]
    values += [view.next.replicas if view.next else None, *(ahead.min for ahead in bounds)]
    for _, _, point in spans:
        values += [_shown_demand(point), point.desired, point.ready, point.floor]
    most = max([1, *(value for value in values if value is not None)])
    maximums = [view.limits.max, *(span.point.max for span in spans)]
    return max([most, *(value for value in maximums if value <= 1.5 * most)]) * 1.08


# -- shapes --------------------------------------------------------------------------------------------------


def _history(frame: Frame, spans: Sequence[Stretch], changes: Sequence[Move], now: float) -> Iterator[str]:
    yield charts.path("rule", (f"M0 {charts.number(frame.y(mark))}H{_WIDTH}" for mark in marks(frame)))
    yield frame.uprights("rule", _times(frame))
    yield frame.boxes("ahead-shade", [(now, frame.end, 0, frame.pods)])
    yield frame.spans(
        "reaction", ((max(step.since or step.at, frame.begin), step.ready) for step in changes if step.ready)
    )
    yield frame.area("demand", _track(spans, _shown_demand))
    yield frame.line("demand-line", _track(spans, _shown_demand))
    yield frame.line("min", _track(spans, lambda point: point.min if point.max else None))
    # a maximum is 0 where nothing was decided, and one above the axis is not drawn
    yield frame.line("max", _track(spans, lambda point: point.max if 0 < point.max <= frame.pods else None))
    yield frame.line("floor", _track(spans, lambda point: point.floor or None))
    yield frame.line("desired", _track(spans, lambda point: point.desired))
    yield frame.line("ready", _track(spans, lambda point: point.ready))
    yield frame.uprights("now", [now])


def _track(spans: Iterable[Stretch], value: Callable[[HistoryPoint], int | None]) -> list[TrackStep]:
    values = ((start, end, value(point)) for start, end, point in spans)
    return [TrackStep(start, end, () if count is None else [count]) for start, end, count in values]


def _shown_demand(point: HistoryPoint) -> int | None:
    """Return the demand, at most twice the maximum: more would squeeze the counts into the floor."""
    return point.demand if point.demand is None or not point.max else min(point.demand, 2 * point.max)


def _ahead(frame: Frame, view: AutoscalerView, bounds: Sequence[BoundsAhead], now: float) -> Iterator[str]:
    """Yield the bounds of schedules and forecasts, and the next change, from now on."""
    tracks = [
        [TrackStep(max(epoch(ahead.start), now), min(epoch(ahead.end), frame.end), [value])]
        for ahead in bounds
        for value in (ahead.min, ahead.max)
        if value is not None and value <= frame.pods
    ]
    yield frame.line("ahead", *tracks)
    count = view.target.replicas
    if view.next is not None and count is not None:
        at = min(max(epoch(view.next.at), now), frame.end)
        both = [TrackStep(now, at, [count]), TrackStep(at, frame.end, [view.next.replicas])]
        yield frame.line("next", [step for step in both if step.end > step.start])


# -- labels --------------------------------------------------------------------------------------------------


def marks(frame: Frame) -> list[float]:
    """Return the numbers of pods that have a rule, each whole."""
    step = next(step for step in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 10**9) if frame.pods / step < 5.5)
    return [float(mark) for mark in range(0, int(frame.pods) + 1, step)]


def _times(frame: Frame) -> list[float]:
    """Return round instants within the axis."""
    length = frame.end - frame.begin
    step = next((step for step in (60, 120, 300, 600, 900, 1800, 3600) if length / step <= 7), 7200)
    first = -(-frame.begin // step) * step
    return [first + step * place for place in range(int((frame.end - first) // step) + 1)]


def labels(frame: Frame) -> Iterator[tuple[float, str]]:
    """Yield the instants that have a label, and these."""
    room = 0.05 * (frame.end - frame.begin)
    for at in _times(frame):
        if frame.begin + room < at < frame.end - room:
            yield at, clock(at)[:5]


def clock(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M:%S")


def _totals(spans: Iterable[Stretch]) -> Mapping[str, float]:
    """Return how many seconds each cause held, the longest first."""
    totals: dict[str, float] = {}
    for start, end, point in spans:
        totals[point.limited_by] = totals.get(point.limited_by, 0.0) + end - start
    return dict(sorted(totals.items(), key=lambda item: -item[1]))
