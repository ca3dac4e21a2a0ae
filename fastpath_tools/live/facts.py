"""What the tools read of a cluster and of Prometheus: plain values.

A fact that could not be read is `Unread` with the reason, never a default that looks as if it had been read.
Durations are seconds; None is unknown, and never counts as 0.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from adapter.config.rules_config import ScrapeConfig
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.hpa import MetricSpec
from adapter.model.quantity import Quantity
from adapter.model.ready_times import ReadyTimes
from adapter.model.visible import listed
from adapter.scrape.endpoints import FoundEndpoints


class Unread(NamedTuple):
    """A fact that is not known, and why; `change` is what ends that where an object is wrong."""

    why: str
    change: str = ""


class Serving(NamedTuple):
    """The server of an API group.

    `owner` names it, "" without one; `ours` tells whether it is Fastpath. `fault` says why it is not
    available, "" if it is, and `remedy` what to do then, "" if that is not known. `warning` says which
    client reads which version if the versions have different servers, or if one is not registered.
    """

    group: str
    owner: str
    ours: bool = False
    fault: str = ""
    warning: str = ""
    remedy: str = ""


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
    """What Prometheus has of the series that a query reads. `found` tells whether it has any now.

    `excluding` says which matcher alone excludes the series that there are, "" if no single one does.
    """

    found: bool
    interval: float | None = None
    age: float | None = None
    excluding: str = ""


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


class MetricsPort(NamedTuple):
    """A port of a container where pods may expose metrics: as `scrape` has it, and its number."""

    port: str
    number: int
    path: str
    container: str


class UsageVerdict(NamedTuple):
    """Whether the scaler uses the usage that pods expose, None if that is not known, and why not."""

    counts: bool | None = None
    why: str = ""
    reason: str = ""


class UsageFacts(NamedTuple):
    """CPU or memory as pods expose it themselves.

    With a rule: `scraped` says how Fastpath reads it, as a rate or not, and `verdict` whether it counts.
    Without: `port` is where a pod exposes the counter of the process collector, None if none was seen to.
    """

    rule: str = ""
    scraped: ScrapeConfig | None = None
    is_rate: bool = True
    verdict: UsageVerdict = UsageVerdict()
    port: MetricsPort | Unread | None = None


class MetricFacts(NamedTuple):
    """One metric of the autoscaler.

    `source` is None if no rule makes it, as for resource metrics. `usage` is the CPU of its pods. `resize`
    says which requests a utilization counts against, "" if those of the spec are in effect.
    """

    label: str
    spec: MetricSpec
    serving: Serving | Unread
    answer: AnswerFacts | Unread
    source: SourceFacts | Unread | None = None
    usage: UsageFacts | None = None
    resize: str = ""


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


class Resize(NamedTuple):
    """A resize of a pod that is not actuated, and why.

    `requests` are those of the spec and those in effect, by container and resource.
    """

    why: str
    requests: Mapping[tuple[str, str], tuple[Quantity, Quantity]]


class CountWriter(NamedTuple):
    """The field manager that last changed the count of a target, and when, in nanoseconds."""

    manager: str
    at: int


class Reversal(NamedTuple):
    """A count that another writer lowered: its field manager, "" if none is known, the count, and when."""

    manager: str
    replicas: int
    at: int


class UnreadyPods(NamedTuple):
    """Which pods of a target do not get Ready and why, and what to do.

    `pod` is one of them, "" where they are not created. `is_late` tells whether pods of the target usually
    take less long.
    """

    text: str
    change: str
    pod: str = ""
    is_late: bool = True


class ContainerFacts(NamedTuple):
    """A container of a target's pods that runs as long as they do, with its requests and limits."""

    name: str
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]


class TargetFacts(NamedTuple):
    """The Scale of the target, and its ready pods by name.

    `ports` are those where the pods may expose metrics, `resizes` those that are not actuated. `labels` are
    the names of the labels of its pods. `cost_writers` are the other field managers that write deletion
    costs, each with a pod. `unread` is why its pods are not known, "" if they are. `owner` is the controller
    that makes the target, `containers` are those of the newest pod. `notes` say what may not be read.
    """

    replicas: int
    selector: str
    ready: tuple[str, ...] = ()
    starts: Starts | None = None
    ports: tuple[MetricsPort, ...] = ()
    resizes: tuple[Resize, ...] = ()
    labels: frozenset[str] = frozenset()
    cost_writers: tuple[tuple[str, str], ...] = ()
    writer: CountWriter | None = None
    unready: UnreadyPods | None = None
    strangers: tuple[tuple[str, int], ...] = ()
    reversal: Reversal | None = None
    unread: str = ""
    owner: str = ""
    containers: tuple[ContainerFacts, ...] = ()
    notes: tuple[str, ...] = ()


class PatchRight(NamedTuple):
    """Whether the `account` of the scaler may patch the pods of a namespace.

    `kubernetes` is the version of the cluster, None if it is not known.
    """

    account: str
    allowed: bool
    kubernetes: tuple[int, int] | None = None


class Period(NamedTuple):
    """How often the HPA controller decides, and where that is known from."""

    seconds: float
    says: str


class Leader(NamedTuple):
    """The owner of a slice by its Lease.

    `renewed` is how long ago the `holder` was seen; `holder` is "" without one. A user who may create Leases
    in a namespace can name one like a scaler's: it counts for autoscalers of its own namespace, and for all
    if it `is_trusted`, as those in the namespace of Fastpath.
    """

    lease: str
    holder: str
    renewed: float | None
    duration: float
    number: int
    is_trusted: bool = True

    @property
    def namespace(self) -> str:
        return self.lease.partition("/")[0]

    def owns(self, namespace: str) -> bool:
        is_slice = self.number == slices.slice_of(namespace)
        return is_slice and (self.is_trusted or self.namespace == namespace)


KEEP_ONE = (
    "keep one installation: scale the Deployment of the other one to zero, or uninstall it; a user of a "
    "namespace can make such Leases too, so see first which of the pods run"
)
"""What to do about scalers that do not share slices."""


class Leaders(NamedTuple):
    """The Leases of Fastpath's scaler in the namespaces `looked`, all if empty.

    `unread` is why those of the other namespaces cannot be listed, "" if all were. `scalers` are the Pods
    whose own Leases are renewed, after the places in which they share slices: first that of Fastpath. They
    own slices in the places `working`. `holder` is the place of the installation that scales, "" if that is
    not known.
    """

    found: tuple[Leader, ...]
    looked: tuple[str, ...] = ()
    unread: str = ""
    scalers: tuple[tuple[str, str], ...] = ()
    working: frozenset[str] = frozenset()
    holder: str = ""

    def stands_back(self, place: str) -> bool:
        return self.holder not in {"", place} and place not in self.working

    @property
    def where(self) -> str:
        if not self.looked:
            return "in any namespace"
        return f"in namespace{'' if len(self.looked) == 1 else 's'} {listed(self.looked)}"


def unlisted(leaders: Leaders | Unread) -> str:
    """Return why Leases of some namespaces are not known, "" if all are."""
    return leaders.why if isinstance(leaders, Unread) else leaders.unread


def overlap(leaders: Leaders | Unread) -> str:
    """Return where scalers that do not share slices have Leases, as far as these tell; "" if none do."""
    if isinstance(leaders, Unread):
        return ""
    writing = [scaler for scaler in leaders.scalers if not leaders.stands_back(scaler[0])]
    if len(dict(writing)) < 2:
        return ""
    places = _places(writing)
    return f"Leases of scalers in namespaces {places}: they share no slices, and all write the same targets"


def standing_back(leaders: Leaders | Unread) -> str:
    """Return which installation scales, and which stand back; "" if none do."""
    if isinstance(leaders, Unread):
        return ""
    back = [scaler for scaler in leaders.scalers if leaders.stands_back(scaler[0])]
    if not back:
        return ""
    places = f"namespace{'' if len(dict(back)) == 1 else 's'} {_places(back)}"
    return f"the installation in namespace {listed((leaders.holder,))} scales; scalers in {places} stand back"


def _places(scalers: Iterable[tuple[str, str]]) -> str:
    pods: dict[str, list[str]] = {}
    for place, pod in scalers:
        pods.setdefault(place, []).append(pod)
    return listed(f"{place} (pods {listed(names)})" for place, names in pods.items())
