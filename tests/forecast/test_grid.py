"""Demand by local time, what candidates say, by hand, and that none of them knows what comes."""

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from adapter.forecast import grid as grids
from adapter.forecast.conformal import build_bounds, build_margins
from adapter.forecast.grid import CANDIDATES, DAY, DemandGrid, local_steps, positions_before

BERLIN, HOUR = ZoneInfo("Europe/Berlin"), 3600


def at(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def counted(start: str, hours: int) -> DemandGrid:
    """Return a grid of hours whose value is their position."""
    return DemandGrid(at(start), HOUR, np.arange(hours, dtype=float), BERLIN)


def test_the_highest_value_within_each_step() -> None:
    found = grids.of_segments([(0, 90, 4.0), (90, 100, 9.0), (180, 200, 2.0)], 600, 300, 60, BERLIN)
    np.testing.assert_array_equal(found.values, [4, 9, np.nan, 2, np.nan])
    assert found.end == 900
    assert np.isnan(found.extended(2).values[-2:]).all()


def test_a_plain_day() -> None:
    local = local_steps(counted("2026-11-20T00:00", 49))
    assert list(positions_before(local, HOUR, 1)[[0, 23, 24, 30, 48]]) == [-1, -1, 0, 6, 24]
    assert set(positions_before(local, HOUR, 3)) == {-1}


@pytest.mark.parametrize(
    ("start", "asked", "expected"),
    [
        # the clock goes from 02:00 to 03:00 on 29 March: the day after is 23 hours later
        ("2026-03-27T23:00", [24 + 1, 24 + 2, 24 + 22], [1, 3, 23]),
        # what the clock skipped is the last step before the gap
        ("2026-03-28T23:00", [23, 24, 25, 26], [0, 1, 1, 2]),
        # of the hour that came twice on 25 October, the second; and both have the same before
        ("2026-10-24T22:00", [25 + 1, 25 + 2, 25 + 3], [1, 3, 4]),
        ("2026-10-23T22:00", [24 + 2, 24 + 3, 24 + 4], [2, 2, 3]),
    ],
)
def test_nights_on_which_the_clock_is_set(start: str, asked: list[int], expected: list[int]) -> None:
    local = local_steps(counted(start, 60))
    assert list(positions_before(local, HOUR, 1)[asked]) == expected


def test_a_position_is_always_earlier() -> None:
    for zone in ("Europe/Berlin", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Apia"):
        found = DemandGrid(at("2026-01-01T00:00"), 1800, np.zeros(366 * 48), ZoneInfo(zone))
        local = local_steps(found)
        for days in (1, 7):
            positions = positions_before(local, 1800, days)
            assert (positions < np.arange(len(local))).all()
            assert (positions[days * 48 + 4 :] >= 0).all()
            gap = np.arange(len(local)) - positions - days * DAY // 1800
            assert np.abs(gap[days * 48 + 4 :]).max() <= 4


# -- candidates ----------------------------------------------------------------------------------------------

NO_DATES: frozenset[date] = frozenset()
by_day, by_week, by_weeks, by_trend = (CANDIDATES[name] for name in ("day", "week", "weeks", "trend"))


def hours(values: ArrayLike) -> DemandGrid:
    """Return a grid of hours that begins on Thursday, 1970-01-01."""
    return DemandGrid(0, HOUR, np.asarray(values, dtype=float), ZoneInfo("UTC"))


def test_as_yesterday_as_a_week_ago_and_as_in_most_weeks() -> None:
    grid = hours(np.arange(5 * 7 * 24))
    step, lead = 4 * 7 * 24 + 5, 3
    assert by_day(grid, lead, NO_DATES)[step] == step - 24
    assert by_week(grid, lead, NO_DATES)[step] == step - 168
    assert by_weeks(grid, lead, NO_DATES)[step] == step - 168 * 2.5
    assert np.isnan(by_week(grid, lead, NO_DATES)[167])
    assert by_weeks(grid, lead, NO_DATES)[168] == 0  # of the only week that is known


def test_a_rise_goes_on_and_a_fall_says_nothing() -> None:
    said = by_trend(hours([1.0, 3, 8, 6, np.nan, 2, 2]), 1, NO_DATES)
    np.testing.assert_array_equal(said, [np.nan, np.nan, 5, 13, np.nan, np.nan, np.nan])
    said = by_trend(hours([1.0, 3, 8, 6, 9, 9]), 2, NO_DATES)
    np.testing.assert_array_equal(said, [np.nan] * 4 + [15, 9])


def test_gaps_are_no_zeros() -> None:
    values = np.ones(15 * 24)
    values[24:48] = np.nan
    assert np.isnan(by_day(hours(values), 1, NO_DATES)[48:72]).all()
    assert by_weeks(hours(values), 1, NO_DATES)[14 * 24 + 1] == 1


def test_a_holiday_is_no_example_and_nothing_is_said_about_it() -> None:
    grid = hours(np.arange(4 * 24))
    said = by_day(grid, 1, frozenset({date(1970, 1, 2)}))
    assert np.isnan(said[24:48]).all()
    assert np.isnan(said[48:72]).all()  # its example is the holiday
    assert said[72] == 72 - 24


@pytest.mark.parametrize("lead", [0, 24])
def test_a_lead_is_less_than_a_day(lead: int) -> None:
    with pytest.raises(ValueError, match="expected more than 0 s and less than a day"):
        by_day(hours(np.zeros(48)), lead, NO_DATES)


@pytest.mark.parametrize("name", CANDIDATES)
@settings(max_examples=20)
@given(now=st.integers(200, 900), lead=st.integers(1, 23), seed=st.integers(0, 99))
def test_what_comes_later_changes_nothing(name: str, now: int, lead: int, seed: int) -> None:
    """What is said about a step and its bound come from the demand up to `lead` steps before it."""
    values = np.random.default_rng(seed).random(1000)
    other = values.copy()
    other[now + 1 :] = 9.0
    found = []
    for each in (values, other):
        forecast = CANDIDATES[name](hours(each), lead, NO_DATES)
        margins = build_margins(hours(each), forecast, lead - 1, 0.9)
        found.append((forecast, build_bounds(hours(each), forecast, lead - 1, margins)))
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one[: now + lead], two[: now + lead])


@pytest.mark.parametrize("wanted", [0.8, 0.95])
def test_the_share_that_is_covered_comes_to_what_is_wanted(wanted: float) -> None:
    """Also where the errors grow threefold half way."""
    random = np.random.default_rng(7)
    noise = random.normal(0, 1, 6000) * np.where(np.arange(6000) < 3000, 1, 3)
    grid, forecast = hours(50 + noise), np.full(6000, 50.0)
    bounds = build_bounds(grid, forecast, 5, build_margins(grid, forecast, 5, wanted))
    judged = ~np.isnan(bounds)
    assert judged.sum() > 5900
    assert abs((grid.values <= bounds)[judged].mean() - wanted) < 0.02


def test_with_few_errors_nothing_is_said() -> None:
    margins = build_margins(hours(np.ones(29)), np.ones(29), 1, 0.9)
    assert np.isnan(margins.values).all()
    assert np.isnan(margins.at(10**6)).all()


def test_the_margin_of_an_hour_comes_from_the_demand_up_to_the_hour_before_it() -> None:
    values = np.full(100, 4.0)
    values[60] = 9.0  # of two hours later the margin knows it
    margins = build_margins(hours(values), np.full(100, 4.0), 1, 1.0)
    assert margins.at(61) == (0, 0)
    assert margins.at(62) == (1, 0)
