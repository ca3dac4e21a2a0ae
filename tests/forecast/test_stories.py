"""What forecasts do when the days are not like those before: each story as docs/guides/forecasts.md tells it.

A verdict is made from two weeks; the days of a story follow. Costs are those of the replayed decisions.
"""

from collections.abc import Callable
from datetime import date
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from adapter.bounds.forecast.minimum import UNKNOWN
from adapter.model.autoscaling.forecast import ForecastSettings
from fastpath_forecast import judge, variants
from fastpath_forecast.candidates import CANDIDATES
from tests.forecast import forecasts

pytestmark = pytest.mark.timeout(120)  # the first test replays a week for each candidate

Tell = Callable[..., forecasts.JudgedDays]


@pytest.fixture(params=CANDIDATES)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def days(count: int, first: int = forecasts.BASE_DAYS) -> forecasts.Demand:
    """Return days like those before."""
    return forecasts.working_days(first + count)[first * forecasts.MINUTES :]


def test_a_day_like_all_others(name: str, tell: Tell) -> None:
    story = tell(name, days(2))
    for without, acted in zip(story.without, story.acted, strict=True):
        assert acted.shortage + acted.tolerated < 0.3 * (without.shortage + without.tolerated)
        assert acted.gain_over(without) > 0.9
    assert max(story.extra) <= forecasts.SETTINGS.max_extra
    assert sum(map(bool, story.withheld)) < 60


@pytest.mark.parametrize("known", [1, 3, 6.9])
def test_too_little_history_says_how_much_there_is(known: float) -> None:
    case = forecasts.case_of(forecasts.working_days(7)[: int(known * forecasts.MINUTES)], forecasts.SETTINGS)
    verdict, variant = judge.judge(case, judge.build_demand(case))
    hours = int(known * 24) / 24  # whole hours count
    assert verdict.missing == f"{hours:.1f} of 7 days of history".replace(".0 ", " ")
    assert variant is None
    assert not verdict.candidates


def test_a_gap_of_a_day_in_the_history_is_said() -> None:
    demand = forecasts.working_days(forecasts.BASE_DAYS)
    demand[10 * forecasts.MINUTES : 11 * forecasts.MINUTES] = np.nan
    case = forecasts.case_of(demand, forecasts.SETTINGS)
    verdict, _ = judge.judge(case, judge.build_demand(case))
    assert verdict.missing == "14 % of the last 7 days are gaps, and at most 10 % are accepted"


def test_a_gap_of_a_day_while_a_forecast_acts(name: str, tell: Tell) -> None:
    """There is no floor while the demand is not known, and there is one a day later: a gap is no demand."""
    demand = days(3)
    known = demand.copy()
    known[: forecasts.MINUTES] = np.nan
    story = tell(name, demand, known=known)
    assert set(story.withheld[1 : forecasts.MINUTES + 1]) == {UNKNOWN}
    assert not any(story.minimums[1 : forecasts.MINUTES + 1])
    for day in (1, 2):
        noon = day * forecasts.MINUTES + 12 * 60
        assert story.minimums[noon] >= demand[noon]
    assert max(story.extra) <= forecasts.SETTINGS.max_extra


@pytest.mark.parametrize(("level", "left"), [(2, 0.6), (0.5, 0.7)], ids=["doubles", "halves"])
def test_a_level_that_changes(name: str, tell: Tell, level: float, left: float) -> None:
    """The forecast follows it at once: what the days before say is multiplied with the level of today."""
    story = tell(name, level * days(2))
    assert max(story.extra) <= forecasts.SETTINGS.max_extra
    for without, acted in zip(story.without, story.acted, strict=True):
        assert acted.shortage + acted.tolerated < left * (without.shortage + without.tolerated)


def test_a_holiday_that_is_named_has_no_minimum(tell: Tell) -> None:
    quiet = np.append(np.full(forecasts.MINUTES, 4.0), days(2, forecasts.BASE_DAYS + 1))
    settings = forecasts.SETTINGS._replace(holidays=frozenset({date(2026, 3, 15)}))
    story = tell("season", quiet, settings)
    # The step of the lead before the day asks for its first one.
    assert not any(story.minimums[: forecasts.MINUTES - 2])
    noon = forecasts.MINUTES + 12 * 60
    assert story.minimums[noon] >= quiet[noon]  # the holiday is no example
    assert max(story.extra) <= forecasts.SETTINGS.max_extra


def test_a_holiday_that_is_not_named_costs_no_more_than_the_budget(name: str, tell: Tell) -> None:
    quiet = np.append(np.full(forecasts.MINUTES, 4.0), days(1, forecasts.BASE_DAYS + 1))
    story = tell(name, quiet)
    assert max(story.extra) <= forecasts.SETTINGS.max_extra


@pytest.mark.parametrize("zone", ["Europe/Berlin", "UTC"])
def test_a_clock_that_is_set_forward(zone: str) -> None:
    """The morning comes an hour earlier in UTC. What is said in local time is right, in UTC it is late."""
    count = 28
    settings = ForecastSettings(zone=ZoneInfo(zone))
    demand = forecasts.working_days(count + 1)
    grid = judge.build_demand(forecasts.case_of(demand, settings))
    said = CANDIDATES["season"](grid, 2, frozenset()).values
    morning = slice(count * forecasts.MINUTES + 5 * 60, count * forecasts.MINUTES + 8 * 60)
    error = float(np.nanmean(np.abs(said[morning] - grid.values[morning])))
    assert error < 1 if zone == "Europe/Berlin" else error > 2


def test_floors_are_there_on_the_morning_after_the_clock_was_set(judged: forecasts.Judged) -> None:
    """In UTC that morning comes an hour earlier. A forecast on the clock of UTC has no floor for it."""
    demand, changed = forecasts.working_days(30), 28 - forecasts.BASE_DAYS
    eight = changed * forecasts.MINUTES + 7 * 60  # the local day had begun an hour before midnight in UTC
    opening = {}
    for zone in ("Europe/Berlin", "UTC"):
        settings = ForecastSettings(zone=ZoneInfo(zone))
        case = forecasts.case_of(demand, settings)
        limits = judged.variants["season"].limits._replace(zone=zone)
        found = variants.build(judge.build_demand(case), "season", limits, settings)
        minimums = found.minimums[forecasts.BASE_DAYS * forecasts.MINUTES :]
        for day in (changed, changed + 1):
            without, acted = (forecasts.play(case, day, each) for each in ([], minimums))
            assert acted.extra_over(without) <= settings.max_extra
            assert acted.shortage < without.shortage
        opening[zone] = minimums[eight]
    needed = demand[forecasts.BASE_DAYS * forecasts.MINUTES + eight]
    assert opening["Europe/Berlin"] >= needed > 15
    assert opening["UTC"] < needed * 2 / 3


def test_a_metric_that_was_renamed(name: str, tell: Tell) -> None:
    """From one minute on it has no value: the minimum ends at once, whatever the plan says."""
    demand = days(1)
    known = demand.copy()
    known[9 * 60 :] = np.nan
    story = tell(name, demand, known=known)
    assert set(story.withheld[9 * 60 + 1 :]) == {UNKNOWN}
    assert not any(story.minimums[9 * 60 + 1 :])
    assert max(story.extra) <= forecasts.SETTINGS.max_extra


def test_the_verdict_of_the_base(judged: forecasts.Judged) -> None:
    """The stories would say little if the candidates were not good on the days before."""
    assert judged.verdict.none is not None
    assert not judged.verdict.missing
    (season,) = judged.verdict.candidates
    assert not season.refused
    assert season.whole.gain_over(judged.verdict.none.whole) > 0.85
    for each in judged.verdict.candidates:
        assert each.reached is not None
        assert abs(each.reached - each.wanted) < 0.03
