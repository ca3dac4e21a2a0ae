"""Draws the card of a forecast, the last day and the next hours: as an SVG picture, and as characters."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adapter.bounds.forecast.verdict import AHEAD, POINT, ForecastCard
from fastpath_tools import charts
from fastpath_tools.charts import AREA, LINE, Frame, Look, Sheet, TrackStep
from fastpath_tools.forecast import wording

_STOPS = (160, 230, 310, 370, 470, 545, 625)
"""The right edges of the columns of figures."""


def draw(name: str, card: ForecastCard, notes: Sequence[str] = (), *, is_dated: bool = True) -> str:
    """Return the picture of a card; `notes` are sentences below it."""
    looks = {
        "demand": Look(AREA, charts.GRAY, "demand, in pods", "fill-opacity: 0.34"),
        "forecast": Look(LINE, charts.BLUE, f"forecast of {card.shown}", "stroke-width: 1.8"),
        "upper": Look(LINE, charts.VIOLET, "upper bound", "stroke-width: 1.2; stroke-dasharray: 4 3"),
    }
    sheet = Sheet(f"Forecast of {name}", looks)
    sheet.write([f"Verdict: {wording.verdict_of(card)}.", *wording.basis_of(card, is_dated=is_dated)])
    if card.points:
        sheet.legend(looks)
        sheet.parts += _points(card, sheet.y + 14)
        sheet.y += 256
    if rows := wording.rows(card):
        verdicts = [
            "refused" if candidate.refused else judged
            for candidate, judged in zip(card.verdict.candidates, wording.judged(card), strict=True)
        ]
        table = zip([wording.HEAD, *rows], ["verdict", *verdicts], strict=True)
        sheet.table(([*row, verdict] for row, verdict in table), _STOPS)
        refused = (candidate for candidate in card.verdict.candidates if candidate.refused)
        sheet.write(f"{candidate.name} is refused: {candidate.refused}." for candidate in refused)
    sheet.write(notes)
    return sheet.render()


def _points(card: ForecastCard, top: float) -> Iterator[str]:
    points = card.points
    tracks = {
        kind: [
            TrackStep(point.at, point.at + POINT, () if (value := getattr(point, kind)) is None else (value,))
            for point in points
        ]
        for kind in ("demand", "forecast", "upper")
    }
    highest = max(
        (value for track in tracks.values() for step in track for value in step.values), default=1.0
    )
    frame = Frame(top, 220, points[0].at, points[-1].at + POINT, charts.ceiling(highest))
    yield frame.spans("shade", [(card.now, frame.end)])
    yield from frame.axis()
    yield frame.area("demand", tracks["demand"])
    yield frame.line("forecast", tracks["forecast"])
    yield frame.line("upper", tracks["upper"])
    yield frame.uprights("now", [card.now])
    hours = {card.now + hour * 3600: f"{hour:+d}h" if hour else "now" for hour in range(-24, 13, 6)}
    yield from frame.times(
        frame.bottom + 16, {at: word for at, word in hours.items() if frame.begin <= at <= frame.end}
    )


# -- characters ----------------------------------------------------------------------------------------------

COLUMNS, ROWS = 72, 8


class Signs(NamedTuple):
    """The characters of a picture: parts of a column from the lowest to a whole one, and lines."""

    demand: str
    forecast: str
    upper: str
    side: str
    base: str
    mark: str


BLOCKS = Signs("▁▂▃▄▅▆▇█", "░", "╌", "│", "─", "┴")
ASCII = Signs("#", ":", "-", "|", "-", "+")
"""For terminals without Unicode."""


class _ChartColumn(NamedTuple):
    """The greatest known values of some points in pods, and the seconds from now to the first of them."""

    ahead: int
    demand: float | None
    forecast: float | None
    upper: float | None


def draw_signs(card: ForecastCard, signs: Signs = BLOCKS) -> list[str]:
    """Return the picture as lines; nothing for a card without points."""
    columns = list(_columns(card))
    values = (value for column in columns for value in column[1:])
    highest = max((value for value in values if value is not None), default=None)
    if highest is None:
        return []
    top = charts.ceiling(highest)
    labels = [f"{top:g}", *[""] * (ROWS - 2), "0"]
    width = max(map(len, labels))
    lines = []
    for label, row in zip(labels, reversed(range(ROWS)), strict=True):
        cells = "".join(_cell(column, row, top, signs) for column in columns)
        lines.append(f"{label.rjust(width)} {signs.side}{cells}".rstrip())
    marks = dict(_marks(columns))
    base = "".join(signs.mark if place in marks else signs.base for place in range(len(columns)))
    words = ""
    for place, word in marks.items():
        words = words.ljust(place) + word
    legend = (
        f"pods: {signs.demand[-1]} demand, {signs.forecast} forecast of {card.shown}, "
        f"{signs.upper} upper bound"
    )
    return [*lines, f"{' ' * width}  {base}", f"{' ' * width}  {words}", legend]


def _columns(card: ForecastCard) -> Iterator[_ChartColumn]:
    points, size = card.points, -(-len(card.points) // COLUMNS) or 1
    for first in range(0, len(points), size):
        part = points[first : first + size]
        tracks = ([getattr(point, name) for point in part] for name in ("demand", "forecast", "upper"))
        greatest = (max((value for value in track if value is not None), default=None) for track in tracks)
        yield _ChartColumn(part[0].at - card.now, *greatest)


def _cell(column: _ChartColumn, row: int, top: float, signs: Signs) -> str:
    """Return the character of a column in a row, counted from below."""
    height = top / ROWS
    is_past = column.ahead < 0
    shown = column.demand if is_past else column.forecast
    filled = 0.0 if shown is None else min(1.0, max(0.0, shown / height - row))
    parts = signs.demand if is_past else signs.forecast
    if part := round(filled * len(parts)):
        return parts[part - 1]
    upper = column.upper
    is_bound = upper is not None and row == min(ROWS - 1, int(upper / height))
    return signs.upper if is_bound else " "


def _marks(columns: Sequence[_ChartColumn]) -> Iterator[tuple[int, str]]:
    """Yield the columns where a time is written, and the time."""
    for hours in (-24, -18, -12, -6, 0, 6):
        at = hours * 3600
        place = next((place for place, column in enumerate(columns) if column.ahead >= at), None)
        if place is not None and abs(columns[place].ahead - at) < 3 * POINT and at < AHEAD:
            yield place, f"{hours:+d}h" if hours else "now"
