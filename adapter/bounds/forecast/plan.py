"""The plan of an hour: what a forecast says about its steps, from which a scaler makes its minimums.

A plan is made in the hour before, from the demand up to the beginning of that. So there is an hour to make it
in, and a scaler that follows plans has the minimums that a replay of the same demand computes. What a plan
cannot know is the demand of the last minutes: the scaler adds that, step by step.

Forecasts and margins are on the scale of log1p, the logarithm of the demand plus one pod. A margin is then a
share of the demand where there are many pods, and a number of pods where there are few.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Final

import msgspec

from adapter.bounds.forecast.minimum import Account, Day, Limits, MinimumFollower

HOUR = 3600

SPANS: Final = (1, 5, 30)
"""A forecast depends on the mean demand of so many last steps."""

HIGHEST: Final = 50.0
"""The highest forecast, on the scale of log1p: more pods than there are."""


class Plan(msgspec.Struct, frozen=True):
    """The plan of one hour, counted since 1970; `step` is in seconds.

    The forecast of a step is made `limits.lead` before it. It is `offsets`, one for each step of the hour in
    which it is made, None if unknown, plus `weights` times the means of the last demands, one for each of
    SPANS. `margin` is added for the upper bound, and `low` for the lower one; None for none. `account` is
    that of the beginning of the hour before, for a scaler that has none of its own.
    """

    hour: int
    step: int
    candidate: str
    limits: Limits
    offsets: tuple[float | None, ...] = ()
    weights: tuple[float, ...] = (0.0,) * len(SPANS)
    margin: float | None = None
    low: float | None = None
    account: Account | None = None

    def bounds(self, index: int, demands: Sequence[float]) -> tuple[float, float]:
        """Return the upper and the lower bound of the step `limits.lead` after step `index`, NaN for none.

        `demands` are those of the steps before it, the last one last.
        """
        place = index - self.hour * HOUR // self.step
        offset = self.offsets[place] if 0 <= place < len(self.offsets) else None
        if offset is None or math.isnan(demands[-1]):
            return math.nan, math.nan
        recent = zip(self.weights, SPANS, strict=True)
        scaled = offset + sum(weight * math.log1p(mean(demands[-span:])) for weight, span in recent)
        return moved(scaled, self.margin), moved(scaled, self.low)


def mean(demands: Sequence[float]) -> float:
    """Return the mean of the demands that are known, at least one."""
    known = [demand for demand in demands if not math.isnan(demand)]
    return sum(known) / len(known)


def moved(scaled: float, margin: float | None) -> float:
    """Return the demand of a forecast with a margin, NaN without one."""
    if margin is None:
        return math.nan
    return math.expm1(_clipped(_clipped(scaled) + margin))


def _clipped(scaled: float) -> float:
    return min(max(scaled, 0.0), HIGHEST)


class PlannedMinimum:
    """The minimums of one autoscaler from the plans of its hours.

    `account` is that of the scaler before, None without one. It counts before that of a plan.
    """

    def __init__(self, step: int, account: Account | None = None) -> None:
        self._step = step
        self._former = account
        self._plans: dict[int, Plan] = {}
        self._demands: deque[float] = deque(maxlen=max(SPANS))
        self._index: int | None = None
        self._follower: MinimumFollower | None = None
        self.minimum = 0
        """The minimum of the last step, 0 for none."""

    @property
    def plan(self) -> Plan | None:
        """The plan of the hour of the last step, None for none."""
        return None if self._index is None else self._plans.get(self._index * self._step // HOUR)

    @property
    def plans(self) -> Sequence[Plan]:
        """The plans of this hour and of later ones."""
        return tuple(self._plans.values())

    @property
    def account(self) -> Account | None:
        """The account as it is now, None before the first plan."""
        return self._former if self._follower is None else self._follower.account

    @property
    def withheld(self) -> str:
        """Why there is no minimum although there is a plan, "" if nothing withholds it."""
        return "" if self._follower is None or self.plan is None else self._follower.withheld

    @property
    def day(self) -> Day | None:
        """The sums of the last day, None before the first plan."""
        return None if self._follower is None else self._follower.day

    def take(self, plan: Plan) -> None:
        self._plans[plan.hour] = plan
        if self._follower is None:
            self._follower = MinimumFollower(plan.limits, HOUR // self._step, self._former or plan.account)

    def step(self, index: int, demand: float) -> int:
        """Return the minimum of the step that begins, 0 for none; `demand` is that of the step before."""
        for _ in range(min(index - (index if self._index is None else self._index) - 1, 100)):
            self._demands.append(math.nan)
        self._index = index
        self._demands.append(demand)
        hour = index * self._step // HOUR
        self._plans = {number: plan for number, plan in self._plans.items() if number >= hour}
        plan, follower = self._plans.get(hour), self._follower
        if follower is None:
            return 0
        if plan is not None and plan.limits != follower.limits:
            follower.adopt(plan.limits)
        bound, low = (math.nan, math.nan) if plan is None else plan.bounds(index, tuple(self._demands))
        self.minimum = follower.step(index, demand, bound, low)
        return self.minimum
