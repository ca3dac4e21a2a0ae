"""The one source of metric values: from a question of the API to values, for whoever asks.

Question -> rule (registry) -> objects (lister) -> query (rules) -> answer (query cache) -> values. Errors are upstream's, word for
word. Not here: HTTP, JSON, how queries are merged, how objects are watched. The law: absent is never zero.
"""

import asyncio
import functools
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from adapter.config.rules_file import OnNaN
from adapter.errors import (
    InternalError,
    KubernetesError,
    NamingError,
    NotFoundError,
    NotSyncedError,
    PlainError,
    PrometheusError,
    TemplateError,
    UnsupportedSelectorError,
)
from adapter.model.clock import Clock
from adapter.model.metrics import (
    CustomAnswer,
    CustomMetricInfo,
    CustomQuestion,
    ExternalAnswer,
    ExternalQuestion,
    ExternalValue,
    MetricValue,
    ObjectReference,
    Sample,
)
from adapter.model.resources import APIResource, Catalogue
from adapter.model.selectors.label_selectors import LabelSelector
from adapter.prometheus.answers import Freshness, ObjectAnswer, TextAnswer, refresh_ahead
from adapter.prometheus.query_cache import QueryCache
from adapter.provider.relist import Relister
from adapter.rules import matchers
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.plan import lookback
from adapter.rules.plan.plan import Objects
from adapter.rules.query import Dropped, MetricQuery, milli_of
from adapter.rules.registry import CustomEntry, CustomKey, ExternalEntry
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.targets import ScrapedAnswer
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import UNFETCHED, UNLISTED, SourceProblems

# How long Prometheus is waited for when scrapes have values already, in seconds.
_PATIENCE = 0.25
_NOT_SCRAPED = ScrapedAnswer({}, {})
_STEP = 500
"""How many values are worked out between two points at which other work may run."""

_Entry = TypeVar("_Entry")
_Answer = TypeVar("_Answer")
_Timed = TypeVar("_Timed", TextAnswer, ObjectAnswer)


class ObjectNames(Protocol):
    """Which objects match a selector, from the object index."""

    async def names(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[str, ...]:
        """Return names in the order the API server lists them; NotSyncedError, KubernetesError."""
        ...


class Resources(Protocol):
    """The catalogue of the cluster's kinds, and a way to have it read again."""

    def current(self) -> Catalogue:
        """Return the catalogue as last read."""
        ...

    async def refresh(self) -> Catalogue:
        """Read it again if that was not done lately; return what is known then."""
        ...


class Provider:
    """Answers questions about custom and external metrics."""

    def __init__(
        self,
        resources: Resources,
        objects: ObjectNames,
        cache: QueryCache,
        relister: Relister,
        clock: Clock,
        monitoring: Monitoring,
        faults: SourceProblems,
        *,
        freshness: Freshness,
        scraped: ScrapedValues | None = None,
    ) -> None:
        """`freshness`: how long answers are used where a rule does not say; `scraped`: what pods show themselves."""
        self._scraped = scraped
        self._resources = resources
        self._objects = objects
        self._cache = cache
        self._relister = relister
        self._clock = clock
        self._monitoring = monitoring
        self._faults = faults
        self._freshness = freshness

    @property
    def generation(self) -> int:
        """Number of the registry snapshot; what was built from another one is out of date."""
        return self._relister.registry.generation

    def canonical_resource(self, resource: str) -> str | None:
        """Return the ``plural.group`` of a resource that is spelled as in a path, None for one not known."""
        name, _, group = resource.partition(".")
        try:
            found = self._resources.current().lookup(name, group or None)
        except NotSyncedError:
            return None
        return str(found.group_resource) if found is not None else None

    def custom_metrics(self) -> Sequence[CustomMetricInfo]:
        """Return the entries of the custom API's discovery document, sorted."""
        return self._relister.registry.listed

    def external_metrics(self) -> Sequence[str]:
        """Return the names of the external API's discovery document, sorted."""
        return sorted(self._relister.registry.external)

    async def run(self) -> None:
        """End, for ever, the faults that nobody has met lately."""
        await self._faults.run()

    async def custom(self, question: CustomQuestion) -> CustomAnswer:
        """Return the values of one object or of all that match; StatusError as prometheus-adapter answers.

        Objects without a value are left out of a list; a single object without one is not found.
        """
        resource = await self._resource(question)
        if resource is None:
            raise _unknown(question) if question.name is not None else InternalError(UNLISTED)
        if question.name is None and not _can_be_listed(resource, question.namespace):
            raise InternalError(UNLISTED)  # upstream lists before all else
        # before the list: a kind that no metric describes is not worth mirroring
        entry = await self._custom_entry(resource, question)
        names = (question.name,) if question.name is not None else await self._list(resource, question)
        if not names:
            raise _unknown(question)
        try:
            query = metric_query(entry, question)
            answer = await self._samples(entry, query, Objects(question.namespace, names))
        except (NamingError, TemplateError, UnsupportedSelectorError) as error:
            self._faults.report("render", "query cannot be made", str(error), entry.rule.config.path)
            raise _unknown(question) from error
        except PrometheusError as error:
            raise self._faults.unfetched(error, entry.rule.path) from error
        items = await self._custom_values(question, entry, query, names, answer)
        if question.name is not None and not items:
            raise NotFoundError(
                f"the server could not find the metric {question.metric} for {question.resource} {question.name}"
            )
        # what is scraped is as new as the last scrape whenever it is asked for
        fresh_until = (
            self._clock.monotonic()
            if answer.scraped
            else answer.asked + self._freshness_of(entry.rule).refresh_after
        )
        return CustomAnswer(items, fresh_until, answer.fallbacks)

    async def external(self, question: ExternalQuestion) -> ExternalAnswer:
        """Return every sample of the metric's query as a value; StatusError as prometheus-adapter answers.

        The autoscaler adds the values up, so a list that lacks a sample is an error, unless the rule says
        `onNaN: drop`.
        """
        entry = await self._external_entry(question)
        rule = entry.rule
        freshness = self._freshness_of(rule)
        accepts = rule.accepts_warnings
        try:
            parts = external_matchers(rule, question)
            promql = rule.render(entry.series, parts, [])
            asked = self._cache.ask(promql, freshness, accepts_warnings=accepts)
            if rule.config.max_sample_age is None:
                answer = await asked
                samples = answer.result.samples
            else:
                companion = lookback.age_query(promql, entry.series, parts)
                asked_ages = self._cache.ask(companion.promql, freshness, accepts_warnings=accepts)
                answer, ages = await with_ages(asked, asked_ages, freshness)
                samples = companion.fresh(
                    answer.result.samples,
                    ages.result.samples,
                    self._clock.wall() - rule.config.max_sample_age,
                )
                self._drop("stale", len(answer.result.samples) - len(samples))
                answer = answer._replace(
                    asked=min(answer.asked, ages.asked), failure=answer.failure or ages.failure
                )
        except (NamingError, TemplateError, UnsupportedSelectorError) as error:
            self._faults.report("render", "query cannot be made", str(error), rule.config.path)
            raise InternalError(UNFETCHED) from error
        except PrometheusError as error:
            # To upstream a text is no answer at all, and a matrix one that it does not expect.
            if error.result_type == "matrix":
                raise PlainError("encountered an unexpected query result type") from error
            raise self._faults.unfetched(error, rule.path) from error
        self._faults.answered(rule.path, answer.asked, answer.failure)
        stale = len(answer.result.samples) - len(samples)
        if stale:
            self._lose_part(rule, f"{stale} of its samples are older than maxSampleAge", promql)
        scalar = answer.result.type == "scalar"
        nan_is_zero = rule.config.on_nan is OnNaN.ZERO
        values = []
        for number, sample in enumerate(samples, 1):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            milli = self._milli(sample, rule, lambda: promql, nan_is_zero=nan_is_zero)
            if milli is None:
                self._lose_part(rule, "one of its samples has no value", promql)
                continue
            labels = None if scalar else sample.labels
            values.append(ExternalValue(question.metric, labels, milli, sample.time))
        return ExternalAnswer(tuple(values), answer.asked + freshness.refresh_after)

    # From the question to the entry.

    async def _resource(self, question: CustomQuestion) -> APIResource | None:
        """Return the kind that a path names; a name that is not known has the catalogue read again, rate-limited."""
        name, _, group = question.resource.partition(".")
        known = True
        try:
            found = self._resources.current().lookup(name, group or None)
        except NotSyncedError:
            found, known = None, False
        if found is not None:
            return found
        try:
            return (await self._resources.refresh()).lookup(name, group or None)
        except (KubernetesError, NotSyncedError) as error:
            if known:
                return None  # said by the catalogue itself; what was known before does not have the name
            raise InternalError(UNLISTED if question.name is None else UNFETCHED) from error

    async def _list(self, resource: APIResource, question: CustomQuestion) -> tuple[str, ...]:
        kind = str(resource.group_resource)
        try:
            names = await self._objects.names(resource, question.namespace, question.objects)
        except (KubernetesError, NotSyncedError) as error:
            self._faults.report("list", "objects cannot be listed", str(error), kind)
            raise InternalError(UNLISTED) from error
        self._faults.expire("list", kind, after=0.0)  # what fails is the kind, whoever asks
        return names

    async def _custom_entry(self, resource: APIResource, question: CustomQuestion) -> CustomEntry:
        key = CustomKey(resource.group_resource, question.namespace is not None, question.metric)
        entry = await self._known(
            lambda: self._relister.registry.custom.get(key), question.metric, self._relister.ruleset.custom
        )
        if entry is None:
            raise _unknown(question)
        return entry

    async def _external_entry(self, question: ExternalQuestion) -> ExternalEntry:
        entry = await self._known(
            lambda: self._relister.registry.external.get(question.metric),
            question.metric,
            self._relister.ruleset.external,
        )
        if entry is None:
            # Upstream names the resource only for the namespace called default, and leaves a blank otherwise.
            resource = "namespaces" if question.namespace == "default" else ""
            raise NotFoundError(f"the server could not find the metric {question.metric} for {resource}")
        return entry

    async def _known(
        self, read: Callable[[], _Entry | None], metric: str, rules: Sequence[Rule]
    ) -> _Entry | None:
        """Return what `read` finds, if need be after a look-up of a metric that nobody knows yet."""
        entry = read()
        if entry is None and rules and await self._relister.look_up(metric, rules):
            entry = read()
        if entry is None and not self._relister.attempted.is_set():
            raise InternalError(
                UNFETCHED
            )  # rules are not in force, or their series not listed: "not known", never "not found"
        return entry

    # From the entry to samples and values.

    async def _samples(self, entry: CustomEntry, query: MetricQuery, objects: Objects) -> ObjectAnswer:
        """Return the samples of the objects: what scraped pods have shown, for all others what Prometheus has.

        Once a scrape has a value Prometheus is not waited for long, and its failure takes nothing away.
        """
        scraped = (
            _NOT_SCRAPED if self._scraped is None else await self._scraped.read_objects(entry, query, objects)
        )
        if not scraped.values and not scraped.absent:
            return await self._ask(entry, query, objects, {})
        asked = self._clock.monotonic()
        rest = tuple(name for name in objects.names if name not in scraped.values)
        answer = ObjectAnswer({}, asked)
        if rest:
            try:
                async with asyncio.timeout(_PATIENCE if scraped.values else None):
                    answer = await self._ask(entry, query, Objects(objects.namespace, rest), scraped.absent)
            except TimeoutError:
                pass  # the query goes on, and its answer is there when it is next asked for
            except PrometheusError as error:
                if not scraped.values:
                    raise
                self._faults.failed(error, entry.rule.path)
        self._count_scraped(scraped, answer)
        samples = {name: (Sample({}, found.value, found.time),) for name, found in scraped.values.items()}
        overdue = {name for name, found in scraped.values.items() if found.overdue}
        fallbacks = answer.fallbacks | overdue | (answer.samples.keys() & scraped.absent.keys())
        return ObjectAnswer({**answer.samples, **samples}, asked, None, fallbacks, scraped=True)

    def _count_scraped(self, scraped: ScrapedAnswer, answer: ObjectAnswer) -> None:
        overdue = sum(found.overdue for found in scraped.values.values())
        instead = len(answer.samples.keys() & scraped.absent.keys())
        counts = {
            "scrape": len(scraped.values) - overdue,
            "overdue": overdue,
            "prometheus": instead,
            "absent": len(scraped.absent) - instead,
        }
        for source, count in counts.items():
            self._monitoring.scraped_values.labels(source).inc(count)

    async def _ask(
        self, entry: CustomEntry, query: MetricQuery, objects: Objects, later: Mapping[str, float]
    ) -> ObjectAnswer:
        """Return Prometheus' samples of the objects, without those older than the rule allows or than `later` says (epoch seconds)."""
        freshness = self._freshness_of(entry.rule)
        asked = self._cache.ask_objects(query, objects, freshness, entry.series_count)
        oldest = entry.rule.config.max_sample_age
        bounded = oldest is not None or any(time > -math.inf for time in later.values())
        if entry.rule.age is None or not bounded:
            answer = await asked
        else:
            companion = MetricQuery(
                entry.rule.age, query.series, query.selector, query.namespace_label, query.object_label
            )
            asked_ages = self._cache.ask_objects(companion, objects, freshness, entry.series_count)
            answer, ages = await with_ages(asked, asked_ages, freshness)
            limit = -math.inf if oldest is None else self._clock.wall() - oldest
            fresh = {
                name: samples
                for name, samples in answer.samples.items()
                if name in ages.samples
                and ages.samples[name][-1].value >= limit
                and ages.samples[name][-1].value > later.get(name, -math.inf)
            }
            self._drop("stale", len(answer.samples) - len(fresh))
            answer = ObjectAnswer(fresh, min(answer.asked, ages.asked), answer.failure or ages.failure)
        self._faults.answered(entry.rule.path, answer.asked, answer.failure)
        return answer if answer.failure is None else answer._replace(fallbacks=frozenset(answer.samples))

    async def _custom_values(
        self,
        question: CustomQuestion,
        entry: CustomEntry,
        query: MetricQuery,
        names: Sequence[str],
        answer: ObjectAnswer,
    ) -> tuple[MetricValue, ...]:
        """Return a value for each name that has one, in the order of the names."""
        resource = entry.resource
        api_version = f"{resource.group}/{resource.version}"  # upstream writes "/v1" for core kinds
        nan_is_zero = entry.rule.config.on_nan is OnNaN.ZERO
        values = []
        for number, name in enumerate(names, 1):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            samples = answer.samples.get(name)
            if samples is None:
                continue
            sample = samples[-1]  # of several the later one counts, as upstream
            render = functools.partial(query.render, question.namespace, (name,))
            milli = self._milli(sample, entry.rule, render, nan_is_zero=nan_is_zero)
            if milli is not None:
                described = ObjectReference(resource.kind, question.namespace or "", name, api_version)
                values.append(MetricValue(described, question.metric, milli, sample.time))
        return tuple(values)

    def _milli(
        self, sample: Sample, rule: Rule, render: Callable[[], str], *, nan_is_zero: bool
    ) -> int | None:
        """Return thousandths, None for a value that is none; a value beyond 64 bits is an error, not a number."""
        try:
            milli = milli_of(sample.value, nan_is_zero=nan_is_zero)
        except OverflowError as error:
            self._drop("overflow", 1)
            self._faults.report(
                "value", "value refused", "overflow", rule.config.path, query=matchers.shorten(render())
            )
            raise InternalError(
                f"a value of {rule.config.path} is beyond 9.2e15, which no quantity holds"
            ) from error
        if isinstance(milli, Dropped):
            self._drop(milli, 1)
            self._faults.report(
                "value", "value left out", milli, rule.config.path, query=matchers.shorten(render())
            )
            return None
        return milli

    def _lose_part(self, rule: Rule, text: str, promql: str) -> None:
        """Refuse an external metric that lacks a part, unless the rule says that the rest is served."""
        if rule.config.on_nan is OnNaN.DROP:
            return
        query = matchers.shorten(promql)
        text = f"{text}, so their sum would be too small (onNaN: drop on the rule serves the rest)"
        self._faults.report("value", "external metric refused", text, rule.config.path, query=query)
        raise InternalError(UNFETCHED)

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self._monitoring.dropped.labels(reason=reason).inc(count)

    def _freshness_of(self, rule: Rule) -> Freshness:
        config = rule.config
        ttl = self._freshness.ttl if config.ttl is None else config.ttl
        return refresh_ahead(ttl, self._freshness.max_age if config.max_age is None else config.max_age)


def _can_be_listed(resource: APIResource, namespace: str | None) -> bool:
    """Return whether the API server has such a list at all: cluster-scoped objects have none in a namespace."""
    return "list" in resource.verbs and (resource.namespaced or namespace is None)


def _unknown(question: CustomQuestion) -> NotFoundError:
    return NotFoundError(f"the server could not find the metric {question.metric} for {question.resource}")


def metric_query(entry: CustomEntry, question: CustomQuestion) -> MetricQuery:
    """Return the common part of the question's query; NamingError, UnsupportedSelectorError."""
    converter = entry.rule.converter
    namespace_label = converter.label_for(NAMESPACES) if question.namespace is not None else ""
    object_label = converter.label_for(entry.resource.group_resource)
    return MetricQuery(
        entry.rule, entry.series, matchers.from_selector(question.selector), namespace_label, object_label
    )


def external_matchers(rule: Rule, question: ExternalQuestion) -> list[Matcher]:
    """Return selector, then namespace unless the rule says `namespaced: false`."""
    parts = list(matchers.from_selector(question.selector))
    if rule.config.resources.namespaced:
        parts.append(Matcher(rule.converter.label_for(NAMESPACES), "=", question.namespace))
    return parts


async def both(first: Awaitable[_Answer], second: Awaitable[_Answer]) -> tuple[_Answer, _Answer]:
    """Await two answers side by side; the error of either, after both have ended."""
    results = await asyncio.gather(first, second, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    one, other = (result for result in results if not isinstance(result, BaseException))
    return one, other


async def with_ages(
    asked: Awaitable[_Timed], asked_ages: Awaitable[_Timed], freshness: Freshness
) -> tuple[_Timed, _Timed]:
    """Await an answer and the times of its samples; errors as `both`.

    Times that were asked for later than an answer that stands in say nothing about its samples: its failure is raised then.
    """
    answer, ages = await both(asked, asked_ages)
    if answer.failure is not None and ages.asked - answer.asked > freshness.ttl:
        raise answer.failure
    return answer, ages
