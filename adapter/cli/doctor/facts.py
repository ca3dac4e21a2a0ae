"""The facts of `fastpath doctor` about one HorizontalPodAutoscaler.

`read` and `sources` collect them, `metric` and `shared` draw conclusions. A fact that could not be read is
`Unread` with the reason, never a default that looks as if it had been read.
"""

from typing import NamedTuple

from adapter.model.autoscaling.boost import BoostAnnotations, Handshake
from adapter.model.autoscaling.floor import Floor
from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, MetricSpec
from adapter.model.autoscaling.shards import WHOLE, Shard


class Unread(NamedTuple):
    """Something that is not known, and why."""

    why: str


class Serving(NamedTuple):
    """The server of an API group: `owner` in words, "" without one.

    `fault` says why it does not answer, "" where it is available. `ours` is whether it is Fastpath.
    """

    group: str
    owner: str
    ours: bool = False
    fault: str = ""


class AnswerFacts(NamedTuple):
    """How the API answered when it was asked as the HPA asks: with how many values, or why with none.

    How long it took. `total` adds the values. `window` is over how many seconds they say they are, `age` how
    old they say they are; None where they do not.
    """

    number: int
    seconds: float
    total: float = 0.0
    error: str = ""
    status: int = 200
    window: float | None = None
    age: float | None = None


class SeriesFacts(NamedTuple):
    """What Prometheus has of the series that a query reads, in seconds.

    None is not known. `found` tells whether there is any now.
    """

    found: bool
    interval: float | None = None
    age: float | None = None


class Scraped(NamedTuple):
    """A rule that has Fastpath read pods itself: how often, and over what its rates are, seconds."""

    interval: float
    window: float


class SourceFacts(NamedTuple):
    """Where a metric comes from.

    The rule, the query that is sent, how much of the past it looks at (None: a recording rule's business).
    `reused` is for how many seconds an answer is used again. `scraped` is None where pods are not read by
    Fastpath; `scrapable` tells whether they could be.
    """

    rule: str
    query: str
    lookback: float | None
    series: SeriesFacts | Unread
    scraped: Scraped | None = None
    scrapable: bool = False
    reused: float = 0.0


class MetricFacts(NamedTuple):
    """One metric of the autoscaler.

    `source` is None where no rule makes it, such as for what metrics-server serves.
    """

    label: str
    spec: MetricSpec
    serving: Serving | Unread
    answer: AnswerFacts | Unread
    source: SourceFacts | Unread | None = None


class Starts(NamedTuple):
    """How long pods took from their creation to Ready, seconds, over `number` pods that never restarted."""

    median: float
    longest: float
    number: int


class TargetFacts(NamedTuple):
    """The Scale of the target, and its pods as far as they matter."""

    replicas: int
    selector: str
    ready: int = 0
    starts: Starts | None = None


class Period(NamedTuple):
    """How often the HPA controller decides, seconds, and who says so."""

    seconds: float
    says: str


class Leader(NamedTuple):
    """One Lease of Fastpath's scaler.

    Its holder, "" without one, and seconds since its renewal and of its duration. `shard` is the part of the
    autoscalers that its holder decides.
    """

    lease: str
    holder: str
    renewed: float | None
    duration: float
    shard: Shard = WHOLE


class BoostFacts(NamedTuple):
    """What an annotated autoscaler has beside its own metrics.

    `floor` is the handshake as a metric, None where the spec has none. `entry` is what Fastpath has published
    of it, None where there is nothing. `owner` is the object of another autoscaling project that it belongs
    to, "" for none.
    """

    wishes: BoostAnnotations
    handshake: Handshake
    floor: MetricFacts | None
    leaders: tuple[Leader, ...] | Unread
    entry: Floor | Unread | None = None
    owner: str = ""


class Facts(NamedTuple):
    """Everything about one autoscaler.

    `delay` is how much of the newest past the queries' engine hides, seconds. `rivals` are other
    HorizontalPodAutoscalers of the target by name, `fast_rivals` its FastPathAutoscalers. `owner` is the
    object that made the autoscaler, such as ``KEDA's ScaledObject web``, "" for none that is known.
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
    def key(self) -> str:
        """Return namespace/name."""
        return f"{self.hpa.metadata.namespace}/{self.hpa.metadata.name}"

    @property
    def mode(self) -> str:
        """Return the mode that the annotation asks for, "" for none."""
        return self.boost.wishes.mode if self.boost is not None else ""

    def has_value(self, metric: MetricSpec) -> bool | None:
        """Return whether the HPA controller last had a value of a metric, None if its status does not say.

        The status has a metric in the place that the spec has it in; one that failed has no type.
        """
        specs = self.hpa.spec.metrics or ()
        found = (self.hpa.status.current_metrics if self.hpa.status is not None else None) or ()
        if len(found) != len(specs) or metric not in specs:
            return None
        return bool(found[specs.index(metric)].type)
