"""Replays of the judged days, and what they come to.

What is missing is counted against a need of `maxReplicas` at most. No floor brings more, so one corrupt
sample or a peak above the maximum says nothing about a forecast. A shortage within the tolerance is counted
apart: an autoscaler leaves it as it is, and on which side of the tolerance a count comes to lie is chance.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable, Collection

from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.verdict import JUDGED_DAYS, RECENT_DAYS, CandidateFigures, ReplayFigures
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerBehavior
from fastpath_forecast.grid import DAY
from fastpath_forecast.simulate import simulation
from fastpath_forecast.simulate.deciders import Decider
from fastpath_forecast.simulate.policies import SimulatedPolicy
from fastpath_forecast.simulate.schedules import ForecastMinimums
from fastpath_forecast.simulate.simulation import Scenario

STEP = 60
"""Seconds of a step."""

Check = Callable[[int], None]
"""Is called between parts of the work, with the pods that a replay has now or 0; raises to give it up."""


def go_on(pods: int) -> None:
    """Never give up."""


class SplitFigures:
    """Sums the figures of a run, and those from the second `recent` on; only of some `days`, None for all."""

    def __init__(
        self, recent: int, limits: Limits, check: Check = go_on, days: Collection[int] | None = None
    ) -> None:
        self._recent = recent
        self._days = days
        self._limits = limits
        self._check = check
        self._sums = [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        self.seconds_at: Counter[int] = Counter()
        """How many seconds each count ran."""

    @property
    def whole(self) -> ReplayFigures:
        return ReplayFigures(*map(sum, zip(*self._sums, strict=True)))

    @property
    def recent(self) -> ReplayFigures:
        return ReplayFigures(*self._sums[1])

    def stretch(self, second: int, seconds: int, need: float, ready: int, replicas: int) -> None:
        self._check(replicas)
        if self._days is None:
            self._add(second, seconds, need, ready, replicas)
            return
        end = second + seconds
        while second < end:
            day = second // DAY
            until = min(end, (day + 1) * DAY)
            if day in self._days:
                self._add(second, until - second, need, ready, replicas)
            second = until

    def _add(self, second: int, seconds: int, need: float, ready: int, replicas: int) -> None:
        self.seconds_at[replicas] += seconds
        missing = min(need, self._limits.most) - ready
        is_tolerated = need <= ready * self._limits.high
        before = min(seconds, max(0, self._recent - second))
        for sums, part in zip(self._sums, (before, seconds - before), strict=True):
            sums[1] += part * replicas
            if missing > 0:  # not in a gap, where the need is NaN
                sums[2 if is_tolerated else 0] += part * missing

    def decided(self, place: int, decider: Decider) -> None:
        """Do nothing: decisions have no cost of their own."""


class JudgedDays:
    """Replays the whole of a scenario's loads, the judged days; figures are those of the `counted` ones."""

    def __init__(
        self,
        scenario: Scenario,
        policy: SimulatedPolicy,
        limits: Limits,
        check: Check,
        counted: Collection[int] | None = None,
    ) -> None:
        self.scenario = dataclasses.replace(scenario, phases=1)
        self.policy = policy
        self._limits = limits
        self._check = check
        self._counted = counted
        self.seconds_at: Counter[int] = Counter()
        """How many seconds each count ran in the last replay."""

    def run(
        self,
        name: str,
        minimums: ForecastMinimums | None = None,
        policy: SimulatedPolicy | None = None,
        behavior: HorizontalPodAutoscalerBehavior | None = None,
    ) -> CandidateFigures:
        """Return the figures with the minimums of a forecast, or with another policy or behavior."""
        split = SplitFigures((JUDGED_DAYS - RECENT_DAYS) * DAY, self._limits, self._check, self._counted)
        scenario = dataclasses.replace(self.scenario, forecast=minimums)
        simulation.simulate(scenario, policy or self.policy, behavior, observer=split)
        self.seconds_at = split.seconds_at
        return CandidateFigures(name, split.whole, split.recent)
