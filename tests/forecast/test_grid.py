"""Demand by local time, and what the same time had before, by hand."""

from datetime import date
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.typing import ArrayLike

from fastpath_forecast import grid as grids
from fastpath_forecast.grid import DAY, DemandGrid, Values, local_steps, positions_before, same_time_median
from tests.bounds.schedule_reading import utc

BERLIN, HOUR = ZoneInfo("Europe/Berlin"), 3600


def counted(start: str, hours: int) -> DemandGrid:
    """Return a grid of hours whose value is their position."""
    return DemandGrid(utc(start), HOUR, np.arange(hours, dtype=float), BERLIN)


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
        found = DemandGrid(utc("2026-01-01T00:00"), 1800, np.zeros(366 * 48), ZoneInfo(zone))
        local = local_steps(found)
        for days in (1, 7):
            positions = positions_before(local, 1800, days)
            assert (positions < np.arange(len(local))).all()
            assert (positions[days * 48 + 4 :] >= 0).all()
            gap = np.arange(len(local)) - positions - days * DAY // 1800
            assert np.abs(gap[days * 48 + 4 :]).max() <= 4


NO_DATES: frozenset[date] = frozenset()


def hours(values: ArrayLike) -> DemandGrid:
    """Return a grid of hours that begins on Thursday, 1970-01-01."""
    return DemandGrid(0, HOUR, np.asarray(values, dtype=float), ZoneInfo("UTC"))


def median(grid: DemandGrid, *days: int, exceptions: frozenset[date] = NO_DATES) -> Values:
    return same_time_median(grid, local_steps(grid), days, exceptions)


def test_as_yesterday_and_as_in_most_weeks() -> None:
    grid = hours(np.arange(5 * 7 * 24))
    step = 4 * 7 * 24 + 5
    assert median(grid, 1)[step] == step - 24
    assert median(grid, 7, 14, 21, 28)[step] == step - 168 * 2.5
    assert np.isnan(median(grid, 7)[167])
    assert median(grid, 7, 14)[168] == 0  # of the only week that is known


def test_gaps_are_no_zeros() -> None:
    values = np.ones(15 * 24)
    values[24:48] = np.nan
    assert np.isnan(median(hours(values), 1)[48:72]).all()
    assert median(hours(values), 7, 14)[14 * 24 + 1] == 1


def test_a_holiday_is_no_example_and_nothing_is_known_about_it() -> None:
    found = median(hours(np.arange(4 * 24)), 1, exceptions=frozenset({date(1970, 1, 2)}))
    assert np.isnan(found[24:48]).all()
    assert np.isnan(found[48:72]).all()  # its example is the holiday
    assert found[72] == 72 - 24
