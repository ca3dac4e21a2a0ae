"""The metrics as the built-in autoscaler reads them: those of the API, with the age of every value.

Beside each value the autoscaler asks for the time of its oldest sample; both queries are merged and kept as
any other. When to ask, and which value is too old, the autoscaler decides. An older answer that stands in for
a failure is no value here. A partial answer is one, marked as overdue: it may scale up and not down.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from adapter.config.rules_config import OnNaN
from adapter.errors import InternalError, NotFoundError
from adapter.model.clock import Clock
from adapter.model.metrics import CustomQuestion, ExternalQuestion
from adapter.prometheus.answers import Freshness, ObjectAnswer, TextAnswer
from adapter.provider import resolver as resolving
from adapter.provider import rule_queries
from adapter.provider.resolver import Resolver
from adapter.provider.sampler import QUERY_ERRORS, SHARED, SamplePlan, Sampler
from adapter.rules import lookback
from adapter.rules.compile import Rule
from adapter.rules.query_plan import Objects
from adapter.telemetry.problems import UNFETCHED, SourceProblems

PARTIAL = "the answer of Prometheus has warnings and may be incomplete"
"""Why a partial answer is overdue. The warning itself may hold addresses, and is only logged."""


class ObjectSamples(NamedTuple):
    """Values of objects in thousandths, by name, and the times of their oldest samples (epoch seconds).

    An object whose sample time is not known is not in `times`. `lookback` is the seconds of the past that the
    query covers, None if not known; `oldest` is the rule's bound on the age of a sample, None without one.
    `merges` says whether such questions share their queries, None where no query was sent, and `crosses`
    whether those of several namespaces do. `overdue` says why the values may be out of date or lack a part,
    "" where they are whole.
    """

    values: Mapping[str, int]
    times: Mapping[str, float]
    lookback: float | None
    oldest: float | None
    merges: bool | None = True
    overdue: str = ""
    crosses: bool = True


class SeriesSamples(NamedTuple):
    """Values of an external metric in thousandths, and the time of the oldest sample behind them.

    `time` is None if not known; `overdue` is as in `ObjectSamples`.
    """

    values: tuple[int, ...]
    time: float | None
    lookback: float | None
    oldest: float | None
    overdue: str = ""


class ScalerProvider:
    """Answers the autoscaler from the resolver and the sampler of a `RulesMetricsProvider`."""

    def __init__(self, resolver: Resolver, sampler: Sampler, clock: Clock, problems: SourceProblems) -> None:
        self._resolver = resolver
        self._sampler = sampler
        self._clock = clock
        self.problems = problems

    async def sample_objects(
        self, question: CustomQuestion, names: tuple[str, ...], ttl: float
    ) -> ObjectSamples | None:
        """Return Prometheus' samples of `names`, at most `ttl` seconds old; None if no rule has the metric.

        StatusError as `RulesMetricsProvider.custom`; InternalError while the rules are not known.
        """
        entry = await self._resolver.find_custom(question)
        if entry is None:
            return None
        if not names:
            return ObjectSamples({}, {}, None, None, merges=None)
        rule, objects = entry.rule, Objects(question.namespace, names)
        try:
            namespaced = question.namespace is not None
            query = rule_queries.metric_query(entry, question.selector, namespaced=namespaced)
            plan = SamplePlan(entry, query, objects, Freshness(ttl, ttl, repeats=ttl > SHARED))
            answer, ages = await self._sampler.read_objects_with_times(plan)
            rendered = query.render(question.namespace, names[:1])
        except QUERY_ERRORS as error:
            raise self._sampler.failure(error, rule, resolving.unknown(question)) from error
        overdue = self._check(rule, answer, ages)
        values = {}
        for name, samples in answer.samples.items():
            milli = self._sampler.milli(samples[-1], rule, lambda: rendered)
            if milli is not None:
                values[name] = milli
        times = {
            name: samples[-1].value
            for name, samples in ages.samples.items()
            if math.isfinite(samples[-1].value)
        }
        merges, crosses = not query.separability.reason, query.sweepable
        bound = rule.config.max_sample_age
        return ObjectSamples(values, times, lookback.lookback_of(rendered), bound, merges, overdue, crosses)

    async def sample_series(self, question: ExternalQuestion, ttl: float) -> SeriesSamples | None:
        """Return Prometheus' samples of an external metric; otherwise as `sample_objects`."""
        entry = await self._resolver.find_external(question.metric)
        if entry is None:
            return None
        rule = entry.rule
        try:
            parts = rule_queries.external_matchers(rule, question.selector, question.namespace)
            promql = rule.render(entry.series, parts, [])
            companion = lookback.age_query(promql, entry.series, parts)
            age = Freshness(ttl, ttl, repeats=ttl > SHARED)
            answer, ages = await self._sampler.read_series_with_times(rule, promql, companion, age)
        except QUERY_ERRORS as error:
            raise self._sampler.failure(error, rule, InternalError(UNFETCHED)) from error
        overdue = self._check(rule, answer, ages)
        samples = answer.result.samples
        drops, oldest = rule.config.on_nan is OnNaN.DROP, rule.config.max_sample_age
        if drops and oldest is not None:
            samples = companion.fresh(samples, ages.result.samples, self._clock.wall() - oldest)
        values, kept = [], []
        for sample in samples:
            milli = self._sampler.milli(sample, rule, lambda: promql)
            if milli is not None:
                values.append(milli)
                kept.append(sample)
            elif not drops:  # a sum that lacks a part of unknown size is no value
                raise NotFoundError(f"a series of {question.metric} has no value")
        time = companion.oldest(kept, ages.result.samples)
        return SeriesSamples(tuple(values), time, lookback.lookback_of(promql), oldest, overdue)

    def _check(self, rule: Rule, answer: TextAnswer | ObjectAnswer, ages: TextAnswer | ObjectAnswer) -> str:
        """Note an answer, and refuse one that stands in for another; return why it may lack a part, or ""."""
        failure, partial = answer.failure or ages.failure, answer.partial or ages.partial
        self.problems.answered(rule.path, answer.asked, failure or partial)
        if failure is not None:
            raise self.problems.unanswered()
        return PARTIAL if partial is not None else ""
