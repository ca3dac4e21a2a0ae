"""From a rule and the objects of a question to samples, and from a sample to the value of a metric.

Values of pods that are scraped come from the scrapes, all others from Prometheus through the query cache. An
instant query stamps its samples with the time of its evaluation, so where the age of a sample matters a
companion query asks for the time of the oldest sample of each object. A value that is absent is never taken
for zero.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from adapter import errors
from adapter.config.rules_config import OnNaN
from adapter.model.clock import Clock
from adapter.model.metrics import Sample
from adapter.prometheus.answers import Freshness, ObjectAnswer, TextAnswer, refresh_ahead
from adapter.prometheus.query_cache import QueryCache
from adapter.rules import matchers
from adapter.rules.compile import Rule
from adapter.rules.lookback import AgeQuery
from adapter.rules.matchers import Matcher
from adapter.rules.query import Dropped, MetricQuery, milli_of
from adapter.rules.query_plan import Objects
from adapter.rules.registry import CustomEntry, ExternalEntry
from adapter.rules.resource import PODS
from adapter.scrape.cache import ScrapedValues
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems

QUERY_ERRORS = (
    errors.NamingError,
    errors.TemplateError,
    errors.UnsupportedSelectorError,
    errors.PrometheusError,
)
"""Why a question has no samples: its query cannot be rendered, or Prometheus does not answer it."""

# How long a request waits for Prometheus when scrapes have values already, in seconds.
_PATIENCE = 0.25

SHARED = 0.25
"""How old, in seconds, an answer may be that one scaler shares among its polls: an older one may be from
before the newest sample. Queries for values and for their times are not further apart either: a value with
the time of a later sample would be taken for that sample."""

_Answer = TypeVar("_Answer", TextAnswer, ObjectAnswer)


class SamplePlan(NamedTuple):
    """How a question about objects is answered: its metric and query, its objects, how old answers may be."""

    entry: CustomEntry
    query: MetricQuery
    objects: Objects
    freshness: Freshness

    def age_query(self) -> MetricQuery:
        """Return the query for the times of the oldest samples behind `query`."""
        query = self.query
        return MetricQuery(
            self.entry.rule.age, query.series, query.selector, query.namespace_label, query.object_label
        )


@dataclass(slots=True, eq=False)
class Sampler:
    """Reads the samples of rules.

    `freshness` is how long answers are used where a rule does not say; `scraped` has the values of scraped
    pods and endpoints.
    """

    cache: QueryCache
    clock: Clock
    monitoring: Monitoring
    problems: SourceProblems
    freshness: Freshness
    scraped: ScrapedValues

    def freshness_of(self, rule: Rule) -> Freshness:
        config, default = rule.config, self.freshness
        if config.ttl is None and config.max_age is None:
            return default
        ttl = default.ttl if config.ttl is None else config.ttl
        return refresh_ahead(ttl, default.max_age if config.max_age is None else config.max_age)

    async def read_objects(self, plan: SamplePlan) -> ObjectAnswer:
        """Return the samples of objects, from scrapes for scraped pods and from Prometheus for all others.

        A request whose pods have values from scrapes waits for Prometheus only briefly, and its failure takes
        nothing away. Samples older than the rule allows are left out. Raises the members of `QUERY_ERRORS`.
        """
        entry, (namespace, names), selector = plan.entry, plan.objects, plan.query.selector
        if namespace is None or entry.rule.scraped is None or entry.resource.group_resource != PODS:
            return await self._query(plan)
        await self.scraped.prepare(entry, namespace, names, selector)
        scraped = self.scraped.read_cut(entry, namespace, names, selector)
        if not scraped.values and not scraped.absent:
            return await self._query(plan)
        asked = self.clock.monotonic()
        rest = tuple(name for name in names if name not in scraped.values and name not in scraped.left_out)
        answer = ObjectAnswer({}, asked)
        if rest:
            try:
                async with asyncio.timeout(_PATIENCE if scraped.values else None):
                    others = plan._replace(objects=Objects(namespace, rest))
                    answer = await self._query(others, scraped.absent)
            except TimeoutError:
                pass  # the query goes on, and its answer is there for the next request
            except errors.PrometheusError as error:
                if not scraped.values:
                    raise
                self.problems.failed(error, plan.entry.rule.path)
        samples = {name: (Sample({}, value.value, value.time),) for name, value in scraped.values.items()}
        overdue = sum(value.overdue for value in scraped.values.values())
        instead = len(answer.samples.keys() & scraped.absent.keys())
        for source, count in (
            ("scrape", len(samples) - overdue),
            ("overdue", overdue),
            ("prometheus", instead),
            ("absent", len(scraped.absent) - instead),
        ):
            self.monitoring.scraped_values.labels(source).inc(count)
        return ObjectAnswer({**answer.samples, **samples}, asked, scraped=True)

    async def read_endpoints(
        self, entry: ExternalEntry, parts: Sequence[Matcher]
    ) -> tuple[list[Sample] | None, float, str]:
        """Return the samples of all scraped endpoints of an external metric, None to ask Prometheus.

        Then only samples later than the time returned (epoch seconds) count, and the text says why scrapes
        have none, "" if the metric is not scraped in this process. An autoscaler adds the samples up, so an
        answer that lacks a part, or is overdue, gives way to Prometheus.
        """
        reading = None
        if entry.rule.scraped is not None:
            await self.scraped.prepare(entry, "", (), parts)
            reading = self.scraped.read_endpoints(entry, parts)
        if reading is None:
            return None, -math.inf, ""
        elements = reading.elements
        if elements is None or reading.overdue or (not elements and math.isinf(reading.last)):
            return None, reading.last, reading.overdue or reading.reason
        self.monitoring.scraped_values.labels("scrape").inc(len(elements))
        samples = [Sample(element.all_labels(), element.value, reading.time) for element in elements]
        return samples, reading.last, ""

    def count_instead(self, samples: int) -> None:
        """Count the samples of Prometheus that stand in for scrapes of endpoints, or their absence."""
        self.monitoring.scraped_values.labels("prometheus" if samples else "absent").inc(samples or 1)

    async def _query(self, plan: SamplePlan, later: Mapping[str, float] | None = None) -> ObjectAnswer:
        """Return Prometheus' samples of the objects, without those that are too old.

        Too old is what the rule's `maxSampleAge` says and, by name, what is not later than `later` (epoch
        seconds).
        """
        (entry, query, objects, freshness), later = plan, later or {}
        oldest = entry.rule.config.max_sample_age
        asked = self.cache.ask_objects(query, objects, freshness, entry.series_count)
        if oldest is None and not (later and any(time > -math.inf for time in later.values())):
            answer = await asked
        else:
            asked_ages = self.cache.ask_objects(plan.age_query(), objects, freshness, entry.series_count)
            answer, ages = await with_ages(asked, asked_ages, freshness)
            limit = -math.inf if oldest is None else self.clock.wall() - oldest
            fresh = {
                name: samples
                for name, samples in answer.samples.items()
                if name in ages.samples
                and ages.samples[name][-1].value >= limit
                and ages.samples[name][-1].value > later.get(name, -math.inf)
            }
            self._drop("stale", len(answer.samples) - len(fresh))
            answer = ObjectAnswer(fresh, min(answer.asked, ages.asked), answer.failure or ages.failure)
        self.problems.answered(entry.rule.path, answer.asked, answer.failure)
        return answer

    async def read_series(
        self,
        rule: Rule,
        promql: str,
        companion: AgeQuery | None,
        freshness: Freshness,
        *,
        after: float = -math.inf,
    ) -> tuple[TextAnswer, list[Sample]]:
        """Return the answer to an external metric's query, and its samples without those that are too old.

        `companion` asks for the times of the samples, None where neither the rule nor `after` (epoch seconds)
        bounds their age. Raises PrometheusError.
        """
        accepts = rule.accepts_warnings
        asked = self.cache.ask(promql, freshness, accepts_warnings=accepts)
        oldest = rule.config.max_sample_age
        if companion is None:
            answer = await asked
            samples = answer.result.samples
        else:
            asked_ages = self.cache.ask(companion.promql, freshness, accepts_warnings=accepts)
            answer, ages = await with_ages(asked, asked_ages, freshness)
            limit = after if oldest is None else max(after, self.clock.wall() - oldest)
            samples = companion.fresh(answer.result.samples, ages.result.samples, limit)
            self._drop("stale", len(answer.result.samples) - len(samples))
            answer = answer._replace(
                asked=min(answer.asked, ages.asked), failure=answer.failure or ages.failure
            )
        self.problems.answered(rule.path, answer.asked, answer.failure)
        return answer, samples

    async def read_objects_with_times(self, plan: SamplePlan) -> tuple[ObjectAnswer, ObjectAnswer]:
        """Return samples of objects and their times; either may be partial. Errors as `read_objects`."""

        def ask(query: MetricQuery, freshness: Freshness) -> Awaitable[ObjectAnswer]:
            count = plan.entry.series_count
            return self.cache.ask_objects(query, plan.objects, freshness, count, takes_partial=True)

        return await together(partial(ask, plan.query), partial(ask, plan.age_query()), plan.freshness)

    async def read_series_with_times(
        self, rule: Rule, promql: str, companion: AgeQuery, freshness: Freshness
    ) -> tuple[TextAnswer, TextAnswer]:
        """Return an external metric's answer and its times; either may be partial. PrometheusError."""
        ask = partial(self.cache.ask, accepts_warnings=rule.accepts_warnings, takes_partial=True)
        return await together(partial(ask, promql), partial(ask, companion.promql), freshness)

    def failure(self, error: Exception, rule: Rule, unrendered: errors.StatusError) -> errors.StatusError:
        """Report one of `QUERY_ERRORS`; return the answer to it, `unrendered` if there is no query."""
        if isinstance(error, errors.PrometheusError):
            return self.problems.unfetched(error, rule.path)
        self.problems.report("render", "query cannot be built", str(error), rule.config.path)
        return unrendered

    def milli(self, sample: Sample, rule: Rule, render: Callable[[], str]) -> int | None:
        """Return thousandths, None for a NaN and the like; a value beyond 64 bits is an error, not a number.

        `render` gives the query, for the report of a value that is left out.
        """
        try:
            milli = milli_of(sample.value, nan_is_zero=rule.config.on_nan is OnNaN.ZERO)
        except OverflowError as error:
            self._leave_out("value refused", "overflow", rule, render)
            raise errors.InternalError(
                f"a value of {rule.config.path} is beyond 9.2e15, the limit of a quantity"
            ) from error
        if isinstance(milli, Dropped):
            self._leave_out("value left out", milli, rule, render)
            return None
        return milli

    def _leave_out(self, message: str, reason: str, rule: Rule, render: Callable[[], str]) -> None:
        self._drop(reason, 1)
        self.problems.report("value", message, reason, rule.config.path, query=matchers.shorten(render()))

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self.monitoring.dropped.labels(reason=reason).inc(count)


async def both(first: Awaitable[_Answer], second: Awaitable[_Answer]) -> tuple[_Answer, _Answer]:
    """Await two answers side by side; the error of either, after both have ended."""
    results = await asyncio.gather(first, second, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    one, other = (result for result in results if not isinstance(result, BaseException))
    return one, other


async def together(
    first: Callable[[Freshness], Awaitable[_Answer]],
    second: Callable[[Freshness], Awaitable[_Answer]],
    freshness: Freshness,
) -> tuple[_Answer, _Answer]:
    """Return a value and its times of about one moment; errors as `both`."""
    one, other = await both(first(freshness), second(freshness))
    if freshness.repeats and abs(one.asked - other.asked) > SHARED:
        freshness = freshness._replace(ttl=SHARED)
        one, other = await both(first(freshness), second(freshness))
    return one, other


async def with_ages(
    asked: Awaitable[_Answer], asked_ages: Awaitable[_Answer], freshness: Freshness
) -> tuple[_Answer, _Answer]:
    """Await an answer and the times of its samples; errors as `both`.

    Where the answer is an older one that stands in for a failure, times of a later query say nothing about
    its samples: then the failure is raised.
    """
    answer, ages = await both(asked, asked_ages)
    if answer.failure is not None and ages.asked - answer.asked > freshness.ttl:
        raise answer.failure
    return answer, ages
