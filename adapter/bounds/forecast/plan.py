"""The plan of an hour: what a forecast says about its steps, from which a scaler makes its minimums.

A plan is made in the hour before, from the demand up to the beginning of that. So there is an hour to make it
in, and a scaler that follows plans has the minimums that a replay of the same demand computes. What a plan
cannot know is the demand of the last minutes: the scaler adds that, step by step.
"""

import math
from collections import deque
from collections.abc import Sequence

import msgspec

from adapter.bounds.forecast.minimum import Account, Day, Limits, MinimumFollower

HOUR = 3600


class Plan(msgspec.Struct, frozen=True):
    """The plan of one hour, counted since 1970; `step` is in seconds.

    `forecast` has, for each step of the hour, the demand of the step `limits.lead` later, None if unknown;
    without a plan of a season it is empty, and the rise of the last steps goes on. `margin` is added to the
    square root of that for the upper bound, and `low` for the lower one; None for none. `account` is that of
    the beginning of the hour before, for a scaler that has none of its own.
    """

    hour: int
    step: int
    candidate: str
    limits: Limits
    forecast: tuple[float | None, ...] = ()
    margin: float | None = None
    low: float | None = None
    account: Account | None = None

    @property
    def follows_trend(self) -> bool:
        return not self.forecast

    def bounds(self, index: int, demands: Sequence[float]) -> tuple[float, float]:
        """Return the upper and the lower bound of the step `limits.lead` after step `index`, NaN for none.

        `demands` are those of the steps before it, the last one last.
        """
        if self.follows_trend:
            demand: float | None = self._continued(demands)
        else:
            place = index - self.hour * HOUR // self.step
            demand = self.forecast[place] if 0 <= place < len(self.forecast) else None
        known = math.nan if demand is None else demand
        return moved(known, self.margin), moved(known, self.low)

    def _continued(self, demands: Sequence[float]) -> float:
        """Return the demand to which a rise leads that goes on as it was, NaN without a rise."""
        span = self.limits.lead + 1
        if len(demands) <= span:
            return math.nan
        last = demands[-1]
        rise = last - demands[-1 - span]
        return last + rise if rise > 0 else math.nan


def moved(demand: float, margin: float | None) -> float:
    """Return a demand with a margin added to its square root, NaN if one of them is unknown."""
    if margin is None or math.isnan(demand):
        return math.nan
    root = max(math.sqrt(demand) + margin, 0.0)
    return root * root


class PlannedMinimum:
    """The minimums of one autoscaler from the plans of its hours.

    `account` is that of the scaler before, None without one. It counts before that of a plan.
    """

    def __init__(self, step: int, account: Account | None = None) -> None:
        self._step = step
        self._former = account
        self._plans: dict[int, Plan] = {}
        self._demands: deque[float] = deque(maxlen=1)
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
        self._demands = deque(self._demands, max(plan.limits.lead + 2, self._demands.maxlen or 1))
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
