"""Values of custom and external metrics, for the API and for the autoscaler.

A question is resolved to a rule and objects (`resolver`), these to samples (`sampler`), and the samples to
values here. Errors are prometheus-adapter's, word for word. An object without a value is absent from the
answer and never zero.
"""

import asyncio
import functools
import math
from collections.abc import Sequence
from typing import Protocol

from adapter.config.rules_config import OnNaN
from adapter.errors import InternalError, NotFoundError, PlainError, PrometheusError
from adapter.model import metrics, quantity
from adapter.model.clock import Clock
from adapter.prometheus.answers import Freshness, ObjectAnswer
from adapter.prometheus.query_cache import QueryCache
from adapter.provider import resolver, rule_queries
from adapter.provider.relist import Relister
from adapter.provider.resolver import ObjectNames, Resolver, Resources
from adapter.provider.sampler import QUERY_ERRORS, SamplePlan, Sampler
from adapter.rules import lookback, matchers
from adapter.rules.compile import Rule
from adapter.rules.query_plan import Objects
from adapter.scrape.cache import ScrapedValues
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import UNFETCHED, SourceProblems

_STEP = 500
"""Values that are converted between two points at which other work may run."""


class OwnMetric(Protocol):
    """A metric that Fastpath answers by itself, without a rule; errors as those of `RulesMetricsProvider`."""

    async def custom(self, question: metrics.CustomQuestion) -> metrics.CustomAnswer:
        """Answer a question about objects."""

    async def external(self, question: metrics.ExternalQuestion) -> metrics.ExternalAnswer:
        """Answer a question about no object."""


class RulesMetricsProvider:
    """Answers questions about custom and external metrics; `Sampler` says what the arguments are for."""

    def __init__(
        self,
        resources: Resources,
        objects: ObjectNames,
        cache: QueryCache,
        relister: Relister,
        clock: Clock,
        monitoring: Monitoring,
        problems: SourceProblems,
        *,
        freshness: Freshness,
        scraped: ScrapedValues,
    ) -> None:
        self.resolver = Resolver(resources, objects, relister, problems)
        self.sampler = Sampler(cache, clock, monitoring, problems, freshness=freshness, scraped=scraped)
        self._relister = relister
        self._clock = clock
        self._problems = problems
        self._own: dict[str, OwnMetric] = {}
        self._own_listed: list[metrics.CustomMetricInfo] = []
        self.canonical_resource = self.resolver.canonical_resource

    def register(self, described: metrics.CustomMetricInfo, metric: OwnMetric) -> None:
        """Serve a metric of Fastpath's own, as an external metric and of the objects `described`."""
        self._own[described.metric] = metric
        self._own_listed.append(described)

    @property
    def generation(self) -> int:
        """Number of the registry snapshot; what was built from another one is out of date."""
        return self._relister.registry.generation

    def custom_metrics(self) -> Sequence[metrics.CustomMetricInfo]:
        listed = self._relister.registry.listed
        return sorted([*listed, *self._own_listed]) if self._own_listed else listed

    def external_metrics(self) -> Sequence[str]:
        return sorted([*self._relister.registry.external, *self._own])

    async def custom(self, question: metrics.CustomQuestion) -> metrics.CustomAnswer:
        """Return the values of one object or of all that match; StatusError as prometheus-adapter answers.

        Objects without a value are left out of a list; a single object without one is not found.
        """
        own = self._own.get(question.metric)
        if own is not None:
            return await own.custom(question)
        entry, names = await self.resolver.custom(question)
        freshness = self.sampler.freshness_of(entry.rule)
        try:
            namespaced = question.namespace is not None
            query = rule_queries.metric_query(entry, question.selector, namespaced=namespaced)
            plan = SamplePlan(entry, query, Objects(question.namespace, names), freshness)
            answer = await self.sampler.read_objects(plan)
        except QUERY_ERRORS as error:
            raise self.sampler.failure(error, entry.rule, resolver.unknown(question)) from error
        items = await self._values(question.metric, plan, answer)
        if question.name is not None and not items:
            raise NotFoundError(
                f"the server could not find the metric {question.metric} "
                f"for {question.resource} {question.name}"
            )
        # the values of scrapes are as new as the last scrape, at every request
        fresh_until = self._clock.monotonic() if answer.scraped else answer.asked + freshness.refresh_after
        resource = str(entry.resource.group_resource)
        return metrics.CustomAnswer(items, fresh_until, resource)

    async def external(self, question: metrics.ExternalQuestion) -> metrics.ExternalAnswer:
        """Return every sample of the metric's query as a value; StatusError as prometheus-adapter answers.

        The autoscaler adds the values up, so a list that lacks a sample is an error, unless the rule says
        `onNaN: drop`.
        """
        own = self._own.get(question.metric)
        if own is not None:
            return await own.external(question)
        entry = await self.resolver.external(question)
        rule = entry.rule
        freshness = self.sampler.freshness_of(rule)
        try:
            parts = rule_queries.external_matchers(rule, question.selector, question.namespace)
            promql = rule.render(entry.series, parts, [])
            scraped, last, reason = await self.sampler.read_endpoints(entry, parts)
            if scraped is not None:
                values = await self._external_values(question.metric, rule, scraped, promql)
                return metrics.ExternalAnswer(values, self._clock.monotonic())
            is_bounded = rule.config.max_sample_age is not None or last > -math.inf
            companion = lookback.age_query(promql, entry.series, parts) if is_bounded else None
            answer, samples = await self.sampler.read_series(rule, promql, companion, freshness, after=last)
        except QUERY_ERRORS as error:
            # To upstream a text is no answer at all, and a matrix one that it does not expect.
            if isinstance(error, PrometheusError) and error.result_type == "matrix":
                raise PlainError("encountered an unexpected query result type") from error
            raise self.sampler.failure(error, rule, InternalError(UNFETCHED)) from error
        stale = len(answer.result.samples) - len(samples)
        if reason:
            self.sampler.count_instead(0 if stale else len(samples))
        if reason and stale:
            text = f"{reason}, and the samples of Prometheus are not newer than the last scrape"
            self._problems.report("value", "external metric refused", text, rule.config.path)
            raise InternalError(UNFETCHED)
        if stale:
            self._refuse_part(rule, f"{stale} of its samples are older than maxSampleAge", promql)
        has_labels = answer.result.type != "scalar"
        values = await self._external_values(question.metric, rule, samples, promql, has_labels=has_labels)
        return metrics.ExternalAnswer(values, answer.asked + freshness.refresh_after)

    async def _external_values(
        self,
        metric: str,
        rule: Rule,
        samples: Sequence[metrics.Sample],
        promql: str,
        *,
        has_labels: bool = True,
    ) -> tuple[metrics.ExternalValue, ...]:
        """Return a value for each sample; InternalError if one has none and the rule does not drop it."""
        values = []
        for number, sample in enumerate(samples, 1):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            milli = self.sampler.milli(sample, rule, lambda: promql)
            if milli is None:
                self._refuse_part(rule, "one of its samples has no value", promql)
                continue
            labels = sample.labels if has_labels else None
            values.append(metrics.ExternalValue(metric, labels, milli, sample.time))
        return tuple(values)

    async def _values(
        self, metric: str, plan: SamplePlan, answer: ObjectAnswer
    ) -> tuple[metrics.MetricValue, ...]:
        """Return a value for each object that has one, in the order of their names."""
        rule, resource, (namespace, names) = plan.entry.rule, plan.entry.resource, plan.objects
        api_version = f"{resource.group}/{resource.version}"  # upstream writes "/v1" for core kinds
        kind, place, samples_by_name = resource.kind, namespace or "", answer.samples
        values = []
        for number, name in enumerate(names, 1):
            if number % _STEP == 0:
                await asyncio.sleep(0)
            samples = samples_by_name.get(name)
            if samples is None:
                continue
            sample = samples[-1]  # of several the later one counts, as upstream
            milli: int | None
            try:
                milli = quantity.milli_from_float(sample.value)
            except OverflowError:  # NaN and the like
                render = functools.partial(plan.query.render, namespace, (name,))
                milli = self.sampler.milli(sample, rule, render)
            if milli is not None:
                described = metrics.ObjectReference(kind, place, name, api_version)
                values.append(metrics.MetricValue(described, metric, milli, sample.time))
        return tuple(values)

    def _refuse_part(self, rule: Rule, text: str, promql: str) -> None:
        """Refuse an external metric that lacks a part, unless the rule says that the rest is served."""
        if rule.config.on_nan is OnNaN.DROP:
            return
        query = matchers.shorten(promql)
        text = f"{text}, so their sum would be too small (onNaN: drop on the rule serves the rest)"
        self._problems.report("value", "external metric refused", text, rule.config.path, query=query)
        raise InternalError(UNFETCHED)
