"""Draws what policies did with a load as one SVG picture, a panel for each policy.

A panel has the demand in pods as an area, the ready pods and those asked for as lines, the shortage shaded,
and below it the written counts and what kept the count. The picture has no script and names nothing outside
of it; its colors follow the light or dark scheme of the reader.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from xml.sax import saxutils

from adapter.model import timestamps
from adapter.simulate.engine import Change
from adapter.simulate.recording import Column, Extent, Recording, Restraint

COLUMNS = 720
"""How many columns a recording for a picture should have: one for each pixel of a panel."""

_WIDTH = 800
_LEFT, _RIGHT = 56, 776
_HEAD, _FOOT = 100, 42
_PLOT = 150
_CAPTION, _CHANGES, _RIBBON, _GAP = 30, 12, 9, 16
_PANEL = _CAPTION + _PLOT + _CHANGES + _RIBBON + _GAP

_DESCRIBED = 200
"""Up to so many changes each has its reason as a tooltip."""

_STATES = (
    Restraint.HELD,
    Restraint.FLOOR,
    Restraint.LIMITED,
    Restraint.HIGHEST,
    Restraint.LOWEST,
    Restraint.ABSENT,
)
"""The states that the ribbon shows; where the count follows the metrics it is empty."""

_STYLE = """
svg { --ink: #1f2328; --soft: #59636e; --rule: #d8dee4; --paper: #ffffff; }
svg { --demand: #8c959f; --ready: #0969da; --asked: #8250df; --short: #d1242f; --lowered: #8c959f; }
svg { --held: #b6a1e8; --floor: #2da44e; --limited: #e3a008; --highest: #d1242f; --lowest: #a9b4bf; }
svg { --absent: #57606a; }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --soft: #9198a1; --rule: #2f353d; --paper: #0d1117; }
  svg { --demand: #8b949e; --ready: #4493f8; --asked: #bc8cff; --short: #f85149; --lowered: #6e7681; }
  svg { --held: #6e5bb0; --floor: #3fb950; --limited: #d29922; --highest: #f85149; --lowest: #4a525c; }
  svg { --absent: #9198a1; }
}
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--soft); }
.title { font-size: 15px; font-weight: 600; fill: var(--ink); }
.policy { font-size: 13px; font-weight: 600; fill: var(--ink); }
.paper { fill: var(--paper); }
.rule { stroke: var(--rule); stroke-width: 1; }
.demand { fill: var(--demand); fill-opacity: 0.34; }
.ready { fill: none; stroke: var(--ready); stroke-width: 1.8; stroke-linejoin: round; }
.asked { fill: none; stroke: var(--asked); stroke-width: 1.1; stroke-linejoin: round; }
.shortage { fill: var(--short); fill-opacity: 0.55; }
.raised { fill: var(--ready); }
.boosted { fill: var(--floor); }
.lowered { fill: var(--lowered); }
.empty { fill: none; stroke: var(--rule); }
"""


class Panel(NamedTuple):
    """One policy: its name, a sentence of figures, and the run to draw.

    `changes` are the written counts. `is_boosted` says that those of the second chain are raises beside an
    HPA.
    """

    policy: str
    caption: str
    recording: Recording
    changes: Sequence[Change]
    is_boosted: bool = False


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
        return _number(_LEFT + (_RIGHT - _LEFT) * column / self.columns)

    def y(self, pods: float) -> str:
        return _number(self.bottom - _PLOT * pods / self.pods)


def draw(title: str, subtitles: tuple[str, str], panels: Sequence[Panel]) -> str:
    """Return the picture of policies over the same seconds; the title and two lines stand above them."""
    height = _HEAD + len(panels) * _PANEL + _FOOT
    shown = max((_highest(panel.recording) for panel in panels), default=1.0)
    pods = _ceiling(shown)
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{_escaped(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        _text(16, 26, title, "title"),
        *(_text(16, 46 + 17 * place, subtitle) for place, subtitle in enumerate(subtitles)),
        *_legend(16, 88),
    ]
    for place, panel in enumerate(panels):
        parts += _panel(panel, _HEAD + place * _PANEL, pods)
    if panels:
        parts += _times(panels[0].recording.seconds, _HEAD + len(panels) * _PANEL - _GAP + 14)
    parts += _ribbon_legend(panels, height - 14)
    return "\n".join([*parts, "</svg>"]) + "\n"


# -- a panel -------------------------------------------------------------------------------------------------


def _panel(panel: Panel, top: float, pods: float) -> Iterator[str]:
    recording = panel.recording
    columns = recording.columns
    scale = _Scale(top + _CAPTION, recording.seconds, len(columns), pods)
    yield f'<g class="panel"><title>{_escaped(panel.policy)}</title>'
    yield _text(16, top + 18, panel.policy, "policy")
    yield _text(_RIGHT, top + 18, panel.caption, anchor="end")
    for count in _marks(pods):
        y = scale.y(count)
        yield f'<line class="rule" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>'
        yield _text(_LEFT - 8, float(y) + 4, f"{count:g}", anchor="end")
    yield f'<path class="demand" d="{_area(columns, scale)}"/>'
    yield f'<path class="shortage" d="{_shortage(columns, scale)}"/>'
    yield f'<path class="asked" d="{_line([each.replicas for each in columns], scale)}"/>'
    yield f'<path class="ready" d="{_line([each.ready for each in columns], scale)}"/>'
    yield from _changes(panel, scale)
    yield from _ribbon(columns, scale)
    yield "</g>"


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


def _changes(panel: Panel, scale: _Scale) -> Iterator[str]:
    """Yield a mark for each raise and each lowering, one for those of the same column."""
    top = scale.bottom + 3
    described = len(panel.changes) <= _DESCRIBED
    drawn: set[tuple[str, str]] = set()
    for change in panel.changes:
        raised = change.after > change.before
        kind = ("boosted" if panel.is_boosted and change.by else "raised") if raised else "lowered"
        x = _number(scale.x(change.second) - 0.75)
        if (kind, x) in drawn and not described:
            continue
        drawn.add((kind, x))
        y = top if raised else top + 4
        mark = f'<rect class="{kind}" x="{x}" y="{_number(y)}" width="1.5" height="4"'
        if described:
            by = " by boost" if kind == "boosted" else ""
            reason = f": {change.reason}" if change.reason else ""
            said = f"{_duration(change.second)}: from {change.before} to {change.after}{by}{reason}"
            yield f"{mark}><title>{_escaped(said)}</title></rect>"
        else:
            yield f"{mark}/>"


def _ribbon(columns: Sequence[Column], scale: _Scale) -> Iterator[str]:
    top = scale.bottom + _CHANGES
    yield (
        f'<rect class="empty" x="{_LEFT}" y="{_number(top)}" width="{_RIGHT - _LEFT}" height="{_RIBBON}"/>'
    )
    states = [column.state for column in columns]
    for state in _STATES:
        boxes = "".join(
            f"M{scale.edge(start)} {_number(top)}H{scale.edge(end)}v{_RIBBON}H{scale.edge(start)}Z"
            for start, end in _ranges(states, state)
        )
        if boxes:
            yield f'<path class="state" style="fill: var(--{_color(state)})" d="{boxes}"/>'


def _ranges(states: Sequence[Restraint], wanted: Restraint) -> Iterator[tuple[int, int]]:
    start = None
    for place, state in enumerate([*states, None]):
        if state is wanted and start is None:
            start = place
        elif state is not wanted and start is not None:
            yield start, place
            start = None


def _color(state: Restraint) -> str:
    return state.name.lower()


# -- around the panels ---------------------------------------------------------------------------------------


def _legend(x: float, y: float) -> Iterator[str]:
    yield f'<rect class="demand" x="{x}" y="{y - 9}" width="16" height="10"/>'
    yield _text(x + 22, y, "demand, in pods")
    yield f'<line class="ready" x1="{x + 130}" x2="{x + 146}" y1="{y - 4}" y2="{y - 4}"/>'
    yield _text(x + 152, y, "ready pods")
    yield f'<line class="asked" x1="{x + 234}" x2="{x + 250}" y1="{y - 4}" y2="{y - 4}"/>'
    yield _text(x + 256, y, "pods asked for")
    yield f'<rect class="shortage" x="{x + 358}" y="{y - 9}" width="16" height="10"/>'
    yield _text(x + 380, y, "shortage")
    for place, (kind, words) in enumerate((("raised", "raised"), ("boosted", "by boost"))):
        at = x + 456 + 72 * place
        yield f'<rect class="{kind}" x="{at}" y="{y - 9}" width="3" height="9"/>'
        yield _text(at + 9, y, words)
    yield f'<rect class="lowered" x="{x + 614}" y="{y - 9}" width="3" height="9"/>'
    yield _text(x + 623, y, "lowered")


def _ribbon_legend(panels: Sequence[Panel], y: float) -> Iterator[str]:
    present = {column.state for panel in panels for column in panel.recording.columns}
    x = 16.0
    for state in _STATES:
        if state in present:
            yield (
                f'<rect x="{_number(x)}" y="{_number(y - 9)}" width="16" height="{_RIBBON}" '
                f'style="fill: var(--{_color(state)})"/>'
            )
            yield _text(x + 22, y, state.value)
            x += 40 + 6.1 * len(state.value)


_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def _times(seconds: int, y: float) -> Iterator[str]:
    step = next((step for step in _STEPS if seconds / step <= 8), 0) or 86400 * math.ceil(seconds / 8 / 86400)
    for at in range(0, seconds + 1, step):
        x = _LEFT + (_RIGHT - _LEFT) * at / seconds
        yield _text(x, y, _duration(at), anchor="start" if not at else "end" if x > _RIGHT - 20 else "middle")


def _duration(seconds: int) -> str:
    """Return seconds since the start, short: ``0``, ``90s``, ``6h``, ``1d12h``."""
    if not seconds:
        return "0"
    days, rest = divmod(seconds, 86400)
    if not rest:
        return f"{days}d"
    text = timestamps.format_go_duration(rest)
    for tail in ("m0s", "h0m"):
        text = text.removesuffix("0s") if tail == "m0s" and text.endswith(tail) else text
        text = text.removesuffix("0m") if tail == "h0m" and text.endswith(tail) else text
    return f"{days}d{text}" if days else text


def _highest(recording: Recording) -> float:
    tracks = (track for each in recording.columns for track in (each.need, each.replicas))
    return max((track.high for track in tracks if track is not None), default=1.0)


def _ceiling(pods: float) -> float:
    """Return the top of the axis: the next round number."""
    if pods <= 1:
        return 1.0
    unit = float(10 ** math.floor(math.log10(pods)))
    return next(unit * factor for factor in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if unit * factor >= pods)


def _marks(pods: float) -> Sequence[float]:
    """Return the numbers of the axis: none is a fraction of a pod."""
    count = next((count for count in (4, 3, 5, 2) if pods % count == 0), 1)
    return [pods * place / count for place in range(count + 1)]


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _escaped(text: str) -> str:
    return saxutils.escape("".join(sign if sign.isprintable() else "\ufffd" for sign in text))


def _text(x: float, y: float, text: str, kind: str = "", *, anchor: str = "") -> str:
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{_number(x)}" y="{_number(y)}"{attributes}>{_escaped(text)}</text>'
