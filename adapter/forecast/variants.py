"""A candidate with a coverage: the bounds that it gives each step, and the floors that come of them.

`prepare` chooses the coverage of a candidate by an estimate on the grid: the largest gain that the budget
allows. The estimate only ranks; what a candidate is worth is for the replay (`judge`).
"""

import math
from typing import Final, NamedTuple

import numpy as np

from adapter.forecast import conformal
from adapter.forecast.candidates import CANDIDATES
from adapter.forecast.conformal import Margins
from adapter.forecast.grid import DemandGrid, Values
from adapter.model.forecasts.floors import Account, FloorFollower, Limits
from adapter.model.forecasts.settings import ForecastSettings

COVERAGES: Final = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)

HEADROOM: Final = 0.85
"""The share of the budget that an estimate may use: days differ, and an exceeded budget withholds floors."""

_REACTION: Final = 7
"""Seconds from a rise of the load to a written count."""


class Span(NamedTuple):
    """Steps of a grid, the end exclusive."""

    begin: int
    end: int


class Variant(NamedTuple):
    """A candidate with a coverage.

    `forecast` and `bounds` are about each step of the grid and of a lead after it. `floors` are those of
    the steps of the grid, and `withheld` says why one was withheld, "" if it was not. `account` is that of
    the end of the grid.
    """

    name: str
    coverage: float
    forecast: Values
    margins: Margins
    bounds: Values
    floors: list[int]
    withheld: list[str]
    account: Account


def prepare(
    grid: DemandGrid,
    name: str,
    limits: Limits,
    settings: ForecastSettings,
    start_up: int,
    judged: Span,
    recent: Span,
) -> Variant:
    """Return a candidate with the coverage that promises most."""
    forecast = forecast_of(grid, name, limits, settings, limits.lead)
    reactive = reacted(grid, limits)
    none = [estimate(grid, reactive, start_up, span) for span in (judged, recent)]
    best: tuple[float, float] | None = None
    for coverage in COVERAGES:
        margins = conformal.margins_of(grid, forecast, limits.lead, coverage)
        bounds = conformal.bounds_of(grid, forecast, limits.lead, margins)
        asked = np.maximum(reactive, held(_floors_of(bounds, limits), limits.hold))
        found = [estimate(grid, asked, start_up, span) for span in (judged, recent)]
        most = 1 + HEADROOM * settings.max_extra
        fits = all(each.pods <= most * before.pods for each, before in zip(found, none, strict=True))
        ranked = (found[0].shortage, coverage)
        if best is None or (fits and ranked < best):
            best = ranked
    assert best is not None
    return follow(grid, name, best[1], limits, settings)


def follow(
    grid: DemandGrid, name: str, coverage: float, limits: Limits, settings: ForecastSettings
) -> Variant:
    """Return a candidate with a given coverage."""
    forecast = forecast_of(grid, name, limits, settings, limits.lead)
    margins = conformal.margins_of(grid, forecast, limits.lead, coverage)
    bounds = conformal.bounds_of(grid, forecast, limits.lead, margins)
    follower = FloorFollower(limits._replace(coverage=coverage), 3600 // grid.step)
    first = grid.start // grid.step
    # When a step begins, the bound that is new is that of the step `lead` later.
    asked = bounds[limits.lead :].tolist()
    found: list[int] = []
    withheld: list[str] = []
    demand = math.nan
    for index, (after, bound) in enumerate(zip(grid.values.tolist(), asked, strict=True), first):
        found.append(follower.step(index, demand, bound))
        withheld.append(follower.withheld)
        demand = after
    return Variant(name, coverage, forecast, margins, bounds, found, withheld, follower.account)


def forecast_of(
    grid: DemandGrid, name: str, limits: Limits, settings: ForecastSettings, ahead: int = 0
) -> Values:
    """Return what a candidate says about each step of the grid and the `ahead` after it."""
    # When a step begins, the last known demand is that of the step before.
    return CANDIDATES[name](grid.extended(ahead), limits.lead + 1, settings.holidays)


class Estimate(NamedTuple):
    """Shortage in pod seconds, and pods in pod steps."""

    shortage: float
    pods: float


def estimate(grid: DemandGrid, asked: Values, start_up: int, span: Span) -> Estimate:
    """Return roughly what the counts `asked` for in each step come to in a span."""
    late = start_up + _REACTION
    before = -held(-asked, -(-late // grid.step) + 1)  # the least that was asked for since then
    missing = np.maximum(0, grid.values - before)[span.begin : span.end]
    return Estimate(
        float(np.nansum(missing)) * min(late, grid.step), float(asked[span.begin : span.end].sum())
    )


def reacted(grid: DemandGrid, limits: Limits) -> Values:
    """Return the counts that a reactive autoscaler has, one for each step."""
    needs = np.ceil(np.nan_to_num(grid.values, nan=0.0) - 1e-9)
    return np.clip(held(needs, limits.hold), limits.least, limits.most)


def held(values: Values, steps: int) -> Values:
    """Return the highest value of the last `steps` at each step."""
    found = values.copy()
    for back in range(1, min(steps, len(values))):
        np.maximum(found[back:], values[:-back], out=found[back:])
    return found


def _floors_of(bounds: Values, limits: Limits) -> Values:
    """Return the floors without the rules that withhold them."""
    ahead = np.nan_to_num(bounds, nan=0.0)[limits.lead :]
    return np.minimum(np.ceil(held(ahead, limits.lead + 1) - 1e-9), limits.most)
