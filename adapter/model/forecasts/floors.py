"""From upper bounds of the demand to a floor: what is asked for ahead of it, and what withholds it.

Time is cut into steps of equal length, counted since 1970. The demand of a step is in pods: how many at the
target it needs, not rounded. When a step begins, the demand of the step before is known, and a plan has an
upper bound of the demand `lead` steps later, the time that pods take to be Ready. The floor covers that
bound, and the bounds of the steps on the way there: a pod that was asked for must still be there when its
step comes.

A floor only ever costs money: it lowers nothing, and metrics raise above it as before. So two rules limit
what it may cost. Both look at the last day, and both act when a step begins, which is before the pods of a
floor that is wrong are Ready:

- *Budget*: the pods that the floor added, over the pods that would have run without it. Those are the highest
  demand within the window in which a scale-down waits, as a reactive autoscaler has them. A floor that would
  exceed `max_extra` is withheld, until the last day is at CHEAP of that again.
- *Coverage*: the share of steps whose demand stayed within its bound. When it is BROKEN below what the bounds
  were made for, the past no longer tells the future, and the floor is withheld until it is within RESTORED.

While the demand is not known there is no floor: nothing would tell that it is wrong.
"""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

HOURS = 24
"""For so many hours the two rules look back, beside the one that is not over."""

CHEAP = 0.8
"""A floor that was withheld for its cost comes back at this share of the budget."""

BROKEN, RESTORED = 0.2, 0.1
"""How far the coverage may be below the wanted one before a floor is withheld, and when it comes back."""

LEAST_JUDGED = 60
"""With fewer bounds to compare in the last day the coverage is not known."""

BUDGET, COVERAGE, UNKNOWN = "BudgetExceeded", "CoverageBroken", "DemandUnknown"
"""Why a floor is withheld."""


class Limits(NamedTuple):
    """What a floor is bound to. `least` and `most` are the bounds of the replicas; spans are in steps.

    `hold` is the window in which a scale-down waits, at least 1. `max_extra` is a share.
    """

    least: int
    most: int
    lead: int
    hold: int
    coverage: float
    max_extra: float


class Hour(msgspec.Struct, array_like=True):
    """What one hour came to: pod steps that a floor added and those without it, bounds kept and compared."""

    number: int
    extra: float = 0.0
    pods: float = 0.0
    covered: int = 0
    judged: int = 0


class Account(msgspec.Struct):
    """The hours of the last day, oldest first, and why the floor is withheld, "" if it is not."""

    hours: list[Hour] = []
    withheld: str = ""


class Day(NamedTuple):
    """The sums of the last day."""

    extra: float
    pods: float
    covered: int
    judged: int

    @property
    def share(self) -> float:
        """What the floor cost, as a share of the pods without it."""
        return self.extra / self.pods if self.pods else 0.0

    @property
    def coverage(self) -> float | None:
        """The share of bounds that were kept; None while too few are known."""
        return self.covered / self.judged if self.judged >= LEAST_JUDGED else None


class FloorFollower:
    """Follows the demand of one autoscaler step by step. `steps_an_hour` is how many steps an hour has."""

    def __init__(self, limits: Limits, steps_an_hour: int, account: Account | None = None) -> None:
        account = account or Account()
        self.withheld = account.withheld
        """Why there is no floor although a plan has bounds; "" if nothing withholds it."""
        self.limits = limits
        self._per_hour = steps_an_hour
        self._hours = deque(map(msgspec.structs.replace, account.hours), HOURS + 1)
        self._past = _sum(account.hours[:-1])
        self._index: int | None = None
        self._ahead = deque([math.nan] * limits.lead)
        """When a step begins, the bounds of that step and of those up to the lead."""
        self._needs: deque[int] = deque(maxlen=limits.hold)
        self._floors: deque[int] = deque([0], maxlen=limits.hold)

    @property
    def account(self) -> Account:
        return Account([*map(msgspec.structs.replace, self._hours)], self.withheld)

    @property
    def day(self) -> Day:
        """The sums of the last day."""
        if not self._hours:
            return self._past
        past, hour = self._past, self._hours[-1]
        return Day(
            past.extra + hour.extra,
            past.pods + hour.pods,
            past.covered + hour.covered,
            past.judged + hour.judged,
        )

    def adopt(self, limits: Limits) -> None:
        """Go on with other limits. A change of the lead forgets the bounds that are ahead."""
        if limits.lead != self.limits.lead:
            self._ahead = deque([math.nan] * limits.lead)
        self._needs = deque(self._needs, limits.hold)
        self._floors = deque(self._floors, limits.hold)
        self.limits = limits

    def step(self, index: int, demand: float, bound: float) -> int:
        """Return the floor of the step that begins, 0 for none.

        `demand` is that of the step before and `bound` that of the step `lead` later, NaN if it is not known.
        Steps that were left out had an unknown demand and no bound.
        """
        if self._index is not None:
            for _ in range(min(index - self._index - 1, self.limits.lead + self.limits.hold + 1)):
                self._end(index - 1, math.nan)
                self._ahead.append(math.nan)
                self._floors.append(0)
        self._index = index
        self._end(index - 1, demand)
        self._ahead.append(bound)
        highest = max((each for each in self._ahead if not math.isnan(each)), default=0.0)
        floor = self._allowed(min(_pods(highest), self.limits.most), known=not math.isnan(demand))
        self._floors.append(floor)
        return floor

    def _end(self, index: int, demand: float) -> None:
        """Count the step that has ended."""
        bound = self._ahead.popleft() if len(self._ahead) > self.limits.lead else math.nan
        if math.isnan(demand):
            return
        hour = self._hour(index // self._per_hour)
        self._needs.append(_pods(demand))
        without = self._without()
        hour.pods += without
        hour.extra += max(0, max(self._floors) - without)
        if not math.isnan(bound):
            hour.judged += 1
            hour.covered += demand <= bound

    def _hour(self, number: int) -> Hour:
        hours = self._hours
        if not hours or hours[-1].number != number:
            while hours and hours[0].number < number - HOURS:
                hours.popleft()
            self._past = _sum(hours)
            hours.append(Hour(number))
        return hours[-1]

    def _without(self) -> int:
        """Return the replicas that there would be without a floor."""
        return min(max(self.limits.least, *self._needs), self.limits.most)

    def _allowed(self, wanted: int, *, known: bool) -> int:
        """Return the floor that the rules allow."""
        before, self.withheld = self.withheld, ""
        if not known:
            self.withheld = UNKNOWN
            return 0
        limits, day = self.limits, self.day
        least = limits.coverage - (RESTORED if before == COVERAGE else BROKEN)
        budget = limits.max_extra * day.pods * (CHEAP if before == BUDGET else 1)
        if day.coverage is not None and day.coverage < least:
            self.withheld = COVERAGE
        elif day.extra + max(0, wanted - self._without()) > budget:
            self.withheld = BUDGET
        return 0 if self.withheld else wanted


def _sum(hours: Iterable[Hour]) -> Day:
    extra = pods = 0.0
    covered = judged = 0
    for hour in hours:
        extra, pods = extra + hour.extra, pods + hour.pods
        covered, judged = covered + hour.covered, judged + hour.judged
    return Day(extra, pods, covered, judged)


def _pods(demand: float) -> int:
    return math.ceil(demand - _ROUNDING)


_ROUNDING = 1e-9
"""Demand and bounds are sums and quotients of decimal numbers: 3.0000000000000004 pods are 3."""


def floors(
    demands: Sequence[float], bounds: Sequence[float], first: int, follower: FloorFollower
) -> list[int]:
    """Return the floors of consecutive steps, the first of which is step `first` since 1970.

    `demands` are those of the steps themselves, and `bounds` those that are known when each begins.
    """
    found = []
    before = math.nan
    for index, (demand, bound) in enumerate(zip(demands, bounds, strict=True), first):
        found.append(follower.step(index, before, bound))
        before = demand
    return found
