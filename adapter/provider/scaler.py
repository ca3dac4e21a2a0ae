"""The provider as the scaler asks it: the same rules, queries and answers, with the true age of every value.

An instant query stamps its samples with the time it is evaluated at, so beside each the time of its oldest
sample is asked for; both are merged and kept as any other question. When to ask, and what is too old, is
decided in `controller`. An older answer that stands in for one that failed is no value here. A partial answer
is one, marked as overdue, so that it may raise and not shrink.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

from adapter.config.rules_file import OnNaN
from adapter.errors import (
    InternalError,
    NamingError,
    NotFoundError,
    PrometheusError,
    TemplateError,
    UnsupportedSelectorError,
)
from adapter.model.metrics import CustomQuestion, ExternalQuestion
from adapter.prometheus.answers import Freshness, ObjectAnswer, TextAnswer
from adapter.provider import custom as providers
from adapter.provider.custom import Provider
from adapter.rules import compile  # noqa: A004 - the module's own name
from adapter.rules.compile import Rule
from adapter.rules.plan import lookback
from adapter.rules.plan.plan import Objects, may_sweep
from adapter.rules.query import MetricQuery
from adapter.rules.registry import CustomKey
from adapter.telemetry.problems import UNFETCHED

PARTIAL = "the answer of Prometheus has warnings and may lack a part"
"""Why a partial answer is overdue. The warning itself may hold addresses and stands in the log only."""

_UNMADE = (NamingError, TemplateError, UnsupportedSelectorError)
"""Why a query cannot be made."""


class ObjectSamples(NamedTuple):
    """Values of objects in thousandths, by name, and when the oldest sample behind each was taken (epoch seconds).

    An object whose sample time is not known is not in `times`. `lookback` is how many seconds of the past the
    query covers, None where that is not known; `oldest` is the rule's own bound on the age of a sample, None
    where it has none. `merges` says whether such questions share their queries, None where nothing was asked,
    and `crosses` whether those of several namespaces do. `overdue` says why the values may be out of date or
    lack a part, "" where they are not.
    """

    values: Mapping[str, int]
    times: Mapping[str, float]
    lookback: float | None
    oldest: float | None
    merges: bool | None = True
    overdue: str = ""
    crosses: bool = True


class SeriesSamples(NamedTuple):
    """Values of an external metric in thousandths, and when the oldest sample behind any was taken, None where that is not known.

    `overdue` is as in `ObjectSamples`.
    """

    values: tuple[int, ...]
    time: float | None
    lookback: float | None
    oldest: float | None
    overdue: str = ""


class ScalerProvider(Provider):
    """A provider that answers the scaler beside the API."""

    _ages: "WeakKeyDictionary[Rule, Rule]"

    async def knows_custom(self, question: CustomQuestion) -> bool:
        """Tell whether a rule of ours answers a metric; InternalError while that is not known."""
        resource = await self._resource(question)
        if resource is None:
            return False
        key = CustomKey(resource.group_resource, question.namespace is not None, question.metric)
        ruleset = self._relister.ruleset.custom
        return (
            await self._known(lambda: self._relister.registry.custom.get(key), question.metric, ruleset)
            is not None
        )

    async def knows_external(self, metric: str) -> bool:
        """Tell whether a rule of ours answers an external metric; InternalError while that is not known."""
        ruleset = self._relister.ruleset.external
        return (
            await self._known(lambda: self._relister.registry.external.get(metric), metric, ruleset)
            is not None
        )

    async def sample_objects(
        self, question: CustomQuestion, names: tuple[str, ...], ttl: float
    ) -> ObjectSamples:
        """Return what Prometheus has for `names`, in an answer not older than `ttl` seconds. StatusError as `custom`."""
        resource = await self._resource(question)
        if resource is None:
            raise _unknown(question)
        entry = await self._custom_entry(resource, question)
        if not names:
            return ObjectSamples({}, {}, None, None, merges=None)
        rule, objects, freshness = entry.rule, Objects(question.namespace, names), Freshness(ttl, ttl)
        try:
            query = providers.metric_query(entry, question)
            companion = MetricQuery(
                self._age_of(rule), query.series, query.selector, query.namespace_label, query.object_label
            )
            answer, ages = await providers.both(
                self._cache.ask_objects(query, objects, freshness, entry.series_count, takes_partial=True),
                self._cache.ask_objects(
                    companion, objects, freshness, entry.series_count, takes_partial=True
                ),
            )
            rendered = query.render(question.namespace, names[:1])
        except _UNMADE as error:
            self._faults.report("render", "query cannot be made", str(error), rule.config.path)
            raise _unknown(question) from error
        except PrometheusError as error:
            raise self._faults.unfetched(error, rule.path) from error
        overdue = self._check(rule, answer, ages)
        nan_is_zero = rule.config.on_nan is OnNaN.ZERO
        values = {}
        for name, samples in answer.samples.items():
            milli = self._milli(samples[-1], rule, lambda: rendered, nan_is_zero=nan_is_zero)
            if milli is not None:
                values[name] = milli
        times = {
            name: samples[-1].value
            for name, samples in ages.samples.items()
            if math.isfinite(samples[-1].value)
        }
        merges, crosses = query.separability.separable, may_sweep(query)
        bound = rule.config.max_sample_age
        return ObjectSamples(values, times, lookback.lookback_of(rendered), bound, merges, overdue, crosses)

    async def sample_series(self, question: ExternalQuestion, ttl: float) -> SeriesSamples:
        """Return what Prometheus has for an external metric, in an answer not older than `ttl` seconds. StatusError as `external`."""
        entry = await self._external_entry(question)
        rule, freshness = entry.rule, Freshness(ttl, ttl)
        accepts = rule.accepts_warnings
        try:
            parts = providers.external_matchers(rule, question)
            promql = rule.render(entry.series, parts, [])
            companion = lookback.age_query(promql, entry.series, parts)
            answer, ages = await providers.both(
                self._cache.ask(promql, freshness, accepts_warnings=accepts, takes_partial=True),
                self._cache.ask(companion.promql, freshness, accepts_warnings=accepts, takes_partial=True),
            )
        except _UNMADE as error:
            self._faults.report("render", "query cannot be made", str(error), rule.config.path)
            raise InternalError(UNFETCHED) from error
        except PrometheusError as error:
            raise self._faults.unfetched(error, rule.path) from error
        overdue = self._check(rule, answer, ages)
        samples = answer.result.samples
        drops, oldest = rule.config.on_nan is OnNaN.DROP, rule.config.max_sample_age
        if drops and oldest is not None:
            samples = companion.fresh(samples, ages.result.samples, self._clock.wall() - oldest)
        values, kept = [], []
        for sample in samples:
            milli = self._milli(sample, rule, lambda: promql, nan_is_zero=rule.config.on_nan is OnNaN.ZERO)
            if milli is not None:
                values.append(milli)
                kept.append(sample)
            elif not drops:  # of a sum that lacks a part it is not known how much is missing
                raise NotFoundError(f"a series of {question.metric} has no value")
        time = companion.oldest(kept, ages.result.samples)
        return SeriesSamples(tuple(values), time, lookback.lookback_of(promql), oldest, overdue)

    def _check(self, rule: Rule, answer: TextAnswer | ObjectAnswer, ages: TextAnswer | ObjectAnswer) -> str:
        """Note an answer, and refuse one that stands in for another; return why it may lack a part, or ""."""
        failure, partial = answer.failure or ages.failure, answer.partial or ages.partial
        self._faults.answered(rule.path, answer.asked, failure or partial)
        if failure is not None:
            raise InternalError(UNFETCHED)
        return PARTIAL if partial is not None else ""

    def _age_of(self, rule: Rule) -> Rule:
        """Return the rule that asks for the times of the samples of another; made once, for questions merge by rule."""
        if rule.age is not None:
            return rule.age
        ages = self.__dict__.setdefault("_ages", WeakKeyDictionary())
        if rule not in ages:
            ages[rule] = compile.age_rule(rule)
        made: Rule = ages[rule]
        return made


def _unknown(question: CustomQuestion) -> NotFoundError:
    return NotFoundError(f"the server could not find the metric {question.metric} for {question.resource}")
