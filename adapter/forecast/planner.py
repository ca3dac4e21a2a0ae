"""Plans of hours, and the rolling forecast: a verdict each day, a plan each hour, a minimum each step.

`plans` makes plans from a demand that ends an hour before the plan begins, or later: what comes after
changes nothing, so a replay makes the plans of a whole day at once. `roll` goes through a recorded demand as
a live scaler does, with the same code: `judge`, `plans`, `PlannedMinimum`.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

from adapter.bounds.forecast.minimum import Account, Limits
from adapter.bounds.forecast.plan import HOUR, Plan, PlannedMinimum
from adapter.bounds.forecast.verdict import Verdict
from adapter.forecast import judge, variants
from adapter.forecast.conformal import build_margins
from adapter.forecast.grid import DAY, DemandGrid
from adapter.forecast.judge import STEP, Case
from adapter.model.autoscaling.forecast import ForecastSettings
from adapter.simulate.schedules import ForecastMinimums

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
    margins = build_margins(demand, forecast, limits.lead, limits.coverage)
    hourly = []
    for hour in hours:
        margin, low = (None if math.isnan(value) else value for value in margins.at(hour))
        forecasts: tuple[float | None, ...] = ()
        if name != "trend":
            place = hour * _STEPS + limits.lead - first
            forecasts = tuple(
                None if math.isnan(value) else value for value in forecast[place : place + _STEPS].tolist()
            )
        hourly.append(Plan(hour, STEP, name, limits, forecasts, margin, low, account))
    return hourly


def cut_history(demand: DemandGrid, at: int, settings: ForecastSettings) -> DemandGrid:
    """Return the history that a verdict at an instant in seconds looks at, and all plans until the next."""
    begin = max(demand.start, at - settings.history)
    return demand.part(begin, at)


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
    values, incumbent = demand.values.tolist(), ""
    begin = case.start + max(DAY, -(-first // DAY) * DAY)
    for at in range(begin, demand.end, DAY):
        history = cut_history(demand, at, case.settings)
        verdict, variant = judge.judge(case, history, incumbent)
        incumbent = verdict.chosen
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
