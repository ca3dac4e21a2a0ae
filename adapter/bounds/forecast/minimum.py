"""From upper bounds of the demand to a minimum: what is asked for ahead of it, and what withholds it.

Time is cut into steps of equal length, counted since 1970. The demand of a step is in pods: how many at the
target it needs, not rounded. When a step begins, the demand of the step before is known, and a plan has an
upper bound of the demand `lead` steps later, the time that pods take to be Ready. The minimum covers that
bound, and the bounds of the steps on the way there: a pod that was asked for must still be there when its
step comes.

A minimum only ever costs money: it lowers nothing, and metrics raise above it as before. So rules limit what
it may cost. They act when a step begins:

- *Budget*: the pods that the minimum added, over the pods that would have run without it. Both are counted by
  a model (`CountModel`). A minimum that would exceed SPENT of `max_extra` is withheld, until it is at CHEAP
  of that. Two spans count: the last 24 hours, and the local day. What is left of the day counts with the
  least that the day has needed so far, so a quiet day gets a small budget from its beginning.
- *Coverage*: the share of steps of the last day whose demand stayed within its bound. When it is BROKEN below
  what the bounds were made for, the past no longer tells the future, and the minimum is withheld until it is
  within RESTORED.
- *Absence*: the demand that was expected does not come, as on a holiday that the settings do not name. A plan
  has lower bounds too, under which hardly any demand of the last days was. When the demand is under them in
  MOST_LOW of the last RECENT steps, the minimum is withheld until it is in FEW_LOW of them at most.

While the demand is not known there is no minimum: nothing would tell that it is wrong.
"""

import functools
import math
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from adapter.model import local_time

HOURS = 24
"""For so many hours budget and coverage look back, beside the one that is not over."""

SPENT, CHEAP = 0.9, 0.7
"""The share of the budget at which a minimum is withheld, for the model may be wrong, and comes back."""

BROKEN, RESTORED = 0.2, 0.1
"""How far the coverage may be below the wanted one before a minimum is withheld, and when it comes back."""

RECENT, MOST_LOW, FEW_LOW = 20, 15, 2
"""Of how many steps how many may be lower than expected; with FEW_LOW of them a minimum comes back."""

LEAST_JUDGED = 60
"""With fewer bounds to compare in the last day the coverage is not known."""

BUDGET, COVERAGE, ABSENT, UNKNOWN = "BudgetExceeded", "CoverageBroken", "DemandAbsent", "DemandUnknown"
"""Why a minimum is withheld."""


_UNKNOWN_BOUNDS = math.nan, math.nan


class Limits(NamedTuple):
    """What a minimum is bound to. `least` and `most` are the bounds of the replicas; spans are in steps.

    `hold` is the window in which a scale-down waits, at least 1. `max_extra` is a share. `low` and `high`
    are the ratios within tolerance. `ratio` is how many pods ran in a replay without a minimum, of those
    that `CountModel` expects. `zone` is the name of the time zone whose days count.
    """

    least: int
    most: int
    lead: int
    hold: int
    coverage: float
    max_extra: float
    low: float = 0.9
    high: float = 1.1
    ratio: float = 1.0
    zone: str = "UTC"


class Hour(msgspec.Struct, array_like=True):
    """What one hour came to: pod steps that a minimum added and those without it, bounds kept and compared.

    `least` are the fewest pods without a minimum, None before the first step.
    """

    number: int
    extra: float = 0.0
    pods: float = 0.0
    covered: int = 0
    judged: int = 0
    least: float | None = None


class Account(msgspec.Struct):
    """The hours of the last day, oldest first, and why the minimum is withheld, "" if it is not.

    `low` is in how many of the last RECENT steps less demand came than was expected.
    """

    hours: list[Hour] = []
    withheld: str = ""
    low: int = 0


class Day(NamedTuple):
    extra: float = 0.0
    pods: float = 0.0
    covered: int = 0
    judged: int = 0

    @property
    def share(self) -> float:
        """What the minimum cost, as a share of the pods without it."""
        return self.extra / self.pods if self.pods else 0.0

    @property
    def coverage(self) -> float | None:
        """The share of bounds that were kept; None while too few are known."""
        return self.covered / self.judged if self.judged >= LEAST_JUDGED else None


class CountModel:
    """The replicas of an autoscaler with a minimum and without it, step by step, as far as the demand tells.

    Where a count is within tolerance of the demand, it stays as it is. It falls to the highest demand within
    the window in which a scale-down waits.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.without = self.replicas = 0
        """The counts without a minimum, and with it."""
        self._demands: deque[float] = deque(maxlen=limits.hold)
        self._minimums: deque[int] = deque([0], maxlen=limits.hold)

    def adopt(self, limits: Limits) -> None:
        self.limits = limits
        self._demands = deque(self._demands, limits.hold)
        self._minimums = deque(self._minimums, limits.hold)

    def begin(self, minimum: int) -> None:
        self._minimums.append(minimum)

    def end(self, demand: float) -> tuple[float, float]:
        """Take the demand of the step that has ended; return its pods without a minimum, and those added."""
        limits = self.limits
        self._demands.append(demand)
        peak, minimum = max(self._demands), max(self._minimums)
        self.without = self._next(self.without, demand, peak)
        self.replicas = max(self._next(self.replicas, demand, peak), minimum)
        expected = self.expected
        if minimum <= expected:  # metrics made the count, and the model is as wrong about it with a minimum
            return expected, max(0.0, (self.replicas - self.without) * limits.ratio)
        return expected, max(0.0, self.replicas - expected)

    @property
    def expected(self) -> float:
        """The replicas without a minimum, as a replay has found them on average."""
        return max(self.limits.least, self.without * self.limits.ratio)

    def _next(self, count: int, demand: float, peak: float) -> int:
        limits = self.limits
        if demand > count * limits.high:
            count = _pods(demand)
        elif peak < count * limits.low:
            count = _pods(peak)
        return min(max(count, limits.least), limits.most)


class MinimumFollower:
    """Follows the demand of one autoscaler step by step. `steps_an_hour` is how many steps an hour has."""

    def __init__(self, limits: Limits, steps_an_hour: int, account: Account | None = None) -> None:
        account = account or Account()
        self.withheld = account.withheld
        """Why there is no minimum although a plan has bounds; "" if nothing withholds it."""
        self.limits = limits
        self._per_hour = steps_an_hour
        self._hours = deque(map(msgspec.structs.replace, account.hours), HOURS + 1)
        self._past = self._today = Day()
        """The sums of the hours before this one: of the last day, and of the local day."""
        self._least_today: float = math.inf
        self._left = 0
        """The whole hours that are left of the local day."""
        self._look_back()
        self._index: int | None = None
        self._ahead = deque([_UNKNOWN_BOUNDS] * limits.lead)
        """When a step begins, the upper and lower bounds of that step and of those up to the lead."""
        # Which of the steps were low is not known any more: they count for as long as any of them may.
        self._low = deque([False] * (RECENT - account.low) + [True] * account.low, RECENT)
        """Whether the demand of each recent step was lower than expected."""
        self._model = CountModel(limits)

    @property
    def account(self) -> Account:
        return Account([*map(msgspec.structs.replace, self._hours)], self.withheld, sum(self._low))

    @property
    def day(self) -> Day:
        return _with(self._past, self._hours[-1]) if self._hours else self._past

    def adopt(self, limits: Limits) -> None:
        """Go on with other limits. A change of the lead forgets the bounds that are ahead."""
        if limits.lead != self.limits.lead:
            self._ahead = deque([_UNKNOWN_BOUNDS] * limits.lead)
        self._model.adopt(limits)
        self.limits = limits

    def step(self, index: int, demand: float, bound: float, low: float = math.nan) -> int:
        """Return the minimum of the step that begins, 0 for none.

        `demand` is that of the step before, `bound` and `low` are the upper and the lower bound of the step
        `lead` later; NaN if it is not known. Steps that were left out had an unknown demand and no bound.
        """
        if self._index is not None:
            for _ in range(min(index - self._index - 1, self.limits.lead + self.limits.hold + 1)):
                self._end(index - 1, math.nan)
                self._ahead.append(_UNKNOWN_BOUNDS)
                self._model.begin(0)
        self._index = index
        self._end(index - 1, demand)
        self._ahead.append((bound, low))
        highest = max((upper for upper, _ in self._ahead if not math.isnan(upper)), default=0.0)
        minimum = self._allowed(min(_pods(highest), self.limits.most), known=not math.isnan(demand))
        self._model.begin(minimum)
        return minimum

    def _end(self, index: int, demand: float) -> None:
        bound, low = self._ahead.popleft() if len(self._ahead) > self.limits.lead else _UNKNOWN_BOUNDS
        if math.isnan(demand):
            return
        hour = self._hour(index // self._per_hour)
        without, extra = self._model.end(demand)
        hour.pods += without
        hour.least = without if hour.least is None else min(hour.least, without)
        hour.extra += extra
        if not math.isnan(bound):
            hour.judged += 1
            hour.covered += demand <= bound
        if not math.isnan(low):
            self._low.append(demand < low)

    def _hour(self, number: int) -> Hour:
        hours = self._hours
        if not hours or hours[-1].number != number:
            while hours and hours[0].number < number - HOURS:
                hours.popleft()
            hours.append(Hour(number))
            self._look_back()
        return hours[-1]

    def _look_back(self) -> None:
        if not self._hours:
            return
        listed = list(self._hours)
        now, zone = listed.pop(), ZoneInfo(self.limits.zone)
        today, hour_of_day = divmod(_local(now.number, zone), 24)
        same = [hour for hour in listed if _local(hour.number, zone) // 24 == today]
        self._past, self._today = _sum(listed), _sum(same)
        self._least_today = min((hour.least for hour in same if hour.least is not None), default=math.inf)
        self._left = 23 - hour_of_day

    def _allowed(self, wanted: int, *, known: bool) -> int:
        before, self.withheld = self.withheld, ""
        if not known:
            self.withheld = UNKNOWN
            return 0
        limits, day = self.limits, self.day
        least = limits.coverage - (RESTORED if before == COVERAGE else BROKEN)
        more = max(0.0, wanted - self._model.expected) * limits.hold  # for so long the pods stay
        if day.coverage is not None and day.coverage < least:
            self.withheld = COVERAGE
        elif sum(self._low) >= (FEW_LOW + 1 if before == ABSENT else MOST_LOW):
            self.withheld = ABSENT
        elif self._exceeds(more, limits.max_extra * (CHEAP if before == BUDGET else SPENT)):
            self.withheld = BUDGET
        return 0 if self.withheld else wanted

    def _exceeds(self, more: float, share: float) -> bool:
        """Tell whether `more` pod steps exceed a share of those of the last day, or of the local day."""
        day = self.day
        if day.extra + more > share * day.pods:
            return True
        hour = self._hours[-1]
        today = _with(self._today, hour)
        least = min(self._least_today, hour.least or 0.0)
        return today.extra + more > share * (today.pods + least * self._left * self._per_hour)


def _sum(hours: Iterable[Hour]) -> Day:
    return functools.reduce(_with, hours, Day())


def _with(day: Day, hour: Hour) -> Day:
    return Day(
        day.extra + hour.extra, day.pods + hour.pods, day.covered + hour.covered, day.judged + hour.judged
    )


def _local(hour: int, zone: ZoneInfo) -> int:
    """Return an hour since 1970 on the clock of a zone."""
    return hour + local_time.offset_at(hour * 3600, zone) // 3600


def _pods(demand: float) -> int:
    return math.ceil(demand - _ROUNDING)


_ROUNDING = 1e-9
"""Demand and bounds are sums and quotients of decimal numbers: 3.0000000000000004 pods are 3."""
