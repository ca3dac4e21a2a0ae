"""Autoscalers and loads for tests of simulations."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from fastpath_forecast.simulate import load
from fastpath_forecast.simulate.engine import Figures
from fastpath_forecast.simulate.load import Load
from fastpath_forecast.simulate.simulation import PolicyResult, Scenario, simulate
from fastpath_tools.simulate.policies import read_policy
from tests.support.scaling import pods_metric, read_spec

TARGET = 10
PODS = pods_metric(str(TARGET))
CPU = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": str(TARGET)}},
}


def autoscaler(
    metrics: Sequence[Mapping[str, Any]] = (PODS,), *, least: int = 1, most: int = 100, **spec: Any
) -> FastPathAutoscaler:
    """Return an autoscaler; by default it has 10 of the metric `load` for each pod as its target."""
    bounds = {"minReplicas": least, "maxReplicas": most}
    return read_spec(FastPathAutoscaler, metrics, **bounds | spec)


def steps(seconds: int, *points: tuple[float, float]) -> Load:
    """Return the load of (second, value) points."""
    return load.of_points(points, seconds)


def run(policy: str, loads: Load | Mapping[str, Load], start_up: int = 20, **scenario: Any) -> PolicyResult:
    """Simulate a policy once, with one start-up time for all pods."""
    named = loads if isinstance(loads, Mapping) else {"load": loads}
    given: dict[str, Any] = {"autoscaler": autoscaler(), "start_ups": (start_up,), "phases": 1} | scenario
    return simulate(Scenario(loads=named, **given), read_policy(policy))


def figures(policy: str, loads: Load | Mapping[str, Load], start_up: int = 20, **scenario: Any) -> Figures:
    return run(policy, loads, start_up, **scenario).runs[0]


HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 40
  metrics:
  - type: Pods
    pods: {metric: {name: requests}, target: {type: AverageValue, averageValue: "10"}}
"""
STEP = "seconds,load\n0,20\n60,120\n600,40\n1199,40\n"
