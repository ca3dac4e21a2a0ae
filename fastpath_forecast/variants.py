"""A candidate with a coverage: the bounds that it gives each step, and the minimums that come of them.

`prepare` chooses the coverage of a candidate by an estimate on the grid: the largest gain that the budget
allows. The estimate only ranks; what a candidate is worth is for the replay (`judge`).
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np

from adapter.bounds.forecast.minimum import Account, CountModel, Limits, MinimumFollower
from adapter.bounds.forecast.verdict import SWITCH_MARGIN
from adapter.model.autoscaling.forecast import ForecastSettings
from fastpath_forecast import conformal
from fastpath_forecast.candidates import CANDIDATES, Forecast
from fastpath_forecast.grid import DemandGrid, Values

COVERAGES: Final = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98)

HEADROOM: Final = 0.85
"""The share of the budget that an estimate may use: days differ, and an exceeded one withholds minimums."""

_REACTION: Final = 7
"""Seconds from a rise of the load to a written count."""


class VariantSpan(NamedTuple):
    """Steps of a grid, the end exclusive."""

    begin: int
    end: int


class Variant(NamedTuple):
    """A candidate with a coverage, which is one of the limits of its minimums.

    `bounds` are about each step of the grid and of a lead after it. `minimums` are those of the steps of the
    grid, and `withheld` says why one was withheld, "" if it was not. `account` is that of the grid's end.
    """

    name: str
    limits: Limits
    bounds: Values
    minimums: list[int]
    withheld: list[str]
    account: Account


def prepare(
    grid: DemandGrid,
    name: str,
    limits: Limits,
    settings: ForecastSettings,
    start_up: int,
    judged: VariantSpan,
    recent: VariantSpan,
) -> Variant:
    """Return a candidate with the cheapest coverage of those that promise most."""
    forecast = build_forecast(grid, name, limits.lead, settings, limits.lead).values
    model = partial(estimate, grid, limits=limits, start_up=start_up, spans=(judged, recent))
    none = model([0] * len(grid.values))
    fitting: list[tuple[float, float]] = []
    most = 1 + HEADROOM * settings.max_extra
    for coverage in COVERAGES:
        margins = conformal.build_margins(grid, forecast, limits.lead, coverage)
        bounds = conformal.build_bounds(grid, forecast, limits.lead, margins)
        estimates = model(_plain_minimums(bounds, limits))
        if all(raised.pods <= most * before.pods for raised, before in zip(estimates, none, strict=True)):
            fitting.append((estimates[0].shortage, coverage))
    enough = min(fitting, default=(0.0, 0.0))[0] + SWITCH_MARGIN * none[0].shortage
    # The least coverage that brings nearly as much as the best. If none fits, the replay will say so.
    chosen = next((coverage for shortage, coverage in fitting if shortage <= enough), COVERAGES[0])
    return build(grid, name, limits._replace(coverage=chosen), settings)


def build(grid: DemandGrid, name: str, limits: Limits, settings: ForecastSettings) -> Variant:
    """Return a candidate with the coverage of the limits."""
    forecast = build_forecast(grid, name, limits.lead, settings, limits.lead).values
    margins = conformal.build_margins(grid, forecast, limits.lead, limits.coverage)
    bounds = conformal.build_bounds(grid, forecast, limits.lead, margins)
    follower = MinimumFollower(limits, 3600 // grid.step)
    first = grid.start // grid.step
    # When a step begins, the bound that is new is that of the step `lead` later.
    uppers = bounds[limits.lead :].tolist()
    lows = conformal.build_bounds(grid, forecast, limits.lead, margins, lower=True)[limits.lead :].tolist()
    minimums: list[int] = []
    withheld: list[str] = []
    demand = math.nan
    for index, (after, bound, low) in enumerate(zip(grid.values.tolist(), uppers, lows, strict=True), first):
        minimums.append(follower.step(index, demand, bound, low))
        withheld.append(follower.withheld)
        demand = after
    return Variant(name, limits, bounds, minimums, withheld, follower.account)


def build_forecast(
    grid: DemandGrid, name: str, lead: int, settings: ForecastSettings, ahead: int
) -> Forecast:
    """Return what a candidate says about each step of the grid and the `ahead` after it."""
    # When a step begins, the last known demand is that of the step before.
    return CANDIDATES[name](grid.extended(ahead), lead + 1, settings.holidays)


class Estimate(NamedTuple):
    """Shortage in pod seconds, and pods in pod steps."""

    shortage: float
    pods: float


def estimate(
    grid: DemandGrid, minimums: Sequence[int], limits: Limits, start_up: int, spans: Sequence[VariantSpan]
) -> list[Estimate]:
    """Return roughly what the minimums of the steps come to in some spans."""
    model = CountModel(limits)
    pods, replicas = [], []
    for demand, minimum in zip(grid.values.tolist(), minimums, strict=True):
        model.begin(minimum)
        pods.append(math.nan if math.isnan(demand) else sum(model.end(demand)))
        replicas.append(float(model.replicas))
    late = start_up + _REACTION
    ready = -_held(-np.array(replicas), -(-late // grid.step) + 1)  # the least that was asked for since then
    missing, ran = np.maximum(0, grid.values - ready) * min(late, grid.step), np.array(pods)
    return [
        Estimate(float(np.nansum(missing[begin:end])), float(np.nansum(ran[begin:end])))
        for begin, end in spans
    ]


def _held(values: Values, steps: int) -> Values:
    """Return the highest value of the last `steps` at each step."""
    highest = values.copy()
    for back in range(1, min(steps, len(values))):
        np.maximum(highest[back:], values[:-back], out=highest[back:])
    return highest


def _plain_minimums(bounds: Values, limits: Limits) -> list[int]:
    """Return the minimums without the rules that withhold them."""
    ahead = np.nan_to_num(bounds, nan=0.0)[limits.lead :]
    minimums: list[int] = np.ceil(_held(ahead, limits.lead + 1) - 1e-9).astype(int).tolist()
    return [min(minimum, limits.most) for minimum in minimums]
