"""What another target, stabilization window or boost would have made of the last hour.

The demand of the history, in pods at the target of today, is replayed as `fastpath simulate` replays a load.
A lower target gives the same demand more pods. Pure: a document and an autoscaler in, figures out.
"""

import functools
import math
from collections.abc import Mapping
from dataclasses import replace as with_fields
from typing import NamedTuple

from msgspec.structs import replace

from adapter.model.autoscaling import hpa
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler, FastPathAutoscalerSpec
from adapter.model.autoscaling.view import HistoryView
from adapter.model.objects.api_objects import Metadata
from adapter.model.quantity import Quantity
from fastpath_forecast.simulate import load, simulation
from fastpath_forecast.simulate.policies import BOOST, FAST, NATIVE, read_policy
from fastpath_forecast.simulate.simulation import Scenario
from fastpath_tools.ui import steps

TARGETS = 50, 150
"""The least and the greatest target to try, in per cent of the one of today."""
WINDOWS = 0, 900
"""The same for the stabilization window of a scale-down, in seconds."""
_DEFAULT_WINDOW = 300
_PHASES = 2
"""How many phases of scrapes and decisions the figures are means of."""


class Trial(NamedTuple):
    """What is tried: the share of the target in per cent, the window in seconds, and the policy."""

    target: int
    window: int
    policy: str

    @property
    def is_boosted(self) -> bool:
        return self.policy == BOOST


class Result(NamedTuple):
    """The figures of an hour: pod seconds that were missing, pod seconds of all pods, and the most pods."""

    shortage: float
    pod_seconds: float
    most: int


_LEAST = 60.0
"""How long a history is at least that figures are made of."""


def settings(autoscaler: FastPathAutoscaler, *, is_hpa: bool, is_boosted: bool) -> Trial:
    """Return the settings of today."""
    behavior = hpa.with_defaults(autoscaler.spec).behavior
    rules = behavior.scale_down if behavior is not None else None
    window = None if rules is None else rules.stabilization_window_seconds
    policy = FAST if not is_hpa else BOOST if is_boosted else NATIVE
    return Trial(100, _DEFAULT_WINDOW if window is None else window, policy)


def read_trial(query: Mapping[str, str], today: Trial) -> Trial:
    """Return what a form asks for; a field that is missing or not a number is that of today."""
    policy = today.policy
    if policy != FAST and "target" in query:  # a box that is not checked is no field
        policy = BOOST if query.get("boost") == "1" else NATIVE
    return Trial(
        _whole(query.get("target", ""), TARGETS, today.target),
        _whole(query.get("window", ""), WINDOWS, today.window),
        policy,
    )


def _whole(text: str, limits: tuple[int, int], default: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        return default
    return min(max(int(text), limits[0]), limits[1])


def is_known(history: HistoryView) -> bool:
    """Tell whether a history of a minute or more knows the demand; a shorter one begins within a step."""
    starts = (steps.epoch(point.at) for point in history.points if point.demand is not None)
    begin = next(starts, None)
    return begin is not None and steps.epoch(history.until) - begin >= _LEAST


def replay(history: HistoryView, autoscaler: FastPathAutoscaler, start_up: float, trial: Trial) -> Result:
    """Return the figures of the demand of a history with some settings; pods are Ready after `start_up`."""
    meta, spec = autoscaler.metadata, autoscaler.spec
    alone = FastPathAutoscaler(
        metadata=Metadata(meta.name, meta.namespace),
        spec=FastPathAutoscalerSpec(
            scale_target_ref=spec.scale_target_ref,
            min_replicas=spec.min_replicas,
            max_replicas=spec.max_replicas,
            metrics=(_DEMAND,),
            behavior=spec.behavior,
        ),
    )
    known = steps.spans(history, until := steps.epoch(history.until))
    demand = tuple(
        (span.start - known[0].start, math.nan if span.point.demand is None else span.point.demand)
        for span in known
    )
    seconds = max(1, int(until - known[0].start))
    return _replay(alone, demand, seconds, max(1, round(start_up)), trial)


_DEMAND = hpa.MetricSpec(
    type="Pods",
    pods=hpa.PodsMetricSource(
        hpa.MetricIdentifier("demand"), hpa.MetricTarget(type="AverageValue", average_value=Quantity(1))
    ),
)
"""A metric of which a pod serves 1: its load is the demand in pods."""


@functools.lru_cache(maxsize=32)
def _replay(
    autoscaler: FastPathAutoscaler,
    demand: tuple[tuple[float, float], ...],
    seconds: int,
    start_up: int,
    trial: Trial,
) -> Result:
    loads = {"demand": load.of_points(demand, seconds)}
    scenario = Scenario(autoscaler, loads, (start_up,), phases=_PHASES, carries=False)
    policy = with_fields(read_policy(trial.policy), target_share=trial.target / 100)
    behavior = hpa.with_defaults(autoscaler.spec).behavior or hpa.HorizontalPodAutoscalerBehavior()
    down = replace(behavior.scale_down or hpa.HPAScalingRules(), stabilization_window_seconds=trial.window)
    changed = replace(behavior, scale_down=down)
    spec = hpa.with_defaults(replace(autoscaler.spec, behavior=changed))
    runs = simulation.simulate(scenario, policy, spec.behavior).runs
    return Result(
        sum(figures.shortage for figures in runs) / len(runs),
        sum(figures.pod_seconds for figures in runs) / len(runs),
        max(figures.max_replicas for figures in runs),
    )


def recorded(history: HistoryView) -> Result:
    """Return the figures of what was, where demand and counts are known."""
    shortage = pod_seconds = 0.0
    for start, end, point in steps.spans(history, steps.epoch(history.until)):
        length, count = end - start, point.desired
        ready = point.ready if point.ready is not None else count
        pod_seconds += length * (count or 0)
        if point.demand is not None and ready is not None:
            shortage += length * max(point.demand - ready, 0)
    return Result(shortage, pod_seconds, max((point.desired or 0 for point in history.points), default=0))
