"""The demand of the last day and the forecast of the next hours as a picture of characters."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from adapter.bounds.forecast.verdict import AHEAD, POINT, CardPoint, ForecastCard
from fastpath_tools import charts

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


def draw(card: ForecastCard, signs: Signs = BLOCKS) -> list[str]:
    """Return the picture, without a final line break; nothing for a card without points."""
    columns = list(_columns(card))
    highest = max((each for column in columns for each in column[1:] if each is not None), default=None)
    if highest is None:
        return []
    top = charts.ceiling(highest)
    labels = [f"{top:g}", *[""] * (ROWS - 2), "0"]
    width = max(map(len, labels))
    lines = []
    for label, row in zip(labels, reversed(range(ROWS)), strict=True):
        cells = "".join(_cell(each, row, top, signs) for each in columns)
        lines.append(f"{label.rjust(width)} {signs.side}{cells}".rstrip())
    marks = dict(_marks(columns))
    base = "".join(signs.mark if place in marks else signs.base for place in range(len(columns)))
    first, *others = f"{signs.demand[-1]} demand", f"{signs.forecast} forecast of {card.shown}"
    legend = ", ".join([f"pods: {first}", *others, f"{signs.upper} upper bound"])
    return [*lines, f"{' ' * width}  {base}", f"{' ' * width}  {_written(marks)}", legend]


def _columns(card: ForecastCard) -> Iterator[_ChartColumn]:
    points, size = card.points, -(-len(card.points) // COLUMNS) or 1
    for first in range(0, len(points), size):
        part = points[first : first + size]
        greatest = (_greatest(part, name) for name in ("demand", "forecast", "upper"))
        yield _ChartColumn(part[0].at - card.now, *greatest)


def _greatest(points: Sequence[CardPoint], name: str) -> float | None:
    return max((value for each in points if (value := getattr(each, name)) is not None), default=None)


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
        place = next((place for place, each in enumerate(columns) if each.ahead >= at), None)
        if place is not None and abs(columns[place].ahead - at) < 3 * POINT and at < AHEAD:
            yield place, f"{hours:+d}h" if hours else "now"


def _written(marks: dict[int, str]) -> str:
    line = ""
    for place, word in marks.items():
        line = line.ljust(place) + word
    return line
