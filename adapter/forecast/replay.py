"""Replays of the judged days, and what they come to.

What is missing is counted against a need of `maxReplicas` at most. No floor brings more, so one corrupt
sample or a peak above the maximum says nothing about a forecast. A shortage within the tolerance is counted
apart: an autoscaler leaves it as it is, and on which side of the tolerance a count comes to lie is chance.
"""

import dataclasses
from collections import Counter
from collections.abc import Callable

from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.verdict import JUDGED_DAYS, RECENT_DAYS, CandidateFigures, ReplayFigures
from adapter.forecast.grid import DAY
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerBehavior
from adapter.simulate import simulation
from adapter.simulate.deciders import Decider
from adapter.simulate.policies import SimulatedPolicy
from adapter.simulate.schedules import ForecastMinimums
from adapter.simulate.simulation import Scenario

STEP = 60
"""Seconds of a step."""

Check = Callable[[int], None]
"""Is called between parts of the work, with the pods that a replay has now or 0; raises to give it up."""


def go_on(pods: int) -> None:
    """Never give up."""


class SplitFigures:
    """Sums the figures of a run, and those from the second `recent` on."""

    def __init__(self, recent: int, limits: Limits, check: Check = go_on) -> None:
        self._recent = recent
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
    """Replays the days that are judged, which are the whole of a scenario's loads."""

    def __init__(self, scenario: Scenario, policy: SimulatedPolicy, limits: Limits, check: Check) -> None:
        self.scenario = dataclasses.replace(scenario, phases=1)
        self.policy = policy
        self._limits = limits
        self._check = check
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
        split = SplitFigures((JUDGED_DAYS - RECENT_DAYS) * DAY, self._limits, self._check)
        scenario = dataclasses.replace(self.scenario, forecast=minimums)
        simulation.simulate(scenario, policy or self.policy, behavior, observer=split)
        self.seconds_at = split.seconds_at
        return CandidateFigures(name, split.whole, split.recent)
