"""Generated demand of two weeks, in pods: noise that no forecast can know, and days that repeat."""

from collections.abc import Callable, Mapping

import numpy as np

from fastpath_forecast.judge import Case
from tests.forecast.forecasts import BASE_DAYS, MINUTES, SETTINGS, Demand, case_of

HELD = 10
"""The minutes of a value: decisions between two values can be skipped."""

VALUES = BASE_DAYS * MINUTES // HELD

Draw = Callable[[np.random.Generator], Demand]


def white(draw: np.random.Generator) -> Demand:
    return 10 + 3 * draw.normal(size=VALUES)


def red(draw: np.random.Generator) -> Demand:
    """An AR(1) process whose values are alike for an hour."""
    values, noise = np.zeros(VALUES), draw.normal(size=VALUES)
    for place in range(1, VALUES):
        values[place] = 0.85 * values[place - 1] + noise[place]
    return 10 + 1.5 * values


def bursts(draw: np.random.Generator) -> Demand:
    """Two bursts a day at random times."""
    values = np.full(VALUES, 8.0)
    for begin in draw.integers(0, VALUES - 6, 2 * BASE_DAYS):
        values[begin : begin + draw.integers(2, 6)] += draw.uniform(6, 16)
    return values


def drifting(draw: np.random.Generator) -> Demand:
    """Days whose level rises by a tenth each day."""
    place = np.arange(VALUES) * HELD
    day = 10 + 6 * np.sin(2 * np.pi * place / MINUTES)
    return day * (1 + 0.1 * place / MINUTES) + 0.3 * draw.normal(size=VALUES)


NOISE: Mapping[str, Draw] = {"white": white, "red": red, "bursts": bursts}


def case_for(values: Demand) -> Case:
    return case_of(np.repeat(np.maximum(values, 0.0), HELD), SETTINGS)
