"""The contest: what is written again gives the figures of the papers, and the rest those by hand."""

import pytest

from benchmarks import contest, contest_adapt, contest_scenarios, contest_worldcup
from fastpath_forecast.simulate.load import of_points


def test_two_runs_of_the_database_of_adapt() -> None:
    """outputs/runs.db of the authors has these of the diurnal burst of seed 42."""
    minutes = contest_adapt.load_of("diurnal_burst", 42)
    assert len(minutes) == 287
    reactive = contest_adapt.replay(minutes, contest_adapt.hpa(), None)
    plain = contest_adapt.replay(minutes, contest_adapt.mpc_without_forecast, None)
    assert (round(reactive.violations, 2), reactive.cost) == (13.94, 787)
    assert (round(plain.violations, 2), plain.cost) == (3.48, 782)


@pytest.mark.parametrize(
    ("name", "drawn"),
    [("smooth", 7.2), ("bursty", 2.2), ("bimodal", 18.9), ("flash_crowd", 19.2), ("slow_ramp_up", 16.9)],
)
def test_the_bars_of_figure_1(name: str, drawn: float) -> None:
    loads = [contest_adapt.load_of(name, seed) for seed in contest_adapt.SEEDS]
    outcomes = [contest_adapt.replay(minutes, contest_adapt.hpa(), None) for minutes in loads]
    assert contest_adapt.interval([outcome.violations for outcome in outcomes]).mean == pytest.approx(
        drawn, abs=0.05
    )


def test_the_hpa_of_the_paper_lowers_after_five_minutes() -> None:
    decide = contest_adapt.hpa()
    assert [decide(load, 4) for load in (400, 350, 100, 100, 100, 100, 100)] == [4, 4, 4, 4, 4, 4, 1]
    assert contest_adapt.hpa(70)(400, 4) == 6


def test_pods_that_start_are_ordered_again() -> None:
    """Two pods are ready, four are needed: two are ordered each minute until the first are ready."""
    assert contest_adapt.replay([400, 400, 400, 400], contest_adapt.hpa(), None).cost == 2 + 2 + 4 + 6


def test_the_planner_of_the_notebook_removes_six_tenths_of_a_surplus() -> None:
    assert contest_worldcup.plan([0, 10_001, 8_000, 8_000]) == [100, 101, 89, 84]


def test_the_hpa_of_the_notebook_waits_five_minutes() -> None:
    assert contest_worldcup.plan_hpa([0, 8_400, 700, 700, 700, 700, 700, 700]) == [100, *[120] * 6, 10]


def test_the_figures_of_the_notebook() -> None:
    found = contest_worldcup.measure("two minutes", [200, 400], [3, 3])
    assert found[1:] == (100 * 0.25 / 400, 100 * 0.5 / 400, 100 / 400, 100 / 400)


def test_the_fast_scaler_at_a_cost() -> None:
    """A constant load of 100 with 10 a pod needs 10 pods; 20 pods are those of a target of about 5."""
    scenario = contest_scenarios.scenario(of_points([(0, 100.0)], 3600), 10, 20, 1)
    target = contest_scenarios.find_target(scenario, 20 * 3600, {})
    assert contest_scenarios.play(scenario, f"fast:target={target}m").mean("podSeconds") == 20 * 3600


def test_the_part_around_the_highest_value() -> None:
    load = of_points([(0, 1.0), (200_000, 9.0), (200_010, 2.0)], 400_000)
    part = contest.peak_of(load)
    assert (part.seconds, part.highest) == (contest.LONGEST, 9)
    assert contest.peak_of(of_points([(0, float("nan")), (10, 1.0)], 20)).seconds == 20
