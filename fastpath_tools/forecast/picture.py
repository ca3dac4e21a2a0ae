"""Draws the card of a forecast as one SVG picture: the last day, the next hours, and the candidates."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from adapter.model.forecasts.card import POINT, ForecastCard
from fastpath_tools.charts import svg
from fastpath_tools.forecast import wording

_WIDTH = 800
_LEFT, _RIGHT = 56, 776
_PLOT = 220
_LINE = 17
_WIDEST = 124
"""Characters of a line over the whole width."""

_STOPS = (160, 230, 310, 370, 470, 545, 625)
"""The right edges of the columns of figures."""

_STYLE = """\
svg { --demand: #8c959f; --forecast: #0969da; --upper: #8250df; --ahead: #f6f8fa; }
@media (prefers-color-scheme: dark) {
  svg { --demand: #8b949e; --forecast: #4493f8; --upper: #bc8cff; --ahead: #161b22; }
}
.head { font-weight: 600; fill: var(--ink); }
.ahead { fill: var(--ahead); }
.demand { fill: var(--demand); fill-opacity: 0.34; }
.forecast { fill: none; stroke: var(--forecast); stroke-width: 1.8; stroke-linejoin: round; }
.upper { fill: none; stroke: var(--upper); stroke-width: 1.2; stroke-dasharray: 4 3; }
.now { stroke: var(--soft); stroke-width: 1; }
"""


class _Plot(NamedTuple):
    """Where instants and pods lie; instants are in seconds since 1970."""

    top: float
    begin: int
    end: int
    pods: float

    @property
    def bottom(self) -> float:
        return self.top + _PLOT

    def x(self, at: int) -> str:
        return svg.number(_LEFT + (_RIGHT - _LEFT) * (at - self.begin) / (self.end - self.begin))

    def y(self, pods: float) -> str:
        return svg.number(self.bottom - _PLOT * min(1.0, pods / self.pods))


def draw(name: str, card: ForecastCard, notes: Sequence[str] = (), *, is_dated: bool = True) -> str:
    """Return the picture of a card; `notes` are sentences below it."""
    title = f"Forecast of {name}"
    y, body = 29.0, [svg.text(16, 26, title, "title")]

    def write(sentences: Iterable[str]) -> None:
        nonlocal y
        for line in (line for each in sentences for line in textwrap.wrap(each, _WIDEST)):
            y += _LINE
            body.append(svg.text(16, y, line))

    write([f"Verdict: {wording.verdict_of(card)}.", *wording.basis_of(card, is_dated=is_dated)])
    if card.points:
        body += [*_legend(card, y + 24), *_draw_points(card, y + 38)]
        y += 38 + _PLOT + 22
    if rows := wording.rows(card):
        for place, row in enumerate([[*wording.HEAD, "verdict"], *_with_verdicts(card, rows)]):
            y += 22 if not place else _LINE
            body += _row(row, y, "head" if not place else "")
        y += 6
        write(_refusals(card))
    write(notes)
    height = svg.number(y + 16)
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
        f"<title>{svg.escaped(title)}</title>",
        f"<style>{svg.STYLE}{_STYLE}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        *body,
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# -- the last day and the next hours -------------------------------------------------------------------------


def _draw_points(card: ForecastCard, top: float) -> Iterator[str]:
    points = card.points
    values = (value for each in points for value in (each.demand, each.forecast, each.upper))
    highest = max((value for value in values if value is not None), default=1.0)
    plot = _Plot(top, points[0].at, points[-1].at + POINT, svg.ceiling(highest))
    now, upper, lower = plot.x(card.now), svg.number(plot.top), svg.number(plot.bottom)
    yield f'<path class="ahead" d="M{now} {upper}H{_RIGHT}V{lower}H{now}Z"/>'
    for count in svg.marks(plot.pods):
        y = plot.y(count)
        yield f'<line class="rule" x1="{_LEFT}" x2="{_RIGHT}" y1="{y}" y2="{y}"/>'
        yield svg.text(_LEFT - 8, float(y) + 4, f"{count:g}", anchor="end")
    yield f'<path class="demand" d="{_area([(each.at, each.demand) for each in points], plot)}"/>'
    yield f'<path class="forecast" d="{_line([(each.at, each.forecast) for each in points], plot)}"/>'
    yield f'<path class="upper" d="{_line([(each.at, each.upper) for each in points], plot)}"/>'
    yield f'<line class="now" x1="{now}" x2="{now}" y1="{upper}" y2="{lower}"/>'
    for hours in range(-24, 13, 6):
        at = card.now + hours * 3600
        if plot.begin <= at <= plot.end:
            x, word = float(plot.x(at)), f"{hours:+d}h" if hours else "now"
            yield svg.text(x, plot.bottom + 16, word, anchor="end" if x > _RIGHT - 20 else "middle")


def _area(track: Sequence[tuple[int, float | None]], plot: _Plot) -> str:
    """Return boxes from 0 up to the values; those that are not known have none."""
    base = svg.number(plot.bottom)
    return "".join(
        f"M{plot.x(at)} {base}V{plot.y(value)}H{plot.x(at + POINT)}V{base}Z"
        for at, value in track
        if value is not None
    )


def _line(track: Sequence[tuple[int, float | None]], plot: _Plot) -> str:
    """Return a line in steps, with a gap where no value is known."""
    parts: list[str] = []
    is_open = False
    for at, value in track:
        if value is not None:
            parts.append(f"{'V' if is_open else f'M{plot.x(at)} '}{plot.y(value)}H{plot.x(at + POINT)}")
        is_open = value is not None
    return "".join(parts)


def _legend(card: ForecastCard, y: float) -> Iterator[str]:
    yield f'<rect class="demand" x="16" y="{svg.number(y - 9)}" width="16" height="10"/>'
    yield svg.text(38, y, "demand, in pods")
    for x, kind, words in ((152, "forecast", f"forecast of {card.shown}"), (292, "upper", "upper bound")):
        at = svg.number(y - 4)
        yield f'<line class="{kind}" x1="{x}" x2="{x + 16}" y1="{at}" y2="{at}"/>'
        yield svg.text(x + 22, y, words)


# -- the candidates ------------------------------------------------------------------------------------------


def _with_verdicts(card: ForecastCard, rows: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    for row, each, said in zip(rows, card.verdict.candidates, wording.judged(card), strict=True):
        yield [*row, "refused" if each.refused else said]


def _row(row: Sequence[str], y: float, kind: str) -> Iterator[str]:
    first, *figures, verdict = row
    yield svg.text(16, y, first, kind)
    for x, figure in zip(_STOPS, figures, strict=True):
        yield svg.text(x, y, figure, kind, anchor="end")
    yield svg.text(_STOPS[-1] + 24, y, verdict, kind)


def _refusals(card: ForecastCard) -> Iterator[str]:
    for each in card.verdict.candidates:
        if each.refused:
            yield f"{each.name} is refused: {each.refused}."
