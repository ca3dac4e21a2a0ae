"""The one source of metric values: from a question of the API to values, for whoever asks.

Question -> rule (registry) -> objects (lister) -> query (rules) -> answer (query cache) -> values. Errors are upstream's, word for
word. Not here: HTTP, JSON, how queries are merged, how objects are watched. The law: absent is never zero.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeVar

from adapter.clients.querycache import Freshness, ObjectAnswer, QueryCache, TextAnswer
from adapter.config.rulesfile import OnNaN
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
from adapter.model.selectors import LabelSelector
from adapter.monitoring import FaultLog, Monitoring
from adapter.provider.relist import Relister
from adapter.rules import age, matchers
from adapter.rules.compile import Rule
from adapter.rules.matchers import Matcher
from adapter.rules.naming import NAMESPACES
from adapter.rules.plan import Objects
from adapter.rules.query import Dropped, MetricQuery, milli_of
from adapter.rules.registry import CustomEntry, CustomKey, ExternalEntry

_Entry = TypeVar("_Entry")
_Answer = TypeVar("_Answer")

_UNFETCHED = "unable to fetch metrics"
# Failures that say something about one query, not about the server.
_OF_THE_QUERY = frozenset({"query", "type", "decode", "size", "timeout"})
# A fault of one rule or kind is over when nobody has met it for so long: others may do well meanwhile; seconds.
_QUIET = 60.0
_QUIET_LOOK = 5.0
_UNLISTED = "unable to list matching resources"
# The faults that are known by a rule's path.
_OF_A_RULE = ("render", "query", "value")


class ObjectNames(Protocol):
    """Which objects match a selector, from the object index."""

    async def names(self, resource: APIResource, namespace: str | None, selector: LabelSelector) -> tuple[str, ...]:
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
        faults: FaultLog,
        *,
        freshness: Freshness,
    ) -> None:
        """`freshness`: how long answers are used where a rule does not say."""
        self._resources = resources
        self._objects = objects
        self._cache = cache
        self._relister = relister
        self._clock = clock
        self._monitoring = monitoring
        self._faults = faults
        self._freshness = freshness
        self._last_met: dict[tuple[str, str], float] = {}

    @property
    def generation(self) -> int:
        """Number of the registry snapshot; what was built from another one is out of date."""
        return self._relister.registry.generation

    def custom_metrics(self) -> Sequence[CustomMetricInfo]:
        """Return the entries of the custom API's discovery document, sorted."""
        return self._relister.registry.listed

    def external_metrics(self) -> Sequence[str]:
        """Return the names of the external API's discovery document, sorted."""
        return sorted(self._relister.registry.external)

    async def run(self) -> None:
        """End, for ever, the faults of rules and kinds that nobody has met lately: who met them may not ask again."""
        while True:
            await asyncio.sleep(_QUIET_LOOK)
            for fault, subject in list(self._last_met):
                if fault != "prometheus":  # over when it answers
                    self._quiet(fault, subject)

    async def custom(self, question: CustomQuestion) -> CustomAnswer:
        """Return the values of one object or of all that match; StatusError as prometheus-adapter answers.

        Objects without a value are left out of a list; a single object without one is not found.
        """
        resource = await self._resource(question)
        if resource is None:
            raise _unknown(question) if question.name is not None else InternalError(_UNLISTED)
        if question.name is None and not _can_be_listed(resource, question.namespace):
            raise InternalError(_UNLISTED)  # upstream lists before all else
        # before the list: a kind that no metric describes is not worth mirroring
        entry = await self._custom_entry(resource, question)
        names = (question.name,) if question.name is not None else await self._list(resource, question)
        if not names:
            raise _unknown(question)
        try:
            query = _metric_query(entry, question)
            answer = await self._samples(entry, query, Objects(question.namespace, names))
        except (NamingError, TemplateError, UnsupportedSelectorError) as error:
            self._met("render", "query cannot be made", str(error), entry.rule.config.path)
            raise _unknown(question) from error
        except PrometheusError as error:
            raise self._unfetched(error, entry.rule) from error
        items = tuple(self._custom_values(question, entry, query, names, answer))
        if question.name is not None and not items:
            raise NotFoundError(
                f"the server could not find the metric {question.metric} for {question.resource} {question.name}"
            )
        return CustomAnswer(items, answer.asked + self._freshness_of(entry.rule).ttl)

    async def external(self, question: ExternalQuestion) -> ExternalAnswer:
        """Return every sample of the metric's query as a value; StatusError as prometheus-adapter answers."""
        entry = await self._external_entry(question)
        rule = entry.rule
        freshness = self._freshness_of(rule)
        try:
            parts = _external_matchers(rule, question)
            promql = rule.render(entry.series, parts, [])
            if rule.config.max_sample_age is None:
                answer = await self._cache.ask(promql, freshness)
                samples = answer.result.samples
            else:
                companion = age.age_query(promql, entry.series, parts)
                answer, ages = await _both(
                    self._cache.ask(promql, freshness), self._cache.ask(companion.promql, freshness)
                )
                samples = companion.fresh(
                    answer.result.samples, ages.result.samples, self._clock.wall() - rule.config.max_sample_age
                )
                self._drop("stale", len(answer.result.samples) - len(samples))
                answer = answer._replace(failure=answer.failure or ages.failure)
        except (NamingError, TemplateError, UnsupportedSelectorError) as error:
            self._met("render", "query cannot be made", str(error), rule.config.path)
            raise InternalError(_UNFETCHED) from error
        except PrometheusError as error:
            # To upstream a text is no answer at all, and a matrix one that it does not expect.
            if error.result_type == "matrix":
                raise PlainError("encountered an unexpected query result type") from error
            raise self._unfetched(error, rule) from error
        self._answered(rule, answer)
        scalar = answer.result.type == "scalar"
        items = tuple(
            ExternalValue(question.metric, None if scalar else sample.labels, milli, sample.time)
            for sample in samples
            if (milli := self._milli(sample, rule, lambda: promql, nan_is_zero=False)) is not None
        )
        return ExternalAnswer(items, answer.asked + freshness.ttl)

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
            raise InternalError(_UNLISTED if question.name is None else _UNFETCHED) from error

    async def _list(self, resource: APIResource, question: CustomQuestion) -> tuple[str, ...]:
        kind = str(resource.group_resource)
        try:
            names = await self._objects.names(resource, question.namespace, question.objects)
        except (KubernetesError, NotSyncedError) as error:
            self._met("list", "objects cannot be listed", str(error), kind)
            raise InternalError(_UNLISTED) from error
        self._quiet("list", kind, after=0.0)  # what fails is the kind, whoever asks
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

    async def _known(self, read: Callable[[], _Entry | None], metric: str, rules: Sequence[Rule]) -> _Entry | None:
        """Return what `read` finds, if need be after a look-up of a metric that nobody knows yet."""
        entry = read()
        if entry is None and rules and await self._relister.look_up(metric, rules):
            entry = read()
        if entry is None and not self._relister.attempted.is_set():
            raise InternalError(
                _UNFETCHED
            )  # rules are not in force, or their series not listed: "not known", never "not found"
        return entry

    # From the entry to samples and values.

    async def _samples(self, entry: CustomEntry, query: MetricQuery, objects: Objects) -> ObjectAnswer:
        """Return the samples of the objects, without those older than the rule allows."""
        freshness = self._freshness_of(entry.rule)
        asked = self._cache.ask_objects(query, objects, freshness, entry.series_count)
        oldest = entry.rule.config.max_sample_age
        if entry.rule.age is None or oldest is None:
            answer = await asked
        else:
            companion = MetricQuery(
                entry.rule.age, query.series, query.selector, query.namespace_label, query.object_label
            )
            answer, ages = await _both(
                asked, self._cache.ask_objects(companion, objects, freshness, entry.series_count)
            )
            limit = self._clock.wall() - oldest
            fresh = {
                name: sample
                for name, sample in answer.samples.items()
                if name in ages.samples and ages.samples[name].value >= limit
            }
            self._drop("stale", len(answer.samples) - len(fresh))
            answer = ObjectAnswer(fresh, min(answer.asked, ages.asked), answer.failure or ages.failure)
        self._answered(entry.rule, answer)
        return answer

    def _custom_values(
        self,
        question: CustomQuestion,
        entry: CustomEntry,
        query: MetricQuery,
        names: Sequence[str],
        answer: ObjectAnswer,
    ) -> Sequence[MetricValue]:
        """Return a value for each name that has one, in the order of the names."""
        resource = entry.resource
        api_version = f"{resource.group}/{resource.version}"  # upstream writes "/v1" for core kinds
        nan_is_zero = entry.rule.config.on_nan is OnNaN.ZERO
        values = []
        for name in names:
            sample = answer.samples.get(name)
            if sample is None:
                continue
            render = functools.partial(query.render, question.namespace, (name,))
            milli = self._milli(sample, entry.rule, render, nan_is_zero=nan_is_zero)
            if milli is not None:
                described = ObjectReference(resource.kind, question.namespace or "", name, api_version)
                values.append(MetricValue(described, question.metric, milli, sample.time))
        return values

    def _milli(self, sample: Sample, rule: Rule, render: Callable[[], str], *, nan_is_zero: bool) -> int | None:
        """Return thousandths, None for a value that is none; a value beyond 64 bits is an error, not a number."""
        try:
            milli = milli_of(sample.value, nan_is_zero=nan_is_zero)
        except OverflowError as error:
            self._drop("overflow", 1)
            self._met("value", "value refused", "overflow", rule.config.path, query=matchers.shorten(render()))
            raise InternalError(f"a value of {rule.config.path} is beyond 9.2e15, which no quantity holds") from error
        if isinstance(milli, Dropped):
            self._drop(milli, 1)
            self._met("value", "value left out", milli, rule.config.path, query=matchers.shorten(render()))
            return None
        return milli

    def _drop(self, reason: str, count: int) -> None:
        if count:
            self._monitoring.dropped.labels(reason=reason).inc(count)

    def _freshness_of(self, rule: Rule) -> Freshness:
        config = rule.config
        ttl = self._freshness.ttl if config.ttl is None else config.ttl
        return Freshness(ttl, self._freshness.max_age if config.max_age is None else config.max_age)

    def _answered(self, rule: Rule, answer: ObjectAnswer | TextAnswer) -> None:
        """Note that Prometheus answers again, if the answer was asked for after the last failure; or that an older one stands in."""
        if answer.failure is not None:
            self._fails(answer.failure, rule)
            return
        failed = self._last_met.get(("prometheus", ""))
        if failed is not None and answer.asked > failed:
            del self._last_met["prometheus", ""]
            self._faults.ended("prometheus")
        for fault in _OF_A_RULE:
            self._quiet(fault, rule.config.path)

    def _met(self, fault: str, message: str, text: str, subject: str = "", **details: object) -> None:
        self._last_met[fault, subject] = self._clock.monotonic()
        self._faults.met(fault, message, text, subject=subject, **details)

    def _quiet(self, fault: str, subject: str, after: float = _QUIET) -> None:
        """End a fault that nobody has met for longer than `after` seconds."""
        met = self._last_met.get((fault, subject))
        if met is not None and self._clock.monotonic() - met > after:
            del self._last_met[fault, subject]
            self._faults.ended(fault, subject=subject)

    def _unfetched(self, error: PrometheusError, rule: Rule) -> InternalError:
        """Say it once in the log; the caller gets a sentence without query or address."""
        self._fails(error, rule)
        return InternalError(_UNFETCHED)

    def _fails(self, error: PrometheusError, rule: Rule) -> None:
        if error.kind in _OF_THE_QUERY:
            self._met("query", "query failed", str(error), rule.config.path, kind=error.kind)
        else:
            self._met("prometheus", "Prometheus does not answer", str(error), kind=error.kind)


def _can_be_listed(resource: APIResource, namespace: str | None) -> bool:
    """Return whether the API server has such a list at all: cluster-scoped objects have none in a namespace."""
    return "list" in resource.verbs and (resource.namespaced or namespace is None)


def _unknown(question: CustomQuestion) -> NotFoundError:
    return NotFoundError(f"the server could not find the metric {question.metric} for {question.resource}")


def _metric_query(entry: CustomEntry, question: CustomQuestion) -> MetricQuery:
    """Return the common part of the question's query; NamingError, UnsupportedSelectorError."""
    converter = entry.rule.converter
    namespace_label = converter.label_for(NAMESPACES) if question.namespace is not None else ""
    object_label = converter.label_for(entry.resource.group_resource)
    return MetricQuery(
        entry.rule, entry.series, matchers.from_selector(question.selector), namespace_label, object_label
    )


def _external_matchers(rule: Rule, question: ExternalQuestion) -> list[Matcher]:
    """Return selector, then namespace unless the rule says `namespaced: false`."""
    parts = list(matchers.from_selector(question.selector))
    if rule.config.resources.namespaced:
        parts.append(Matcher(rule.converter.label_for(NAMESPACES), "=", question.namespace))
    return parts


async def _both(first: Awaitable[_Answer], second: Awaitable[_Answer]) -> tuple[_Answer, _Answer]:
    """Await two answers side by side; the error of either, after both have ended."""
    results = await asyncio.gather(first, second, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    one, other = (result for result in results if not isinstance(result, BaseException))
    return one, other
