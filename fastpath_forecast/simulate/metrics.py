"""The metrics of an autoscaler in a simulation: what a pod serves of each, and readings from measured values.

Metrics of type Pods and Resource, and targets of type Value, are measured per ready pod. A target of type
AverageValue of one object, or of series, is measured as the total.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapter.autoscaler.decide.observation import (
    ExternalReading,
    ObjectReading,
    PodsReading,
    Reading,
    Unavailable,
)
from adapter.errors import Fault, InputError
from adapter.model import quantity
from adapter.model.autoscaling.hpa import MetricSpec
from adapter.model.objects.pods import PodFacts, Requests
from adapter.model.quantity import Quantity
from fastpath_forecast.simulate.load import GREATEST

LEAST_CAPACITY = 0.001
"""The least that a pod serves at the target: decisions count thousandths."""

_NO_VALUE = Unavailable("NoMetrics", "no value in a gap of the recorded load")


@dataclass(frozen=True, slots=True)
class SimulatedMetric:
    """A metric of the autoscaler. `capacity` is what one pod serves at the target, in the metric's unit."""

    name: str
    spec: MetricSpec
    capacity: float
    is_total: bool

    @property
    def is_usage(self) -> bool:
        """Whether it is CPU or memory, which the metrics API has late."""
        return self.spec.resource is not None

    @property
    def is_cpu(self) -> bool:
        """Whether a pod counts only once it was ready for the whole window of its sample."""
        return self.spec.resource is not None and self.spec.resource.name == "cpu"

    def reading(
        self,
        milli: int | None,
        pods: Sequence[PodFacts],
        sample: tuple[int, int],
        *,
        ready_then: int | None,
        most_then: int,
    ) -> Reading:
        """Return the reading of a value in thousandths; `pods` are those with a sample.

        `sample` is its time and its window in nanoseconds.

        `ready_then` and `most_then` are those of `observation`; a native HPA has None and 0.
        """
        if milli is None:
            return _NO_VALUE
        if self.spec.object is not None:
            return ObjectReading(milli, ready_then, most_then=most_then if not self.is_total else 0)
        if self.spec.external is not None:
            return ExternalReading((milli,), ready_then, most_then=most_then if not self.is_total else 0)
        if not pods:
            return _NO_VALUE
        values = {pod.name: milli for pod in pods}
        samples: Mapping[str, tuple[int, int]] = {}
        if self.spec.type == "Resource":
            samples = dict.fromkeys(values, sample)
        return PodsReading(values, samples, most_then=most_then)


def to_milli(value: float) -> int | None:
    """Return a measured value in thousandths, as the metrics APIs give it; None for NaN."""
    return None if math.isnan(value) else quantity.milli_from_float(value)


def simulated_metrics(specs: Sequence[MetricSpec], request: Quantity | None) -> tuple[SimulatedMetric, ...]:
    """Return the metrics of a spec; `request` is that of a pod, for targets of type Utilization.

    Raises InputError for a metric that cannot be simulated.
    """
    faults: list[Fault] = []
    metrics = []
    for index, spec in enumerate(specs):
        path = f"spec.metrics[{index}]"
        metric = _simulated(spec, request, path, faults)
        if metric is None:
            continue
        if LEAST_CAPACITY <= metric.capacity <= GREATEST:
            metrics.append(metric)
        else:
            expected = f"expected a target of {LEAST_CAPACITY:g} to {GREATEST:g} for each pod"
            faults.append(Fault(path, f"{metric.name}: {metric.capacity:g}", expected))
    if faults:
        raise InputError(faults)
    return tuple(metrics)


def pod_requests(metrics: Sequence[SimulatedMetric], request: Quantity | None) -> Requests | None:
    """Return the requests of the simulated pods, None without a request."""
    if request is None:
        return None
    return {metric.spec.resource.name: request for metric in metrics if metric.spec.resource is not None}


def _simulated(
    spec: MetricSpec, request: Quantity | None, path: str, faults: list[Fault]
) -> SimulatedMetric | None:
    if spec.pods is not None and spec.pods.target.average_value is not None:
        return SimulatedMetric(
            spec.pods.metric.name, spec, _value(spec.pods.target.average_value), is_total=False
        )
    for source in (spec.object, spec.external):
        if source is not None:
            is_total = source.target.average_value is not None
            number = source.target.average_value or source.target.value
            assert number is not None
            return SimulatedMetric(source.metric.name, spec, _value(number), is_total=is_total)
    if spec.resource is not None:
        name, target = spec.resource.name, spec.resource.target
        if target.average_value is not None:
            return SimulatedMetric(name, spec, _value(target.average_value), is_total=False)
        if request is None:
            faults.append(
                Fault(path, name, "a target utilization needs --request, the request of one pod such as 500m")
            )
            return None
        assert target.average_utilization is not None
        return SimulatedMetric(name, spec, _value(request) * target.average_utilization / 100, is_total=False)
    expected = "expected a metric of type Pods, Object, External or Resource"
    faults.append(Fault(path, spec.type, expected))
    return None


def _value(number: Quantity) -> float:
    return number.milli / 1000
