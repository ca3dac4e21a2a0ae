"""What candidates say about loads that are known, and that none of them knows what comes."""

from datetime import date
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastpath_forecast.candidates import CANDIDATES, Forecast, continued
from fastpath_forecast.conformal import build_bounds, build_margins
from fastpath_forecast.grid import DemandGrid, Values

MINUTES = 1440
NO_DATES: frozenset[date] = frozenset()


def minutes(values: Values) -> DemandGrid:
    """Return a grid of minutes that begins on Thursday, 1970-01-01."""
    return DemandGrid(0, 60, values, ZoneInfo("UTC"))


def noise(count: int, deviation: float, seed: int = 5) -> Values:
    found: Values = np.random.default_rng(seed).normal(0, deviation, count)
    return found


def wave(days: int, swing: float = 0.6) -> Values:
    """Return days of ten pods on average, which rise and fall by a share of that."""
    found: Values = 10 - 10 * swing * np.cos(np.arange(days * MINUTES) * 2 * np.pi / MINUTES)
    return found


def error(said: Values, values: Values, first: int) -> float:
    """Return how wrong a forecast is on average from a day on, as a share of the demand."""
    rest = slice(first * MINUTES, len(values))
    return float(np.abs(said[rest] / values[rest] - 1).mean())


def test_a_day_that_repeats_is_known_and_one_that_does_not_is_averaged() -> None:
    box = np.tile(np.where(np.arange(MINUTES) // 60 % 24 >= 8, 16.0, 3.0), 10)
    said = CANDIDATES["season"](minutes(box), 3, NO_DATES).values
    assert np.isnan(said[: MINUTES + 2]).all()
    assert error(said, box, 3) < 0.001
    random = 10 + noise(10 * MINUTES, 2)
    said = CANDIDATES["season"](minutes(random), 3, NO_DATES).values
    assert np.abs(said[5 * MINUTES :] - 10).mean() < 0.5


def test_the_level_of_today_moves_the_shape_of_the_days_before() -> None:
    """A level that is three times as high is known after half an hour, and so is a steep rise from there."""
    box = np.tile(np.where(np.arange(MINUTES) // 60 % 24 >= 8, 16.0, 3.0), 10)
    box[8 * MINUTES :] *= 3
    said = CANDIDATES["season"](minutes(box), 3, NO_DATES).values
    morning = 8 * MINUTES + 8 * 60
    assert said[morning - 1] == pytest.approx(9, rel=0.15)
    assert said[morning] == pytest.approx(48, rel=0.15)


def test_a_curve_beats_the_last_half_hour_where_it_repeats() -> None:
    values = wave(12) * (1 + noise(12 * MINUTES, 0.1))
    said = CANDIDATES["season"](minutes(values), 4, NO_DATES).values
    sums = np.cumsum(np.concatenate([np.zeros(30), values]))
    recent = np.concatenate([np.full(4, np.nan), (sums[30:] - sums[:-30]) / 30])[: len(values)]
    assert error(said, wave(12), 8) < 0.5 * error(recent, wave(12), 8)


def test_one_event_does_not_change_what_is_said_of_other_days() -> None:
    values = wave(12) * (1 + noise(12 * MINUTES, 0.03))
    event = values.copy()
    event[9 * MINUTES + 600 : 9 * MINUTES + 660] *= 8
    said, after = (CANDIDATES["season"](minutes(each), 4, NO_DATES).values for each in (values, event))
    assert np.abs(after[10 * MINUTES :] / said[10 * MINUTES :] - 1).max() < 0.1


def test_a_broken_sample_does_not_change_what_is_said_afterwards() -> None:
    values = wave(9) * (1 + noise(9 * MINUTES, 0.03))
    broken = values.copy()
    broken[7 * MINUTES + 600 : 7 * MINUTES + 605] = 1e7
    for name in CANDIDATES:
        said, after = (CANDIDATES[name](minutes(each), 4, NO_DATES).values for each in (values, broken))
        assert np.abs(after[8 * MINUTES :] / said[8 * MINUTES :] - 1).max() < 0.15


def test_a_holiday_has_no_season() -> None:
    values, holiday = wave(5), frozenset({date(1970, 1, 4)})
    said = CANDIDATES["season"](minutes(values), 2, holiday).values
    assert np.isnan(said[3 * MINUTES : 4 * MINUTES]).all()
    assert said[4 * MINUTES + 700] == pytest.approx(values[4 * MINUTES + 700], rel=0.02)


def test_a_gap_is_no_zero_and_nothing_is_said_out_of_it() -> None:
    values = wave(5)
    values[4 * MINUTES + 600 : 4 * MINUTES + 660] = np.nan
    for name in CANDIDATES:
        said = CANDIDATES[name](minutes(values), 2, NO_DATES).values
        assert np.isnan(said[4 * MINUTES + 602 : 4 * MINUTES + 661]).all()
        assert said[4 * MINUTES + 662] == pytest.approx(wave(5)[4 * MINUTES + 662], rel=0.05)


@pytest.mark.parametrize("lead", [0, 1440])
def test_a_lead_is_less_than_a_day(lead: int) -> None:
    with pytest.raises(ValueError, match="expected more than 0 s and less than a day"):
        CANDIDATES["season"](minutes(np.zeros(48)), lead, NO_DATES)


def test_a_forecast_goes_on_with_itself() -> None:
    """Further ahead than the lead the demand before a step is what is said about it."""
    values = wave(10)
    forecast = CANDIDATES["season"](minutes(values[: 9 * MINUTES]).extended(720), 3, NO_DATES)
    said = continued(forecast, values[: 9 * MINUTES], 3)
    assert np.isnan(forecast.values[9 * MINUTES + 3 :]).all()
    assert said[: 9 * MINUTES + 3] == pytest.approx(forecast.values[: 9 * MINUTES + 3], nan_ok=True)
    assert said[9 * MINUTES :] == pytest.approx(values[9 * MINUTES : 9 * MINUTES + 720], rel=0.05)


def test_a_forecast_is_a_sum_of_what_is_known_before_and_of_means_of_the_last_steps() -> None:
    values = wave(5) * (1 + noise(5 * MINUTES, 0.1))
    forecast: Forecast = CANDIDATES["season"](minutes(values), 2, NO_DATES)
    at = 4 * MINUTES + 321
    means = [values[at - 1 - span : at - 1].mean() for span in (1, 5, 30)]
    scaled = forecast.offsets[at] + (forecast.weights[at] * np.log1p(means)).sum()
    assert forecast.values[at] == pytest.approx(np.expm1(scaled))


@pytest.mark.parametrize("name", CANDIDATES)
@settings(max_examples=20)
@given(now=st.integers(3000, 5000), lead=st.integers(1, 90), seed=st.integers(0, 99))
def test_what_comes_later_changes_nothing(name: str, now: int, lead: int, seed: int) -> None:
    """What is said about a step and its bound come from the demand up to `lead` steps before it."""
    values = np.random.default_rng(seed).random(4 * MINUTES)
    other = values.copy()
    other[now + 1 :] = 9.0
    found = []
    for each in (values, other):
        forecast = CANDIDATES[name](minutes(each), lead, NO_DATES).values
        margins = build_margins(minutes(each), forecast, lead - 1, 0.9)
        found.append((forecast, build_bounds(minutes(each), forecast, lead - 1, margins)))
    assert not np.isnan(found[0][0][now + lead - 1])
    for one, two in zip(*found, strict=True):
        np.testing.assert_array_equal(one[: now + lead], two[: now + lead])
