"""Upper quantiles of a forecast by adaptive conformal inference.

A point forecast says what is likely, a minimum has to be enough: at least a share `coverage` of the time the
demand must not exceed it. The margin is a quantile of how far the demand of the last days exceeded the
forecast (negative where it stayed below). If the errors of tomorrow were drawn as those of yesterday, the
`coverage` quantile would do. They are not, so the level adapts (Gibbs and Candès, 2021): after each step
that was covered the level falls a little, after one that was not it rises, in the ratio that balances at the
wanted coverage,

    level += RATE * (missed - (1 - coverage))

so over a long time the share that is covered comes to `coverage`, also where the errors change. The level
stays within half of what is left to 1 and to 0: bounds that were good for yesterday may be too low today, but
they are not to become so wide that they cover everything. Where that is not enough the coverage breaks, and
the minimum is withheld (`adapter.bounds.forecast.minimum`).

Errors are differences of log1p, the logarithm of the demand plus one pod. The noise of a load grows with it,
and the logarithm makes it even: one margin fits the night and the peak, and is good still when the level has
doubled. The pod is there because a demand of nearly nothing has nearly no logarithm.

The lower bound is a quantile as it is: under it is less than LOW of the demand of the last days.

Margins change once an hour, and those of an hour come from the demand up to the hour before it. So there is
an hour in which they can be made, and a live scaler has the same ones as a replay.
"""

import math
from typing import Final, NamedTuple

import numpy as np

from adapter.bounds.forecast.plan import HIGHEST
from fastpath_forecast.grid import DemandGrid, Values

RATE: Final = 0.005
"""How far the level moves, at most, after a step."""

LEAST_ERRORS: Final = 30
"""With fewer known errors nothing is said."""

LOW: Final = 0.02
"""The share of the known errors that are under the lower bound."""

WINDOW: Final = 7 * 24 * 3600
"""For how many seconds an error counts."""


class Margins(NamedTuple):
    """The margins of the hours from `first` on, in hours since 1970; NaN where too few errors are known.

    `lows` are those of the lower bounds.
    """

    first: int
    values: tuple[float, ...]
    lows: tuple[float, ...]

    def at(self, hour: int) -> tuple[float, float]:
        """Return the margins of the upper and the lower bound in an hour, NaN for none."""
        place = hour - self.first
        if 0 <= place < len(self.values):
            return self.values[place], self.lows[place]
        return math.nan, math.nan


def build_margins(grid: DemandGrid, forecast: Values, lead: int, coverage: float) -> Margins:
    """Return the margins of the hours of a grid and of the two after it.

    `forecast` has what was said about each step, and a bound is asked for `lead` steps before its step. The
    grid begins with an hour.
    """
    per_hour = 3600 // grid.step
    errors = np.log1p(grid.values) - np.log1p(forecast[: len(grid.values)])
    level, first = coverage, grid.start // 3600
    margins: list[float] = []
    lows: list[float] = []
    # The asks of an hour are about steps up to `lead` later, so the margin of a step is known by its ask.
    hours = len(grid.values) // per_hour + 2
    done = 0
    for hour in range(hours):
        known = min(max(0, hour - 1) * per_hour, len(grid.values))
        for place in range(done, known, per_hour):
            level += _moved(errors[place : place + per_hour], margins, place - lead, per_hour, coverage)
            level = min(max(level, coverage / 2), (1 + coverage) / 2)
        done = known
        oldest = max(0, known - WINDOW // grid.step)
        margin, low = _quantiles(errors[oldest:known], level, LOW)
        margins.append(margin)
        lows.append(low)
    return Margins(first, tuple(margins), tuple(lows))


def build_bounds(
    grid: DemandGrid, forecast: Values, lead: int, margins: Margins, *, lower: bool = False
) -> Values:
    """Return the upper bound of each step, as it was asked for `lead` steps before it, or the lower one."""
    hours = (grid.start // grid.step + np.arange(len(forecast)) - lead) * grid.step // 3600 - margins.first
    listed = np.array([*(margins.lows if lower else margins.values), np.nan])
    margin = listed[np.where((hours >= 0) & (hours < len(margins.values)), hours, -1)]
    bounds: Values = np.expm1(np.clip(np.log1p(forecast) + margin, 0, HIGHEST))
    return bounds


def _moved(errors: Values, margins: list[float], first_ask: int, per_hour: int, coverage: float) -> float:
    """Return by how much the steps of an hour move the level; `first_ask` is when the first was asked for."""
    asks = (first_ask + np.arange(len(errors))) // per_hour
    listed = np.array([*margins, np.nan])
    margin = listed[np.where(asks >= 0, asks, -1)]
    compared = ~np.isnan(errors) & ~np.isnan(margin)
    missed = int((errors[compared] > margin[compared]).sum())
    return RATE * (missed - (1 - coverage) * int(compared.sum()))


def _quantiles(errors: Values, *levels: float) -> list[float]:
    """Return quantiles of the known errors, of two the higher; NaN where too few are known."""
    known = errors[~np.isnan(errors)]
    if len(known) < LEAST_ERRORS:
        return [math.nan] * len(levels)
    places = [math.ceil(level * (len(known) - 1)) for level in levels]
    return [float(quantile) for quantile in np.partition(known, places)[places]]
