"""What the demand may be one lead time from now: the candidates among which replay chooses.

A candidate says something about a step from the demand up to `lead` steps before it alone, and NaN where it
says nothing. None of them is trusted: `adapter.forecast.judge` replays the decisions that each of them would
have led to.

- ``day``: as yesterday at the same local time.
- ``week``: as a week ago at the same local time.
- ``weeks``: the median of the same local time in the last weeks.
- ``trend``: the change over the last lead time goes on for one more, if it is a rise.

Days in `exceptions`, such as holidays, are no example for others, and nothing is said about them.
"""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

import numpy as np
from numpy.typing import NDArray

from adapter.forecast.grid import DAY, DemandGrid, Positions, Values, local_steps, positions_before

WEEKS: Final = 4
"""How many weeks `weeks` looks back."""

Candidate = Callable[[DemandGrid, int, frozenset[date]], Values]


def by_day(grid: DemandGrid, lead: int, exceptions: frozenset[date]) -> Values:
    """Return the forecast of each step, made `lead` steps before it, at most a day."""
    return _seasonal(grid, lead, exceptions, (1,))


def by_week(grid: DemandGrid, lead: int, exceptions: frozenset[date]) -> Values:
    return _seasonal(grid, lead, exceptions, (7,))


def by_weeks(grid: DemandGrid, lead: int, exceptions: frozenset[date]) -> Values:
    return _seasonal(grid, lead, exceptions, tuple(7 * week for week in range(1, WEEKS + 1)))


def by_trend(grid: DemandGrid, lead: int, exceptions: frozenset[date]) -> Values:  # noqa: ARG001 - of all candidates
    values = grid.values
    forecast = np.full_like(values, np.nan)
    last, before = values[lead : len(values) - lead], values[: len(values) - 2 * lead]
    forecast[2 * lead :] = continued(last, before)
    return forecast


def continued(last: Values, before: Values) -> Values:
    """Return the demand to which a rise leads that goes on as it was; NaN where it is no rise."""
    rise = last - before
    return np.where(rise > 0, last + rise, np.nan)


CANDIDATES: Mapping[str, Candidate] = {
    "day": by_day,
    "week": by_week,
    "weeks": by_weeks,
    "trend": by_trend,
}


def _seasonal(grid: DemandGrid, lead: int, exceptions: frozenset[date], days: tuple[int, ...]) -> Values:
    if not 0 < lead * grid.step < DAY:
        raise ValueError(f"a lead of {lead * grid.step} s: expected more than 0 s and less than a day")
    local = local_steps(grid)
    excepted = _excepted(local, grid.step, exceptions)
    values = np.where(excepted, np.nan, grid.values)
    samples = np.stack([_at(values, positions_before(local, grid.step, ago)) for ago in days])
    known = ~np.isnan(samples).all(axis=0)
    forecast = np.full(len(values), np.nan)
    forecast[known] = np.nanmedian(samples[:, known], axis=0)
    forecast[excepted] = np.nan
    return forecast


def _at(values: Values, positions: Positions) -> Values:
    return np.where(positions >= 0, values[np.maximum(positions, 0)], np.nan)


def _excepted(local: Positions, step: int, exceptions: frozenset[date]) -> NDArray[np.bool_]:
    """Return which steps are on one of the local dates."""
    epoch = date(1970, 1, 1)
    days = [(day - epoch).days for day in exceptions]
    return np.isin(local * step // DAY, days)
