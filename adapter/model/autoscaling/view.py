"""The documents that show autoscalers: one of an autoscaler, and one of all that a process decides.

The scaler serves them below ``/debug/fastpath/autoscalers``; `fastpath explain`, `fastpath ui` and the plugin
of Headlamp show them. A field may be added within a version; one that is removed or changes its meaning makes
a new version. Instants are RFC 3339 in UTC with milliseconds, durations are seconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

VERSION = "v1"


Plain = Mapping[str, Any]


class _ViewPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a document: its fields in camel case."""


# -- one autoscaler ------------------------------------------------------------------------------------------


class TargetView(_ViewPart, frozen=True):
    """The scaled object; `error` says why it cannot be read, "" if it can. `manager` set its count last."""

    kind: str
    name: str
    error: str = ""
    replicas: int | None = None
    status_replicas: int | None = None
    ready: int | None = None
    selector: str = ""
    manager: str = ""


class MetricView(_ViewPart, frozen=True):
    """A metric of the spec with its value at the last decision.

    `current` and `target` are texts as kubectl prints them, such as ``63%`` and ``120m``; `current` is
    ``<unknown>`` without a value, and `fault` then says why. `ratio` is their quotient. `age` is that of the
    oldest sample, and `overdue` says why the value is too old to scale down, "" if it is not. `scrape_fault`
    says why the scrape of a pod or endpoint fails, "" if none does or the metric is not scraped.
    """

    name: str
    current: str
    target: str
    ratio: float | None = None
    age: float | None = None
    overdue: str = ""
    fault: str = ""
    scrape_fault: str = ""


class LimitsView(_ViewPart, frozen=True):
    """The least and the most replicas now, and what gives them beside the spec."""

    min: int
    max: int
    windows: Sequence[str] = ()
    forecast: int = 0
    floor: int = 0
    """The floor that is published for a boosted HorizontalPodAutoscaler."""


class NextChange(_ViewPart, frozen=True):
    """The next change of the count if the load stays: to how many `replicas`, when, and what ends then.

    `released` names the limit that the count waits for, such as ``held by stabilization``.
    """

    replicas: int
    at: str
    released: str


class HistoryPoint(_ViewPart, frozen=True):
    """A change: what was from `at` until the next point; a number that was not known is null.

    `demand` are the pods that the metrics ask for before all limits. `floor` is a published floor, 0 without
    one. `limited_by` is what kept the count where it was.
    """

    at: str
    demand: int | None
    desired: int | None
    ready: int | None
    floor: int
    min: int
    max: int
    limited_by: str


class HistoryView(_ViewPart, frozen=True):
    """The changes of the last hour, oldest first.

    Those of the last `exact` seconds are as they were. Of the older ones, `resolution` seconds keep the most
    demand and desired pods and the fewest Ready. A scaler that leaves `exact` out has these spans alone.
    """

    resolution: float
    until: str
    exact: float = 0.0
    points: Sequence[HistoryPoint] = ()


class BoundsAhead(_ViewPart, frozen=True):
    """A minimum or maximum of a schedule or a forecast, from now or later on; null for no bound."""

    start: str
    end: str
    min: int | None
    max: int | None
    source: str


class LastDecisionView(_ViewPart, frozen=True):
    """The last decision: its metrics as they were read, its steps as sentences, what limited the count.

    `demand` are the pods that the metrics ask for before all limits, null if one has no value.
    """

    time: str
    inputs: Sequence[Plain]
    trace: Sequence[str]
    error: str
    limited_by: str
    demand: int | None = None


class WritersView(_ViewPart, frozen=True):
    """Other writers of the count: `paused_by` suspends scaling; `reversals` is when they reverted a write."""

    paused_until: str | None
    paused_by: str
    reversals: Sequence[str]


class AutoscalerView(_ViewPart, frozen=True):
    """What one process knows of an autoscaler that it decides.

    `decided_since` is when it was first decided, null before that. `status` is that of the object. `history`
    is null where the scaler keeps none, `next` where the count does not change if the load stays. `boost` is
    left out for a FastPathAutoscaler, `forecast` for an autoscaler without one, and `journal` where the
    request says ``journal=false``.
    """

    version: str
    kind: str
    namespace: str
    name: str
    time: str
    mode: str
    writing: bool
    decided_since: str | None
    target: TargetView
    limits: LimitsView
    metrics: Sequence[MetricView]
    next: NextChange | None
    history: HistoryView | None
    ahead: Sequence[BoundsAhead]
    status: Plain
    recommendations: Mapping[str, Sequence[Plain]]
    writers: WritersView
    ready_times: Plain
    last: LastDecisionView | None
    journal: Sequence[Plain] | msgspec.UnsetType = msgspec.UNSET
    boost: Plain | msgspec.UnsetType = msgspec.UNSET
    forecast: Plain | msgspec.UnsetType = msgspec.UNSET


# -- all autoscalers of a process ----------------------------------------------------------------------------


class FleetEntry(_ViewPart, frozen=True):
    """One line about an autoscaler.

    `sample_age` is that of the oldest sample of its metrics, `chain` the time from load to write that was
    measured last. `overdue` is the number of metrics without a value or with one that is too old. `reversals`
    are the changes of direction in the last hour, `floor` is a published floor. `fault` is why it does not
    scale, "" if it does.
    """

    kind: str
    namespace: str
    name: str
    target: str
    mode: str
    replicas: int | None
    desired: int | None
    min: int
    max: int
    limited_by: str
    sample_age: float | None
    chain: float | None
    overdue: int
    reversals: int
    floor: int
    boosted: bool
    fault: str


class FleetView(_ViewPart, frozen=True):
    """The autoscalers that one process decides, in the order of their names."""

    version: str
    time: str
    autoscalers: Sequence[FleetEntry]
