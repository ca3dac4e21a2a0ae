"""Charts of pods over time as SVG: sheets with text, legends and tables; frames with axes, areas and lines.

Nothing is kept between calls. A picture has no script and names nothing outside of it; its colors follow the
light or dark scheme of the reader.
"""

import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from xml.sax import saxutils

from adapter.model import visible

WIDTH, MARGIN = 800, 16
LEFT, RIGHT = 56, 776
"""The edges of a frame over the whole width."""

_LINE = 17
_WIDEST = 124
"""Characters of a line of text over the whole width."""


class Color(NamedTuple):
    """A color on light paper, and the one for it on dark paper."""

    light: str
    dark: str


GRAY = Color("#8c959f", "#8b949e")
DIM = Color("#a9b4bf", "#4a525c")
SLATE = Color("#57606a", "#9198a1")
BLUE = Color("#0969da", "#4493f8")
VIOLET = Color("#8250df", "#bc8cff")
LAVENDER = Color("#b6a1e8", "#6e5bb0")
RED = Color("#d1242f", "#f85149")
GREEN = Color("#2da44e", "#3fb950")
ORANGE = Color("#bc4c00", "#f0883e")
AMBER = Color("#e3a008", "#d29922")
TEAL = Color("#1b7c83", "#39c5cf")
PINK = Color("#bf4b8a", "#db61a2")

_BASE = {
    "ink": Color("#1f2328", "#e6edf3"),
    "soft": Color("#59636e", "#9198a1"),
    "rule": Color("#d8dee4", "#2f353d"),
    "paper": Color("#ffffff", "#0d1117"),
    "shade": Color("#f6f8fa", "#161b22"),
}
_STYLE = """\
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: var(--soft); }
.title { font-size: 15px; font-weight: 600; fill: var(--ink); }
.head { font-weight: 600; fill: var(--ink); }
.paper { fill: var(--paper); }
.shade { fill: var(--shade); }
.rule, .empty { fill: none; stroke: var(--rule); stroke-width: 1; }
.now { stroke: var(--soft); stroke-width: 1; }
"""

AREA, MARK, LINE, HATCH = "area", "mark", "line", "hatch"
_SHAPES = {
    AREA: "fill: var(--{});",
    MARK: "fill: var(--{});",
    LINE: "fill: none; stroke: var(--{}); stroke-linejoin: round;",
    HATCH: "fill: url(#{});",
}


class Look(NamedTuple):
    """How the parts of one kind are drawn, and their words in a legend."""

    shape: str
    color: Color
    words: str
    style: str = ""


class TrackStep(NamedTuple):
    """What a track is from `start` to `end`: the values it takes there in their order, none if unknown."""

    start: float
    end: float
    values: Sequence[float]


Box = tuple[float, float, float, float]
"""When a box starts and ends, and its lowest and highest pods."""


# -- parts ---------------------------------------------------------------------------------------------------


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def escaped(text: str) -> str:
    return saxutils.escape(visible.escape(text))


def text(x: float, y: float, words: str, kind: str = "", *, anchor: str = "") -> str:
    attributes = f' class="{kind}"' if kind else ""
    attributes += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{number(x)}" y="{number(y)}"{attributes}>{escaped(words)}</text>'


def rect(kind: str, x: float, y: float, width: float, height: float, tip: str = "") -> str:
    """Return a rectangle in pixels; `tip` is shown at the pointer."""
    place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
    end = f"><title>{escaped(tip)}</title></rect>" if tip else "/>"
    return f'<rect class="{kind}" {place}{end}'


def path(kind: str, drawn: Iterable[str]) -> str:
    """Return a path of some parts, "" of none."""
    parts = "".join(drawn)
    return f'<path class="{kind}" d="{parts}"/>' if parts else ""


# -- axes ----------------------------------------------------------------------------------------------------


def ceiling(pods: float) -> float:
    """Return the top of the axis: the next round number."""
    if pods <= 1:
        return 1.0
    unit = float(10 ** math.floor(math.log10(pods)))
    return next(unit * factor for factor in (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10) if unit * factor >= pods)


_TICKS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


def ticks(seconds: int) -> range:
    """Return round times from 0 to `seconds`, at most nine."""
    step = next((step for step in _TICKS if seconds / step <= 8), 0) or 86400 * math.ceil(seconds / 8 / 86400)
    return range(0, seconds + 1, step)


class Frame(NamedTuple):
    """Where a chart lies on its sheet, the instants at its left and right edge, and the pods at its top.

    What is later or higher is drawn at the edge. `low` are the pods at its bottom.
    """

    top: float
    height: float
    begin: float
    end: float
    pods: float = 1.0
    low: float = 0.0
    left: float = LEFT
    right: float = RIGHT

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def x(self, at: float) -> float:
        return self.left + (self.right - self.left) * (min(at, self.end) - self.begin) / (
            self.end - self.begin
        )

    def y(self, pods: float) -> float:
        return self.bottom - self.height * (min(pods, self.pods) - self.low) / (self.pods - self.low)

    def axis(self) -> Iterator[str]:
        """Yield the numbers of pods with their rules; none is a fraction of a pod."""
        span = self.pods - self.low
        parts = next((parts for parts in (4, 3, 5, 2) if span % parts == 0), 1)
        marks = [self.low + span * place / parts for place in range(parts + 1)]
        yield path("rule", (f"M{self.left} {number(self.y(mark))}H{self.right}" for mark in marks))
        for mark in marks:
            yield text(self.left - 8, self.y(mark) + 4, f"{mark:g}", anchor="end")

    def uprights(self, kind: str, instants: Iterable[float]) -> str:
        return path(kind, (f"M{number(self.x(at))} {number(self.top)}v{self.height}" for at in instants))

    def times(self, y: float, words: Mapping[float, str]) -> Iterator[str]:
        """Yield words below their instants."""
        for at, word in words.items():
            x = self.x(at)
            yield text(x, y, word, anchor="end" if x > self.right - 20 else "middle")

    def line(self, kind: str, *tracks: Iterable[TrackStep]) -> str:
        """Return lines in steps through all values, with a gap where a track is unknown."""
        return path(kind, (self._through(run) for track in tracks for run in _runs(track)))

    def area(self, kind: str, track: Iterable[TrackStep]) -> str:
        """Return areas up to the greatest values, with a gap where the track is unknown."""
        highest = (TrackStep(start, end, [max(values)] if values else ()) for start, end, values in track)
        return path(
            kind, (f"{self._through(run, self.low)}V{number(self.bottom)}Z" for run in _runs(highest))
        )

    def boxes(self, kind: str, boxes: Iterable[Box]) -> str:
        """Return boxes, each at least a pixel wide; neighbors of the same height are one."""
        joined: list[Box] = []
        for start, end, low, high in boxes:
            is_next = bool(joined) and joined[-1][1:] == (start, low, high)
            joined.append((joined.pop()[0] if is_next else start, end, low, high))
        return path(kind, itertools.starmap(self._box, joined))

    def spans(self, kind: str, spans: Iterable[tuple[float, float]]) -> str:
        return self.boxes(kind, ((start, end, self.low, self.pods) for start, end in spans))

    def _box(self, start: float, end: float, low: float, high: float) -> str:
        left, right = number(self.x(start)), number(max(self.x(start) + 1, self.x(end)))
        return f"M{left} {number(self.y(high))}H{right}V{number(self.y(low))}H{left}Z"

    def _through(self, run: Sequence[TrackStep], first: float | None = None) -> str:
        x, y = number(self.x(run[0].start)), number(self.y(run[0].values[0] if first is None else first))
        drawn = f"M{x} {y}"
        for step in run:
            left = number(self.x(step.start))
            for level in (number(self.y(value)) for value in step.values):
                if level != y:
                    drawn += f"V{level}" if left == x else f"H{left}V{level}"
                    x, y = left, level
        return f"{drawn}H{number(self.x(run[-1].end))}"


def _runs(track: Iterable[TrackStep]) -> Iterator[list[TrackStep]]:
    for is_known, run in itertools.groupby(track, key=lambda step: bool(step.values)):
        if is_known:
            yield list(run)


# -- sheets --------------------------------------------------------------------------------------------------


@dataclass
class Sheet:
    """A picture that its caller fills from the top down; `y` is where its last part ends."""

    title: str
    looks: Mapping[str, Look]
    y: float = 29.0
    parts: list[str] = field(default_factory=list)

    def write(self, sentences: Iterable[str]) -> None:
        for line in (line for sentence in sentences for line in textwrap.wrap(sentence, _WIDEST)):
            self.y += _LINE
            self.parts.append(text(MARGIN, self.y, line))

    def legend(self, kinds: Iterable[str]) -> None:
        """Add the words of some looks, each after a part that looks so."""
        self.y += _LINE + 8
        x = float(MARGIN)
        for kind in kinds:
            look = self.looks[kind]
            size = 3 if look.shape == MARK else 16
            width = size + 32 + 6.1 * len(look.words)
            if x + width > WIDTH:
                x, self.y = MARGIN, self.y + _LINE
            if look.shape == LINE:
                place = f'x1="{number(x)}" x2="{number(x + size)}" y1="{self.y - 4}" y2="{self.y - 4}"'
                self.parts.append(f'<line class="{kind}" {place}/>')
            else:
                self.parts.append(rect(kind, x, self.y - 9, size, 10))
            self.parts.append(text(x + size + 6, self.y, look.words))
            x += width

    def table(self, rows: Iterable[Sequence[str]], stops: Sequence[float]) -> None:
        """Add rows, the first as their head: a name, figures that end at `stops`, and a last word."""
        self.y += 5
        for place, (name, *figures, last) in enumerate(rows):
            self.y += _LINE
            kind = "" if place else "head"
            self.parts.append(text(MARGIN, self.y, name, kind))
            for x, figure in zip(stops, figures, strict=True):
                self.parts.append(text(x, self.y, figure, kind, anchor="end"))
            self.parts.append(text(stops[-1] + 24, self.y, last, kind))
        self.y += 6

    def render(self) -> str:
        height = number(self.y + 16)
        size = f'viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
                f"<title>{escaped(self.title)}</title>",
                f"<style>{''.join(_style(self.looks))}</style>",
                *_patterns(self.looks),
                f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
                text(MARGIN, 26, self.title, "title"),
                *filter(None, self.parts),
                "</svg>\n",
            ]
        )


def _style(looks: Mapping[str, Look]) -> Iterator[str]:
    yield from _colors("svg", _BASE | {kind: look.color for kind, look in looks.items()})
    yield _STYLE
    yield from _rules(looks)


def stylesheet(looks: Mapping[str, Look], scope: str) -> str:
    """Return the style of parts for a page, within the elements that a selector names."""
    colors = _colors(scope, {kind: look.color for kind, look in looks.items()})
    return "".join((*colors, *_rules(looks, f"{scope} ")))


def _colors(scope: str, colors: Mapping[str, Color]) -> Iterator[str]:
    yield f"{scope} {{ {' '.join(f'--{name}: {color.light};' for name, color in colors.items())} }}\n"
    dark = " ".join(f"--{name}: {color.dark};" for name, color in colors.items())
    yield f"@media (prefers-color-scheme: dark) {{ {scope} {{ {dark} }} }}\n"


def _rules(looks: Mapping[str, Look], within: str = "") -> Iterator[str]:
    for kind, look in looks.items():
        yield f"{within}.{kind} {{ {_SHAPES[look.shape].format(kind)} {look.style} }}\n"


def _patterns(looks: Mapping[str, Look]) -> Iterator[str]:
    for kind, look in looks.items():
        if look.shape == HATCH:
            lines = f'<path style="stroke: var(--{kind}); stroke-width: 1.5" d="M0 0v6"/>'
            how = 'width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"'
            yield f'<defs><pattern id="{kind}" {how}>{lines}</pattern></defs>'
