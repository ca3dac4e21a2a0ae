"""What the pods of a forecast buy without one."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.verdict import NONE, Alternative, CandidateFigures, ReplayFigures
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.timestamps import SECOND
from fastpath_forecast import alternative, judge
from fastpath_forecast.grid import DAY
from fastpath_forecast.replay import JudgedDays, SplitFigures, go_on
from fastpath_forecast.simulate.policies import read_policy
from tests.forecast.forecasts import MINUTES, SETTINGS, Demand, autoscaler, case_of
from tests.support.scaling import pods_metric, read_spec


def figures(shortage: float, pods: float) -> CandidateFigures:
    """Return figures whose last days are like the others, and half of them."""
    return CandidateFigures("", ReplayFigures(shortage, pods), ReplayFigures(shortage / 2, pods / 2))


class FallingShortage:
    """A change whose shortage falls by one for each pod second."""

    least = 0.0

    def __init__(self, most: float = 100.0, step: float = 0.0) -> None:
        self.most, self.step = most, step
        self.replayed: list[float] = []

    def guess(self, extra: float) -> float:
        return 80 * extra

    def exact(self, value: float, rounded: alternative.Rounding) -> float:
        return self.step * rounded(value / self.step) if self.step else value

    def replay(self, value: float) -> CandidateFigures:
        self.replayed.append(value)
        return figures(1000 - value, 1000 + value)

    def describe(self, value: float) -> str:
        return f"x {value:.1f}"


def test_the_shortage_at_the_same_pods_is_between_those_of_two_replays() -> None:
    line = FallingShortage()
    assert alternative.Curve(line, figures(1000, 1000)).at(figures(0, 1050)) == Alternative(
        "x 50.0", 950.0, 475.0
    )
    assert len(line.replayed) <= alternative.MOST_REPLAYS
    assert min(abs(value - 50) for value in line.replayed) <= alternative.CLOSE * 1050


def test_replays_are_shared_by_candidates() -> None:
    line = FallingShortage()
    curve = alternative.Curve(line, figures(1000, 1000))
    curve.at(figures(0, 1050))
    before = len(line.replayed)
    curve.at(figures(0, 1050.5))
    assert len(line.replayed) == before


@pytest.mark.parametrize("pods", [900, 1000])
def test_no_more_pods_have_no_alternative(pods: float) -> None:
    line = FallingShortage()
    assert alternative.Curve(line, figures(1000, 1000)).at(figures(0, pods)) is None


def test_a_change_that_cannot_take_all_pods_counts_with_those_it_takes() -> None:
    curve = alternative.Curve(FallingShortage(most=30.0), figures(1000, 1000))
    assert curve.at(figures(0, 1050)) == Alternative("x 30.0", 970.0, 485.0)


def test_values_that_a_spec_can_have_enclose_the_pods() -> None:
    line = FallingShortage(step=40.0)
    assert alternative.Curve(line, figures(1000, 1000)).at(figures(0, 1050)) == Alternative(
        "x 50.0", 950.0, 475.0
    )
    assert set(line.replayed) <= {40.0, 80.0}
    assert len(line.replayed) == len(set(line.replayed))


class Flat(FallingShortage):
    """A change without an effect."""

    def replay(self, value: float) -> CandidateFigures:
        self.replayed.append(value)
        return figures(1000, 1000)


def test_a_change_without_an_effect_is_no_alternative() -> None:
    assert alternative.Curve(Flat(), figures(1000, 1000)).at(figures(0, 1050)) is None


# -- the three changes ---------------------------------------------------------------------------------------


def days_of(demand: Demand, spec: FastPathAutoscaler | None = None, policy: str = "fast") -> JudgedDays:
    case = case_of(demand, SETTINGS)
    scenario = dataclasses.replace(case.scenario, autoscaler=spec or case.scenario.autoscaler)
    return JudgedDays(scenario, read_policy(policy), judge.build_limits(case), go_on)


def bursts(days: int) -> Demand:
    """Return a steady demand of 10 pods that doubles for ten minutes of each hour."""
    minute = np.arange(days * MINUTES)
    return np.where(minute % 60 < 10, 20.0, 10.0)


def quiet_days(days: int) -> Demand:
    """Return such a demand that is a quarter on each second day."""
    return bursts(days) * np.where(np.arange(days * MINUTES) // MINUTES % 2, 0.25, 1.0)


class ReplayedDemand(NamedTuple):
    """Two days of a demand, and what they come to without a forecast."""

    days: JudgedDays
    limits: Limits
    none: CandidateFigures
    alternatives: alternative.Alternatives

    def beat(self, whole: ReplayFigures) -> Alternative:
        """Return the best change for the pods of a candidate of these figures."""
        made = self.alternatives.beat(CandidateFigures("day", whole, self.none.recent)).alternative
        assert made is not None
        return made


@functools.cache
def world_of(demand: Callable[[int], Demand]) -> ReplayedDemand:
    days, limits = days_of(demand(2)), judge.build_limits(case_of(demand(2), SETTINGS))
    none = days.run(NONE)
    return ReplayedDemand(days, limits, none, alternative.Alternatives(days, none, limits, 300 * SECOND))


@pytest.mark.parametrize(
    ("demand", "extra", "best"),
    [
        (bursts, 0.06, "target 9440m"),
        (bursts, 0.14, "minReplicas 12"),
        (quiet_days, 0.6, "a scale-down window of 3600s"),
    ],
)
def test_the_change_that_leaves_least_is_the_alternative(
    demand: Callable[[int], Demand], extra: float, best: str
) -> None:
    """Bursts are an hour apart: a longer window brings nothing, until it holds the pods for the next one."""
    world = world_of(demand)
    made = world.beat(ReplayFigures(0.0, (1 + extra) * world.none.whole.pods))
    assert made.change == best
    assert made.shortage < world.none.whole.shortage


def test_one_alternative_that_is_not_beaten_is_enough() -> None:
    world = world_of(bursts)
    made = world.beat(ReplayFigures(world.none.whole.shortage, 1.1 * world.none.whole.pods))
    assert made.change.startswith("target ")


def test_what_a_pod_serves_stays_with_a_lower_target() -> None:
    days = days_of(np.full(MINUTES, 10.0))
    none, lower = days.run(NONE), alternative.LowerTarget(days).replay(0.25)
    assert none.whole.pods == 10 * DAY
    assert lower.whole.pods == pytest.approx(12.5 * DAY, rel=0.05)
    assert lower.whole.shortage == none.whole.shortage == 0


@pytest.mark.parametrize(
    ("spec", "policy", "said"),
    [
        (autoscaler(), "fast", "target 8"),
        (autoscaler(), "fast:target=5", "target 4"),
        (read_spec(FastPathAutoscaler, [pods_metric("1234m", "rps")], maxReplicas=9), "fast", "target 987m"),
        (
            read_spec(FastPathAutoscaler, [pods_metric("10", "a"), pods_metric("20", "b")], maxReplicas=9),
            "fast",
            "targets of 80 %",
        ),
    ],
)
def test_a_lower_target_is_named_as_the_spec_has_it(spec: FastPathAutoscaler, policy: str, said: str) -> None:
    assert alternative.LowerTarget(days_of(np.full(MINUTES, 10.0), spec, policy)).describe(0.25) == said


def test_a_utilization_is_in_whole_per_cent() -> None:
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}},
    }
    change = alternative.LowerTarget(
        days_of(bursts(1), read_spec(FastPathAutoscaler, [metric], maxReplicas=9))
    )
    assert change.exact(0.1, round) == pytest.approx(60 / 55 - 1)
    assert change.describe(change.exact(0.1, round)) == "target 55"


def test_the_minimum_that_takes_some_pods_follows_from_the_counts() -> None:
    days = days_of(bursts(2))
    pods = days.run(NONE).whole.pods
    limits = judge.build_limits(case_of(bursts(2), SETTINGS))
    change = alternative.HigherMinimum(days, limits)
    assert change.guess(100.0) == limits.most
    value = change.guess(0.1)
    assert change.replay(value - 1).whole.pods < 1.1 * pods * 1.01
    assert change.replay(value).whole.pods >= 1.1 * pods * 0.99


def test_shortage_within_the_tolerance_is_counted_apart_and_need_is_at_most_the_maximum() -> None:
    limits = judge.build_limits(case_of(bursts(1), SETTINGS))._replace(most=50, high=1.1)
    split = SplitFigures(100, limits)
    split.stretch(0, 50, 10.5, 10, 10)  # within the tolerance
    split.stretch(50, 100, 12.0, 10, 11)  # half of it in the last seconds
    split.stretch(150, 10, 1e7, 40, 50)
    split.stretch(160, 10, float("nan"), 40, 50)
    split.stretch(170, 10, 3.0, 40, 40)
    assert split.whole == ReplayFigures(2 * 100 + 10 * 10, 500 + 1100 + 500 + 500 + 400, 0.5 * 50)
    assert split.recent == ReplayFigures(2 * 50 + 10 * 10, 550 + 500 + 500 + 400, 0.0)
    assert split.seconds_at == {10: 50, 11: 100, 50: 20, 40: 10}


def test_only_counted_days_are_summed() -> None:
    limits = judge.build_limits(case_of(bursts(1), SETTINGS))._replace(most=50, high=1.1)
    split = SplitFigures(0, limits, days={1})
    split.stretch(DAY - 10, 30, 20.0, 10, 15)  # 20 s of it on the day that counts
    split.stretch(DAY + 20, 2 * DAY, 20.0, 20, 20)
    assert split.whole == ReplayFigures(20 * 10.0, 20 * 15 + (DAY - 20) * 20, 0.0)
    assert split.seconds_at == {15: 20, 20: DAY - 20}
