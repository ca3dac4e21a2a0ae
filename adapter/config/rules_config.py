"""The rules of a rules file, and how they scrape, as frozen values."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from adapter import errors
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector

MAX_BYTES = 4 * 1024 * 1024
MAX_LINES = 50_000
MAX_SERIES = 2000
"""Default limits of a body."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A bearer token from a file, for pods of the listed namespaces only."""

    token_file: str
    namespaces: frozenset[str]


@dataclass(frozen=True, slots=True)
class EndpointTLS:
    """How a pod's certificate is checked: CA file ("" for the system's), server name ("" for the address)."""

    ca_file: str = ""
    server_name: str = ""
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Access:
    """How a pod is scraped. Rules with equal access share the scrapes of a pod.

    `port` is a number or the name of a container port, for a Service that of one of its ports. Durations are
    seconds, sizes bytes after unzipping; `max_series` counts the series that rules use.
    """

    port: str
    path: str = "/metrics"
    scheme: str = "http"
    interval: float = 1.0
    timeout: float = 1.0
    host_network: bool = False
    credentials: Credentials | None = None
    tls: EndpointTLS | None = None
    max_bytes: int = MAX_BYTES
    max_lines: int = MAX_LINES
    max_series: int = MAX_SERIES


@dataclass(frozen=True, slots=True)
class EndpointSource:
    """The endpoints of the Service `service`, or of the pods that `selector` matches if that is "".

    `honor_labels`: a label that an endpoint exposes replaces the attached label of the same name, as in a
    ServiceMonitor.
    """

    namespace: str
    service: str = ""
    selector: LabelSelector = EVERYTHING
    honor_labels: bool = False

    def __str__(self) -> str:
        if self.service:
            return f"Service {self.namespace}/{self.service}"
        return f"pods of namespace {self.namespace} with {self.selector}"


@dataclass(frozen=True, slots=True)
class ScrapeConfig:
    """The `scrape` key: `window` is the range of a counter's rate, in seconds.

    `source` says which endpoints an external rule reads; None for a rule about pods.
    """

    access: Access
    window: float = 5.0
    source: EndpointSource | None = None


class OnNaN(enum.Enum):
    """How a sample without a value is treated: left out, or NaN becomes 0 as in prometheus-adapter."""

    DROP = "drop"
    ZERO = "zero"


class OnWarnings(enum.Enum):
    """How a response with a warning is treated: as a failed query, or accepted as in prometheus-adapter."""

    FAIL = "fail"
    ACCEPT = "accept"


@dataclass(frozen=True, slots=True)
class SeriesFilter:
    """One entry of `seriesFilters`: exactly one of the two regular expressions is not empty."""

    is_: str = ""
    is_not: str = ""


@dataclass(frozen=True, slots=True)
class OverrideConfig:
    """One entry of `resources.overrides`: a label, and its resource in any case, singular or plural."""

    label: str
    group: str
    resource: str


@dataclass(frozen=True, slots=True)
class ResourcesConfig:
    """How labels and resources correspond. `namespaced` has an effect on external rules only."""

    template: str = ""
    overrides: tuple[OverrideConfig, ...] = ()
    namespaced: bool = True


@dataclass(frozen=True, slots=True)
class RuleConfig:
    """One entry of `rules` or `externalRules`. Durations are seconds, None if not in the file.

    `path`, `source` and `line` are its position, `lines` has those of its keys by path. `ttl`: how long an
    answer is cached; `max_age`: how old an answer may be while Prometheus fails; `max_sample_age`: how old a
    sample may be; `scrape`: how the pods, or the endpoints of an external rule, are scraped. Without `on_nan`
    a custom metric leaves the object out, and an external metric is an error.
    """

    path: str
    source: str
    line: int
    series_query: str = ""
    series_filters: tuple[SeriesFilter, ...] = ()
    resources: ResourcesConfig = ResourcesConfig()
    name_matches: str = ""
    name_as: str = ""
    metrics_query: str = ""
    on_nan: OnNaN | None = None
    on_warnings: OnWarnings = OnWarnings.FAIL
    ttl: float | None = None
    max_age: float | None = None
    max_sample_age: float | None = None
    scrape: ScrapeConfig | None = None
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class UsageScrape:
    """How pods are scraped for their own usage.

    `query` is a template over the series of one pod, "" for the process collector's counter. `container` is
    the one whose usage they show, "" for the one that has the port.
    """

    scrape: ScrapeConfig
    query: str = ""
    container: str = ""


@dataclass(frozen=True, slots=True)
class ResourceRuleConfig:
    container_query: str = ""
    node_query: str = ""
    resources: ResourcesConfig = ResourcesConfig()
    container_label: str = ""
    scrape: UsageScrape | None = None


@dataclass(frozen=True, slots=True)
class ResourceRulesConfig:
    """`resourceRules`; `window` in seconds is reported to callers and enters no query.

    Without a query nothing is served: the rules only say how pods are scraped for their own usage.
    """

    path: str
    cpu: ResourceRuleConfig = ResourceRuleConfig()
    memory: ResourceRuleConfig = ResourceRuleConfig()
    window: float = 0.0
    source: str = ""
    line: int = 0
    on_warnings: OnWarnings = OnWarnings.FAIL
    lines: Mapping[str, int] = field(default_factory=dict, compare=False, repr=False)

    @property
    def queries(self) -> bool:
        """Whether a resource has a query, or none has one and none is scraped, which is a mistake."""
        both = (self.cpu, self.memory)
        queried = any(rule.container_query or rule.node_query for rule in both)
        return queried or all(rule.scrape is None for rule in both)


def fault_at(config: RuleConfig | ResourceRulesConfig, path: str, value: str, expected: str) -> errors.Fault:
    """Return a fault with the line of its path, or of the nearest key above that the file has."""
    line = config.lines.get(max(filter(path.startswith, config.lines), key=len, default=""), config.line)
    return errors.Fault(path, value, expected, config.source, line)


@dataclass(frozen=True, slots=True)
class RulesConfig:
    """The rules of one or several files. `resource_rules` is None if absent, which differs from empty."""

    rules: tuple[RuleConfig, ...] = ()
    external_rules: tuple[RuleConfig, ...] = ()
    resource_rules: ResourceRulesConfig | None = None

    @property
    def serves_usages(self) -> bool:
        """Whether CPU and memory are served, and not only scraped."""
        return self.resource_rules is not None and self.resource_rules.queries


@dataclass(frozen=True, slots=True)
class Parsed:
    """The usable rules, the faults of the others, and the faults that make the whole file unusable.

    `readable` has the unusable rules too, as far as they could be read, for further checks of a report.
    """

    config: RulesConfig
    faults: tuple[errors.Fault, ...] = ()
    fatal: tuple[errors.Fault, ...] = ()
    readable: RulesConfig = field(default_factory=RulesConfig, compare=False)
