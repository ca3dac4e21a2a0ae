"""The pods that are scraped, and the processing of their bodies within budgets of memory and time.

A body is processed in steps. The answers of the scrape before stay in use until the last step replaces them,
so a reader never sees a part of a scrape.

One namespace cannot use up a budget for others. A scrape that exceeds one fails as a whole, and what is kept
of its pod is dropped: the pod has no value then, with a reason, and never a value that lacks a series. The
largest pod of the namespace that uses most loses first (`model.fairness`); pods that take too much time are
scraped less often (`scrape.schedule`).
"""

import enum
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

from adapter.errors import ExpositionError, ExposureLimitError, ScrapeError
from adapter.model.clock import Clock
from adapter.model.fairness import Ledger
from adapter.model.steps import Steps
from adapter.rules.compile import Rule, UsageEntry
from adapter.rules.matchers import Matcher
from adapter.rules.registry import CustomEntry, ExternalEntry
from adapter.rules.scrape import exposition, scraped_query
from adapter.rules.scrape.scraped_query import Answer
from adapter.rules.scrape.series import KEPT_SERIES, PodSeries, Selections
from adapter.scrape.bodies import BodyBudget, BodyBuffer
from adapter.scrape.http import ScrapedBody, ScrapeEndpoint
from adapter.scrape.schedule import FairTurns, ScrapeJob, TimeShares
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems

ANSWERS_KEPT = 64
"""Queries whose answers are kept for a pod: one for each requested metric and metric selector."""

ANSWERED_SECONDS = 60.0
"""A query is evaluated with each scrape until it has not been read for this long."""

MOST_MATCHERS = 32
"""The answer to a query with more matchers is not kept."""

POD_BYTES = 12 * 1024 * 1024
"""Bound on the estimated bytes of the series that are kept of one pod."""

KEPT_BYTES = 96 * 1024 * 1024
"""Estimated bytes of the series that are kept of all pods."""

NAMESPACE_BYTES = 48 * 1024 * 1024
"""Estimated bytes of these that the pods of one namespace may have."""

_REVIEW_SECONDS = 1.0

_STARTING = frozenset({"unreachable", "timeout", "status"})
"""How scrapes of a pod fail that does not listen yet, which is no fault."""


class OwnUsage(enum.Enum):
    """The usage of a resource that pods expose; it is wanted as a metric is."""

    CPU = "cpu"


ScrapedMetric: TypeAlias = str | OwnUsage

ScrapedEntry: TypeAlias = CustomEntry | ExternalEntry | UsageEntry
"""What scrapes answer: a custom or an external metric, or the usage of CPU."""


def window_of(entry: ScrapedEntry) -> float:
    """Return the seconds that a value of a scraped metric covers, 0 for a gauge."""
    config, query = entry.rule.config.scrape, entry.rule.scraped
    return config.window if config is not None and query is not None and query.counts else 0.0


TargetKey: TypeAlias = tuple[str, str, int]
"""Namespace and name of a pod, and the number of the access it is scraped with."""


class ScrapeQuery(NamedTuple):
    """A question to what is scraped: a metric, by its rule and series, and the matchers of a selector."""

    rule: Rule
    series: str
    selector: tuple[Matcher, ...]

    @classmethod
    def build(cls, entry: ScrapedEntry, selector: Sequence[Matcher]) -> Self:
        return cls(entry.rule, entry.series, tuple(selector))

    def cost(self, count: int) -> int:
        """Return how much work the query is over so many series: series and matchers to look at."""
        expressions = sum(len(matcher.value) for matcher in self.selector if matcher.operator.endswith("~"))
        return count * (1 + len(self.selector)) + expressions

    def steps(
        self, endpoints: Sequence[PodSeries], stretch: float, pod: tuple[str, str] = ("", "")
    ) -> Steps[Answer]:
        """Evaluate the query in steps: of one pod, given as namespace and name, or of endpoints together."""
        compiled, config = self.rule.scraped, self.rule.config.scrape
        assert compiled is not None, "only metrics of rules with scrape are queried"
        assert config is not None, "as above"
        return compiled.evaluate(endpoints, self.series, self.selector, config.window * stretch, pod)


@dataclass(slots=True)
class TargetAnswer:
    """What a query gives for a pod as of its last good scrape, None if it is not evaluated yet.

    `read` is when the answer was last read (monotonic seconds).
    """

    result: Answer | None = None
    read: float = 0.0


_KeptT = TypeVar("_KeptT", bound=TargetAnswer)


def keep_answer(answers: dict[ScrapeQuery, _KeptT], query: ScrapeQuery, answer: _KeptT) -> None:
    """Add an answer, unless its query is long; of too many goes the one that was read longest ago."""
    if len(query.selector) > MOST_MATCHERS:
        return
    if len(answers) >= ANSWERS_KEPT and query not in answers:
        del answers[min(answers, key=lambda kept: answers[kept].read)]
    answers[query] = answer


class Scrape(NamedTuple):
    """A body and when its request was sent (monotonic, wall clock). `stretch` multiplies windows of rules."""

    body: ScrapedBody
    time: float
    wall: float
    stretch: float


class ScrapedValue(NamedTuple):
    """A pod's value and its time (epoch seconds). `overdue`: it may raise a metric, but not lower it."""

    value: float
    time: float
    overdue: bool


@dataclass(slots=True, eq=False)
class ScrapeTarget:
    """A pod that is scraped. While `busy`, `series` is being updated; all else is of the last good scrape.

    A pod without the port of the rule has the port 0. It is not scraped, and fails with that reason.
    """

    key: TargetKey
    endpoint: ScrapeEndpoint
    wanted: dict[Any, set[Hashable]] = field(default_factory=dict)  # metric -> owners
    paths: frozenset[str] = frozenset()  # of the rules whose faults are reported
    series: PodSeries = field(default_factory=PodSeries)
    selections: Selections = field(default_factory=dict)
    keep: float = 0.0  # seconds of samples that its rates are computed over
    answers: dict[ScrapeQuery, TargetAnswer] = field(default_factory=dict)
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
    namespace: str = field(init=False)

    def __post_init__(self) -> None:
        self.namespace = self.key[0]

    @property
    def pod(self) -> str:
        return self.key[1]

    @property
    def why(self) -> str:
        """The reason of the failure, with the address that was scraped."""
        return f"{self.endpoint.host}: {self.reason}" if self.endpoint.port else self.reason

    @property
    def fault(self) -> str:
        """The failure with pod and address, "" if it is no fault."""
        return f"{self.pod}: {self.why}" if self.is_fault else ""

    def reset(self, error: ScrapeError) -> None:
        """Drop all series, because a sum must not lack one."""
        self.series = PodSeries(self.series.relabel)
        self.fail(error, math.inf)

    def fail(self, error: ScrapeError, wall: float) -> None:
        """Note that a scrape has failed at a time (epoch seconds)."""
        self.failed, self.kind, self.reason = True, error.kind, str(error)
        self.is_fault = wall >= self.listens_since or error.kind not in _STARTING

    def select(self, entries: Iterable[ScrapedEntry | None]) -> None:
        """Keep the series that the queries of these metrics need; None and what is not scraped need none."""
        wanted = [entry for entry in entries if entry is not None]
        self.selections = scraped_query.merge_selections(
            (entry.rule.scraped, entry.series) for entry in wanted if entry.rule.scraped is not None
        )
        self.keep = max(map(window_of, wanted), default=0.0)
        # Pods that cannot be scraped for their usage are no fault: autoscalers say so in a condition.
        self.paths = frozenset(entry.rule.path for entry in wanted if not isinstance(entry, UsageEntry))

    def can_answer(self) -> bool:
        """Whether the series are those of the last good scrape."""
        return not self.busy and self.series.scrapes == self.scrapes

    def lacks(self, query: ScrapeQuery) -> bool:
        """Whether a query is not evaluated yet, and can be."""
        answer = self.answers.get(query)
        return (answer is None or answer.result is None) and self.can_answer()

    def judge(
        self, result: Answer | None, now: float, offset: float, stretch: float, oldest: float
    ) -> tuple[ScrapedValue | float, bool]:
        """Return the value of a result, or the time after which a sample says more; and whether it is seen.

        It is not where the last scrape failed, is late or is not processed yet. `oldest` is the rule's bound
        on the age of a value; times are epoch seconds, which `offset` makes of monotonic ones.
        """
        interval, timeout = self.endpoint.access.interval * stretch, self.endpoint.access.timeout
        overdue = self.failed or not self.scrapes or now - self.time > interval + timeout
        if result is None:
            return -math.inf, False
        if result.elements:
            if now - result.time <= min(2 * interval * self.slowed + timeout, oldest):
                value = result.elements[0].value
                return ScrapedValue(value, result.time + offset, overdue), not overdue
            return result.time + offset, not overdue
        if self.scrapes and not result.shown:
            return self.time + offset, not overdue  # the last scrape had no series of the metric
        # series that are not yet enough for a rate do not contradict an older sample of Prometheus
        return -math.inf, not overdue

    def answer_steps(self, query: ScrapeQuery, stretch: float) -> Steps[TargetAnswer]:
        return TargetAnswer((yield from query.steps([self.series], stretch, self.key[:2])))

    def steps(self, scrape: Scrape) -> Steps[None]:
        """Process a scrape in steps. Raises ExpositionError; then nothing of the scrape counts."""
        body, time, wall, stretch = scrape
        samples: list[exposition.Exposed] = []
        limit = self.endpoint.access.max_series
        yield from exposition.read(
            body.content, self.selections, samples, openmetrics=body.openmetrics, limit=limit
        )
        self.busy = True
        for _ in self.series.record(
            samples, time, wall, self.keep * stretch, most=KEPT_SERIES * limit, selections=self.selections
        ):
            if self.series.size > POD_BYTES:
                raise ExposureLimitError(f"the series of the pod take more than {POD_BYTES} bytes")
            yield
        recent = [
            (query, kept.read) for query, kept in self.answers.items() if time - kept.read <= ANSWERED_SECONDS
        ]
        answers: dict[ScrapeQuery, TargetAnswer] = {}
        for query, read in recent:
            answer = yield from self.answer_steps(query, stretch)
            answer.read = read
            answers[query] = answer
        for query, added in self.answers.items():  # queries that came between the steps
            if added.result is None:
                answers.setdefault(query, added)
        self.answers = answers
        self.scrapes, self.time = self.series.scrapes, time
        self.failed, self.reason, self.is_fault, self.busy = False, "", False, False


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


class ScrapeWork:
    """Processes the bodies of all targets.

    `lost` is called with a target whose series were dropped although its scrapes succeed, `slowed` with one
    whose interval has changed.
    """

    def __init__(
        self,
        clock: Clock,
        monitoring: Monitoring,
        problems: SourceProblems,
        *,
        lost: Callable[[ScrapeTarget], None],
        slowed: Callable[[ScrapeTarget], None],
    ) -> None:
        self.bodies = BodyBudget()
        self.turns = FairTurns(clock)
        self._clock = clock
        self._problems = problems
        self._monitoring = monitoring
        self._lost = lost
        self._slowed_changed = slowed
        self._kept: Ledger[ScrapeTarget] = Ledger("series", KEPT_BYTES, NAMESPACE_BYTES)
        self._shares: TimeShares[ScrapeTarget] = TimeShares()
        self._slowed: set[ScrapeTarget] = set()
        self._next_review = 0.0
        monitoring.scrape_bodies.set_function(lambda: self.bodies.size)
        monitoring.scraped_series.set_function(lambda: self._kept.total)
        monitoring.scrape_slowed.set_function(lambda: len(self._slowed))

    async def take(self, target: ScrapeTarget, buffer: BodyBuffer, scrape: Scrape) -> None:
        """Process a body. Raises ScrapeError; then nothing of the scrape counts."""
        job = target.job = self.turns.start(target.namespace, self._steps(target, scrape))
        buffer.lost = lambda reason: self.turns.abort(job, ScrapeError("budget", reason))
        try:
            await self.turns.finish(job)
        except ExposureLimitError as error:
            refusal = ScrapeError("series", str(error))
            self._reset(target, refusal)
            raise refusal from error
        except ExpositionError as error:
            raise ScrapeError("decode", str(error)) from error
        except ScrapeError as error:
            self._reset(target, error)
            raise
        finally:
            target.job, target.busy = None, False
            buffer.seconds += job.seconds

    def note(self, target: ScrapeTarget, seconds: float) -> None:
        """Note the time that a scrape, good or bad, took to parse and to process."""
        self._monitoring.scrape_seconds.inc(seconds)
        if not target.gone:
            self._shares.note(target.namespace, target, seconds, target.endpoint.access.interval)
            self._review()

    async def answer(
        self,
        namespace: str,
        targets: Sequence[ScrapeTarget],
        query: ScrapeQuery,
        stretch: Callable[[ScrapeTarget], float],
    ) -> None:
        """Compute the answers of pods of one namespace to a query, in turns with all other work."""

        def steps() -> Steps[None]:
            for target in targets:
                if target.can_answer() and not target.gone:
                    answer = yield from target.answer_steps(query, stretch(target))
                    keep_answer(target.answers, query, answer)
                    yield

        await self.turns.finish(self.turns.start(namespace, steps()))

    def drop(self, target: ScrapeTarget) -> None:
        target.gone = True
        self._kept.put(target.namespace, target, 0)
        self._shares.drop(target.namespace, target)
        self._slowed.discard(target)

    def _steps(self, target: ScrapeTarget, scrape: Scrape) -> Steps[None]:
        for _ in target.steps(scrape):
            self._charge(target)
            yield
        self._charge(target)

    def _charge(self, target: ScrapeTarget) -> None:
        """Note what is kept of a pod; while that is too much, the namespace with most loses its largest."""
        if target.gone:
            return
        is_over = self._kept.put(target.namespace, target, target.series.size)
        while is_over and (loss := self._kept.loss(target.namespace)) is not None:
            error = ScrapeError("budget", loss.reason)
            if loss.holder is target:
                raise error
            self._kept.put(loss.holder.namespace, loss.holder, 0)
            if loss.holder.busy and loss.holder.job is not None:
                self.turns.abort(loss.holder.job, error)
            else:
                loss.holder.reset(error)
                self._lost(loss.holder)

    def _reset(self, target: ScrapeTarget, error: ScrapeError) -> None:
        target.reset(error)
        self._kept.put(target.namespace, target, 0)

    def _review(self) -> None:
        """Stretch the intervals of the pods whose scrapes take more than their share of time."""
        now = self._clock.monotonic()
        if now < self._next_review:
            return
        self._next_review = now + _REVIEW_SECONDS
        stretches = self._shares.stretches()
        factors: Mapping[ScrapeTarget, float] = {
            target: factor for pods in stretches.values() for target, factor in pods.items()
        }
        for target in self._slowed | factors.keys():
            factor = factors.get(target, 1.0)
            if target.slowed != factor:
                target.slowed = factor
                self._slowed_changed(target)
        self._slowed = set(factors)
        for namespace in stretches:
            text = (
                f"pods of namespace {namespace} cost more time than their share: they are scraped less often"
            )
            self._problems.report("scrape-time", "pods are scraped less often", text, namespace)
