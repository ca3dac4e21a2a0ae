"""Two weeks of a web shop's demand, and the verdict at their end."""

from collections.abc import Callable

import numpy as np
import pytest

from adapter.bounds.forecast.plan import HOUR, PlannedMinimum
from adapter.model.autoscaling.forecast import ForecastSettings
from fastpath_forecast import judge, planner, variants
from fastpath_forecast.grid import DAY
from fastpath_forecast.replay import STEP
from tests.forecast import forecasts


@pytest.fixture(scope="session")
def judged() -> forecasts.Judged:
    demand = forecasts.working_days(forecasts.BASE_DAYS)
    case = forecasts.case_of(demand, forecasts.SETTINGS)
    known = judge.build_demand(case)
    verdict, chosen = judge.judge(case, known)
    assert chosen is not None, verdict
    every = {
        each.name: variants.build(
            known, each.name, chosen.limits._replace(coverage=each.wanted), forecasts.SETTINGS
        )
        for each in verdict.candidates
    }
    return forecasts.Judged(demand, verdict, every)


@pytest.fixture
def tell(judged: forecasts.Judged) -> Callable[..., forecasts.JudgedDays]:
    """Return a function that goes on with the days of a story from the verdict of the first two weeks.

    `name` is the candidate that acts, and `known` what is known of the demand, if that is not all of it.
    """

    def told(
        name: str,
        after: forecasts.Demand,
        settings: ForecastSettings = forecasts.SETTINGS,
        known: forecasts.Demand | None = None,
    ) -> forecasts.JudgedDays:
        whole = np.append(judged.demand, after)
        seen = np.append(judged.demand, after if known is None else known)
        case, actual = forecasts.case_of(seen, settings), forecasts.case_of(whole, settings)
        demand = judge.build_demand(case)
        variant = judged.variants[name]
        begin = forecasts.START + forecasts.BASE_DAYS * DAY
        hours = range(begin // HOUR, begin // HOUR + len(after) // 60)
        planned = PlannedMinimum(STEP)
        for plan in planner.plans(demand, name, variant.limits, settings, hours, variant.account):
            planned.take(plan)
        values = demand.values.tolist()
        minimums, withheld = [], []
        for place in range(forecasts.BASE_DAYS * forecasts.MINUTES, len(values)):
            minimums.append(planned.step(forecasts.START // STEP + place, values[place - 1]))
            withheld.append(planned.withheld)
        figures = [
            [forecasts.play(actual, day, each) for day in range(len(after) // forecasts.MINUTES)]
            for each in ([], minimums)
        ]
        return forecasts.JudgedDays(minimums, withheld, *figures)

    return told
