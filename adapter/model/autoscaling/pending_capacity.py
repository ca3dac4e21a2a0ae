"""Pending capacity: metrics of a queue, whose demand counts less what pods that are starting will work off.

The option is a list in a FastPathAutoscaler (`spec.pendingCapacity`), and one annotation of a boosted
HorizontalPodAutoscaler. `autoscaler.decide.guards.pending` says what it does, and why only an Object or
External metric with a target for each pod can have it.
"""

from collections.abc import Iterator, Sequence

from adapter.model.autoscaling.hpa import MetricSpec
from adapter.model.autoscaling.validation import Violation, invalid
from adapter.model.go_text import quote
from adapter.model.objects.api_objects import Struct
from adapter.model.quantity import GREATEST, Quantity, read
from adapter.model.timestamps import FineInstant

ANNOTATION = "fastpath.io/pending-capacity"

EXAMPLE = "jobs=2,mails=500m"
_LONGEST = 8192

_ZERO = read("0")


class PendingCapacity(Struct, frozen=True):
    """A metric by name, and how many units of it one Ready pod works off in a second."""

    metric: str = ""
    pod_throughput: Quantity = _ZERO


class BacklogCredit(Struct, frozen=True):
    """What a metric counts less, in its units, at a time: the record in the status for the next owner."""

    metric: str = ""
    credit: Quantity = _ZERO
    time: FineInstant = FineInstant(0)


def check(listed: Sequence[PendingCapacity], metrics: Sequence[MetricSpec]) -> Iterator[Violation]:
    """Yield what is wrong with a list, for a spec with these metrics."""
    seen = set()
    for index, (name, throughput) in enumerate((queue.metric, queue.pod_throughput) for queue in listed):
        where = f"spec.pendingCapacity[{index}]"
        if throughput.sign != 1 or not throughput.has_milli:
            detail = "must be positive" if throughput.sign != 1 else f"must be at most {GREATEST}"
            yield invalid(f"{where}.podThroughput", quote(str(throughput)), detail)
        if name in seen:
            yield Violation(f"{where}.metric", "Duplicate value", quote(name), "")
        elif fault := _fault(name, metrics):
            yield invalid(f"{where}.metric", quote(name), fault)
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
    if metrics is not None and (fault := next(check(queues, metrics), None)) is not None:
        raise ValueError(f"{fault.value}: {fault.detail or fault.problem.lower()}")
    return tuple(queues)


def write_annotation(listed: Sequence[PendingCapacity]) -> str:
    return ",".join(f"{queue.metric}={queue.pod_throughput}" for queue in listed)
