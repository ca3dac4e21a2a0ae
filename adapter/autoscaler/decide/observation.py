"""What a decision is made from: the controller's settings, the scale, the pods, and a reading for each metric.

A metric that cannot be read is `Unavailable`, never a zero and never an exception: `decision` and `sanity` decide what
follows from that.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.autoscaling.metrics_api import PodMetrics
from adapter.model.pods import PodFacts
from adapter.model.timestamps import NEVER, SECOND

NO_STATUS = HorizontalPodAutoscalerStatus()


NOT_YET = "NotYet"
"""The reason before the first answer: it is unknown whether there is a value."""


class Unavailable(msgspec.Struct, frozen=True):
    """Why there is no value: a reason for programs, and a sentence, which for upstream's errors is upstream's."""

    reason: str
    message: str


class PodsReading(msgspec.Struct, frozen=True):
    """What the pods were measured at, in thousandths, by their names; pods that are not listed may be among them.

    `samples` says when each was measured and over how long (both nanoseconds); it matters for cpu alone. A pod that is not in it was
    measured at Go's zero time. `overdue` says why it may be out of date, "" where it is as fresh as it can be: what is overdue may
    raise and keep, never shrink.
    `most_then` is the largest number of ready pods over the time that the values speak of, 0 where it does not
    matter. A load that these pods shared must not be taken for that of the pods that are left, so a shrink is counted with it.
    """

    values: Mapping[str, int]
    samples: Mapping[str, tuple[int, int]] = {}
    overdue: str = ""
    most_then: int = 0


class ObjectReading(msgspec.Struct, frozen=True):
    """What one object was measured at, in thousandths.

    `ready_then` is the number of ready pods at the time of the sample, None where nobody knows: a value that lags behind the pods is
    a ratio to those that were there, and multiplying it by those that are there now overshoots. It applies to targets of type Value
    and to raises only, and a raise it makes smaller never becomes a shrink. Without it upstream's count of now is used.
    `overdue` and `most_then` as above.
    """

    value: int
    ready_then: int | None = None
    overdue: str = ""
    most_then: int = 0


class ExternalReading(msgspec.Struct, frozen=True):
    """What the series of an external metric were measured at, in thousandths, in the order of the answer; `ready_then` as above."""

    values: Sequence[int]
    ready_then: int | None = None
    overdue: str = ""
    most_then: int = 0


Reading = PodsReading | ObjectReading | ExternalReading | Unavailable


class Observation(msgspec.Struct, frozen=True):
    """All that one sync sees.

    `replicas` is what the scale asks for, `status_replicas` what it has. `pods` are those of the namespace that match `selector`,
    terminating ones included; `readings` answer the metrics of the spec, in its order. `selected_by` are the autoscalers of the
    namespace (``namespace/name``), this one among them, whose selector as last seen takes one of these pods; more than one is a fault
    of theirs. `status` is the autoscaler's own before the sync.
    `write_error` is why the new scale could not be written, in a second look at the same observation. `fallback` is what is wanted at
    least while a metric has no value (`autoscaler.decide.fallback` says how many); 0 where nothing is.
    """

    replicas: int
    status_replicas: int
    selector: str
    pods: Sequence[PodFacts]
    readings: Sequence[Reading]
    status: HorizontalPodAutoscalerStatus = NO_STATUS
    selected_by: Sequence[str] = ()
    write_error: str = ""
    fallback: int = 0


class Settings(msgspec.Struct, frozen=True):
    """Lengths are nanoseconds. `scale_to_zero` is the feature gate HPAScaleToZero.

    `strict` is our own: values below zero, and sums and products that 64 or 32 bits do not hold, are no values. Upstream computes with
    what amd64 makes of them, which may be any count.
    """

    tolerance: float = 0.1
    cpu_initialization_period: int = 300 * SECOND
    initial_readiness_delay: int = 30 * SECOND
    downscale_stabilization: int = 300 * SECOND
    scale_to_zero: bool = False
    strict: bool = False


class Band(NamedTuple):
    """The ratios at which nothing is changed, both ends included."""

    low: float
    high: float

    def holds(self, ratio: float) -> bool:
        """Tell whether a ratio is within; NaN never is."""
        return self.low <= ratio <= self.high


def band(down: float, up: float) -> Band:
    """Return the band of two tolerances, each bound computed once in doubles, as upstream does."""
    return Band(1.0 - down, 1.0 + up)


def read_usage(items: Sequence[PodMetrics], resource: str, container: str) -> Reading:
    """Return the usage of each pod, or of one container in each.

    A pod is left out if one of its containers lacks the resource, as in ``GetResourceMetric`` upstream.
    """
    values: dict[str, int] = {}
    samples: dict[str, tuple[int, int]] = {}
    for item in items:
        used = [
            each.usage.get(resource) if each.usage else None
            for each in item.containers or ()
            if not container or each.name == container
        ]
        if container:
            del used[1:]  # the first of that name
        known = [quantity.milli for quantity in used if quantity is not None]
        if known and len(known) == len(used):
            name = item.metadata.name
            values[name] = sum(known)
            samples[name] = (NEVER if item.timestamp is None else item.timestamp, item.window or 0)
    if not items:
        return Unavailable("NoMetrics", "no metrics returned from resource metrics API")
    return PodsReading(values, samples)
