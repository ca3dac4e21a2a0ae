"""The field ``scaleDown`` of an autoscaler: which pods go first. A boosted HPA has an annotation for it.

The annotation is ``idle``, or ``idle,metric=connections`` to rank pods by another metric than the first one
of the spec that has a value for each pod.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from adapter.model.autoscaling import hpa, limits, pending_capacity
from adapter.model.autoscaling.limits import Amount, OneOf, Segment, Violation, Within
from adapter.model.go_text import quote
from adapter.model.objects.api_objects import Struct
from adapter.model.quantity import Quantity, read
from adapter.model.timestamps import SECOND, Span

IDLE = "Idle"

ANNOTATION = "fastpath.io/scale-down"

PATH = "spec.scaleDown"

_EXPECTED = "expected idle, or idle,metric=NAME"
_LONGEST = 512

_ZERO = read("0")


class Drain(Struct, frozen=True):
    value: Annotated[Quantity, Amount(0, counted=True)] = _ZERO
    """value is the value of the metric at or below which a pod is idle."""
    timeout: Annotated[Span, Within(Span(SECOND), Span(3600 * SECOND))] = Span(60 * SECOND)
    """timeout is the longest time that a scale-down waits, as a duration such as 5m."""


class ScaleDown(Struct, frozen=True):
    prefer: Annotated[str, OneOf(IDLE)] = msgspec.field(default_factory=str)
    """prefer is which Ready pods go first: Idle, those with the lowest values of a metric. The scaler writes
    their pod-deletion-cost right before a scale-down, which ReplicaSets follow."""
    metric: Annotated[str | None, Segment("must specify a metric name")] = None
    """metric is the name of the metric. One that is not in spec.metrics is a custom metric of pods. Defaults
    to the first metric in spec.metrics that has a value for each pod."""
    drain: Drain | None = None
    """drain makes a scale-down wait until the pods that go are idle. If not set, it does not wait."""


def find_metric(spec: ScaleDown, metrics: Sequence[hpa.MetricSpec]) -> hpa.MetricSpec | None:
    """Return the metric by which pods are ranked, one of `metrics` if it can be; None without a name."""
    for metric in metrics:
        is_wanted = spec.metric is None or pending_capacity.name_of(metric) == spec.metric
        if is_wanted and metric.object is None and metric.external is None:
            return metric
    if spec.metric is None:
        return None
    return hpa.MetricSpec("Pods", pods=hpa.PodsMetricSource(hpa.MetricIdentifier(spec.metric), _ANY))


_ANY = hpa.MetricTarget("AverageValue", average_value=read("1"))


def scraped_metrics(spec: ScaleDown | None, metrics: Sequence[hpa.MetricSpec]) -> Sequence[hpa.MetricSpec]:
    """Return the metrics of a spec, and the one by which pods are ranked if it is not among them."""
    ranking = None if spec is None else find_metric(spec, metrics)
    return metrics if ranking is None or ranking in metrics else (*metrics, ranking)


def check(spec: ScaleDown, metrics: Sequence[hpa.MetricSpec]) -> Iterator[Violation]:
    """Yield that no metric ranks the pods of a spec with these metrics; without any there is that of cpu."""
    if metrics and find_metric(spec, metrics) is None:
        detail = "is needed, because no metric of spec.metrics has a value for each pod"
        yield limits.required(f"{PATH}.metric", detail)


def read_annotation(text: str, metrics: Sequence[hpa.MetricSpec] | None = None) -> ScaleDown:
    """Return the field that the value of the annotation stands for, for a spec with `metrics` if given.

    Raise ValueError with a sentence.
    """
    prefer, comma, option = (part.strip() for part in text.partition(","))
    key, _, metric = (part.strip() for part in option.partition("="))
    is_known = prefer.lower() == IDLE.lower() and (not comma or (key == "metric" and metric))
    if not is_known or len(text) > _LONGEST:
        raise ValueError(f"{quote(text[:_LONGEST])}: {_EXPECTED}")
    spec = ScaleDown(IDLE, metric or None)
    faults = itertools.chain(limits.check(spec, PATH), check(spec, metrics or ()))
    if (fault := next(faults, None)) is not None:
        raise ValueError(f"{fault.value or 'metric=NAME'}: {fault.detail}")
    return spec


def write_annotation(spec: ScaleDown) -> str:
    return f"{IDLE.lower()},metric={spec.metric}" if spec.metric else IDLE.lower()
