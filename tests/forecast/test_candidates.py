"""What candidates say, by hand, and that none of them knows what comes."""

from datetime import date
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.forecast import conformal
from adapter.forecast.candidates import CANDIDATES, by_day, by_trend, by_week, by_weeks
from adapter.forecast.grid import DemandGrid, Values

HOUR = 3600
UTC = ZoneInfo("UTC")
NO_DATES: frozenset[date] = frozenset()


def hours(values: Values) -> DemandGrid:
    """Return a grid of hours that begins on Thursday, 1970-01-01."""
    return DemandGrid(0, HOUR, np.asarray(values, dtype=float), UTC)


def test_as_yesterday_as_a_week_ago_and_as_in_most_weeks() -> None:
    grid = hours(np.arange(5 * 7 * 24))
    step, lead = 4 * 7 * 24 + 5, 3
    assert by_day(grid, lead, NO_DATES)[step] == step + lead - 24
    assert by_week(grid, lead, NO_DATES)[step] == step + lead - 168
    assert by_weeks(grid, lead, NO_DATES)[step] == step + lead - 168 * 2.5
    assert np.isnan(by_week(grid, lead, NO_DATES)[160])
    assert by_weeks(grid, lead, NO_DATES)[168] == lead  # of the only week that is known


def test_a_rise_goes_on_and_a_fall_says_nothing() -> None:
    said = by_trend(hours(np.array([1.0, 3, 8, 6, np.nan, 2])), 1, NO_DATES)
    np.testing.assert_array_equal(said, [np.nan, 5, 13, np.nan, np.nan, np.nan])


def test_gaps_are_no_zeros() -> None:
    values = np.ones(15 * 24)
    values[24:48] = np.nan
    assert np.isnan(by_day(hours(values), 1, NO_DATES)[48:71]).all()
    assert by_weeks(hours(values), 1, NO_DATES)[14 * 24] == 1


def test_a_holiday_is_no_example_and_nothing_is_said_about_it() -> None:
    grid = hours(np.arange(4 * 24))
    said = by_day(grid, 1, frozenset({date(1970, 1, 2)}))
    assert np.isnan(said[23:47]).all()  # about the second day
    assert np.isnan(said[47:71]).all()  # after its example
    assert said[71] == 72 - 24


@pytest.mark.parametrize("lead", [0, 25])
def test_a_lead_is_at_most_a_day(lead: int) -> None:
    with pytest.raises(ValueError, match="expected more than 0 s and at most a day"):
        by_day(hours(np.zeros(48)), lead, NO_DATES)


@pytest.mark.parametrize("name", CANDIDATES)
@given(now=st.integers(200, 900), lead=st.integers(1, 24), seed=st.integers(0, 99))
def test_what_comes_later_changes_nothing(name: str, now: int, lead: int, seed: int) -> None:
    values = np.random.default_rng(seed).random(1000)
    other = values.copy()
    other[now + 1 :] = 9.0
    one, two = (CANDIDATES[name](hours(each), lead, NO_DATES)[: now + 1] for each in (values, other))
    np.testing.assert_array_equal(one, two)
    bounds = [
        conformal.upper_bounds(each, CANDIDATES[name](hours(each), lead, NO_DATES), lead, 0.9, 200, 5).upper
        for each in (values, other)
    ]
    np.testing.assert_array_equal(bounds[0][: now + 1], bounds[1][: now + 1])


@pytest.mark.parametrize("wanted", [0.8, 0.95])
def test_the_share_that_is_covered_comes_to_what_is_wanted(wanted: float) -> None:
    """Also where the errors grow threefold half way."""
    random = np.random.default_rng(7)
    noise = random.normal(0, 1, 6000) * np.where(np.arange(6000) < 3000, 1, 3)
    values = 50 + noise
    found = conformal.upper_bounds(values, np.full(6000, 50.0), 5, wanted, 1000, 10)
    assert found.judged > 5900
    assert abs(found.coverage - wanted) < 0.02


def test_with_few_errors_nothing_is_said() -> None:
    found = conformal.upper_bounds(np.ones(20), np.ones(20), 1, 0.9, 100)
    assert np.isnan(found.upper).all()
    assert np.isnan(found.coverage)
