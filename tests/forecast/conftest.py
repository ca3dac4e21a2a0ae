"""Two weeks of a web shop's demand, and the verdict at their end."""

from collections.abc import Callable

import numpy as np
import pytest

from adapter.bounds.forecast.plan import HOUR, PlannedMinimum
from adapter.model.autoscaling.forecast import ForecastSettings
from fastpath_forecast import judge, planner, variants
from fastpath_forecast.grid import DAY
from fastpath_forecast.replay import STEP
from tests.forecast.forecasts import (
    BASE_DAYS,
    MINUTES,
    SETTINGS,
    START,
    Demand,
    Judged,
    JudgedDays,
    case_of,
    play,
    working_days,
)


@pytest.fixture(scope="session")
def judged() -> Judged:
    demand = working_days(BASE_DAYS)
    case = case_of(demand, SETTINGS)
    known = judge.build_demand(case)
    verdict, chosen = judge.judge(case, known)
    assert chosen is not None, verdict
    every = {
        each.name: variants.build(known, each.name, chosen.limits._replace(coverage=each.wanted), SETTINGS)
        for each in verdict.candidates
    }
    return Judged(demand, verdict, every)


@pytest.fixture
def tell(judged: Judged) -> Callable[..., JudgedDays]:
    """Return a function that goes on with the days of a story from the verdict of the first two weeks.

    `name` is the candidate that acts, and `known` what is known of the demand, if that is not all of it.
    """

    def told(
        name: str, after: Demand, settings: ForecastSettings = SETTINGS, known: Demand | None = None
    ) -> JudgedDays:
        whole = np.append(judged.demand, after)
        seen = np.append(judged.demand, after if known is None else known)
        case, actual = case_of(seen, settings), case_of(whole, settings)
        demand = judge.build_demand(case)
        variant = judged.variants[name]
        begin = START + BASE_DAYS * DAY
        hours = range(begin // HOUR, begin // HOUR + len(after) // 60)
        planned = PlannedMinimum(STEP)
        for plan in planner.plans(demand, name, variant.limits, settings, hours, variant.account):
            planned.take(plan)
        values = demand.values.tolist()
        minimums, withheld = [], []
        for place in range(BASE_DAYS * MINUTES, len(values)):
            minimums.append(planned.step(START // STEP + place, values[place - 1]))
            withheld.append(planned.withheld)
        figures = [
            [play(actual, day, each) for day in range(len(after) // MINUTES)] for each in ([], minimums)
        ]
        return JudgedDays(minimums, withheld, *figures)

    return told
