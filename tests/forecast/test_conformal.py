"""Margins: the share that they cover, and what they come from."""

import numpy as np
import pytest

from fastpath_forecast.conformal import build_bounds, build_margins
from tests.forecast.test_grid import hours


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
    assert margins.at(62) == pytest.approx((np.log(2), 0))
