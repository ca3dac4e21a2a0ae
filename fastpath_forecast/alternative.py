"""What the pods of a forecast buy without one.

Pods cost the same whatever asks for them. A lower target keeps more of them ready at all times, and so do a
higher `minReplicas` and a longer window before a scale-down. Each is one number in the spec, and needs no
past. A forecast is worth its floor only if it leaves less shortage than any of the three at the same pods.

Each `SpecChange` is a number; the larger it is, the more pods run. The judged days are replayed with a few
values of it, until two of them enclose the pods of the candidate, and the shortage at these is interpolated.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from msgspec import structs

from adapter.bounds.forecast import verdict as verdicts
from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.verdict import Alternative, CandidateFigures, ReplayFigures
from adapter.model import quantity
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerBehavior, HPAScalingRules
from adapter.model.quantity import Quantity
from adapter.model.timestamps import SECOND
from fastpath_forecast.replay import JudgedDays
from fastpath_forecast.simulate import simulation

MOST_REPLAYS = 2
"""So many values of a change are replayed for a candidate at most, as replays are most of the work."""

CLOSE = 0.002
"""How near the pods of a replay come to those of the candidate, as a share of them, before that is enough."""

LONGEST_WINDOW = 3600
"""The longest stabilization window that Kubernetes accepts, in seconds."""


Rounding = Callable[[float], int]


class SpecChange(Protocol):
    """What is changed in the spec. `least` changes nothing; `most` is the largest value."""

    least: float
    most: float

    def guess(self, extra: float) -> float:
        """Return a value that may take `extra` more pods, as a share."""

    def exact(self, value: float, rounded: Rounding) -> float:
        """Return the value that a spec can have, next to this one or above it."""

    def replay(self, value: float) -> CandidateFigures: ...

    def describe(self, value: float) -> str: ...


class LowerTarget:
    """All targets, divided by 1 and the value."""

    least, most = 0.0, 1.0

    def __init__(self, days: JudgedDays) -> None:
        self._days = days
        given = simulation.overridden(days.scenario.autoscaler, days.policy, None).spec.metrics or ()
        self._targets = [simulation.target_of(metric) for metric in given]

    def guess(self, extra: float) -> float:
        return extra

    def exact(self, value: float, rounded: Rounding) -> float:
        percent = self._targets[0].average_utilization
        if len(self._targets) > 1 or percent is None:
            return value
        return percent / max(1, -rounded(-percent / (1 + value))) - 1

    def replay(self, value: float) -> CandidateFigures:
        return self._days.run("target", policy=replace(self._days.policy, target_share=1 / (1 + value)))

    def describe(self, value: float) -> str:
        if len(self._targets) > 1:
            return f"targets of {100 / (1 + value):.0f} %"
        return f"target {_rounded(simulation.scaled_target(self._targets[0], 1 / (1 + value)))}"


def _rounded(target: Quantity) -> Quantity:
    """Return a target with three digits: it is interpolated."""
    return quantity.from_milli(int(float(f"{target.milli:.3g}")), target.form)


class HigherMinimum:
    """A number of `minReplicas`. `seconds_at` has how long each count ran without a change."""

    def __init__(self, days: JudgedDays, limits: Limits) -> None:
        self._days = days
        self._seconds_at = dict(days.seconds_at)
        self.least: float = limits.least
        self.most: float = limits.most

    def guess(self, extra: float) -> float:
        def pods(least: int) -> int:
            return sum(max(count, least) * seconds for count, seconds in self._seconds_at.items())

        # By halves, for maxReplicas has no limit.
        numbers = range(round(self.least), round(self.most))
        return self.least + bisect.bisect_left(numbers, (1 + extra) * pods(0), key=pods)

    def exact(self, value: float, rounded: Rounding) -> float:
        return rounded(value)

    def replay(self, value: float) -> CandidateFigures:
        return self._days.run("minReplicas", policy=replace(self._days.policy, min_replicas=round(value)))

    def describe(self, value: float) -> str:
        return f"minReplicas {value:.0f}"


class LongerWindow:
    """Seconds of `behavior.scaleDown.stabilizationWindowSeconds`; `hold` are those of the spec."""

    def __init__(self, days: JudgedDays, hold: int) -> None:
        self._days = days
        self.least: float = hold
        self.most: float = max(hold, LONGEST_WINDOW)

    def guess(self, extra: float) -> float:  # noqa: ARG002 - of all changes
        return self.most

    def exact(self, value: float, rounded: Rounding) -> float:
        return rounded(value)

    def replay(self, value: float) -> CandidateFigures:
        given = self._days.scenario.autoscaler.spec.behavior or HorizontalPodAutoscalerBehavior()
        down = structs.replace(
            given.scale_down or HPAScalingRules(), stabilization_window_seconds=round(value)
        )
        return self._days.run("window", behavior=structs.replace(given, scale_down=down))

    def describe(self, value: float) -> str:
        return f"a scale-down window of {value:.0f}s"


class ReplayedValue(NamedTuple):
    value: float
    figures: CandidateFigures


class Curve:
    """What the values of a change come to, as far as they were replayed."""

    def __init__(self, change: SpecChange, none: CandidateFigures) -> None:
        self._change = change
        self._none = none.whole
        self._points = [ReplayedValue(change.least, none)]

    def at(self, candidate: CandidateFigures) -> Alternative | None:
        """Return what the pods of a candidate buy, None if the change buys nothing for so few."""
        if not 0 < self._none.pods < candidate.whole.pods:
            return None
        self._enclose(candidate.whole.pods)
        whole, value = self._interpolate(candidate.whole.pods, lambda figures: figures.whole)
        recent, _ = self._interpolate(candidate.recent.pods, lambda figures: figures.recent)
        if value == self._change.least:
            return None
        return Alternative(self._change.describe(value), whole, recent)

    def _enclose(self, pods: float) -> None:
        for _ in range(MOST_REPLAYS):
            points = sorted(self._points, key=lambda point: point.figures.whole.pods)
            at = bisect.bisect_right(points, pods, key=lambda point: point.figures.whole.pods)
            near = min(abs(point.figures.whole.pods - pods) for point in points)
            if at < len(points) and (near <= CLOSE * pods or len(points) > MOST_REPLAYS):
                return
            rounded = math.ceil if at == len(points) else round
            value = self._change.exact(self._next(points, at, pods), rounded)
            if any(point.value == value for point in points):
                return
            self._points.append(ReplayedValue(value, self._change.replay(value)))

    def _next(self, points: Sequence[ReplayedValue], at: int, pods: float) -> float:
        change = self._change
        if len(points) == 1:
            value = change.guess(pods / points[0].figures.whole.pods - 1)
        else:
            one, other = points[at - 1 : at + 1] if at < len(points) else points[-2:]
            before, after = one.figures.whole.pods, other.figures.whole.pods
            # A little beyond, if all were too few: the next one is to enclose the pods.
            wanted = pods * (1 + CLOSE) if at == len(points) else pods
            share = (wanted - before) / (after - before) if after > before else 1.0
            value = one.value + share * (other.value - one.value)
        return min(max(value, change.least), change.most)

    def _interpolate(
        self, pods: float, of: Callable[[CandidateFigures], ReplayFigures]
    ) -> tuple[float, float]:
        """Return the shortage at some pods, and the value of the change."""
        points = sorted(self._points, key=lambda point: of(point.figures).pods)
        figures = [of(point.figures) for point in points]
        least = [
            (replayed.shortage, point.value)
            for replayed, point in zip(figures, points, strict=True)
            if replayed.pods <= pods
        ]
        for place, (one, other) in enumerate(itertools.pairwise(figures)):
            if one.pods <= pods < other.pods:
                share = (pods - one.pods) / (other.pods - one.pods)
                value = points[place].value
                value += share * (points[place + 1].value - value)
                least.append((one.shortage + share * (other.shortage - one.shortage), value))
        # Fewer pods than without a change are compared to no change.
        return min(least, default=(figures[0].shortage, points[0].value))


class Alternatives:
    """The changes of the spec that a candidate has to beat; replays are shared by all candidates."""

    def __init__(self, days: JudgedDays, none: CandidateFigures, limits: Limits, hold: int) -> None:
        """`days` were replayed without a forecast last. `hold` is the scale-down window in nanoseconds."""
        changes = (LowerTarget(days), HigherMinimum(days, limits), LongerWindow(days, hold // SECOND))
        self._curves = [Curve(change, none) for change in changes]

    def beat(self, candidate: CandidateFigures) -> CandidateFigures:
        """Return the candidate with the best alternative, or with one that it does not beat."""
        for curve in self._curves:
            alternative = curve.at(candidate)
            best = candidate.alternative
            if alternative is not None and (best is None or alternative.shortage < best.shortage):
                candidate = structs.replace(candidate, alternative=alternative)
            if not verdicts.beats(candidate):
                break
        return candidate
