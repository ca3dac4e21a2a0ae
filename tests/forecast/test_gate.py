"""No verdict acts that leaves more shortage than a lower target at the same pods.

The lower target is found here by bisection with the policies of `fastpath simulate`, apart from the judge.
"""

import dataclasses

import numpy as np
import pytest

from adapter.bounds.forecast.verdict import JUDGED_DAYS, ReplayFigures
from adapter.model.autoscaling.forecast import DAY
from adapter.model.timestamps import SECOND
from fastpath_forecast import judge
from fastpath_forecast.judge import Case
from fastpath_forecast.replay import SplitFigures
from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.policies import read_policy
from tests.support.demands import HELD, NOISE, case_for, drifting
from tests.support.forecasts import BASE_DAYS, TARGET, working_days

pytestmark = pytest.mark.timeout(240)


def figures_with(case: Case, target: float) -> ReplayFigures:
    """Return what the judged days come to with another target."""
    begin = (BASE_DAYS - JUDGED_DAYS) * DAY
    loads = {name: load.part(begin, load.seconds) for name, load in case.scenario.loads.items()}
    epoch = case.scenario.epoch + begin * SECOND
    split = SplitFigures(0, judge.build_limits(case))
    policy = read_policy(f"fast:target={target:.3f}")
    simulation.simulate(dataclasses.replace(case.scenario, loads=loads, epoch=epoch), policy, observer=split)
    return split.whole


def at_the_same_pods(case: Case, pods: float) -> ReplayFigures:
    low, high = 0.5 * TARGET, float(TARGET)
    for _ in range(9):
        middle = (low + high) / 2
        low, high = (middle, high) if figures_with(case, middle).pods > pods else (low, middle)
    return figures_with(case, high)  # the lowest target that takes no more pods


@pytest.mark.parametrize("name", NOISE)
def test_nothing_acts_on_noise(name: str) -> None:
    case = case_for(NOISE[name](np.random.default_rng(5)))
    verdict, _ = judge.judge(case, judge.build_demand(case))
    assert verdict.none is not None
    assert verdict.none.whole.shortage > 0
    assert verdict.chosen == ""


@pytest.mark.parametrize("name", ["working", "drifting"])
def test_what_acts_beats_a_lower_target(name: str) -> None:
    values = working_days(BASE_DAYS)[::HELD] if name == "working" else drifting(np.random.default_rng(5))
    case = case_for(values)
    verdict, _ = judge.judge(case, judge.build_demand(case))
    acting = verdict.acting
    assert acting is not None
    assert acting.whole.shortage <= 0.5 * at_the_same_pods(case, acting.whole.pods).shortage
