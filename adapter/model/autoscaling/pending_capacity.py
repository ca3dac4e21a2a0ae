"""Pending capacity: metrics of a queue, whose demand counts less what pods that are starting will work off.

The option is a list in a FastPathAutoscaler (`spec.pendingCapacity`), and one annotation of a boosted
HorizontalPodAutoscaler. `autoscaler.decide.guards.pending` says what it does, and why only an Object or
External metric with a target for each pod can have it.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated

from adapter.model.autoscaling import limits
from adapter.model.autoscaling.hpa import MetricSpec
from adapter.model.autoscaling.limits import Amount, Segment, Violation
from adapter.model.go_text import quote
from adapter.model.objects.api_objects import Struct
from adapter.model.quantity import Quantity, read
from adapter.model.timestamps import FineInstant

ANNOTATION = "fastpath.io/pending-capacity"

EXAMPLE = "jobs=2,mails=500m"
_LONGEST = 8192

_ZERO = read("0")


class PendingCapacity(Struct, frozen=True):
    """A queue and the throughput of a pod."""

    metric: Annotated[str, Segment()] = ""
    """metric is the name of a metric in spec.metrics: an Object or External metric with a target of type
    AverageValue, and the only metric of this name."""
    pod_throughput: Annotated[Quantity, Amount(counted=True)] = _ZERO
    """podThroughput is how many units of the metric one Ready pod works off in a second, such as 2 or 500m. A
    smaller value than the true one withholds less; a greater one asks for too few pods until those that are
    starting are Ready."""


class BacklogCredit(Struct, frozen=True):
    """A queue with pending capacity."""

    metric: str = ""
    """metric is the name of the metric."""
    credit: Quantity = _ZERO
    """credit is the work of starting pods that reduces the queue, in units of the metric."""
    time: FineInstant = FineInstant(0)
    """time is when that was."""


def check(listed: Sequence[PendingCapacity], metrics: Sequence[MetricSpec]) -> Iterator[Violation]:
    """Yield which of the metrics in a list cannot have pending capacity, for a spec with these metrics."""
    seen = set()
    for index, name in enumerate(queue.metric for queue in listed):
        path = f"spec.pendingCapacity[{index}].metric"
        if name in seen:
            yield Violation(path, "Duplicate value", quote(name), "")
        elif fault := _fault(name, metrics):
            yield limits.invalid(path, quote(name), fault)
        seen.add(name)


def _fault(name: str, metrics: Sequence[MetricSpec]) -> str:
    """Return why a metric of this name cannot have pending capacity, "" if it can."""
    named = [metric for metric in metrics if name_of(metric) == name]
    if not named:
        return "spec.metrics has no metric of this name"
    count = sum(target_of(metric) is not None for metric in named)
    if count == 1:
        return ""
    if count:
        return f"spec.metrics has {count} such metrics of this name; pending capacity needs exactly one"
    kind = named[0].type
    if kind in {"Object", "External"}:
        kind += " with a target of type Value"
    return f"pending capacity needs an Object or External metric with averageValue; this one is {kind}"


def target_of(metric: MetricSpec) -> Quantity | None:
    """Return the target for each pod of a value of the whole scale target, None for any other metric."""
    if metric.type == "External" and metric.external is not None:
        return metric.external.target.average_value
    if metric.type == "Object" and metric.object is not None:
        target = metric.object.target
        return target.average_value if target.type == "AverageValue" else None
    return None


def name_of(metric: MetricSpec) -> str:
    """Return the name of a metric, that of the resource for a resource metric."""
    for source in (metric.external, metric.object, metric.pods):
        if source is not None:
            return source.metric.name
    resource = metric.resource or metric.container_resource
    return "" if resource is None else resource.name


def read_annotation(text: str, metrics: Sequence[MetricSpec] | None = None) -> tuple[PendingCapacity, ...]:
    """Read the value of the annotation, such as ``jobs=2,mails=500m``, for a spec with `metrics` if given.

    Raise ValueError with a sentence.
    """
    expected = (
        f"{quote(text)}: expected metrics and what one Ready pod works off in a second, such as {EXAMPLE}"
    )
    if len(text) > _LONGEST:
        raise ValueError(expected)
    queues = []
    for part in text.split(","):
        name, _, throughput = part.rpartition("=")
        try:
            quantity = read(throughput)
        except ValueError:
            raise ValueError(expected) from None
        if not name.strip():
            raise ValueError(expected)
        queues.append(PendingCapacity(name.strip(), quantity))
    alone = (limits.check(queue, "") for queue in queues)
    for fault in () if metrics is None else itertools.chain(*alone, check(queues, metrics)):
        raise ValueError(f"{fault.value}: {fault.detail or fault.problem.lower()}")
    return tuple(queues)


def write_annotation(listed: Sequence[PendingCapacity]) -> str:
    return ",".join(f"{queue.metric}={queue.pod_throughput}" for queue in listed)
