"""Draws the card of a forecast as one SVG picture: the last day, the next hours, and the candidates."""

from collections.abc import Iterator, Sequence

from adapter.bounds.forecast.verdict import POINT, ForecastCard
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
        refusals = ((each.name, each.refused) for each in card.verdict.candidates if each.refused)
        sheet.write(f"{candidate} is refused: {refused}." for candidate, refused in refusals)
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
