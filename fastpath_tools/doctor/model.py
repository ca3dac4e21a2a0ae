"""The values of `fastpath doctor`: the facts that are read, and the hops that follow from them.

A fact that could not be read is `Unread` with the reason, never a default that looks as if it had been read.
Durations are seconds; None is unknown, and never counts as 0.
"""

import enum
import math
from collections.abc import Iterable
from typing import NamedTuple

from adapter.config.scrape_keys import ScrapeConfig
from adapter.model.autoscaling.boost import BoostAnnotations, Handshake
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscaler, MetricSpec
from adapter.model.autoscaling.shards import WHOLE, Shard
from adapter.model.ready_times import ReadyTimes
from adapter.scrape.endpoints import FoundEndpoints

# -- facts ---------------------------------------------------------------------------------------------------


class Unread(NamedTuple):
    """A fact that is not known, and why."""

    why: str


class Serving(NamedTuple):
    """The server of an API group.

    `owner` names it, "" without one; `ours` tells whether it is Fastpath. `fault` says why it is not
    available, "" if it is. `warning` says which client reads which version if the versions have different
    servers, or if one is not registered.
    """

    group: str
    owner: str
    ours: bool = False
    fault: str = ""
    warning: str = ""


class AnswerFacts(NamedTuple):
    """How the API answered a request like the HPA controller's.

    `number` is the number of values, `total` their sum; without values `error` says why. `seconds` is how
    long the request took. `window` and `age` are what the values say of themselves.
    """

    number: int
    seconds: float = 0.0
    total: float = 0.0
    error: str = ""
    status: int = 200
    window: float | None = None
    age: float | None = None


class SeriesFacts(NamedTuple):
    """What Prometheus has of the series that a query reads. `found` tells whether it has any now."""

    found: bool
    interval: float | None = None
    age: float | None = None


class SourceFacts(NamedTuple):
    """The rule and the query of a metric.

    `lookback` is None for a recording rule, which has its own. `scraped` is None if Fastpath does not scrape
    the pods or endpoints itself; `scrapable` tells whether it could. `reused` is how long an answer is used
    again. `endpoints` are those of an external rule that is scraped.
    """

    rule: str
    query: str
    lookback: float | None
    series: SeriesFacts | Unread
    scraped: ScrapeConfig | None = None
    scrapable: bool = False
    reused: float = 0.0
    endpoints: FoundEndpoints | Unread | None = None


class MetricFacts(NamedTuple):
    """One metric of the autoscaler. `source` is None if no rule makes it, as for resource metrics."""

    label: str
    spec: MetricSpec
    serving: Serving | Unread
    answer: AnswerFacts | Unread
    source: SourceFacts | Unread | None = None


class Probe(NamedTuple):
    """What a probe does before its first attempt, and after a failed one, in seconds."""

    title: str
    delay: float
    period: float


class Pulls(NamedTuple):
    """How long image pulls took, as the events of `pods` pods say: the median of their sums, in seconds."""

    median: float
    pods: int


class Starts(NamedTuple):
    """How long pods took from their creation to Ready, the probe that may delay them, and image pulls."""

    times: ReadyTimes
    probe: Probe | None = None
    pulls: Pulls | None = None


class TargetFacts(NamedTuple):
    """The Scale of the target, and its ready pods by name."""

    replicas: int
    selector: str
    ready: tuple[str, ...] = ()
    starts: Starts | None = None


class Period(NamedTuple):
    """How often the HPA controller decides, and where that is known from."""

    seconds: float
    says: str


class Leader(NamedTuple):
    """One Lease of Fastpath's scaler. `renewed` is how long ago; `holder` is "" without one."""

    lease: str
    holder: str
    renewed: float | None
    duration: float
    shard: Shard = WHOLE


_NAMED = 5
"""How many namespaces a finding names."""


class Leaders(NamedTuple):
    """The Leases of Fastpath's scaler in the namespaces `looked`, all if empty.

    `unread` is why those of the other namespaces cannot be listed, "" if all were.
    """

    found: tuple[Leader, ...]
    looked: tuple[str, ...] = ()
    unread: str = ""

    @property
    def where(self) -> str:
        if not self.looked:
            return "in any namespace"
        names, more = ", ".join(self.looked[:_NAMED]), len(self.looked) - _NAMED
        also = f" and {more} more" if more > 0 else ""
        return f"in namespace{'' if len(self.looked) == 1 else 's'} {names}{also}"


class BoostFacts(NamedTuple):
    """What an annotated autoscaler has beside its own metrics.

    `floor` is the handshake as a metric, None if the spec has none. `entry` is the floor that Fastpath has
    published, if any. `owner` is the object of another autoscaling project that owns the autoscaler.
    """

    wishes: BoostAnnotations
    handshake: Handshake
    floor: MetricFacts | None
    leaders: Leaders | Unread
    entry: Floor | Unread | None = None
    owner: str = ""


class Facts(NamedTuple):
    """Everything about one HorizontalPodAutoscaler.

    `delay` is how much of the newest past the engine of the queries hides. `rivals` are the names of other
    HorizontalPodAutoscalers of the target, `fast_rivals` those of its FastPathAutoscalers. `owner` is the
    object that made the autoscaler, such as ``KEDA's ScaledObject web``.
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
        found = (self.hpa.status.current_metrics if self.hpa.status is not None else None) or ()
        if len(found) != len(specs) or metric not in specs:
            return None
        return bool(found[specs.index(metric)].type)


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


class Chain(NamedTuple):
    """The hops of one metric, from the load to the number of replicas that is written."""

    metric: str
    hops: tuple[Hop, ...]


class Total(NamedTuple):
    """The sum over a chain; `whole` is False if the time of a hop is not known."""

    took: Took
    whole: bool


def total(hops: Iterable[Hop]) -> Total:
    timed = [each for each in hops if each.timed]
    known = [each.took for each in timed if each.took is not None]
    took = Took(sum(each.usual for each in known), sum(each.most for each in known))
    return Total(took, len(known) == len(timed))


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
