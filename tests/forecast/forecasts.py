"""Demand of a web shop for tests of forecasts, and what is found of it."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from adapter.bounds.forecast.verdict import ReplayFigures, Verdict
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.forecast import ForecastSettings
from adapter.model.timestamps import SECOND
from fastpath_forecast import judge
from fastpath_forecast.grid import DAY
from fastpath_forecast.judge import Case
from fastpath_forecast.replay import STEP, SplitFigures
from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.load import Load, of_points
from fastpath_forecast.simulate.policies import read_policy
from fastpath_forecast.simulate.schedules import ForecastMinimums
from fastpath_forecast.simulate.simulation import Scenario
from fastpath_forecast.variants import Variant
from tests.support.scaling import pods_metric, read_spec

ZONE = ZoneInfo("Europe/Berlin")
START = 1_772_319_600
"""2026-03-01T00:00 in Berlin, a Sunday; the clock is set forward four weeks later."""

MINUTES = DAY // STEP
TARGET = 10
"""What a pod serves."""

Demand = NDArray[np.float64]


def autoscaler(**spec: Any) -> FastPathAutoscaler:
    bounds = {"minReplicas": 2, "maxReplicas": 100}
    return read_spec(FastPathAutoscaler, [pods_metric(str(TARGET), "rps")], **bounds | spec)


def working_days(days: int) -> Demand:
    """Return the demand of days in pods: mornings that rise within an hour, quiet nights, noise."""
    random = np.random.default_rng(3)
    at = START + np.arange(days * MINUTES) * STEP
    # the local time of the zone, which is an hour ahead of UTC until the clock is set
    offset = np.where(at < 1_774_746_000, 3600, 7200)
    hour = (at + offset) % DAY / 3600
    open_for = 1 / (1 + np.exp(-(hour - 8) * 6)) - 1 / (1 + np.exp(-(hour - 19) * 4))
    demand = np.maximum(4 + 26 * open_for + random.normal(0, 0.4, len(at)), 0)
    return np.repeat(demand[::10], 10)  # decisions between two values can be skipped


def load_of(demand: Demand) -> Load:
    points = [(float(place * STEP), value) for place, value in enumerate((TARGET * demand).tolist())]
    return of_points(points, len(demand) * STEP)


def case_of(demand: Demand, settings: ForecastSettings) -> Case:
    scenario = Scenario(autoscaler(), {"rps": load_of(demand)}, [60], phases=1, epoch=START * SECOND)
    return Case(scenario, read_policy("fast"), settings)


SETTINGS = ForecastSettings(zone=ZONE)
BASE_DAYS = 14


class Judged(NamedTuple):
    """The first two weeks, and what was found of them: the verdict, and each candidate."""

    demand: Demand
    verdict: Verdict
    variants: Mapping[str, Variant]


class JudgedDays(NamedTuple):
    """The days after the first two weeks: the minimums of each step, and the figures of each day."""

    minimums: list[int]
    withheld: list[str]
    without: Sequence[ReplayFigures]
    acted: Sequence[ReplayFigures]

    @property
    def extra(self) -> list[float]:
        """What the minimums cost on each day, as a share."""
        return [one.extra_over(two) for one, two in zip(self.acted, self.without, strict=True)]


def play(case: Case, day: int, minimums: Sequence[int]) -> ReplayFigures:
    """Return the figures of a day with the floors of all days, none if there are no floors."""
    begin = (BASE_DAYS + day) * DAY
    load = case.scenario.loads["rps"].part(begin, begin + DAY)
    start = case.start + begin
    split = SplitFigures(0, judge.build_limits(case))
    forecast = ForecastMinimums(start, STEP, minimums[day * MINUTES :]) if minimums else None
    scenario = dataclasses.replace(case.scenario, loads={"rps": load}, epoch=start * SECOND)
    simulation.simulate(dataclasses.replace(scenario, forecast=forecast), case.policy, observer=split)
    return split.whole
