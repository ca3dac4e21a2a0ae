"""Draws what policies did with a load as one SVG picture, a panel for each policy.

A panel has the demand in pods as an area, the ready pods and those asked for as lines, the shortage shaded,
and below it the written counts and what kept the count.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adapter.model import timestamps
from adapter.simulate.engine import Change
from adapter.simulate.load import Span
from adapter.simulate.schedules import ScheduledStretch
from fastpath_tools.charts import svg
from fastpath_tools.charts.recording import Column, Extent, Recording, Restraint

COLUMNS = 720
"""How many columns a recording for a picture should have: one for each pixel of a panel."""

_WIDTH = 800
_LEFT, _RIGHT = 56, 776
_HEAD, _FOOT = 100, 60
_PLOT = 150
_CAPTION, _CHANGES, _RIBBON, _GAP = 30, 12, 9, 16
_PANEL = _CAPTION + _PLOT + _CHANGES + _RIBBON + _GAP

_LONGEST_NAME = 48  # the figures stand to the right of it

_DESCRIBED = 200
"""Up to so many changes each has its reason as a tooltip."""

_RESTRAINTS = (
    Restraint.HELD,
    Restraint.FLOOR,
    Restraint.SCHEDULED,
    Restraint.FORECAST,
    Restraint.LIMITED,
    Restraint.HIGHEST,
    Restraint.LOWEST,
    Restraint.ABSENT,
)
"""The restraints that the ribbon shows; where the count follows the metrics it is empty."""

_STYLE = """\
svg { --demand: #8c959f; --ready: #0969da; --asked: #8250df; --short: #d1242f; --lowered: #8c959f; }
svg { --held: #b6a1e8; --floor: #2da44e; --limited: #e3a008; --highest: #d1242f; --lowest: #a9b4bf; }
svg { --absent: #57606a; --scheduled: #1b7c83; --forecast: #bf4b8a; }
@media (prefers-color-scheme: dark) {
  svg { --demand: #8b949e; --ready: #4493f8; --asked: #bc8cff; --short: #f85149; --lowered: #6e7681; }
  svg { --held: #6e5bb0; --floor: #3fb950; --limited: #d29922; --highest: #f85149; --lowest: #4a525c; }
  svg { --absent: #9198a1; --scheduled: #39c5cf; --forecast: #db61a2; }
}
.policy { font-size: 13px; font-weight: 600; fill: var(--ink); }
.demand { fill: var(--demand); fill-opacity: 0.34; }
.ready { fill: none; stroke: var(--ready); stroke-width: 1.8; stroke-linejoin: round; }
.asked { fill: none; stroke: var(--asked); stroke-width: 1.1; stroke-linejoin: round; }
.shortage { fill: var(--short); fill-opacity: 0.55; }
.gap { fill: url(#gap); }
.gap-line { stroke: var(--demand); stroke-width: 1.5; }
.saturated { fill: url(#saturated); }
.saturated-line { stroke: var(--limited); stroke-width: 1.5; }
.raised { fill: var(--ready); }
.boosted { fill: var(--floor); }
.lowered { fill: var(--lowered); }
.scheduled { fill: none; stroke: var(--scheduled); stroke-width: 1.4; stroke-dasharray: 5 3; }
.empty { fill: none; stroke: var(--rule); }
"""


_PATTERNS = "".join(
    f'<pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<line class="{name}-line" x1="0" x2="0" y1="0" y2="6"/></pattern>'
    for name in ("gap", "saturated")
)
_PATTERNS = f"<defs>{_PATTERNS}</defs>"


class Panel(NamedTuple):
    """One policy: its name, a sentence of figures, and the run to draw.

    `changes` are the written counts. `is_boosted` says that those of the second chain are raises beside an
    HPA. `scheduled` are the bounds of schedules, and `has_forecast` says that floors of forecasts are among
    them.
    """

    policy: str
    caption: str
    recording: Recording
    changes: Sequence[Change]
    is_boosted: bool = False
    scheduled: Sequence[ScheduledStretch] = ()
    has_forecast: bool = False


class _Scale(NamedTuple):
    """Where seconds and pods lie in a panel whose plot begins at `top`."""

    top: float
    seconds: int
    columns: int
    pods: float

    @property
    def bottom(self) -> float:
        return self.top + _PLOT

    def x(self, second: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * second / self.seconds

    def edge(self, column: int) -> str:
        return svg.number(_LEFT + (_RIGHT - _LEFT) * column / self.columns)

    def y(self, pods: float) -> str:
        return svg.number(self.bottom - _PLOT * pods / self.pods)


def draw(
    title: str, subtitles: tuple[str, str], panels: Sequence[Panel], saturated: Sequence[Span] = ()
) -> str:
    """Return the picture of policies over the same seconds; the title and two lines stand above them.

    In the spans `saturated` the demand may have been higher.
    """
    height = _HEAD + len(panels) * _PANEL + _FOOT
    shown = max((_highest(panel.recording) for panel in panels), default=1.0)
    pods = svg.ceiling(shown)
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{svg.escaped(title)}</title>",
        f"<style>{svg.STYLE}{_STYLE}</style>",
        _PATTERNS,
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        svg.text(16, 26, title, "title"),
        *(svg.text(16, 46 + 17 * place, subtitle) for place, subtitle in enumerate(subtitles)),
        *_legend(16, 88, is_boosted=any(panel.is_boosted for panel in panels)),
    ]
    for place, panel in enumerate(panels):
        parts += _panel(panel, _HEAD + place * _PANEL, pods, saturated)
    if panels:
        parts += _times(panels[0].recording.seconds, _HEAD + len(panels) * _PANEL - _GAP + 14)
    parts += _ribbon_legend(panels, saturated, height - 32)
    return "\n".join([*parts, "</svg>"]) + "\n"


# -- a panel -------------------------------------------------------------------------------------------------


def _panel(panel: Panel, top: float, pods: float, saturated: Sequence[Span]) -> Iterator[str]:
    recording = panel.recording
    columns = recording.columns
    scale = _Scale(top + _CAPTION, recording.seconds, len(columns), pods)
    yield f'<g class="panel"><title>{svg.escaped(panel.policy)}</title>'
    yield svg.text(16, top + 18, _short(panel.policy), "policy")
    yield svg.text(_RIGHT, top + 18, panel.caption, anchor="end")
    for at in _ticks(recording.seconds)[1:]:
        x, upper, lower = map(svg.number, (scale.x(at), scale.top, scale.bottom))
        yield f'<line class="rule" x1="{x}" x2="{x}" y1="{upper}" y2="{lower}"/>'
    for count in svg.marks(pods):
        y = scale.y(count)
        yield f'<line class="rule" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>'
        yield svg.text(_LEFT - 8, float(y) + 4, f"{count:g}", anchor="end")
    if gaps := _gaps(columns, scale):
        yield f'<path class="gap" d="{gaps}"/>'
    yield f'<path class="demand" d="{_area(columns, scale)}"/>'
    for span in saturated:
        left, width = scale.x(span.start), scale.x(min(span.end, scale.seconds)) - scale.x(span.start)
        yield (
            f'<rect class="saturated" x="{svg.number(left)}" y="{svg.number(scale.top)}" '
            f'width="{svg.number(max(1.0, width))}" height="{_PLOT}"/>'
        )
    yield f'<path class="shortage" d="{_shortage(columns, scale)}"/>'
    yield f'<path class="asked" d="{_line([each.replicas for each in columns], scale)}"/>'
    yield f'<path class="ready" d="{_line([each.ready for each in columns], scale)}"/>'
    if bounds := _bounds(panel.scheduled, scale):
        yield f'<path class="scheduled" d="{bounds}"/>'
    yield from _changes(panel, scale)
    yield from _ribbon(columns, scale)
    yield "</g>"


def _gaps(columns: Sequence[Column], scale: _Scale) -> str:
    """Return boxes over the whole height where no demand is known."""
    known = [column.need is not None for column in columns]
    return "".join(
        f"M{scale.edge(start)} {svg.number(scale.top)}H{scale.edge(end)}v{_PLOT}H{scale.edge(start)}Z"
        for start, end in _ranges(known, wanted=False)
    )


def _area(columns: Sequence[Column], scale: _Scale) -> str:
    """Return the demand as an area; a gap has no area."""
    steps, base = [], scale.y(0)
    before = base
    for place, column in enumerate(columns):
        y = base if column.need is None else scale.y(column.need.high)
        if y != before:
            steps.append(f"H{scale.edge(place)}V{y}")
            before = y
    return f"M{_LEFT} {base}{''.join(steps)}H{_RIGHT}V{base}Z"


def _line(tracks: Sequence[Extent | None], scale: _Scale) -> str:
    """Return a line in steps that covers the least and the greatest value of each column."""
    steps: list[str] = []
    before = ""
    for place, track in enumerate(tracks):
        assert track is not None, "a run covers each column"
        ys = [scale.y(value) for value in _stops(track)]
        if not steps:
            steps.append(f"M{_LEFT} {ys[0]}")
        elif ys != [before]:
            steps.append(f"H{scale.edge(place)}V{ys[0]}")
        steps += (f"V{y}" for y in ys[1:])
        before = ys[-1]
    return f"{''.join(steps)}H{_RIGHT}"


def _stops(track: Extent) -> list[float]:
    """Return the values of a column in an order that draws all of it."""
    stops = [track.first]
    stops += (value for value in (track.low, track.high, track.last) if value != stops[-1])
    return stops


def _shortage(columns: Sequence[Column], scale: _Scale) -> str:
    """Return boxes from the ready pods up to the demand, where a column is worst; alike neighbors are one."""
    boxes: list[tuple[int, int, tuple[float, int]]] = []
    for place, column in enumerate(columns):
        if column.worst is None:
            continue
        if boxes and boxes[-1][1] == place and boxes[-1][2] == column.worst:
            boxes[-1] = (boxes[-1][0], place + 1, column.worst)
        else:
            boxes.append((place, place + 1, column.worst))
    return "".join(
        f"M{scale.edge(start)} {scale.y(need)}H{scale.edge(end)}V{scale.y(ready)}H{scale.edge(start)}Z"
        for start, end, (need, ready) in boxes
    )


def _bounds(scheduled: Sequence[ScheduledStretch], scale: _Scale) -> str:
    """Return lines at the floors and at the ceilings that the axis has room for."""
    return "".join(
        f"M{svg.number(scale.x(stretch.start))} {scale.y(bound)}H{svg.number(scale.x(stretch.end))}"
        for stretch in scheduled
        for bound in (stretch.floor, stretch.ceiling)
        if bound is not None and bound <= scale.pods
    )


def _changes(panel: Panel, scale: _Scale) -> Iterator[str]:
    """Yield a mark for each raise and each lowering, one for those of the same column."""
    top = scale.bottom + 3
    described = len(panel.changes) <= _DESCRIBED
    drawn: set[tuple[str, str]] = set()
    for change in panel.changes:
        raised = change.after > change.before
        kind = ("boosted" if panel.is_boosted and change.by else "raised") if raised else "lowered"
        x = svg.number(scale.x(change.second) - 0.75)
        if (kind, x) in drawn and not described:
            continue
        drawn.add((kind, x))
        y = top if raised else top + 4
        mark = f'<rect class="{kind}" x="{x}" y="{svg.number(y)}" width="1.5" height="4"'
        if described:
            by = " by boost" if kind == "boosted" else ""
            reason = f": {change.reason}" if change.reason else ""
            said = f"{_duration(change.second)}: from {change.before} to {change.after}{by}{reason}"
            yield f"{mark}><title>{svg.escaped(said)}</title></rect>"
        else:
            yield f"{mark}/>"


def _ribbon(columns: Sequence[Column], scale: _Scale) -> Iterator[str]:
    top = scale.bottom + _CHANGES
    yield (
        f'<rect class="empty" x="{_LEFT}" y="{svg.number(top)}" width="{_RIGHT - _LEFT}" height="{_RIBBON}"/>'
    )
    restraints = [column.restraint for column in columns]
    for restraint in _RESTRAINTS:
        boxes = "".join(
            f"M{scale.edge(start)} {svg.number(top)}H{scale.edge(end)}v{_RIBBON}H{scale.edge(start)}Z"
            for start, end in _ranges(restraints, restraint)
        )
        if boxes:
            yield f'<path class="restraint" style="fill: var(--{_color(restraint)})" d="{boxes}"/>'


def _ranges(values: Sequence[object], wanted: object) -> Iterator[tuple[int, int]]:
    start = None
    for place, value in enumerate([*values, None]):
        if value is wanted and start is None:
            start = place
        elif value is not wanted and start is not None:
            yield start, place
            start = None


def _color(restraint: Restraint) -> str:
    return restraint.name.lower()


# -- around the panels ---------------------------------------------------------------------------------------


def _legend(x: float, y: float, *, is_boosted: bool) -> Iterator[str]:
    yield f'<rect class="demand" x="{x}" y="{y - 9}" width="16" height="10"/>'
    yield svg.text(x + 22, y, "demand, in pods")
    yield f'<line class="ready" x1="{x + 136}" x2="{x + 152}" y1="{y - 4}" y2="{y - 4}"/>'
    yield svg.text(x + 158, y, "ready pods")
    yield f'<line class="asked" x1="{x + 244}" x2="{x + 260}" y1="{y - 4}" y2="{y - 4}"/>'
    yield svg.text(x + 266, y, "pods asked for")
    yield f'<rect class="shortage" x="{x + 372}" y="{y - 9}" width="16" height="10"/>'
    yield svg.text(x + 394, y, "shortage")
    kinds = ["raised", "lowered", *(["boosted"] if is_boosted else [])]
    for place, kind in enumerate(kinds):
        at = x + 472 + 72 * place
        yield f'<rect class="{kind}" x="{at}" y="{y - 9}" width="3" height="9"/>'
        yield svg.text(at + 9, y, "raised by boost" if kind == "boosted" else kind)


def _ribbon_legend(panels: Sequence[Panel], saturated: Sequence[Span], y: float) -> Iterator[str]:
    columns = [column for panel in panels for column in panel.recording.columns]
    present = {column.restraint for column in columns}
    entries = [
        (f'style="fill: var(--{_color(restraint)})"', restraint.value)
        for restraint in _RESTRAINTS
        if restraint in present
    ]
    if any(column.need is None for column in columns):
        entries.append(('class="gap"', "no sample"))
    if saturated:
        entries.append(('class="saturated"', "saturated when recorded"))
    if any(panel.scheduled for panel in panels):
        with_forecast = any(panel.has_forecast for panel in panels)
        words = f"floor or ceiling of a schedule{' or forecast' if with_forecast else ''}"
        entries.append(('class="scheduled"', words))
    x = 16.0
    for how, words in entries:
        width = 40 + 6.1 * len(words)
        if x + width > _WIDTH:
            x, y = 16.0, y + 18
        yield f'<rect x="{svg.number(x)}" y="{svg.number(y - 9)}" width="16" height="{_RIBBON}" {how}/>'
        yield svg.text(x + 22, y, words)
        x += width


_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def _times(seconds: int, y: float) -> Iterator[str]:
    for at in _ticks(seconds):
        x = _LEFT + (_RIGHT - _LEFT) * at / seconds
        yield svg.text(x, y, _duration(at), anchor="end" if x > _RIGHT - 20 else "middle")


def _ticks(seconds: int) -> range:
    step = next((step for step in _STEPS if seconds / step <= 8), 0) or 86400 * math.ceil(seconds / 8 / 86400)
    return range(0, seconds + 1, step)


def _duration(seconds: int) -> str:
    """Return seconds since the start, short: ``0``, ``90s``, ``6h``, ``1d12h``."""
    if not seconds:
        return "0"
    days, rest = divmod(seconds, 86400)
    if not rest:
        return f"{days}d"
    # Go writes every smaller unit too: 6h0m0s.
    text = timestamps.format_go_duration(rest)
    text = text.removesuffix("0s") if text.endswith("m0s") else text
    text = text.removesuffix("0m") if text.endswith("h0m") else text
    return f"{days}d{text}" if days else text


def _highest(recording: Recording) -> float:
    tracks = (track for each in recording.columns for track in (each.need, each.replicas))
    return max((track.high for track in tracks if track is not None), default=1.0)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\u2026"
