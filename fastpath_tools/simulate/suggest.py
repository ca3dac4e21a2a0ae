"""What `--suggest` tries: a bounded grid of autoscalers, and those of them that no other one beats.

The grid is the product of modes, targets, stabilization windows and scaling policies. A candidate is on the
Pareto front if no other one has both fewer missing pod seconds and fewer pod seconds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from adapter.model import quantity
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import (
    HorizontalPodAutoscalerBehavior,
    HPAScalingPolicy,
    HPAScalingRules,
    MetricSpec,
    MetricTarget,
)
from adapter.model.quantity import Quantity
from adapter.simulate.policies import BOOST, FAST, NATIVE, SimulatedPolicy

MODES = (NATIVE, BOOST, FAST)

SHARES = (70, 80, 90, 100)
"""Targets in per cent of the given one; the lower, the more pods are ready before a rise."""

HIGHER_SHARES = (110, 125, 150)
"""Further targets, tried as far as the capacity of a pod allows."""

WINDOWS = (60, 300, 900)
"""Seconds of stabilization of a scale-down, beside those of the autoscaler."""

_DEFAULT_WINDOW = 300

UNBOUNDED = HPAScalingRules(
    stabilization_window_seconds=0, select_policy="Max", policies=(HPAScalingPolicy("Percent", 900, 15),)
)
"""Rules for raises that bound nothing in practice: to ten times the pods in 15 s."""

T = TypeVar("T")


class Suggestion(NamedTuple):
    """One point of the grid.

    `target` is None where it is the given one. `window` and `is_unbounded` are what `behavior` changes: the
    seconds of stabilization of a scale-down, None for the given one, and whether raises are unbounded.
    """

    policy: SimulatedPolicy
    target: Quantity | None
    window: int | None
    is_unbounded: bool
    behavior: HorizontalPodAutoscalerBehavior | None


def grid(
    autoscaler: FastPathAutoscaler, paces: Mapping[str, SimulatedPolicy], capacity_ratio: float
) -> tuple[Suggestion, ...]:
    """Return what is tried, the given autoscaler of each mode first.

    `paces` are policies by mode, whose scrapes and syncs apply. With several metrics the targets stay.
    """
    targets = _targets(autoscaler.spec.metrics or (), capacity_ratio)
    behaviors = list(_behaviors(autoscaler.spec.behavior))
    return tuple(
        Suggestion(_policy(paces[mode], target), target, *behavior)
        for target in targets
        for behavior in behaviors
        for mode in MODES
    )


def _policy(pace: SimulatedPolicy, target: Quantity | None) -> SimulatedPolicy:
    text = pace.name if target is None else f"{pace.name}:target={target}"
    return SimulatedPolicy(text, pace.name, pace.native, pace.fast, target=target)


def _targets(metrics: Sequence[MetricSpec], capacity_ratio: float) -> list[Quantity | None]:
    """Return the targets to try, None for the given one, which is first."""
    targets: list[Quantity | None] = [None]
    if len(metrics) != 1:
        return targets
    given = target_of(metrics[0])
    higher = (share for share in HIGHER_SHARES if share <= round(100 * capacity_ratio))
    for share in (*reversed(SHARES), *higher):
        if given.average_utilization is not None:
            percent = given.average_utilization * share // 100
            target, same = Quantity(percent), percent in {0, given.average_utilization}
        else:
            before = given.average_value or given.value
            assert before is not None
            target = quantity.from_milli(before.milli * share // 100, before.form)
            same = target.milli in {0, before.milli}
        if not same:
            targets.append(target)
    return targets


def target_of(metric: MetricSpec) -> MetricTarget:
    """Return the target of a metric that can be simulated."""
    sources = (metric.pods, metric.object, metric.external, metric.resource)
    return next(source.target for source in sources if source is not None)


def _behaviors(
    given: HorizontalPodAutoscalerBehavior | None,
) -> Iterator[tuple[int | None, bool, HorizontalPodAutoscalerBehavior | None]]:
    """Yield window, whether raises are unbounded, and the behavior; None for what is given."""
    base = given or HorizontalPodAutoscalerBehavior()
    down = base.scale_down or HPAScalingRules()
    own = down.stabilization_window_seconds
    own = _DEFAULT_WINDOW if own is None else own
    for window in (None, *(window for window in WINDOWS if window != own)):
        lowered = base
        if window is not None:
            lowered = replace(base, scale_down=replace(down, stabilization_window_seconds=window))
        yield window, False, given if window is None else lowered
        if base.scale_up != UNBOUNDED:
            yield window, True, replace(lowered, scale_up=UNBOUNDED)


def pareto(points: Sequence[T], costs: Callable[[T], tuple[float, float]]) -> list[T]:
    """Return the points that no other one beats, the cheapest first; of equal ones the first.

    `costs` are shortage and pod seconds.
    """
    found: list[T] = []
    least = float("inf")
    # Equal points keep their order, for sorting is stable.
    for point in sorted(points, key=lambda point: (costs(point)[1], costs(point)[0])):
        shortage = costs(point)[0]
        if shortage < least:
            found.append(point)
            least = shortage
    return found
