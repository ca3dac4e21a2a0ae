"""Cards of forecasts, and a small load that repeats each week, for tests of what is shown of them."""

import math

from adapter.bounds.forecast.verdict import (
    AHEAD,
    NONE,
    POINT,
    Alternative,
    CandidateFigures,
    CardPoint,
    ForecastCard,
    ReplayFigures,
    Verdict,
)
from adapter.model.autoscaling.forecast import ADVISE, DAY

AT = 1_795_392_000
"""2026-11-23T00:00:00Z."""

NO_FORECAST = CandidateFigures(NONE, ReplayFigures(1000, 500_000), ReplayFigures(400, 200_000))


def candidate(
    name: str,
    shortage: float = 200,
    pods: float = 550_000,
    reached: float | None = 0.94,
    withheld: float = 0.0,
    refused: str = "",
    alternative: Alternative | None = None,
) -> CandidateFigures:
    whole, recent = ReplayFigures(shortage, pods), ReplayFigures(100, 210_000)
    return CandidateFigures(name, whole, recent, 0.95, reached, withheld, refused, alternative)


def points() -> tuple[CardPoint, ...]:
    """Return a day of a wave up to AT, with a gap of an hour, and the forecast of the next hours."""
    found = []
    for at in range(AT - DAY, AT + AHEAD, POINT):
        said = 20 - 10 * math.cos(2 * math.pi * at / DAY)
        is_known = at < AT and not AT - 6 * 3600 <= at < AT - 5 * 3600
        found.append(CardPoint(at, said + 1 if is_known else None, said, said + 4))
    return tuple(found)


def card(
    *candidates: CandidateFigures, chosen: str = "", shown: str = "", mode: str = ADVISE, missing: str = ""
) -> ForecastCard:
    if missing:
        return ForecastCard(mode, 0.15, 0.2, Verdict(AT, 90, missing=missing))
    verdict = Verdict(AT, 90, chosen, "", NO_FORECAST, candidates)
    return ForecastCard(mode, 0.15, 0.2, verdict, shown or chosen, points())


def weekly_load(days: int) -> str:
    """Return a CSV file of working days from nine to six, and a quarter of that on every seventh day."""
    rows = ["seconds,load"]
    for second in range(0, days * DAY, 1800):
        day, hour = second // DAY, second % DAY / 3600
        busy = 200 if 9 <= hour < 18 else 100 if hour in {8, 8.5} else 0
        noise = 3 * math.sin(second / 977)
        rows.append(f"{second},{60 + busy * (0.25 if day % 7 == 6 else 1) + noise:.1f}")
    return "\n".join([*rows, f"{days * DAY},60"]) + "\n"
