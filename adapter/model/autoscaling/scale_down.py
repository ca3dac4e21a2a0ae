"""The field ``scaleDown`` of an autoscaler: which pods go first. A boosted HPA has an annotation for it.

The annotation is ``idle``, or ``idle,metric=connections`` to rank pods by another metric than the first one
of the spec that has a value for each pod.
"""

from collections.abc import Iterator, Sequence

import msgspec

from adapter.model.autoscaling import hpa, pending_capacity, validation
from adapter.model.autoscaling.validation import Violation
from adapter.model.go_text import quote
from adapter.model.objects.api_objects import Struct
from adapter.model.quantity import GREATEST, Quantity, read
from adapter.model.timestamps import SECOND, Span

IDLE = "Idle"

ANNOTATION = "fastpath.io/scale-down"

PATH = "spec.scaleDown"

TIMEOUTS = (Span(SECOND), Span(3600 * SECOND))
"""The shortest and the longest time that a scale-down waits for pods to become idle."""

_EXPECTED = "expected idle, or idle,metric=NAME"
_LONGEST = 512

_ZERO = read("0")


class Drain(Struct, frozen=True):
    """The count is lowered only by pods whose value is at most `value`, for `timeout` at the longest."""

    value: Quantity = _ZERO
    timeout: Span = Span(60 * SECOND)


class ScaleDown(Struct, frozen=True):
    """Which pods a scale-down removes first: with `prefer` Idle those with the lowest values.

    `metric` is the name of the metric with the values, None for the first one of the spec that has a value
    for each pod. One that is not in the spec is a metric of pods.
    """

    prefer: str = msgspec.field(default_factory=str)
    metric: str | None = None
    drain: Drain | None = None


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
    """Yield what is wrong with a field, for a spec with these metrics; without any there is that of cpu."""
    if spec.prefer != IDLE:
        yield validation.unsupported(f"{PATH}.prefer", spec.prefer, (IDLE,))
    if spec.metric == "":
        yield validation.required(f"{PATH}.metric", "must specify a metric name")
    yield from validation.check_segment(f"{PATH}.metric", spec.metric or "")
    if metrics and find_metric(spec, metrics) is None:
        detail = "is needed, because no metric of spec.metrics has a value for each pod"
        yield validation.required(f"{PATH}.metric", detail)
    if spec.drain is None:
        return
    value = spec.drain.value
    if value.sign < 0 or not value.has_milli:
        detail = "must be greater than or equal to 0" if value.sign < 0 else f"must be at most {GREATEST}"
        yield validation.invalid(f"{PATH}.drain.value", quote(str(value)), detail)
    yield from validation.within(f"{PATH}.drain.timeout", spec.drain.timeout, TIMEOUTS)


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
    if (fault := next(check(spec, metrics or ()), None)) is not None:
        raise ValueError(f"{fault.value or 'metric=NAME'}: {fault.detail}")
    return spec


def write_annotation(spec: ScaleDown) -> str:
    return f"{IDLE.lower()},metric={spec.metric}" if spec.metric else IDLE.lower()
