"""The demand that a decision has seen, in pods.

It is that which `fastpath simulate` and the history in Prometheus have: what all pods had together of a
metric, divided by what one pod has at the target; of several metrics the greatest. It is not rounded.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

from adapter.autoscaler.decide import observation as observations
from adapter.model.autoscaling.hpa import MetricSpec
from adapter.model.objects.pods import PodFacts


def demand_of(metrics: Sequence[MetricSpec], seen: observations.Observation) -> float:
    """Return the demand in pods, NaN if one of the metrics has no value."""
    if len(metrics) != len(seen.readings) or not metrics:
        return math.nan
    needs = [_need(metric, reading, seen) for metric, reading in zip(metrics, seen.readings, strict=True)]
    return math.nan if any(map(math.isnan, needs)) else max(needs)


def _need(metric: MetricSpec, given: observations.Reading, seen: observations.Observation) -> float:
    reading = observations.usual_way(given)
    if isinstance(reading, observations.Unavailable):
        return math.nan
    if isinstance(reading, observations.PodsReading):
        return _need_of_pods(metric, reading, seen.pods)
    source = metric.object or metric.external
    if source is None:
        return math.nan
    total = sum(reading.values) if isinstance(reading, observations.ExternalReading) else reading.value
    target, ready = source.target, reading.ready_then
    if target.average_value is not None:
        return _share(total, target.average_value.milli)
    if target.value is None:
        return math.nan
    if ready is None:
        ready = sum(pod.running_and_ready for pod in seen.pods)
    return _share(total * ready, target.value.milli)


def _need_of_pods(metric: MetricSpec, reading: observations.PodsReading, pods: Sequence[PodFacts]) -> float:
    values: Mapping[str, int] = reading.values
    if reading.left_out or len(values) != len(pods):
        # those of the known pods, with those that a decision leaves out
        values = {**values, **reading.left_out}
        values = {pod.name: values[pod.name] for pod in pods if pod.name in values}
    source = metric.pods or metric.resource
    if not values or source is None:
        return math.nan
    total, target = sum(values.values()), source.target
    if target.average_value is not None:
        return _share(total, target.average_value.milli)
    if metric.resource is None or target.average_utilization is None:
        return math.nan
    requests = list(_requests(metric.resource.name, [pod for pod in pods if pod.name in values]))
    if not requests:
        return math.nan
    return _share(total * 100 * len(requests), sum(requests) * target.average_utilization)


def _requests(resource: str, pods: Sequence[PodFacts]) -> Iterator[int]:
    for pod in pods:
        request = observations.read_request(pod, resource)
        if isinstance(request, int):
            yield request


def request_of(metrics: Sequence[MetricSpec], pods: Sequence[PodFacts]) -> int | None:
    """Return the mean request of a pod in thousandths, None if no metric has a target of type Utilization.

    Raises ValueError with a sentence if no request is known, or if the metrics need several.
    """
    wanted = {
        metric.resource.name
        for metric in metrics
        if metric.resource is not None and metric.resource.target.average_value is None
    }
    if not wanted:
        return None
    if len(wanted) > 1:
        raise ValueError(f"targets of type Utilization for {' and '.join(sorted(wanted))}: expected one")
    (resource,) = wanted
    requests = list(_requests(resource, pods))
    if not requests:
        raise ValueError(f"no pod with a request for {resource} is known")
    return round(sum(requests) / len(requests))


def _share(total: float, of: float) -> float:
    """Return a negative total, or one without a target, as unknown."""
    return total / of if total >= 0 and of > 0 else math.nan
