"""What is scraped, and what queries give over it.

A `ScrapeTarget` is an address with its series. A `ScrapeGroup` has the targets that a query is answered over
together: that of a pod, or those of all endpoints of a source that are scraped in one way. A scrape is
processed in steps, and the answers of the scrape before stay in use until the last step replaces them, so a
reader never sees a part of a scrape.
"""

import functools
import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from adapter.config.rules_config import Access, EndpointSource
from adapter.errors import ExposureLimitError, ScrapeError, UnionError
from adapter.model import steps
from adapter.model.clock import Clock
from adapter.model.steps import Steps
from adapter.rules.compile import Rule
from adapter.rules.scrape import exposition, scraped_query
from adapter.rules.scrape.scraped_query import Answer
from adapter.rules.scrape.series import KEPT_SERIES, PodSeries, Relabel, Selections, attach
from adapter.scrape.endpoints import NOT_FOUND, FoundEndpoints
from adapter.scrape.http import ScrapedBody, ScrapeEndpoint
from adapter.scrape.readings import ScrapedValue, ScrapeQuery
from adapter.scrape.schedule import ScrapeJob

ANSWERS_KEPT = 64
"""Queries whose answers are kept for a group: one for each requested metric and metric selector."""

ANSWERED_SECONDS = 60.0
"""A query is evaluated with each scrape until it has not been read for this long."""

MOST_MATCHERS = 32
"""The answer to a query with more matchers is not kept."""

POD_BYTES = 12 * 1024 * 1024
"""Bound on the estimated bytes of the series that are kept of one pod."""

EVALUATION_SHARE = 0.1
"""The part of the time that the evaluation of the queries over a source may take; at least twice in an
interval all of them are evaluated."""

_SERIES_WORK = 2
"""How much work a series of an endpoint is, compared with one of a pod: it has more labels to group by."""

_STARTING = frozenset({"unreachable", "timeout", "status"})
"""How scrapes of a pod fail that does not listen yet, which is no fault."""


SourceKey: TypeAlias = tuple[EndpointSource, Access]
"""Which endpoints, and how they are scraped. Rules with equal ones share the scrapes."""

GroupKey: TypeAlias = tuple[str, str, int] | SourceKey
"""Of a pod its namespace, its name, and the number of the access that it is scraped with."""


def window_of(rule: Rule) -> float:
    """Return the seconds that a value of a scraped metric covers, 0 for a gauge."""
    config, query = rule.config.scrape, rule.scraped
    return config.window if config is not None and query is not None and query.counts else 0.0


@dataclass(slots=True)
class GroupAnswer:
    """The result of a query over the targets `live` as of `version`; None if it is not evaluated yet.

    `reason` says why the query fails, and has no result therefore. `read` is when the answer was last read
    (monotonic seconds).
    """

    version: int = -1
    live: Sequence["ScrapeTarget"] = ()
    result: Answer | None = None
    reason: str = ""
    read: float = 0.0


@dataclass(slots=True, eq=False)
class ScrapeGroup:
    """Targets that a query is answered over together, and the answers. `source` is None for that of a pod."""

    key: GroupKey
    namespace: str
    access: Access
    clock: Clock
    source: EndpointSource | None = None
    pod: str = ""
    wanted: dict[ScrapeQuery, set[Hashable]] = field(default_factory=dict)  # query of a metric -> owners
    targets: tuple["ScrapeTarget", ...] = ()
    found: FoundEndpoints = NOT_FOUND
    paths: frozenset[str] = frozenset()  # of the rules whose faults are reported
    selections: Selections = field(default_factory=dict)
    keep: float = 0.0  # seconds of samples that rates are computed over
    answers: dict[ScrapeQuery, GroupAnswer] = field(default_factory=dict)
    version: int = 0  # of the targets and their series
    last: float = -math.inf  # time of the last good scrape of any target
    pause_until: float = -math.inf

    def select(self) -> None:
        """Keep the series that the wanted metrics need."""
        self.selections = scraped_query.merge_selections(
            (query.rule.scraped, query.series) for query in self.wanted if query.rule.scraped is not None
        )
        self.keep = max((window_of(query.rule) for query in self.wanted), default=0.0)
        # Pods that cannot be scraped for their usage, a query without a series, are no fault: autoscalers say
        # so in a condition.
        self.paths = frozenset(query.rule.path for query in self.wanted if query.series)

    def live(
        self, now: float, stretch: float, scraped: "ScrapeTarget | None" = None
    ) -> Sequence["ScrapeTarget"]:
        """Return the targets that answers are over: endpoints whose last good scrape counts, or the pod."""
        if self.source is None:
            return self.targets
        return [target for target in self.targets if target is scraped or target.counts(now, stretch)]

    def cost(self, query: ScrapeQuery, live: Collection["ScrapeTarget"]) -> int:
        count = sum(target.series.count for target in live)
        return query.cost(count if self.source is None else _SERIES_WORK * count)

    def lacks(self, query: ScrapeQuery, live: Collection["ScrapeTarget"]) -> bool:
        """Return whether a query is not evaluated yet, and can be."""
        answer = self.answers.get(query)
        return (answer is None or answer.version < 0) and all(target.can_answer() for target in live)

    def evaluate(self, query: ScrapeQuery, live: Sequence["ScrapeTarget"]) -> Steps[GroupAnswer]:
        """Evaluate a query in steps, between which the series must not change."""
        answer = GroupAnswer(self.version, live)
        compiled, config = query.rule.scraped, query.rule.config.scrape
        assert compiled is not None, "only metrics of rules with scrape are queried"
        assert config is not None, "as above"
        series, pod = [target.series for target in live], (self.namespace, self.pod)
        try:
            answer.result = yield from compiled.evaluate(
                series, query.series, query.selector, config.window, pod
            )
        except UnionError as error:
            answer.reason = str(error)
        return answer

    def answer(
        self, query: ScrapeQuery, live: Sequence["ScrapeTarget"], now: float, room: int
    ) -> tuple[GroupAnswer, int]:
        """Return the answer to a query, and how much work it was to evaluate it, which is at most `room`.

        If it were more, the answer is the last one, and the next scrape evaluates the query.
        """
        answer, work = self.answers.get(query), 0
        is_current = answer is not None and (answer.version == self.version or now < self.pause_until)
        if answer is None or not is_current or answer.live != live:
            cost = self.cost(query, live)
            if cost <= room and all(target.can_answer() for target in live):
                answer, work = steps.run(self.evaluate(query, live)), cost
                if self.source is not None:
                    self.rest(now)
            elif answer is None:
                answer = GroupAnswer()
            self.keep_answer(query, answer)
        answer.read = now
        return answer, work

    def keep_answer(self, query: ScrapeQuery, answer: GroupAnswer) -> None:
        """Add an answer, unless its query is long; of too many goes the one that was read longest ago."""
        if len(query.selector) > MOST_MATCHERS:
            return
        if len(self.answers) >= ANSWERS_KEPT and query not in self.answers:
            del self.answers[min(self.answers, key=lambda kept: self.answers[kept].read)]
        self.answers[query] = answer

    def renew(self, scraped: "ScrapeTarget", stretch: float) -> Steps[None]:
        """Evaluate the queries that were read lately over the newest scrape of a target.

        Those over a source pause after they took long. Of a pod all are evaluated with each scrape.
        """
        # First, also where it pauses: what was answered before is no longer of the newest series.
        self.version += 1
        begun = self.last = self.clock.monotonic()
        if begun < self.pause_until:
            return
        live, known = self.live(begun, stretch, scraped), dict(self.answers)
        answers: dict[ScrapeQuery, GroupAnswer] = {}
        for query, kept in known.items():
            if begun - kept.read <= ANSWERED_SECONDS:
                answers[query] = answer = yield from self.evaluate(query, live)
                answer.read = kept.read
        # Queries that came between the steps wait for the next scrape.
        self.answers = answers | {query: self.answers[query] for query in self.answers.keys() - known.keys()}
        if self.source is not None:
            self.rest(begun)

    def rest(self, begun: float) -> None:
        """Evaluate no more for a while, after an evaluation that began then."""
        took = self.clock.monotonic() - begun
        start = max(self.pause_until, begun)
        self.pause_until = min(start + took / EVALUATION_SHARE, begun + self.access.interval / 2)

    def relabel(self, pod: str, place: ScrapeEndpoint) -> Relabel | None:
        """Return what makes the labels of the series of an endpoint; those of a pod stay as they are."""
        source = self.source
        if source is None:
            return None
        labels = {
            "namespace": source.namespace,
            "pod": pod,
            "endpoint": place.access.port,
            "instance": place.host,
            "job": source.service,  # that of a PodMonitor has its name, which is not known: no such label
        }
        if source.service:
            labels["service"] = source.service
        return functools.partial(attach, attached=labels, honor=source.honor_labels)


@dataclass(slots=True, eq=False)
class ScrapeTarget:
    """An address that is scraped: that of a pod, or an endpoint of a source.

    While `busy`, `series` is being updated; all else is of the last good scrape. A pod without the port of
    the rule has the port 0. It is not scraped, and fails with that reason.
    """

    group: ScrapeGroup
    pod: str
    endpoint: ScrapeEndpoint
    series: PodSeries = field(init=False)
    scrapes: int = 0
    time: float = 0.0
    failed: bool = False
    kind: str = ""  # of the failure
    reason: str = ""
    is_fault: bool = False  # the failure is one, and not that of a pod that starts
    listens_since: float = -math.inf  # when the pod ought to answer (epoch seconds)
    slowed: float = 1.0  # factor of its interval, because its scrapes take too much time
    job: ScrapeJob | None = None
    busy: bool = False
    gone: bool = False

    def __post_init__(self) -> None:
        self.series = PodSeries(self.group.relabel(self.pod, self.endpoint))

    @property
    def owners(self) -> Collection[Hashable]:
        """Those that want it; none if it is gone, although its group may have another target by now."""
        return set() if self.gone else set().union(*self.group.wanted.values())

    @property
    def why(self) -> str:
        """The reason of the failure, with the address that was scraped."""
        return f"{self.endpoint.host}: {self.reason}" if self.endpoint.port else self.reason

    @property
    def fault(self) -> str:
        """The failure with pod and address, "" if it is no fault."""
        return f"{self.pod}: {self.why}" if self.is_fault else ""

    def fail(self, error: ScrapeError, wall: float) -> None:
        """Note that a scrape has failed at a time (epoch seconds)."""
        self.failed, self.kind, self.reason = True, error.kind, str(error)
        self.is_fault = wall >= self.listens_since or error.kind not in _STARTING

    def can_answer(self) -> bool:
        """Whether the series are those of the last good scrape."""
        return not self.busy and self.series.scrapes == self.scrapes

    def oldest(self, stretch: float) -> float:
        """Return the age in seconds at which its last good scrape no longer counts."""
        access = self.endpoint.access
        return 2 * access.interval * stretch * self.slowed + access.timeout

    def counts(self, now: float, stretch: float) -> bool:
        """Return whether its last good scrape counts: there is one, it is kept, and it is not too old."""
        kept = self.busy or self.series.scrapes == self.scrapes
        return self.scrapes > 0 and kept and now - self.time <= self.oldest(stretch)

    def trouble(self, now: float, stretch: float, live: Collection["ScrapeTarget"]) -> str:
        """Return why its values are missing or out of date, "" if they are not."""
        access, where = self.endpoint.access, self.endpoint.host
        why = f": {self.reason}" if self.failed else ""
        if self not in live:
            return f"{where} is not scraped now{why}" if self.failed or self.scrapes else f"{where} is new"
        late = now - self.time > access.interval * stretch + access.timeout
        return f"the scrape of {where} is overdue{why}" if self.failed or late else ""

    def judge(
        self, answer: GroupAnswer, now: float, offset: float, stretch: float, oldest: float
    ) -> tuple[ScrapedValue | float, bool]:
        """Return the value of a pod, or the time after which a sample says more; and whether it is seen.

        It is not where the last scrape failed, is late or is not processed yet. `oldest` is the rule's bound
        on the age of a value; times are epoch seconds, which `offset` makes of monotonic ones.
        """
        result = answer.result
        if result is None or self not in answer.live:  # of the pod that had this name before
            return -math.inf, False
        interval, timeout = self.endpoint.access.interval * stretch, self.endpoint.access.timeout
        overdue = self.failed or not self.scrapes or now - self.time > interval + timeout
        if result.elements:
            if now - result.time <= min(2 * interval * self.slowed + timeout, oldest):
                value = result.elements[0].value
                return ScrapedValue(value, result.time + offset, overdue), not overdue
            return result.time + offset, not overdue
        if self.scrapes and not result.shown:
            return self.time + offset, not overdue  # the last scrape had no series of the metric
        # series that are not yet enough for a rate do not contradict an older sample of Prometheus
        return -math.inf, not overdue

    def steps(self, body: ScrapedBody, time: float, wall: float, stretch: float) -> Steps[None]:
        """Process a body in steps. Raises ExpositionError; then nothing of the scrape counts.

        `time` is when the request was sent (monotonic), `wall` the same by the wall clock. `stretch` is the
        factor of all intervals, and of the windows of rules.
        """
        group, limit = self.group, self.endpoint.access.max_series
        samples: list[exposition.Exposed] = []
        yield from exposition.read(
            body.content, group.selections, samples, openmetrics=body.openmetrics, limit=limit
        )
        self.busy = True
        factor, most = stretch * self.slowed, KEPT_SERIES * limit
        for _ in self.series.record(
            samples, time, wall, group.keep * factor, most=most, selections=group.selections
        ):
            if self.series.size > POD_BYTES:
                raise ExposureLimitError(f"the series of the pod take more than {POD_BYTES} bytes")
            yield
        self.series.stretch = factor
        if not self.gone:
            yield from group.renew(self, stretch)
        # Last, because a reader may come between the steps: until here all is of the scrape before.
        self.scrapes, self.time = self.series.scrapes, time
        self.failed, self.reason, self.is_fault, self.busy = False, "", False, False
