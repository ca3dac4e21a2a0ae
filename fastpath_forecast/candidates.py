"""The candidates: what the demand may be one lead time from now.

A candidate says something about a step from the demand up to `lead` steps before it alone, and NaN where it
says nothing. None is trusted: `judge` replays the decisions that it would have led to.

The only one, ``season``, adds what this time of the day and week had before to the demand of
the last half hour. It is a linear regression on logarithms of the demand plus one pod. On that scale the
level of today times the shape of the days before is a sum, and the regression finds how much of each there
is: noise around a daily curve is averaged away, a level that drifts is followed, and where nothing repeats
the season has no weight. What goes in:

- the median of the same local time in the last days, as it is, as a mean of the steps until now, and without
  its noise, by a median over some minutes, which keeps edges where they are;
- the median of the same local time in the last weeks;
- means of the demand of the last steps (`SPANS`).

The weights of an hour come from the week before it, up to the beginning of the hour before it, as all of a
plan does. They start from a guess, today's level times the shape of the days before, and the regression is
of what that guess misses. A few large errors, of an event or of a morning that began early, would outweigh
all others in the squares, so errors are clipped. A step counts by its demand: an error of a tenth is more
pods at noon than at night.

Days in `exceptions`, such as holidays, are no example for others, and nothing is said about them.
"""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Final, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from adapter.bounds.forecast.plan import HIGHEST, SPANS
from fastpath_forecast.grid import DAY, DemandGrid, Values, local_steps, same_time_median

DAYS: Final = range(1, 8)
WEEKS: Final = range(7, 29, 7)
"""How many days ago the examples of a time of the day are, and those of a time of the week."""

_LEVELS: Final = (5, 30)
"""The season of so many steps until now is compared with the demand of as many."""

_SMOOTHED: Final = 7
"""The steps of the median that takes the noise from the season."""

_WINDOW: Final = 7 * 24
"""The hours whose steps count for the weights."""

_LEAST_STEPS: Final = 360
"""With fewer steps the guess stands."""

_RIDGE: Final = 0.6
"""How firmly weights stay with the guess where the demand does not tell: as this square of a sum."""

_CLIP: Final = 2.5
"""Errors of the guess count up to so many times the mean error."""

_HEAVIEST: Final = 10.0
"""A step counts by its demand up to so many times the usual one: a broken sample must not count for all."""

_SEASONAL_GUESS: Final = [1.0, 0.0, 0.0, -1.0, 0.0]
_RECENT_GUESS: Final = [0.0, 1.0, 0.0]
"""The guess: the level of the last minutes, which moves as the days before did from those to the step."""


class Forecast(NamedTuple):
    """What a candidate says about each step of a grid, on the scale of log1p.

    The forecast of a step is `offsets` plus `weights` times the means of the last demands, one for each of
    SPANS. `values` is that in pods, NaN where something is not known.
    """

    values: Values
    offsets: Values
    weights: Values


Candidate = Callable[[DemandGrid, int, frozenset[date]], Forecast]


def season(grid: DemandGrid, lead: int, exceptions: frozenset[date]) -> Forecast:
    """Return the forecast of each step, made `lead` steps before it, at most a day."""
    if not 0 < lead * grid.step < DAY:
        raise ValueError(f"a lead of {lead * grid.step} s: expected more than 0 s and less than a day")
    fixed = [np.ones(len(grid.values)), *_season(grid, lead, exceptions)]
    recent = [_shifted(np.log1p(_mean(grid.values, span)), lead) for span in SPANS]
    split = len(fixed)
    columns = np.stack(fixed + recent, axis=1)
    weights = _weights(grid, columns, np.array([0.0, *_SEASONAL_GUESS, *_RECENT_GUESS]), lead)
    offsets = _dot(columns[:, :split], weights[:, :split])
    scaled = offsets + _dot(columns[:, split:], weights[:, split:])
    return Forecast(np.expm1(np.clip(scaled, 0, HIGHEST)), offsets, weights[:, split:])


def _season(grid: DemandGrid, lead: int, exceptions: frozenset[date]) -> list[Values]:
    """Return what the days before say about each step, in the order of _SEASONAL_GUESS."""
    half = _SMOOTHED // 2
    longer = grid.extended(half)  # or the last steps would change when others come after them
    local = local_steps(longer)
    day, week = (same_time_median(longer, local, ago, exceptions) for ago in (DAYS, WEEKS))
    around = sliding_window_view(np.pad(day, half, constant_values=np.nan), _SMOOTHED)
    smooth = np.median(np.where(np.isnan(around), day[:, None], around), axis=1)
    shapes = [day, smooth, np.where(np.isnan(week), day, week)]
    levels = [_shifted(_mean(day, span), lead) for span in _LEVELS]
    return [np.log1p(curve[: len(grid.values)]) for curve in shapes + levels]


def _weights(grid: DemandGrid, columns: Values, guess: Values, lead: int) -> Values:
    """Return the weights of the columns for each step: those of the hour in which it is asked for."""
    count, per_hour = len(columns), 3600 // grid.step
    hours = -(-count // per_hour)
    errors = np.log1p(grid.values) - _dot(columns, guess)
    known = ~np.isnan(errors)

    def hourly(rows: Values) -> Values:
        """Return the rows by hour, and 0 for those that are not known."""
        padded = np.zeros((hours * per_hour, *rows.shape[1:]))
        padded[:count][known] = rows[known]
        return padded.reshape(hours, per_hour, *rows.shape[1:])

    steps = hourly(np.ones(count)).sum(axis=1)

    def mean(rows: Values) -> Values:
        """Return for each step the mean of the rows up to the end of its hour."""
        means = np.cumsum(hourly(rows).sum(axis=1)) / np.maximum(np.cumsum(steps), 1)
        return np.repeat(means, per_hour)[:count]

    most = _CLIP * mean(np.abs(errors))
    usual = np.expm1(mean(np.log1p(grid.values)))
    share = np.sqrt(1 + np.minimum(grid.values, _HEAVIEST * usual))
    left = hourly(columns * share[:, None])
    right = hourly(np.clip(errors, -most, most) * share)
    squares = _windows(np.einsum("hik,hil->hkl", left, left)) + _RIDGE * np.eye(columns.shape[1])
    products = _windows(np.einsum("hik,hi->hk", left, right))
    weights = guess + np.linalg.solve(squares, products[:, :, None])[:, :, 0]
    weights[_windows(steps) < _LEAST_STEPS] = guess
    return np.asarray(weights[np.maximum(np.arange(count) - lead + 1, 0) // per_hour])


def _windows(hourly: Values) -> Values:
    """Return for each hour the sum over those that its asks know, which end an hour before it begins."""
    sums = np.concatenate([np.zeros((1, *hourly.shape[1:])), np.cumsum(hourly, axis=0)])
    end = np.maximum(np.arange(len(hourly)) - 1, 0)
    windows: Values = sums[end] - sums[np.maximum(end - _WINDOW, 0)]
    return windows


def _dot(columns: Values, weights: Values) -> Values:
    """Return the sum of each row, which does not depend on other rows as a product of matrices may."""
    return np.asarray((columns * weights).sum(axis=1))


def _mean(values: Values, span: int) -> Values:
    """Return the mean of what is known of the last `span` steps, NaN for none."""
    known = ~np.isnan(values)
    sums, counts = np.cumsum(np.where(known, values, 0)), np.cumsum(known)
    sums[span:] -= sums[:-span].copy()
    counts[span:] -= counts[:-span].copy()
    return np.where(counts > 0, np.maximum(sums, 0) / np.maximum(counts, 1), np.nan)


def _shifted(values: Values, steps: int) -> Values:
    return np.concatenate([np.full(steps, np.nan), values])[: len(values)]


def continued(forecast: Forecast, values: Values, lead: int) -> Values:
    """Return the forecast with the steps that are more than `lead` after the last of `values`.

    Of those the demand before them is not known: the forecast of it takes its place.
    """
    known = len(values)
    curve = forecast.values.copy()
    demand = np.concatenate([values, curve[known:]])
    for place in range(known + lead, len(curve)):
        before = demand[max(0, place - lead + 1 - max(SPANS)) : place - lead + 1]
        recent = np.array([_mean(before, span)[-1] for span in SPANS])
        scaled = forecast.offsets[place] + (forecast.weights[place] * np.log1p(recent)).sum()
        curve[place] = demand[place] = np.expm1(np.clip(scaled, 0, HIGHEST))
    return curve


CANDIDATES: Mapping[str, Candidate] = {"season": season}
