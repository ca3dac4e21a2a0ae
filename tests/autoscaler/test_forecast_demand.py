"""The demand of an autoscaler in pods: that of the history for the same values."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from adapter.autoscaler.decide import observation
from adapter.autoscaler.forecasts.demand import demand_of, request_of
from tests.support.answers import answers
from tests.support.controller import fpa
from tests.support.scaling import cpu_metric, external_metric, pod, pods, pods_metric, reading

NOTHING = observation.Unavailable("NoMetrics", "no value")


def demand(metrics: Sequence[Mapping[str, Any]], *readings: observation.Reading, listed: Any = None) -> float:
    spec = fpa([dict(each) for each in metrics]).spec
    seen = observation.Observation(3, 3, "app=web", pods(3) if listed is None else listed, readings)
    return demand_of(spec.metrics or (), seen)


@pytest.mark.parametrize(("metric", "shown", "expected"), answers("autoscaler/forecast_demand", "demands"))
def test_of_one_metric(metric: dict[str, Any], shown: dict[str, Any] | None, expected: float | None) -> None:
    kinds = {"Object": observation.ObjectReading, "External": observation.ExternalReading}
    seen = NOTHING if shown is None else kinds.get(metric["type"], observation.PodsReading)(**shown)
    known = math.nan if expected is None else expected
    assert demand([metric], seen) == pytest.approx(known, nan_ok=True)


def test_of_several_metrics_the_greatest_counts_and_one_unknown_makes_it_unknown() -> None:
    both = [pods_metric("2"), external_metric(value="2")]
    assert demand(both, reading(1000, 1000, 1000), observation.ExternalReading((3000,))) == 4.5
    assert math.isnan(demand(both, reading(1000, 1000, 1000), NOTHING))
    assert math.isnan(demand(both, reading(1000, 1000, 1000)))
    assert math.isnan(demand([]))


def test_a_share_of_requests_is_one_of_their_mean() -> None:
    listed = [pod("web-0", cpu="1"), pod("web-1", cpu="3"), pod("web-2", cpu="2")]
    assert demand([cpu_metric(50)], reading(1000, 2000, 3000), listed=listed) == 6.0
    without = [pod("web-0", cpu=None)]
    assert math.isnan(demand([cpu_metric(50)], reading(1000), listed=without))


def test_the_request_of_a_pod() -> None:
    specs = fpa([cpu_metric(50)]).spec.metrics or ()
    assert request_of(specs, [pod("web-0", cpu="1"), pod("web-1", cpu="3")]) == 2000
    assert request_of(fpa([pods_metric()]).spec.metrics or (), []) is None
    with pytest.raises(ValueError, match="no pod with a request for cpu is known"):
        request_of(specs, [])
    memory = cpu_metric(50)
    memory["resource"]["name"] = "memory"
    with pytest.raises(ValueError, match="for cpu and memory: expected one"):
        request_of(fpa([cpu_metric(50), memory]).spec.metrics or (), [])
