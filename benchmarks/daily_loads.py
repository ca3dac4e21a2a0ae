"""Generated loads of three weeks in requests a second, a value each minute, for `benchmarks.forecasts`.

The first six have days that repeat, each with another thing that a forecast has to bear. Of the last two
nothing in the past says what comes.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

DAYS = 21
MINUTES = 1440
SEED = 7

Values = NDArray[np.float64]
Draw = Callable[[np.random.Generator], Values]

_HOURS = np.arange(DAYS * MINUTES) % MINUTES / 60
_DAY = np.arange(DAYS * MINUTES) // MINUTES


def _wave(height: float = 0.6) -> Values:
    return 1 - height * np.cos((_HOURS - 3) * 2 * np.pi / 24)


def _noise(draw: np.random.Generator, share: float) -> Values:
    return 1 + share * draw.normal(size=_HOURS.size)


def _each_day(values: Values) -> Values:
    return np.repeat(values, MINUTES)


def noisy_wave(draw: np.random.Generator) -> Values:
    return _wave() * _noise(draw, 0.15)


def working_week(draw: np.random.Generator) -> Values:
    """Mornings that rise within an hour, quiet weekends, and a level that wanders by 6 % a day."""
    opened = 1 / (1 + np.exp((8 - _HOURS) * 4)) - 1 / (1 + np.exp((18 - _HOURS) * 2))
    level = np.exp(_each_day(np.cumsum(draw.normal(0, 0.06, DAYS))))
    return np.where(_DAY % 7 >= 5, 0.4, 0.3 + opened) * level * _noise(draw, 0.05)


def shop_hours(draw: np.random.Generator) -> Values:
    """Doors that open and close within six minutes of the hour."""
    opens, closes = (_each_day(hour + draw.normal(0, 0.1, DAYS)) for hour in (8, 18))
    return np.where((opens <= _HOURS) & (closes > _HOURS), 1.8, 0.3) * _noise(draw, 0.05)


def hourly_jobs(draw: np.random.Generator) -> Values:
    """Four minutes of each hour with four fifths more."""
    minute = np.arange(_HOURS.size) % 60
    return _wave() * np.where(minute < 4, 1.8, 1.0) * _noise(draw, 0.04)


def few_requests(draw: np.random.Generator) -> Values:
    """Draw requests that come one by one, ten a minute for each pod."""
    return draw.poisson(100 * _wave()) / 100


def evenings(draw: np.random.Generator) -> Values:
    """Draw an evening peak whose height differs by a fifth from day to day."""
    peak = np.exp(-(((_HOURS - 20) / 1.5) ** 2)) * _each_day(draw.normal(1, 0.2, DAYS).clip(0.2))
    return (_wave(0.4) + 1.5 * peak) * _noise(draw, 0.05)


def bursts(draw: np.random.Generator) -> Values:
    """Six bursts a day at random times, on a daily wave."""
    values = _wave() * _noise(draw, 0.04)
    for begin in draw.integers(0, _HOURS.size - 40, 6 * DAYS):
        values[begin : begin + draw.integers(5, 40)] *= 1 + draw.exponential(0.6)
    return values


def wandering(draw: np.random.Generator) -> Values:
    """Draw a level that wanders, and forgets where it was within an hour."""
    values, steps = np.zeros(_HOURS.size), draw.normal(0, 0.06, _HOURS.size)
    for place in range(1, values.size):
        values[place] = 0.98 * values[place - 1] + steps[place]
    return 1 + values


DAILY_LOADS: Mapping[str, Draw] = {
    "daily wave, 15 % noise": noisy_wave,
    "working days and weekends": working_week,
    "shop hours": shop_hours,
    "hourly jobs on a daily wave": hourly_jobs,
    "few requests, daily wave": few_requests,
    "evening peak of changing height": evenings,
    "bursts at random times": bursts,
    "wandering level": wandering,
}


def points_of(name: str) -> list[tuple[float, float]]:
    """Return the seconds since the begin of a load, and its values."""
    values = np.maximum(DAILY_LOADS[name](np.random.default_rng(SEED)), 0.0)
    return [(60.0 * minute, float(value)) for minute, value in enumerate(100 * values)]
