"""Plans of hours, the rolling forecast, and the card that shows a forecast.

The rolling forecast has a verdict each day, a plan each hour, and a minimum each step.

`plans` makes plans from a demand that ends an hour before the plan begins, or later: what comes after
changes nothing, so a replay makes the plans of a whole day at once. `roll` goes through a recorded demand as
a live scaler does, with the same code: `judge`, `plans`, `PlannedMinimum`.
"""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from adapter.bounds.forecast.minimum import Account, Limits
from adapter.bounds.forecast.plan import HOUR, Plan, PlannedMinimum
from adapter.bounds.forecast.verdict import AHEAD, POINT, CardPoint, ForecastCard, Verdict
from adapter.model.autoscaling.forecast import ForecastSettings
from fastpath_forecast import candidates, conformal, judge, variants
from fastpath_forecast.grid import DAY, DemandGrid, Values
from fastpath_forecast.judge import Case
from fastpath_forecast.replay import STEP
from fastpath_forecast.simulate.schedules import ForecastMinimums

PAST: Final = DAY
"""The seconds that a card shows before the end of the demand; AHEAD are those after it."""

_STEPS = HOUR // STEP


def plans(
    demand: DemandGrid,
    name: str,
    limits: Limits,
    settings: ForecastSettings,
    hours: range,
    account: Account | None = None,
) -> list[Plan]:
    """Return the plans of some hours since 1970 for a candidate; `limits` have its coverage.

    The demand ends no earlier than an hour before the last of them.
    """
    first, count = demand.start // STEP, len(demand.values)
    ahead = hours.stop * _STEPS + limits.lead - first - count
    forecast = variants.build_forecast(demand, name, limits.lead, settings, max(0, ahead))
    margins = conformal.build_margins(demand, forecast.values, limits.lead, limits.coverage)
    hourly = []
    for hour in hours:
        margin, low = (None if math.isnan(value) else value for value in margins.at(hour))
        place = hour * _STEPS + limits.lead - first
        offsets = tuple(
            None if math.isnan(value) else value
            for value in forecast.offsets[place : place + _STEPS].tolist()
        )
        weights = tuple(forecast.weights[place].tolist())
        hourly.append(Plan(hour, STEP, name, limits, offsets, weights, margin, low, account))
    return hourly


class DayOfMinimums(NamedTuple):
    """A verdict, and the minimums of the steps from `start` on in seconds, which follow it."""

    verdict: Verdict
    start: int
    minimums: list[int]


def roll(case: Case, first: int = 0) -> Iterator[DayOfMinimums]:
    """Yield the verdict of each day and the minimums that follow it, day by day to the end of the loads.

    Verdicts are made at 24 hours after the start of the loads and so on, from `first` seconds after it on.
    Each holds from the hour after it.
    """
    demand = judge.build_demand(case)
    planned = PlannedMinimum(STEP)
    values = demand.values.tolist()
    begin = case.start + max(DAY, -(-first // DAY) * DAY)
    for at in range(begin, demand.end, DAY):
        # What the verdict looks at, and all plans until the next one.
        history = demand.part(max(demand.start, at - case.settings.history), at)
        verdict, variant = judge.judge(case, history)
        hours = range(at // HOUR + 1, min(at + DAY, demand.end - HOUR) // HOUR + 1)
        if variant is not None:
            known = demand.part(history.start, min(at + DAY, demand.end))
            for plan in plans(known, variant.name, variant.limits, case.settings, hours, variant.account):
                planned.take(plan)
        minimums = []
        for hour in hours:
            for index in range(hour * _STEPS, (hour + 1) * _STEPS):
                place = index - demand.start // STEP
                minimums.append(planned.step(index, values[place - 1]))
        yield DayOfMinimums(verdict, hours.start * HOUR, minimums)


def join_minimums(days: "list[DayOfMinimums]", start: int) -> ForecastMinimums:
    """Return the minimums of all days, 0 before the first. `start` is in seconds since 1970."""
    values: list[int] = []
    for day in days:
        values += [0] * ((day.start - start) // STEP - len(values))
        values += day.minimums
    return ForecastMinimums(start, STEP, values)


# -- the card ------------------------------------------------------------------------------------------------


def build_card(case: Case, demand: DemandGrid, verdict: Verdict) -> ForecastCard:
    """Return the card at the end of the demand; `verdict` may be older."""
    settings, shown = case.settings, _choose_shown(verdict)
    points: tuple[CardPoint, ...] = ()
    candidate = verdict.find(shown)
    if candidate is not None:
        lead = judge.build_limits(case).lead
        ahead = AHEAD // demand.step
        one_lead = variants.build_forecast(demand, shown, lead, settings, ahead)
        forecast = candidates.continued(one_lead, demand.values, lead + 1)
        margins = conformal.build_margins(demand, forecast, lead, candidate.wanted)
        # The last margin holds for the hours ahead.
        margins = margins._replace(
            values=margins.values + margins.values[-1:] * (AHEAD // 3600),
            lows=margins.lows + margins.lows[-1:] * (AHEAD // 3600),
        )
        upper = conformal.build_bounds(demand, forecast, lead, margins)
        points = _points(demand.extended(ahead), forecast, upper)
    return ForecastCard(settings.mode, settings.max_extra, settings.min_gain, verdict, shown, points)


def _choose_shown(verdict: Verdict) -> str:
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
