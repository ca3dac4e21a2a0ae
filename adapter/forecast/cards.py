"""Makes the card of a forecast from a verdict and the demand that it was made from."""

import math
from typing import Final

import numpy as np

from adapter.bounds.forecast.verdict import AHEAD, POINT, CardPoint, ForecastCard, Verdict
from adapter.forecast import conformal, judge, variants
from adapter.forecast.grid import DAY, DemandGrid, Values
from adapter.forecast.judge import Case

PAST: Final = DAY
"""The seconds that a card shows before the end of the demand; AHEAD are those after it."""


def build_card(case: Case, demand: DemandGrid, verdict: Verdict) -> ForecastCard:
    """Return the card at the end of the demand; `verdict` may be older."""
    settings, shown = case.settings, _shown(verdict)
    points: tuple[CardPoint, ...] = ()
    candidate = verdict.find(shown)
    if candidate is not None:
        lead = judge.limits_of(case).lead
        ahead = AHEAD // demand.step
        forecast = variants.build_forecast(demand, shown, lead, settings, ahead)
        margins = conformal.build_margins(demand, forecast, lead, candidate.wanted)
        upper = conformal.build_bounds(demand, forecast, lead, margins.lasting(AHEAD // 3600))
        points = _points(demand.extended(ahead), forecast, upper)
    return ForecastCard(settings.mode, settings.max_extra, settings.min_gain, verdict, shown, points)


def _shown(verdict: Verdict) -> str:
    """Return the candidate that a picture shows."""
    if verdict.chosen or verdict.none is None:
        return verdict.chosen
    none = verdict.none.whole
    return max(verdict.candidates, key=lambda candidate: candidate.whole.gain_over(none)).name


def _points(demand: DemandGrid, forecast: Values, upper: Values) -> tuple[CardPoint, ...]:
    steps = POINT // demand.step
    first = max(0, len(demand.values) - (PAST + AHEAD) // demand.step)
    count = (len(demand.values) - first) // steps
    curves = [_greatest(curve, first, count, steps) for curve in (demand.values, forecast, upper)]
    return tuple(
        CardPoint(demand.start + (first + place * steps) * demand.step, *(curve[place] for curve in curves))
        for place in range(count)
    )


def _greatest(values: Values, first: int, count: int, steps: int) -> list[float | None]:
    """Return the greatest known value of each `steps` values, None where none is known."""
    parts = values[first : first + count * steps].reshape(count, steps)
    greatest = np.where(np.isnan(parts), -np.inf, parts).max(axis=1)
    return [None if math.isinf(value) else float(value) for value in greatest.tolist()]
