"""What a decision is made from: settings, the scale, the pods, and a reading for each metric.

A metric that cannot be read is `Unavailable`, never a zero and never an exception: `decision` and `sanity`
decide what follows from that.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus, PodMetrics
from adapter.model.pods import PodFacts
from adapter.model.timestamps import NEVER, SECOND

NO_STATUS = HorizontalPodAutoscalerStatus()


NOT_YET = "NotYet"
"""The reason before the first answer: it is unknown whether there is a value."""


class Unavailable(msgspec.Struct, frozen=True):
    """Why there is no value: a reason for programs, and a message, upstream's for upstream's errors."""

    reason: str
    message: str


class PodsReading(msgspec.Struct, frozen=True):
    """The values of pods in thousandths by name; there may be values of unknown pods.

    `samples` are the times and windows of the samples in nanoseconds, which matter for cpu; a pod without an
    entry was sampled at Go's zero time. `overdue` says why the values may be out of date, "" if they are not:
    an overdue reading may scale up, not down. `most_then` is the largest number of ready pods over the time
    that the values cover, 0 if it does not matter: a scale-down counts with these pods, because they shared
    the load.
    """

    values: Mapping[str, int]
    samples: Mapping[str, tuple[int, int]] = {}
    overdue: str = ""
    most_then: int = 0


class ObjectReading(msgspec.Struct, frozen=True):
    """The value of one object in thousandths.

    `ready_then` is the number of ready pods at the time of the sample, None if unknown. A value that lags
    behind the pods is a ratio to these pods; multiplied by the pods of now it would overshoot. It applies to
    targets of type Value and to scale-ups only, and never turns one into a scale-down. Without it the pods of
    now count, as upstream. `overdue` and `most_then` are as above.
    """

    value: int
    ready_then: int | None = None
    overdue: str = ""
    most_then: int = 0


class ExternalReading(msgspec.Struct, frozen=True):
    """The series of an external metric in thousandths; `ready_then` is as above."""

    values: Sequence[int]
    ready_then: int | None = None
    overdue: str = ""
    most_then: int = 0


Reading = PodsReading | ObjectReading | ExternalReading | Unavailable


class Observation(msgspec.Struct, frozen=True):
    """What one sync sees.

    `replicas` is the scale's spec, `status_replicas` its status. `pods` are those that match `selector`,
    terminating ones included; `readings` are those of the metrics, in the order of the spec. `selected_by`
    are the autoscalers (``namespace/name``), this one included, whose selectors match one of these pods; more
    than one is an error. `status` is the autoscaler's before the sync. `write_error` is why the new count
    could not be written, in a second decision on the same observation. `fallback` is the least count while a
    metric has no value, 0 without one.
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
    """The flags and feature gates of kube-controller-manager, with its defaults; durations are nanoseconds.

    `scale_to_zero` is the feature gate HPAScaleToZero. `strict` is our own: negative values and results that
    overflow count as unavailable. Upstream computes with what amd64 makes of them, which may be any count.
    """

    tolerance: float = 0.1
    cpu_initialization_period: int = 300 * SECOND
    initial_readiness_delay: int = 30 * SECOND
    downscale_stabilization: int = 300 * SECOND
    scale_to_zero: bool = False
    strict: bool = False


class Band(NamedTuple):
    """The ratios within tolerance, both ends included."""

    low: float
    high: float

    def holds(self, ratio: float) -> bool:
        """Tell whether a ratio is within tolerance; NaN never is."""
        return self.low <= ratio <= self.high


def band(down: float, up: float) -> Band:
    """Return the band of two tolerances; each bound is computed once in doubles, as upstream does."""
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
