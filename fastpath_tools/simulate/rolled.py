"""`fastpath simulate --forecast`: the minimums that forecasts would have had over a load, day by day.

The verdict of each day comes from the time before it, as that of a running scaler.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from adapter.forecast import planner
from adapter.forecast.judge import Case
from adapter.model.autoscaling.forecast import DAY, ForecastSettings
from adapter.model.timestamps import SECOND
from adapter.simulate import simulation
from adapter.simulate.schedules import ForecastMinimums
from adapter.simulate.simulation import Scenario
from fastpath_tools.loads import forecasts
from fastpath_tools.simulate.inputs import PolicyVariant
from fastpath_tools.simulate.results import RolledVerdict


class Rolled(NamedTuple):
    """The verdicts of a load, one a day, and the minimums that follow them."""

    verdicts: Sequence[RolledVerdict]
    minimums: ForecastMinimums


def roll(scenario: Scenario, variant: PolicyVariant, settings: ForecastSettings) -> Rolled:
    """Return what forecasts would have done over the loads of a scenario for a policy. It takes long."""
    # What a policy changes in the autoscaler holds for the judge too. With another target it decides by that,
    # and what a pod serves stays.
    plain = replace(variant.policy, target=None)
    autoscaler = simulation.overridden(scenario.autoscaler, plain, variant.behavior)
    loads, start = forecasts.whole_hours(scenario.loads, scenario.epoch // SECOND)
    if not min(load.seconds for load in loads.values()):
        return Rolled((), ForecastMinimums(start, DAY, ()))
    judged = replace(scenario, autoscaler=autoscaler, loads=loads, epoch=start * SECOND, phases=1)
    days = list(planner.roll(Case(judged, variant.policy, settings)))
    verdicts = [
        RolledVerdict(each.verdict.at - scenario.epoch // SECOND, each.verdict.chosen, each.verdict.missing)
        for each in days
    ]
    return Rolled(verdicts, planner.join_minimums(days, start))
