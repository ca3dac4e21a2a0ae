"""No verdict acts on noise, and one that acts leaves less shortage than a lower target with more pods.

The lower target is replayed here with the policies of `fastpath simulate`, apart from the judge. A benchmark
has further noise and seeds.
"""

import dataclasses

import numpy as np
import pytest

from adapter.bounds.forecast.verdict import JUDGED_DAYS, ReplayFigures, Verdict
from adapter.model.autoscaling.forecast import DAY
from adapter.model.timestamps import SECOND
from fastpath_forecast import judge
from fastpath_forecast.judge import Case
from fastpath_forecast.replay import SplitFigures
from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.policies import read_policy
from tests.forecast.demands import NOISE, Draw, case_for, drifting
from tests.forecast.forecasts import BASE_DAYS, SETTINGS, Judged, case_of

pytestmark = pytest.mark.timeout(240)

LOWER = 9.3
"""A target below the one of 10, at which more pods run than a forecast adds."""


def figures_with(case: Case, target: float) -> ReplayFigures:
    """Return what the judged days come to with another target."""
    begin = (BASE_DAYS - JUDGED_DAYS) * DAY
    loads = {name: load.part(begin, load.seconds) for name, load in case.scenario.loads.items()}
    epoch = case.scenario.epoch + begin * SECOND
    split = SplitFigures(0, judge.build_limits(case))
    policy = read_policy(f"fast:target={target:.3f}")
    simulation.simulate(dataclasses.replace(case.scenario, loads=loads, epoch=epoch), policy, observer=split)
    return split.whole


def drawn(draw: Draw) -> Case:
    """Return the case of a demand whose every other value stays twice as long, which halves the replays."""
    return case_for(np.repeat(draw(np.random.default_rng(5))[::2], 2))


@pytest.mark.parametrize("name", NOISE)
def test_nothing_acts_on_noise(name: str) -> None:
    case = drawn(NOISE[name])
    verdict, _ = judge.judge(case, judge.build_demand(case))
    assert verdict.none is not None
    assert verdict.none.whole.shortage > 0
    assert verdict.chosen == ""


def beats_a_lower_target(case: Case, verdict: Verdict) -> bool:
    acting = verdict.acting
    assert acting is not None
    lower = figures_with(case, LOWER)
    assert lower.pods > acting.whole.pods
    return acting.whole.shortage <= 0.5 * lower.shortage


def test_what_acts_beats_a_lower_target(judged: Judged) -> None:
    assert beats_a_lower_target(case_of(judged.demand, SETTINGS), judged.verdict)


def test_what_acts_on_a_rising_demand_beats_a_lower_target() -> None:
    case = drawn(drifting)
    verdict, _ = judge.judge(case, judge.build_demand(case))
    assert beats_a_lower_target(case, verdict)
