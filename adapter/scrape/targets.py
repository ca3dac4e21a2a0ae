"""A pod that is scraped: what is wanted of it, the series of its last scrape, and its answers to queries.

A body is processed in steps. The answers of the scrape before stay in use until the last step replaces them,
so a reader never sees a part of a scrape.
"""

import math
from collections.abc import Collection, Generator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from adapter.errors import ExposureLimitError
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher
from adapter.rules.registry import namespace_label
from adapter.rules.resource import PODS
from adapter.rules.scrape import exposition
from adapter.rules.scrape.pod_query import PodIdentity, PodValue
from adapter.rules.scrape.series import KEPT_SERIES, PodSeries, Selections
from adapter.scrape.http import ScrapedBody, ScrapeEndpoint
from adapter.scrape.turns import ScrapeJob

ANSWERS_KEPT = 64
"""Queries whose answers are kept for a pod: one for each requested metric and metric selector."""

ANSWERED_SECONDS = 60.0
"""A query is evaluated with each scrape until it has not been read for this long."""

MOST_MATCHERS = 32
"""The answer to a query with more matchers is not kept."""

POD_BYTES = 12 * 1024 * 1024
"""Bound on the estimated bytes of the series that are kept of one pod."""


class ScrapedMetric(NamedTuple):
    """A metric as far as scrapes are concerned: the rule that defines it, and the name of its series."""

    rule: Rule
    series: str


TargetKey: TypeAlias = tuple[str, str, int]
"""Namespace and name of a pod, and the number of the access it is scraped with."""

TargetQuery: TypeAlias = tuple[ScrapedMetric, tuple[Matcher, ...]]
"""A metric, and the matchers of a metric selector."""


@dataclass(slots=True)
class TargetAnswer:
    """The value of a pod as of its last good scrape; `shown`: that scrape had a series of the metric.

    `pending`: the query is not evaluated yet. `read` is when the answer was last read (monotonic seconds).
    """

    value: PodValue | None = None
    shown: bool = False
    pending: bool = True
    read: float = 0.0


class Scrape(NamedTuple):
    """A body and when its request was sent (monotonic, wall clock).

    `stretch` multiplies the windows of rules.
    """

    body: ScrapedBody
    time: float
    wall: float
    stretch: float


@dataclass(slots=True, eq=False)
class ScrapeTarget:
    """A pod that is scraped. While `busy`, `series` is in the middle of a scrape.

    All else is of the last one.
    """

    key: TargetKey
    endpoint: ScrapeEndpoint
    wanted: dict[str, set[Hashable]] = field(default_factory=dict)  # metric -> owners
    series: PodSeries = field(default_factory=PodSeries)
    names: frozenset[str] = frozenset()
    selections: Selections | None = None
    keep: float = 0.0  # seconds of samples that its rates are computed over
    answers: dict[TargetQuery, TargetAnswer] = field(default_factory=dict)
    scrapes: int = 0
    time: float = 0.0
    failed: bool = False
    reason: str = ""  # of the failure
    slowed: float = 1.0  # factor of its interval, because its scrapes take too much time
    job: ScrapeJob | None = None
    busy: bool = False
    gone: bool = False

    @property
    def namespace(self) -> str:
        return self.key[0]

    def reset(self, reason: str) -> None:
        """Drop all series, because a sum must not lack one."""
        self.series = PodSeries()
        self.failed = True
        self.reason = reason

    def can_answer(self) -> bool:
        """Whether the series are those of the last good scrape."""
        return not self.busy and self.series.scrapes == self.scrapes

    def lacks(self, query: TargetQuery) -> bool:
        """Whether a query is not evaluated yet, and can be."""
        answer = self.answers.get(query)
        return (answer is None or answer.pending) and self.can_answer()

    def cost(self, query: TargetQuery) -> int:
        """Return how much work a query is: series and matchers to look at."""
        selector = query[1]
        expressions = sum(len(matcher.value) for matcher in selector if matcher.operator.endswith("~"))
        return self.series.count * (1 + len(selector)) + expressions

    def evaluate(self, query: TargetQuery, stretch: float) -> TargetAnswer:
        """Return the answer to a query at once."""
        steps = self.answer_steps(query, stretch)
        while True:
            try:
                next(steps)
            except StopIteration as ended:
                answer: TargetAnswer = ended.value
                return answer

    def put(self, query: TargetQuery, answer: TargetAnswer) -> None:
        """Keep an answer until the next scrape."""
        if len(query[1]) > MOST_MATCHERS:
            return
        if len(self.answers) >= ANSWERS_KEPT and query not in self.answers:
            del self.answers[min(self.answers, key=lambda kept: self.answers[kept].read)]
        self.answers[query] = answer

    def answer_steps(self, query: TargetQuery, stretch: float) -> Generator[None, None, TargetAnswer]:
        """Evaluate a query in steps."""
        (rule, series), selector = query
        pod_query, config = rule.pod_query, rule.config.scrape
        assert pod_query is not None, "only metrics of rules with scrape are queried"
        assert config is not None, "as above"
        namespace, name, _ = self.key
        identity = PodIdentity(namespace, name, namespace_label(rule) or "", rule.converter.label_for(PODS))
        window = config.window * stretch
        value = yield from pod_query.steps(self.series, series, identity, selector, window)
        return TargetAnswer(value, self.series.shows(pod_query.series_names(series)), pending=False)

    def steps(self, scrape: Scrape) -> Generator[None, None, None]:
        """Process a scrape in steps. Raises ExpositionError; then nothing of the scrape counts."""
        body, time, wall, stretch = scrape
        samples: list[exposition.Exposed] = []
        limit = self.endpoint.access.max_series
        yield from exposition.read(
            body.content, self.names, samples, openmetrics=body.openmetrics, limit=limit
        )
        self.busy = True
        for _ in self.series.record_steps(
            samples, time, wall, self.keep * stretch, most=KEPT_SERIES * limit, selections=self.selections
        ):
            if self.series.size > POD_BYTES:
                raise ExposureLimitError(f"the series of the pod take more than {POD_BYTES} bytes")
            yield
        recent = [
            (query, kept.read) for query, kept in self.answers.items() if time - kept.read <= ANSWERED_SECONDS
        ]
        answers: dict[TargetQuery, TargetAnswer] = {}
        for query, read in recent:
            answer = yield from self.answer_steps(query, stretch)
            answer.read = read
            answers[query] = answer
        for query, added in self.answers.items():  # queries that came between the steps
            if added.pending:
                answers.setdefault(query, added)
        self.answers = answers
        self.scrapes, self.time = self.series.scrapes, time
        self.failed, self.reason, self.busy = False, "", False


class ScrapedValue(NamedTuple):
    """A pod's value and its time (epoch seconds). `overdue`: it may raise a metric, but not lower it."""

    value: float
    time: float
    overdue: bool


class ScrapedAnswer(NamedTuple):
    """What scrapes say about some pods of one namespace, by name.

    `absent` are the scraped pods without a value now: only a sample later than the given time (epoch seconds)
    says more about them than the scrapes do. Of these, `unseen` are the pods whose last scrape failed, is
    late or is not processed yet. Pods in neither mapping are not scraped.
    """

    values: Mapping[str, ScrapedValue]
    absent: Mapping[str, float]
    unseen: Collection[str] = frozenset()


class TargetReading:
    """Collects the answers of many pods. `offset` converts monotonic times to epoch seconds.

    The others are seconds.
    """

    def __init__(self, now: float, offset: float, interval: float, timeout: float, oldest: float) -> None:
        self.values: dict[str, ScrapedValue] = {}
        self.absent: dict[str, float] = {}
        self.unseen: set[str] = set()
        self._now = now
        self._offset = offset
        self._interval = interval
        self._timeout = timeout
        self._oldest = oldest

    def add(self, name: str, target: ScrapeTarget, answer: TargetAnswer) -> None:
        value = answer.value
        late = self._now - target.time > self._interval + self._timeout
        overdue = target.failed or not target.scrapes or late
        oldest = min(2 * self._interval * target.slowed + self._timeout, self._oldest)
        if value is not None and self._now - value.time <= oldest:
            self.values[name] = ScrapedValue(value.value, value.time + self._offset, overdue)
            return
        if overdue or answer.pending:
            self.unseen.add(name)
        self.absent[name] = self._absent_since(target, answer) if value is None else value.time + self._offset

    def _absent_since(self, target: ScrapeTarget, answer: TargetAnswer) -> float:
        """Return the time of the last scrape if it has no series of the metric, otherwise minus infinity.

        Series that are not yet enough for a rate do not contradict an older sample of Prometheus.
        """
        known = target.scrapes and not answer.pending and not answer.shown
        return target.time + self._offset if known else -math.inf
