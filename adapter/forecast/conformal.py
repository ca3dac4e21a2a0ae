"""Upper quantiles of a forecast by adaptive conformal inference.

A point forecast says what is likely, a floor has to be enough: at least a share `coverage` of the time the
demand must not exceed it. The margin is a quantile of how far the demand of the last days exceeded the
forecast (negative where it stayed below). If the errors of tomorrow were drawn as those of yesterday, the
`coverage` quantile would do. They are not, so the level adapts (Gibbs and Candès, 2021): after each step
that was covered the level falls a little, after one that was not it rises, in the ratio that balances at the
wanted coverage,

    level += rate * (missed - (1 - coverage))

so over a long time the share that is covered comes to `coverage` whatever the errors are. A level above 1
means that the greatest error known was not enough: then the greatest counts, and the coverage that is reached
says the rest.

All of it is causal: the bound for the step `i + lead` is computed at step `i`, from errors up to `i`.
"""

from typing import NamedTuple

import numpy as np

from adapter.forecast.grid import Values

RATE = 0.005
"""How far the level moves, at most, after a step."""

LEAST_ERRORS = 30
"""With fewer known errors nothing is said."""


class Bounds(NamedTuple):
    """The upper bound that each step has about the one `lead` later, NaN for none, and what came of it.

    `covered` and `judged` count the steps whose demand is known and had a bound.
    """

    upper: Values
    covered: int
    judged: int

    @property
    def coverage(self) -> float:
        return self.covered / self.judged if self.judged else float("nan")


def upper_bounds(
    values: Values, forecast: Values, lead: int, coverage: float, window: int, every: int = 1
) -> Bounds:
    """Return upper bounds of a forecast, `lead` steps ahead.

    The errors of the last `window` steps count. The margin is computed again every so many steps.
    """
    count = len(values)
    errors = np.full(count, np.nan)  # by the step at which the error is known
    errors[lead:] = values[lead:] - forecast[: count - lead]
    upper = np.full(count, np.nan)
    level, margin = coverage, np.nan
    covered = judged = 0
    for step in range(count):
        if step >= lead and not np.isnan(upper[step - lead]) and not np.isnan(values[step]):
            missed = bool(values[step] > upper[step - lead])
            judged += 1
            covered += not missed
            level += RATE * (missed - (1 - coverage))
        if step % every == 0 or np.isnan(margin):
            margin = _margin(errors[max(0, step + 1 - window) : step + 1], level)
        upper[step] = forecast[step] + margin
    return Bounds(np.maximum(upper, 0), covered, judged)


def _margin(errors: Values, level: float) -> float:
    known = errors[~np.isnan(errors)]
    if len(known) < LEAST_ERRORS:
        return float("nan")
    return float(np.quantile(known, min(max(level, 0.0), 1.0), method="higher"))
