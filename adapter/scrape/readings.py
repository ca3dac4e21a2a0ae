"""Questions to what is scraped, and what the scrapes say to them."""

import enum
from collections.abc import Collection, Mapping
from typing import NamedTuple, TypeAlias

from adapter.rules.compile import Rule, UsageEntry
from adapter.rules.matchers import Matcher
from adapter.rules.registry import CustomEntry, ExternalEntry
from adapter.rules.scrape.evaluation import Element


class OwnUsage(enum.Enum):
    """The usage of a resource that pods expose; it is wanted as a metric is."""

    CPU = "cpu"


ScrapedMetric: TypeAlias = str | OwnUsage

ScrapedEntry: TypeAlias = CustomEntry | ExternalEntry | UsageEntry
"""What scrapes answer: a custom or an external metric, or the usage of CPU."""


class ScrapeQuery(NamedTuple):
    """A question to what is scraped: a metric, by its rule and series, and the matchers of a selector."""

    rule: Rule
    series: str
    selector: tuple[Matcher, ...] = ()

    def cost(self, count: int) -> int:
        """Return how much work the query is over so many series: series and matchers to look at."""
        expressions = sum(len(matcher.value) for matcher in self.selector if matcher.operator.endswith("~"))
        return count * (1 + len(self.selector)) + expressions


class ScrapedValue(NamedTuple):
    """A pod's value and its time (epoch seconds). `overdue`: it may raise a metric, but not lower it."""

    value: float
    time: float
    overdue: bool


class ScrapedAnswer(NamedTuple):
    """What scrapes say about some pods of one namespace, by name.

    `absent` are the scraped pods without a value now: only a sample later than the given time (epoch seconds)
    says more about them than the scrapes do. Of these, `unseen` are the pods whose last scrape failed, is
    late or is not processed yet. Pods in neither mapping are not scraped. `offset` is what was added to
    monotonic times. The pods `slowed` are scraped less often than others, and their windows are longer.
    `fault` is why the scrape of one of the pods fails, with its name and address, "" if none does but of pods
    that start.
    """

    values: Mapping[str, ScrapedValue]
    absent: Mapping[str, float]
    unseen: Collection[str] = frozenset()
    offset: float = 0.0
    slowed: Collection[str] = frozenset()
    fault: str = ""


class EndpointReading(NamedTuple):
    """What the scrapes say about an external metric.

    `reason` says why there is no value. Only a sample of Prometheus later than `last` (epoch seconds) says
    more. `fault` is why the scrape of an endpoint fails, or why there are no endpoints. `elements` are the
    samples of its query, None without an answer; `time` is that of the oldest of them (epoch seconds).
    `overdue` says why a part may be missing or out of date, "" if none is.
    """

    reason: str
    last: float
    fault: str
    elements: tuple[Element, ...] | None = None
    time: float = 0.0
    overdue: str = ""
