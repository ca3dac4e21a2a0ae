"""The hops between the load and Ready pods, and the facts of one autoscaler that they follow from."""

import enum
import math
import re
from collections.abc import Iterable
from typing import NamedTuple

from adapter.model.autoscaling.boost import BoostAnnotations, Handshake
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.hpa import (
    Condition,
    CrossVersionObjectReference,
    HorizontalPodAutoscaler,
    MetricSpec,
)
from fastpath_tools.live.facts import Leaders, MetricFacts, PatchRight, Period, TargetFacts, Unread

# -- facts ---------------------------------------------------------------------------------------------------


class BoostFacts(NamedTuple):
    """What an annotated autoscaler has beside its own metrics.

    `floor` is the handshake as a metric, None if the spec has none. `entry` is the floor that Fastpath has
    published, if any.
    """

    wishes: BoostAnnotations
    handshake: Handshake
    floor: MetricFacts | None
    entry: Floor | Unread | None = None


class BoostOffer(NamedTuple):
    """What boosting an HPA depends on, and boosting it with another handshake.

    `floors` are the handshakes as metrics, first the one that `fastpath boost` writes by itself, up to one
    that works. `owner` is the object of another autoscaling project that owns the autoscaler.
    """

    leaders: Leaders | Unread
    floors: tuple[MetricFacts, ...]
    owner: str = ""


class ScaleDownFacts(NamedTuple):
    """What idle scale-down depends on. `option` is where an autoscaler asks for it."""

    option: str
    reference: CrossVersionObjectReference
    target: TargetFacts | Unread
    right: PatchRight | Unread
    mode: str
    """That of the autoscaler; for an HPA the one of its annotation."""


class Facts(NamedTuple):
    """Everything about one HorizontalPodAutoscaler.

    `delay` is how much of the newest past the engine of the queries hides. `rivals` are the names of other
    HorizontalPodAutoscalers of the target, `fast_rivals` those of its FastPathAutoscalers. `owner` is the
    object that made the autoscaler, such as ``KEDA's ScaledObject web``. `scale_down` is None without a wish
    for idle scale-down. `scrape_fault` is which scrape of its pods or endpoints fails, "" for none.
    """

    hpa: HorizontalPodAutoscaler
    target: TargetFacts | Unread
    metrics: tuple[MetricFacts, ...]
    period: Period
    delay: float | Unread
    now: int
    boost: BoostFacts | None = None
    rivals: tuple[str, ...] = ()
    owner: str = ""
    fast_rivals: tuple[str, ...] = ()
    scale_down: ScaleDownFacts | None = None
    offer: BoostOffer = BoostOffer(Unread("not read"), ())
    scrape_fault: str = ""

    @property
    def mode(self) -> str:
        """The mode that the annotation asks for, "" for none."""
        return self.boost.wishes.mode if self.boost is not None else ""

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return (self.hpa.status.conditions if self.hpa.status is not None else None) or ()

    def has_value(self, metric: MetricSpec) -> bool | None:
        """Return whether the HPA controller last had a value of a metric, None if its status does not say.

        The status lists metrics in the order of the spec; one that failed has no type.
        """
        specs = self.hpa.spec.metrics or ()
        statuses = (self.hpa.status.current_metrics if self.hpa.status is not None else None) or ()
        if len(statuses) != len(specs) or metric not in specs:
            return None
        return bool(statuses[specs.index(metric)].type)


# -- what a controller says ----------------------------------------------------------------------------------

_SELECTOR = re.compile(
    r"&LabelSelector\{MatchLabels:map\[string\]string\{([^{}]*)\},"
    r"MatchExpressions:\[\]LabelSelectorRequirement\{((?:\{[^{}]*\}|[^{}])*)\},\}"
)
_EXPRESSION = re.compile(r"LabelSelectorRequirement\{Key:([^,]*),Operator:([^,]*),Values:\[([^\]]*)\],\},")
_AROUND = re.compile(
    r"the (?:HPA|autoscaler) was unable to compute the replica count: |"
    r"failed to compute desired number of replicas based on listed metrics for \S+: |"
    r"invalid metrics \([0-9]+ invalid out of [0-9]+\), first error is: |"
    r"failed to get (?:[^ :]+ ){1,4}(?:value|utilization|usage): |"
    r"(?:unable to fetch metrics from [a-z]+ metrics API: )?Internal error occurred: "
)
"""What a controller puts around a cause."""


def plain(message: str) -> str:
    """Return the cause in a message of a controller, with selectors as people write them."""
    return _AROUND.sub("", _SELECTOR.sub(_write_selector, message)).replace("/nil:", ":")


def _write_selector(match: re.Match[str]) -> str:
    labels = [pair.replace(": ", "=") for pair in match[1].split(",") if pair]
    return ",".join(labels + [" ".join(one).strip() for one in _EXPRESSION.findall(match[2])])


def describe_condition(condition: Condition) -> str:
    return f"{condition.type} is {condition.status} ({condition.reason}): {plain(condition.message)}"


# -- hops ----------------------------------------------------------------------------------------------------


class State(enum.StrEnum):
    """The state of a hop, from best to worst."""

    OK = "ok"
    UNKNOWN = "unknown"
    WARNING = "warning"
    FAULT = "fault"


class Improvement(NamedTuple):
    """A change to make, and how many seconds it usually saves; infinite if nothing works without it."""

    text: str
    saves: float = math.inf


class Took(NamedTuple):
    """How many seconds a hop takes usually and at most."""

    usual: float
    most: float


NOTHING = Took(0.0, 0.0)


def evenly(most: float) -> Took:
    """Return how long one waits for what happens every `most` seconds."""
    return Took(most / 2, most)


class Hop(NamedTuple):
    """One hop between the load and ready pods; `timed` is False for one that never takes time."""

    name: str
    state: State
    text: str
    took: Took | None = None
    change: Improvement | None = None
    timed: bool = True

    @classmethod
    def untimed(cls, name: str, state: State, text: str, change: str = "") -> "Hop":
        """Return one that never takes time; nothing works without its `change`."""
        return cls(name, state, text, change=Improvement(change) if change else None, timed=False)


class MetricChain(NamedTuple):
    """The hops of one metric, from the load to the number of replicas that is written."""

    metric: str
    hops: tuple[Hop, ...]


class Total(NamedTuple):
    """The sum over a chain; `whole` is False if the time of a hop is not known."""

    took: Took
    whole: bool


def total(hops: Iterable[Hop]) -> Total:
    timed = [hop for hop in hops if hop.timed]
    known = [hop.took for hop in timed if hop.took is not None]
    usual, most = (sum(times) for times in zip(NOTHING, *known, strict=True))
    return Total(Took(usual, most), len(known) == len(timed))


def seconds(value: float) -> str:
    """Return seconds for people: ``40 ms``, ``7.5 s``, ``2 m 30 s``."""
    if value < 0.0995:
        return f"{value * 1000:.0f} ms" if value >= 0.0005 else "0 s"
    if value < 9.95:
        return f"{value:.1f}".removesuffix(".0") + " s"
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} m {rest} s" if rest else f"{minutes} m"
