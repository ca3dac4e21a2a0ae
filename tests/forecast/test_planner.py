"""Plans: what a live scaler is told hour by hour is what a replay of the same demand computes at once."""

from datetime import date
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.plan import HOUR, PlannedMinimum
from adapter.model.autoscaling.forecast import ForecastSettings
from fastpath_forecast import planner, variants
from fastpath_forecast.candidates import CANDIDATES
from fastpath_forecast.grid import DAY, DemandGrid

STEP = 60
START = 19_700 * DAY
LIMITS = Limits(least=2, most=60, lead=2, hold=5, coverage=0.9, max_extra=0.3)
SETTINGS = ForecastSettings(zone=ZoneInfo("Europe/Berlin"), holidays=frozenset({date(2023, 12, 12)}))


def recorded(days: int, seed: int = 1) -> DemandGrid:
    """Return days with a daily wave, noise, and a gap of two hours."""
    random = np.random.default_rng(seed)
    at = np.arange(days * DAY // STEP)
    values = 20 - 12 * np.cos(at * 2 * np.pi * STEP / DAY) + random.normal(0, 1, len(at))
    values[9 * 1440 + 600 : 9 * 1440 + 720] = np.nan
    return DemandGrid(START, STEP, np.maximum(values, 0), SETTINGS.zone)


@pytest.mark.parametrize("name", CANDIDATES)
def test_plans_made_hour_by_hour_are_those_of_a_replay(name: str) -> None:
    """A live scaler knows the demand up to the beginning of the hour before; the replay knows all of it."""
    demand = recorded(10)
    hours = range(START // HOUR + 9 * 24 + 8, START // HOUR + 9 * 24 + 16)
    at_once = planner.plans(demand, name, LIMITS, SETTINGS, hours)
    for hour, plan in zip(hours, at_once, strict=True):
        known = demand.part(START, (hour - 1) * HOUR)
        assert planner.plans(known, name, LIMITS, SETTINGS, range(hour, hour + 1)) == [plan]


@pytest.mark.parametrize("name", CANDIDATES)
def test_floors_from_plans_are_those_that_the_judge_has_replayed(name: str) -> None:
    demand = recorded(10)
    first, day = START // STEP, 8 * 24
    hours = range(START // HOUR + day, START // HOUR + 10 * 24)
    variant = variants.build(demand, name, LIMITS, SETTINGS)
    # The scaler begins an hour before its first plan, with the account of that time.
    before = demand.part(START, (hours.start - 1) * HOUR)
    account = variants.build(before, name, LIMITS, SETTINGS).account
    planned = PlannedMinimum(STEP)
    values = demand.values.tolist()
    for plan in planner.plans(demand, name, LIMITS, SETTINGS, range(hours.start - 1, hours.stop), account):
        planned.take(plan)
    found = [planned.step(first + place, values[place - 1]) for place in range((day - 1) * 60, len(values))]
    warm = 60 + LIMITS.hold  # the bounds ahead of the first steps were asked for before it began
    assert found[warm:] == variant.minimums[(day - 1) * 60 + warm :]
    assert sum(map(bool, found)) > 500
