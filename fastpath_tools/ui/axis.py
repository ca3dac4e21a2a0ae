"""One time axis of an autoscaler: demand, counts and bounds of the last hour, and what is known ahead.

The shapes stretch to the width of the page, and the words keep their size. A ribbon below the axis names
what limited the count; the same points are a table for readers that do not see it. Pure: a document in, SVG
out.
"""

import datetime as dt
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from markupsafe import Markup

from adapter.autoscaler.decide.restraint import Restraint
from adapter.model.autoscaling.view import AutoscalerView, BoundsAhead, HistoryPoint
from adapter.model.timestamps import SECOND, read_nanoseconds
from adapter.model.visible import counted
from fastpath_tools import charts
from fastpath_tools.charts import AREA, LINE, Frame, Look, TrackStep
from fastpath_tools.doctor.hops import seconds as duration
from fastpath_tools.simulate.picture import RESTRAINTS

_WIDTH = 1000
_TOP, _HEIGHT, _RIBBON, _FOOT = 22, 220, 18, 40
_WHOLE = _TOP + _HEIGHT + _RIBBON + _FOOT

_SHORTEST = 300.0
"""How many seconds the axis goes back at least; a sixth of that it goes ahead."""
_FARTHEST = 3600.0
"""How many seconds ahead it goes at most."""

_LINES = {
    "demand": Look(AREA, charts.GRAY, "demand", "fill-opacity: 0.3"),
    "desired": Look(LINE, charts.VIOLET, "desired", "stroke-width: 1.5"),
    "ready": Look(LINE, charts.BLUE, "ready", "stroke-width: 2"),
    "floor": Look(LINE, charts.GREEN, "floor", "stroke-width: 1.5"),
    "min": Look(LINE, charts.SLATE, "min", "stroke-width: 1; stroke-dasharray: 2 3"),
    "max": Look(LINE, charts.RED, "max", "stroke-width: 1; stroke-dasharray: 6 3"),
    "ahead": Look(LINE, charts.TEAL, "bounds ahead", "stroke-width: 2; stroke-dasharray: 5 3"),
    "next": Look(LINE, charts.ORANGE, "next change", "stroke-width: 2; stroke-dasharray: 2 2"),
}
_MORE = {
    Restraint.FAILED: charts.ORANGE,
    Restraint.WITHHELD: charts.GRAY,
    Restraint.DRAINING: charts.LAVENDER,
    Restraint.DISABLED: charts.DIM,
    Restraint.TOLERATED: charts.Color("#dfe5ec", "#262d36"),
}
_CAUSES = {
    restraint.value: (f"cause-{restraint.name.lower()}", color)
    for restraint, color in (RESTRAINTS | _MORE).items()
}
LOOKS = _LINES | {kind: Look(AREA, color, text) for text, (kind, color) in _CAUSES.items()}

STYLE = charts.stylesheet(LOOKS, ".axis")
"""The rules for the stylesheet of a page."""

_STEP = 5.0
"""The picture moves on each so many seconds, and when anything else changes."""

_ROWS = 60
"""How many points the table shows, the newest."""


class Axis(NamedTuple):
    """The picture, the looks of its lines, the words of the ribbon, and points for a table, the newest first.

    `lines` and `causes` are by the class of their marks. `left_out` is how many older points there are.
    """

    svg: Markup
    lines: Mapping[str, Look]
    causes: Mapping[str, str]
    points: Sequence[HistoryPoint]
    left_out: int


class _Span(NamedTuple):
    """A point of the history with its begin and end in epoch seconds."""

    start: float
    end: float
    point: HistoryPoint


def draw(view: AutoscalerView) -> Axis:
    """Return the axis of a document; without a history it shows what is known ahead alone."""
    now = math.ceil(_epoch(view.time) / _STEP) * _STEP  # no point of the history is later
    spans = _spans(view, now)
    begin = min([now - _SHORTEST, *(span.start for span in spans)])
    bounds = [ahead for ahead in view.ahead if _epoch(ahead.start) < now + _FARTHEST]
    known = [_epoch(ahead.end) for ahead in bounds] + ([_epoch(view.next.at) + 60] if view.next else [])
    end = now + min(max([(now - begin) / 6, *(at - now for at in known)]), _FARTHEST)
    frame = Frame(_TOP, _HEIGHT, begin, end, charts.ceiling(_highest(view, spans, bounds)), 0, 0, _WIDTH)
    shapes = [*_history(frame, spans, now), *_ahead(frame, view, bounds, now)]
    causes = _totals(spans)
    title = f"Replicas of {view.namespace}/{view.name} over time"
    stretched = f'viewBox="0 0 {_WIDTH} {_WHOLE}" preserveAspectRatio="none"'
    parts = [
        f'<svg class="axis" role="img" aria-labelledby="axis-title axis-desc" height="{_WHOLE}">',
        f'<title id="axis-title">{charts.escaped(title)}</title>',
        f'<desc id="axis-desc">{charts.escaped(_describe(view, spans, causes))}</desc>',
        f'<svg width="100%" height="{_WHOLE}" {stretched}>',
        *filter(None, shapes),
        "</svg>",
        *_words(frame, now),
        *_ribbon(frame, spans),
        "</svg>",
    ]
    svg = "".join(parts)
    points = [span.point for span in reversed(spans)]
    return Axis(
        Markup(svg),  # noqa: S704 - its texts are escaped
        {kind: look for kind, look in _LINES.items() if f'class="{kind}"' in svg},
        {
            _CAUSES[text][0]: f"{text}, {duration(length)}"
            for text, length in causes.items()
            if text in _CAUSES
        },
        points[:_ROWS],
        max(0, len(points) - _ROWS),
    )


def _epoch(at: str) -> float:
    return read_nanoseconds(at) / SECOND


def _spans(view: AutoscalerView, now: float) -> list[_Span]:
    """Return the history; the last point holds until now."""
    if view.history is None or not view.history.points:
        return []
    starts = [_epoch(point.at) for point in view.history.points]
    ends = [*starts[1:], now]
    points = zip(starts, ends, view.history.points, strict=True)
    return [_Span(start, end, point) for start, end, point in points if end > start]


def _highest(view: AutoscalerView, spans: Sequence[_Span], bounds: Sequence[BoundsAhead]) -> float:
    """Return the most pods that the axis has to show; a maximum far above all else is left out."""
    values = [view.target.replicas, view.target.ready, view.limits.min, view.limits.floor]
    values += [view.next.replicas if view.next else None, *(ahead.min for ahead in bounds)]
    for _, _, point in spans:
        values += [_shown_demand(point), point.desired, point.ready, point.floor]
    most = max([1, *(value for value in values if value is not None)])
    maximums = [view.limits.max, *(span.point.max for span in spans)]
    return max([most, *(value for value in maximums if value <= 1.5 * most)]) * 1.08


# -- shapes --------------------------------------------------------------------------------------------------


def _history(frame: Frame, spans: Sequence[_Span], now: float) -> Iterator[str]:
    yield charts.path("rule", (f"M0 {charts.number(frame.y(mark))}H{_WIDTH}" for mark in _marks(frame)))
    yield frame.uprights("rule", _times(frame))
    yield frame.boxes("ahead-shade", [(now, frame.end, 0, frame.pods)])
    yield frame.area("demand", _track(spans, _shown_demand))
    yield frame.line("min", _track(spans, lambda point: point.min if point.max else None))
    # a maximum is 0 where nothing was decided, and one above the axis is not drawn
    yield frame.line("max", _track(spans, lambda point: point.max if 0 < point.max <= frame.pods else None))
    yield frame.line("floor", _track(spans, lambda point: point.floor or None))
    yield frame.line("desired", _track(spans, lambda point: point.desired))
    yield frame.line("ready", _track(spans, lambda point: point.ready))
    yield frame.uprights("now", [now])


def _track(spans: Iterable[_Span], value: Callable[[HistoryPoint], int | None]) -> list[TrackStep]:
    values = ((start, end, value(point)) for start, end, point in spans)
    return [TrackStep(start, end, () if count is None else [count]) for start, end, count in values]


def _shown_demand(point: HistoryPoint) -> int | None:
    """Return the demand, at most twice the maximum: more would squeeze the counts into the floor."""
    return point.demand if point.demand is None or not point.max else min(point.demand, 2 * point.max)


def _ahead(frame: Frame, view: AutoscalerView, bounds: Sequence[BoundsAhead], now: float) -> Iterator[str]:
    """Yield the bounds of schedules and forecasts, and the next change, from now on."""
    tracks = [
        [TrackStep(max(_epoch(ahead.start), now), min(_epoch(ahead.end), frame.end), [value])]
        for ahead in bounds
        for value in (ahead.min, ahead.max)
        if value is not None and value <= frame.pods
    ]
    yield frame.line("ahead", *tracks)
    count = view.target.replicas
    if view.next is not None and count is not None:
        at = min(max(_epoch(view.next.at), now), frame.end)
        steps = [TrackStep(now, at, [count]), TrackStep(at, frame.end, [view.next.replicas])]
        yield frame.line("next", [step for step in steps if step.end > step.start])


# -- words ---------------------------------------------------------------------------------------------------


def _marks(frame: Frame) -> list[float]:
    """Return the numbers of pods that have a rule, each whole."""
    step = next(step for step in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 10**9) if frame.pods / step < 5.5)
    return [float(mark) for mark in range(0, int(frame.pods) + 1, step)]


def _times(frame: Frame) -> list[float]:
    """Return round instants within the axis."""
    length = frame.end - frame.begin
    step = next((step for step in (60, 120, 300, 600, 900, 1800, 3600) if length / step <= 7), 7200)
    first = -(-frame.begin // step) * step
    return [first + step * place for place in range(int((frame.end - first) // step) + 1)]


def _share(frame: Frame, at: float) -> str:
    return f"{charts.number(frame.x(at) * 100 / _WIDTH)}%"


def _words(frame: Frame, now: float) -> Iterator[str]:
    for mark in _marks(frame):
        yield f'<text x="0" y="{charts.number(frame.y(mark) - 4)}">{mark:g}</text>'
    foot = _WHOLE - 6
    room = 0.05 * (frame.end - frame.begin)
    for at in _times(frame):
        if frame.begin + room < at < frame.end - room:
            text = dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M")
            yield f'<text x="{_share(frame, at)}" y="{foot}" text-anchor="middle">{text}</text>'
    head = f"now, {_clock(now)[:5]} UTC"
    yield f'<text x="{_share(frame, now)}" y="{_TOP - 8}" text-anchor="middle" class="head">{head}</text>'


def _ribbon(frame: Frame, spans: Sequence[_Span]) -> Iterator[str]:
    """Yield a box for each cause, with its words inside where these have room."""
    top = _TOP + _HEIGHT + 8
    for start, end, text in _causes(spans):
        if text not in _CAUSES:
            continue
        left, width = frame.x(start) * 100 / _WIDTH, (frame.x(end) - frame.x(start)) * 100 / _WIDTH
        place = f'x="{left:.2f}%" y="{top}" width="{max(width, 0.1):.2f}%" height="{_RIBBON - 6}"'
        tip = f"{_clock(start)} to {_clock(end)} UTC: {text}"
        yield f'<rect class="{_CAUSES[text][0]}" {place}><title>{charts.escaped(tip)}</title></rect>'


def _clock(at: float) -> str:
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%H:%M:%S")


def _causes(spans: Iterable[_Span]) -> Iterator[tuple[float, float, str]]:
    """Yield start, end and text of each cause; neighbors of the same cause are one."""
    for text, group in itertools.groupby(spans, key=lambda span: span.point.limited_by):
        held = list(group)
        yield held[0].start, held[-1].end, text


def _totals(spans: Iterable[_Span]) -> Mapping[str, float]:
    """Return how many seconds each cause held, the longest first."""
    totals: dict[str, float] = defaultdict(float)
    for start, end, point in spans:
        totals[point.limited_by] += end - start
    return dict(sorted(totals.items(), key=lambda item: -item[1]))


def _describe(view: AutoscalerView, spans: Sequence[_Span], causes: Mapping[str, float]) -> str:
    """Return what the picture shows as sentences."""
    parts = []
    counts = [span.point.desired for span in spans if span.point.desired is not None]
    if counts:
        length = duration(spans[-1].end - spans[0].start)
        parts.append(f"In the last {length} the desired count was between {min(counts)} and {max(counts)}.")
    parts += [
        f"{text[:1].upper()}{text[1:]} for {duration(length)}." for text, length in causes.items() if text
    ]
    if view.next is not None:
        at = _clock(_epoch(view.next.at))
        parts.append(f"Next: {counted(view.next.replicas, 'replica', 'replicas')} at {at} UTC.")
    return " ".join(parts) or "No history is known."
