"""What the parts of the contest share: scenarios of one metric, and the fast-scaler at the cost of others."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerBehavior, HPAScalingRules
from adapter.model.quantity import Quantity
from benchmarks import simulated
from fastpath_forecast.simulate.load import Load
from fastpath_forecast.simulate.simulation import Scenario, simulate
from fastpath_tools.simulate.policies import read_policy
from fastpath_tools.simulate.results import ELASTICITY, PolicyFigures

BASELINE = "native"
POLICIES = (BASELINE, "keda", "kpa", "persistence:x=1.05", "boost", "fast")
"""All have the same target and pods."""

QUICK = "fast, 60 s, no tolerance"
"""The fast-scaler with a stabilization window of a minute and no tolerance, as Knative."""

COMPARED = ((BASELINE, "fast"), ("kpa", QUICK), ("persistence:x=1.05", QUICK))
"""The policies at whose cost a fast-scaler runs too."""

_QUICK = HorizontalPodAutoscalerBehavior(
    scale_up=HPAScalingRules(tolerance=Quantity(0)),
    scale_down=HPAScalingRules(stabilization_window_seconds=60, tolerance=Quantity(0)),
)

_CLOSE = 0.005
"""How near in pod seconds two policies have the same cost."""


def scenario(load: Load, target: float, start_up: int, phases: int, least: int = 1) -> Scenario:
    """Return the scenario of a load whose pods serve `target`, with no limit that it reaches."""
    milli = max(1, round(1000 * target))
    most = max(least, math.ceil(4000 * load.highest / milli))
    return Scenario(simulated.autoscaler(milli, least, most), {"load": load}, [start_up], phases=phases)


def play(scenario: Scenario, policy: str, *, quick: bool = False) -> PolicyFigures:
    """Run a policy; with `quick` it has no tolerance, and lowers after a minute."""
    behavior = _QUICK if quick else None
    return PolicyFigures(policy, simulate(scenario, read_policy(policy), behavior).runs)


class Line(NamedTuple):
    """A policy: shares in per cent, each with its least and greatest over the phases."""

    policy: str
    figures: PolicyFigures
    speedup: float | None

    def share(self, name: str) -> str:
        """Return a sum in per cent of the need."""
        need, values = (
            self.figures.mean("needPodSeconds"),
            (self.figures.mean(name), *self.figures.spread(name)),
        )
        return _shown(*(100 * value / need for value in values))

    def cells(self) -> list[str]:
        shares = [self.share("shortagePodSeconds"), self.share("podSeconds")]
        elastic = [_shown(self.figures.mean(name), *self.figures.spread(name)) for name in ELASTICITY]
        return [*shares, *elastic, "-" if self.speedup is None else f"{self.speedup:.2f}"]


HEAD = "shortage | pods | θU | θO | TU | TO | η"


def _shown(mean: float, least: float, most: float) -> str:
    digits = 2 if abs(mean) < 9.995 else 1
    texts = [f"{value:.{digits}f}" for value in (mean, least, most)]
    return texts[0] if texts[1] == texts[2] else f"{texts[0]} ({texts[1]} to {texts[2]})"


def contest(scenario: Scenario) -> list[Line]:
    """Return the policies, and the fast-scaler at the cost of some."""
    played = {policy: play(scenario, policy) for policy in POLICIES}
    played[QUICK] = play(scenario, "fast", quick=True)
    baseline = played[BASELINE]
    lines = [Line(policy, figures, figures.speedup(baseline)) for policy, figures in played.items()]
    coarse = dataclasses.replace(scenario, phases=1)
    known: dict[tuple[int, bool], float] = {}
    for policy, variant in COMPARED:
        figures, quick = played[policy], variant == QUICK
        target = find_target(coarse, figures.mean("podSeconds"), known, quick=quick)
        equal = play(scenario, f"fast:target={target}m", quick=quick)
        share = equal.mean("podSeconds") / figures.mean("podSeconds")
        name = f"{variant}, at the cost of {policy} ({100 * share:.1f} %)"
        lines.append(Line(name, equal, equal.speedup(baseline)))
    return lines


def find_target(
    scenario: Scenario, pods: float, known: dict[tuple[int, bool], float], *, quick: bool = False
) -> int:
    """Return the target of the fast-scaler, in thousandths, with which it costs `pods` pod seconds.

    It is found by bisection. `known` are the pod seconds that were computed before.
    """
    metric = (scenario.autoscaler.spec.metrics or ())[0]
    assert metric.pods is not None
    assert metric.pods.target.average_value is not None
    given = metric.pods.target.average_value.milli
    low, high = max(1, given // 4), given * 16  # the lower the target, the more pods
    for _ in range(10):
        middle = round(math.sqrt(low * high))
        if (middle, quick) not in known:
            known[middle, quick] = play(scenario, f"fast:target={middle}m", quick=quick).mean("podSeconds")
        cost = known[middle, quick]
        if abs(cost - pods) <= _CLOSE * pods:
            return middle
        low, high = (middle, high) if cost > pods else (low, middle)
    return round(math.sqrt(low * high))


def rows(lines: Sequence[Line], first: str = "") -> list[str]:
    """Return the lines of a table; `first` is what stands before each."""
    return [f"| {first}{line.policy} | {' | '.join(line.cells())} |" for line in lines]
