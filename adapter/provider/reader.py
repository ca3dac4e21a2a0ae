"""Reads values: from a rule and a question to thousandths, for the metrics APIs and for the autoscaler.

Values of scraped pods and endpoints come from the scrapes, all others from Prometheus through the query
cache. An instant query stamps its samples with the time of its evaluation, so where the age of a sample
matters a companion query asks for the time of the oldest sample of each object. A value that is absent is
never taken for zero.

The autoscaler asks with a `ttl` (`timed`), the API without one. They differ on purpose:

- Scrapes are read here for the API only. The autoscaler reads them from memory at each decision.
- An answer that stands in for a failed query is served by the API, and is no value for the autoscaler.
- An answer with a warning is a failure for the API. For the autoscaler its values are overdue: they may scale
  up and not down.
- The API leaves out samples that are too old. The autoscaler has the times of all, and judges them itself.
"""

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from adapter import errors
from adapter.config.rules_config import OnNaN
from adapter.model import quantity
from adapter.model.clock import Clock
from adapter.model.coherence import unserved_pods
from adapter.model.metrics import CustomQuestion, ExternalQuestion, ExternalValue, Sample
from adapter.prometheus.answers import Freshness, ObjectAnswer, TextAnswer, refresh_ahead
from adapter.prometheus.query_cache import QueryCache
from adapter.provider import rule_queries
from adapter.provider.resolver import Resolver, unknown
from adapter.rules import lookback, matchers
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher
from adapter.rules.query import OVERFLOW, TOO_LARGE, Dropped, MetricQuery
from adapter.rules.query_plan import Objects
from adapter.rules.registry import CustomEntry, ExternalEntry
from adapter.rules.resource import PODS
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.readings import ScrapedAnswer
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import UNFETCHED, SourceProblems

# Why a question has no samples: its query cannot be rendered, or Prometheus does not answer it.
_QUERY_ERRORS = (
    errors.NamingError,
    errors.TemplateError,
    errors.UnsupportedSelectorError,
    errors.PrometheusError,
)

# How long a request waits for Prometheus when scrapes have values already, in seconds.
_PATIENCE = 0.25

_STEP = 500
"""Values that are converted between two points at which other work may run."""

SHARED = 0.25
"""How old, in seconds, an answer may be that one scaler shares among its polls: an older one may be from
before the newest sample. Queries for values and for their times are not further apart either: a value with
the time of a later sample would be taken for that sample."""

PARTIAL = "the answer of Prometheus has warnings and may be incomplete"
"""Why a partial answer is overdue. The warning itself may hold addresses, and is only logged."""

_AnswerT = TypeVar("_AnswerT", TextAnswer, ObjectAnswer)
_SourceT = TypeVar("_SourceT")
_ItemT = TypeVar("_ItemT")


class Values(NamedTuple, Generic[_ItemT]):
    """The values of a question; an object without one is absent. They are fresh until `fresh_until`.

    The rest is for the autoscaler. `sampled` are the times of the oldest samples, by name, that of all series
    under "" (epoch seconds); unknown times are absent. `lookback` is the seconds of the past that the query
    covers, None if not known; `oldest` is the rule's bound on the age of a sample, None without one.
    `overdue` says why the values may be out of date or lack a part, "" where they are whole. `merges` says
    whether such questions share their queries, None where no query was sent, and `crosses` whether those of
    several namespaces do.
    """

    items: Sequence[_ItemT]
    fresh_until: float = -math.inf
    sampled: Mapping[str, float] = {}
    lookback: float | None = None
    oldest: float | None = None
    overdue: str = ""
    merges: bool | None = True
    crosses: bool = True


class _Plan(NamedTuple):
    """How Prometheus is asked for objects."""

    entry: CustomEntry
    query: MetricQuery
    objects: Objects
    freshness: Freshness
    timed: bool


@dataclass(slots=True, eq=False)
class ValueReader:
    """`freshness` is how long answers are used where a rule does not say.

    `became_ready` returns when pods of a namespace became ready lately, by name, in monotonic seconds.
    """

    resolver: Resolver
    cache: QueryCache
    clock: Clock
    monitoring: Monitoring
    problems: SourceProblems
    freshness: Freshness
    scraped: ScrapedValues
    became_ready: Callable[[str], Mapping[str, float]] = lambda _: {}

    async def sample_objects(
        self, question: CustomQuestion, names: tuple[str, ...], ttl: float
    ) -> Values[tuple[str, int]] | None:
        """Return Prometheus' values by name, at most `ttl` seconds old; None if no rule has the metric.

        StatusError as `read_objects`; InternalError while the rules are not known.
        """
        entry = await self.resolver.find_custom(question)
        if entry is None:
            return None
        if not names:
            return Values((), merges=None)
        return await self.read_objects(entry, question, names, lambda name, milli, _: (name, milli), ttl)

    async def sample_series(self, question: ExternalQuestion, ttl: float) -> Values[ExternalValue] | None:
        """Return Prometheus' values of an external metric; otherwise as `sample_objects`."""
        entry = await self.resolver.find_external(question.metric)
        return None if entry is None else await self.read_series(entry, question, ttl)

    async def read_objects(
        self,
        entry: CustomEntry,
        question: CustomQuestion,
        names: tuple[str, ...],
        build: Callable[[str, int, float], _ItemT],
        ttl: float | None = None,
    ) -> Values[_ItemT]:
        """Return the values of objects, in the order of their names; StatusError as prometheus-adapter.

        `build` makes one of the name, thousandths, and when they were scraped or queried (epoch seconds).
        """
        rule, namespace = entry.rule, question.namespace
        try:
            query = rule_queries.metric_query(entry, question.selector, namespaced=namespace is not None)
            objects = Objects(namespace, names)
            plan = _Plan(entry, query, objects, self._freshness(rule, ttl), timed=ttl is not None)
            if plan.timed or rule.scraped is None or entry.resource.group_resource != PODS or not namespace:
                answer, times = await self._query(plan, {})
            else:
                answer, times = await self._read_pods(plan, namespace), {}
            rendered = query.render(namespace, names[:1]) if plan.timed else ""
        except _QUERY_ERRORS as error:
            raise self._failure(error, rule, unknown(question)) from error
        # Of several samples the later one counts, as upstream.
        samples = answer.samples
        last = [(name, taken[-1]) for name in names if (taken := samples.get(name)) is not None]
        items = await self._convert(rule, last, build, lambda name: query.render(namespace, (name,)))
        # The values of scrapes are as new as the last scrape, at every request.
        usual = answer.asked + plan.freshness.refresh_after
        return Values(
            items,
            self.clock.monotonic() if answer.scraped else usual,
            sampled={name: time for name, time in times.items() if math.isfinite(time)},
            lookback=lookback.lookback_of(rendered) if rendered else None,
            oldest=rule.config.max_sample_age,
            overdue=PARTIAL if answer.partial is not None else "",
            merges=not query.separability.reason,
            crosses=query.sweepable,
        )

    async def read_series(
        self, entry: ExternalEntry, question: ExternalQuestion, ttl: float | None = None
    ) -> Values[ExternalValue]:
        """Return every series of an external metric; StatusError as prometheus-adapter answers.

        Callers add the values up, so a list that lacks one is an error, unless the rule says `onNaN: drop`.
        """
        rule, timed, oldest = entry.rule, ttl is not None, entry.rule.config.max_sample_age
        freshness, companion, last, reason = self._freshness(rule, ttl), None, -math.inf, ""
        try:
            parts = rule_queries.external_matchers(rule, question.selector, question.namespace)
            promql = rule.render(entry.series, parts, [])
            build = functools.partial(ExternalValue, question.metric)
            lacks = functools.partial(self._lack_value, rule, promql, question.metric if timed else "")
            if not timed and rule.scraped is not None:
                scraped, last, reason = await self._read_endpoints(entry, parts)
                if scraped is not None:
                    items = await self._convert(rule, scraped, build, lambda _: promql, lacks)
                    return Values(items, self.clock.monotonic())
            accepts, times = rule.accepts_warnings, []
            ask = functools.partial(self.cache.ask, accepts_warnings=accepts, takes_partial=timed)
            if timed or oldest is not None or last > -math.inf:
                companion = lookback.age_query(promql, entry.series, parts)
                both = promql, companion.promql
                answer, ages = await self._ask_both(rule, ask, both, freshness, timed=timed)
                times = ages.result.samples
            else:
                answer = await ask(promql, freshness=freshness)
                self.problems.answered(rule.path, answer.asked, answer.failure)
        except _QUERY_ERRORS as error:
            # To upstream a text is no answer at all, and a matrix one that it does not expect.
            if not timed and isinstance(error, errors.PrometheusError) and error.result_type == "matrix":
                raise errors.PlainError("encountered an unexpected query result type") from error
            raise self._failure(error, rule, errors.InternalError(UNFETCHED)) from error
        samples = answer.result.samples
        # Without `onNaN: drop` the autoscaler refuses an old part itself, by the time of the oldest sample.
        drops = rule.config.on_nan is OnNaN.DROP and oldest is not None
        if companion is not None and (drops or not timed):
            limit = last if oldest is None else max(last, self.clock.wall() - oldest)
            samples = companion.fresh(samples, times, limit)
        if not timed:
            self._judge_stale(rule, len(answer.result.samples) - len(samples), len(samples), reason, promql)
        has_labels = answer.result.type != "scalar"
        pairs = ((sample.labels if has_labels else None, sample) for sample in samples)
        items = await self._convert(rule, pairs, build, lambda _: promql, lacks)
        fresh_until = answer.asked + freshness.refresh_after
        if companion is None or not timed:
            return Values(items, fresh_until)
        time = companion.oldest((item.labels or {} for item in items), times)
        overdue = PARTIAL if answer.partial is not None else ""
        sampled = {} if time is None else {"": time}
        return Values(items, fresh_until, sampled, lookback.lookback_of(promql), oldest, overdue)

    # -- scrapes ---------------------------------------------------------------------------------------------

    async def _read_pods(self, plan: _Plan, namespace: str) -> ObjectAnswer:
        """Return the samples of scraped pods, and Prometheus' of all others.

        A request whose pods have values from scrapes waits for Prometheus only briefly, and its failure takes
        nothing away.
        """
        entry, names, selector = plan.entry, plan.objects.names, plan.query.selector
        # `read` does not wait, so it leaves out what is much work: that is computed before.
        await self.scraped.prepare(entry, namespace, names, selector)
        look = self.scraped.read(entry, namespace, names, selector)
        if not look.values and not look.absent:
            return (await self._query(plan, {}))[0]
        left_out = self._find_left_out(plan, namespace, look)
        asked = self.clock.monotonic()
        rest = tuple(name for name in names if name not in look.values and name not in left_out)
        others: Mapping[str, tuple[Sample, ...]] = {}
        if rest:
            try:
                async with asyncio.timeout(_PATIENCE if look.values else None):
                    plan = plan._replace(objects=Objects(namespace, rest))
                    others = (await self._query(plan, look.absent))[0].samples
            except TimeoutError:
                pass  # the query goes on, and its answer is there for the next request
            except errors.PrometheusError as error:
                if not look.values:
                    raise
                self.problems.failed(error, entry.rule.path)
        served = {name: value for name, value in look.values.items() if name not in left_out}
        overdue = sum(value.overdue for value in served.values())
        instead = len(others.keys() & look.absent.keys())
        for source, count in (
            ("scrape", len(served) - overdue),
            ("overdue", overdue),
            ("prometheus", instead),
            ("absent", len(look.absent) - instead),
        ):
            self.monitoring.scraped_values.labels(source).inc(count)
        samples = {name: (Sample({}, value.value, value.time),) for name, value in served.items()}
        return ObjectAnswer({**others, **samples}, asked, scraped=True)

    def _find_left_out(self, plan: _Plan, namespace: str, look: ScrapedAnswer) -> Collection[str]:
        """Return the pods whose values are not of one cut with the others (`model.coherence`)."""
        names, became_ready = plan.objects.names, self.became_ready(namespace)
        if not look.values or became_ready.keys().isdisjoint(names):
            return ()
        milli = {name: plan.entry.rule.milli(value.value) for name, value in look.values.items()}
        values = {name: value for name, value in milli.items() if not isinstance(value, Dropped)}
        sampled = {name: value.time - look.offset for name, value in look.values.items()}
        left_out = unserved_pods(values, {name: sampled[name] for name in values}, became_ready)
        # Prometheus may know a new pod before its first scrape here.
        oldest = min(sampled.values())
        new = (name for name in names if name not in sampled and became_ready.get(name, oldest) > oldest)
        return left_out.union(new)

    async def _read_endpoints(
        self, entry: ExternalEntry, parts: Sequence[Matcher]
    ) -> tuple[Sequence[tuple[Mapping[str, str], Sample]] | None, float, str]:
        """Return the series of all scraped endpoints of an external metric, None to ask Prometheus.

        Then only samples later than the time returned (epoch seconds) count, and the text says why scrapes
        have none, "" if the metric is not scraped in this process. Callers add the samples up, so an answer
        that lacks a part, or is overdue, gives way to Prometheus.
        """
        await self.scraped.prepare(entry, "", (), parts)
        reading = self.scraped.read_endpoints(entry, parts)
        if reading is None:
            return None, -math.inf, ""
        elements = reading.elements
        if elements is None or reading.overdue or (not elements and math.isinf(reading.last)):
            return None, reading.last, reading.overdue or reading.reason
        self.monitoring.scraped_values.labels("scrape").inc(len(elements))
        samples = [Sample(element.all_labels(), element.value, reading.time) for element in elements]
        return [(sample.labels, sample) for sample in samples], reading.last, ""

    # -- Prometheus ------------------------------------------------------------------------------------------

    def _freshness(self, rule: Rule, ttl: float | None) -> Freshness:
        config, default = rule.config, self.freshness
        if ttl is not None:
            return Freshness(ttl, ttl, repeats=ttl > SHARED)
        if config.ttl is None and config.max_age is None:
            return default
        ttl = default.ttl if config.ttl is None else config.ttl
        return refresh_ahead(ttl, default.max_age if config.max_age is None else config.max_age)

    async def _query(
        self, plan: _Plan, later: Mapping[str, float]
    ) -> tuple[ObjectAnswer, Mapping[str, float]]:
        """Return Prometheus' samples of the objects, and the times of the oldest samples behind them.

        Those of objects in `later` (epoch seconds) are of later samples.
        """
        entry, query, objects, freshness, timed = plan
        rule, oldest = entry.rule, entry.rule.config.max_sample_age
        ask = functools.partial(
            self.cache.ask_objects, objects=objects, expected=entry.series_count, takes_partial=timed
        )
        if not timed and oldest is None and not any(time > -math.inf for time in later.values()):
            answer = await ask(query, freshness=freshness)
            self.problems.answered(rule.path, answer.asked, answer.failure)
            return answer, {}
        both = query, replace(query, rule=rule.age)
        answer, ages = await self._ask_both(rule, ask, both, freshness, timed=timed)
        times = {name: taken[-1].value for name, taken in ages.samples.items()}
        if timed:
            return answer, times
        limit, never = -math.inf if oldest is None else self.clock.wall() - oldest, -math.inf
        samples = {
            name: taken
            for name, taken in answer.samples.items()
            if times.get(name, never) >= limit and times.get(name, never) > later.get(name, never)
        }
        self._drop("stale", len(answer.samples) - len(samples))
        return answer._replace(samples=samples), times

    async def _ask_both(
        self,
        rule: Rule,
        ask: Callable[..., Awaitable[_AnswerT]],
        queries: tuple[object, object],
        freshness: Freshness,
        *,
        timed: bool,
    ) -> tuple[_AnswerT, _AnswerT]:
        """Return the answers to a query and to that for the ages of its samples, of about one moment.

        Raises PrometheusError, and InternalError where the autoscaler has no answer.
        """
        answer, times = await _both(*(ask(query, freshness=freshness) for query in queries))
        if freshness.repeats and abs(answer.asked - times.asked) > SHARED:
            freshness = freshness._replace(ttl=SHARED)
            answer, times = await _both(*(ask(query, freshness=freshness) for query in queries))
        # Times of a later query say nothing about the samples of an answer that stands in for a failure.
        if not timed and answer.failure is not None and times.asked - answer.asked > freshness.ttl:
            raise answer.failure
        asked, failure = min(answer.asked, times.asked), answer.failure or times.failure
        partial = answer.partial or times.partial
        self.problems.answered(rule.path, asked, failure or partial)
        # The failure is reported before it is refused: the API may still serve what stands in for it.
        if timed and failure is not None:
            raise self.problems.unanswered()
        return answer._replace(asked=asked, partial=partial), times

    # -- thousandths -----------------------------------------------------------------------------------------

    async def _convert(
        self,
        rule: Rule,
        samples: Iterable[tuple[_SourceT, Sample]],
        build: Callable[[_SourceT, int, float], _ItemT],
        render: Callable[[_SourceT], str],
        lacks: Callable[[], None] = lambda: None,
    ) -> list[_ItemT]:
        """Return the samples in thousandths without a NaN and the like, for which `lacks` is called.

        A value beyond 64 bits is an error, not a number. `render` gives the query for the reports of both.
        """
        items: list[_ItemT] = []
        for number, (source, sample) in enumerate(samples, 1):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            try:
                milli: int | Dropped = quantity.milli_from_float(sample.value)
            except OverflowError:  # it is no number, or one that is too large
                milli = rule.milli(sample.value)
            if not isinstance(milli, Dropped):
                items.append(build(source, milli, sample.time))
                continue
            self._leave_out(milli, rule, render(source))
            if milli is OVERFLOW:
                raise errors.InternalError(f"a value of {rule.config.path} is {TOO_LARGE}")
            lacks()
        return items

    # -- reports ---------------------------------------------------------------------------------------------

    def _failure(self, error: Exception, rule: Rule, unrendered: errors.StatusError) -> errors.StatusError:
        """Report why a question has no samples; return the answer to it, `unrendered` without a query."""
        if isinstance(error, errors.PrometheusError):
            return self.problems.unfetched(error, rule.path)
        self.problems.report("render", "query cannot be built", str(error), rule.config.path)
        return unrendered

    def _judge_stale(self, rule: Rule, stale: int, fresh: int, reason: str, promql: str) -> None:
        """Refuse samples of which some are too old; `reason` is as `_read_endpoints` returns it."""
        self._drop("stale", stale)
        if reason:
            count = 0 if stale else fresh
            self.monitoring.scraped_values.labels("prometheus" if count else "absent").inc(count or 1)
        if reason and stale:
            text = f"{reason}, and the samples of Prometheus are not newer than the last scrape"
            self.problems.report("value", "external metric refused", text, rule.config.path)
            raise errors.InternalError(UNFETCHED)
        if stale:
            self._refuse_part(rule, f"{stale} of its samples are older than maxSampleAge", promql)

    def _lack_value(self, rule: Rule, promql: str, metric: str) -> None:
        """Refuse a series without a value; `metric` is the name of the metric for the autoscaler."""
        if metric and rule.config.on_nan is not OnNaN.DROP:
            raise errors.NotFoundError(f"a series of {metric} has no value")
        self._refuse_part(rule, "one of its samples has no value", promql)

    def _refuse_part(self, rule: Rule, text: str, promql: str) -> None:
        """Refuse an external metric that lacks a part, unless the rule says that the rest is served."""
        if rule.config.on_nan is OnNaN.DROP:
            return
        query = matchers.shorten(promql)
        text = f"{text}, so their sum would be too small (onNaN: drop on the rule serves the rest)"
        self.problems.report("value", "external metric refused", text, rule.config.path, query=query)
        raise errors.InternalError(UNFETCHED)

    def _leave_out(self, reason: Dropped, rule: Rule, promql: str) -> None:
        self._drop(reason, 1)
        message = "value refused" if reason is OVERFLOW else "value left out"
        self.problems.report("value", message, reason, rule.config.path, query=matchers.shorten(promql))

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self.monitoring.dropped.labels(reason=reason).inc(count)


async def _both(first: Awaitable[_AnswerT], second: Awaitable[_AnswerT]) -> tuple[_AnswerT, _AnswerT]:
    """Await two answers side by side; the error of either, after both have ended."""
    results = await asyncio.gather(first, second, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    one, other = (result for result in results if not isinstance(result, BaseException))
    return one, other
