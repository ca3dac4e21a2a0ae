"""Creates metric sources: our own rules, direct scrapes, or another adapter behind the API server.

Autoscalers that use the same metric share its feed. Which source answers is decided at each poll, because
rules may come and go.
"""

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from adapter.autoscaler.decide.observation import Unavailable
from adapter.autoscaler.inputs.feed import QUERIES, Feed, FeedSource, PollResult, SourceAnswer
from adapter.autoscaler.inputs.polling import Poller
from adapter.autoscaler.inputs.scraped import ScrapedExternalSource, ScrapedPodsSource
from adapter.autoscaler.inputs.sources import (
    InvalidMetric,
    MetricSource,
    PolledSource,
    Subscriber,
    object_reading,
    pods_reading,
    resource_reading,
    series_reading,
)
from adapter.autoscaler.usage.source import OwnUsageSource
from adapter.errors import InternalError, KubernetesError
from adapter.kubernetes.metrics_api import MetricsAPI, TimedCustomValue, TimedExternalValue
from adapter.model.autoscaling import hpa
from adapter.model.metrics import (
    CustomQuestion,
    ExternalQuestion,
    ObjectUsage,
    ResourceAnswer,
    ResourceQuestion,
)
from adapter.model.objects import api_selectors
from adapter.model.objects.api_objects import ObjectMeta
from adapter.model.objects.field_selectors import FieldSelector
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector
from adapter.model.objects.resources import Catalogue
from adapter.model.quantity import from_milli
from adapter.model.timestamps import SECOND, Instant, span_of
from adapter.provider.reader import PARTIAL, ValueReader, Values
from adapter.provider.resource import ResourceProvider
from adapter.rules import matchers
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.readings import OwnUsage
from adapter.telemetry.problems import UNFETCHED

_T = TypeVar("_T")

HPA_PERIOD = 15.0
"""How often, in seconds, another adapter's metrics are polled: as often as the HPA controller does."""

_UNSERVED = "no rule has series for {} yet; rules without series are listed every 30 s"
# No other adapter serves the API either, or it does not know the metric.
_UNSERVED_STATUS = frozenset({404, 503})

WINDOW_PART = 1 / 8
"""How often usages by our own rules are polled, as a part of their window, which covers about four
samples."""


@dataclass(slots=True, eq=False)
class SourceFactory:
    reader: ValueReader
    usages: ResourceProvider
    api: MetricsAPI
    catalogue: Callable[[], Catalogue]
    scraped: ScrapedValues | None
    """None if nothing is scraped."""
    poller: Poller
    api_period: float = HPA_PERIOD

    def open(self, metric: hpa.MetricSpec, subscriber: Subscriber) -> MetricSource:
        if metric.resource is not None and metric.type == "Resource":
            return self._open_resource(subscriber, metric.resource.name)
        if metric.container_resource is not None and metric.type == "ContainerResource":
            resource = metric.container_resource
            return self._open_resource(subscriber, resource.name, resource.container)
        try:
            if metric.pods is not None and metric.type == "Pods":
                narrowed = api_selectors.compile_selector(metric.pods.metric.selector)
                return self._open_pods(metric.pods.metric.name, narrowed, subscriber)
            if metric.object is not None and metric.type == "Object":
                name, described = metric.object.metric.name, metric.object.described_object
                narrowed = api_selectors.compile_selector(metric.object.metric.selector)
                return self._poll_object(name, described, narrowed, subscriber)
            assert metric.external is not None
            narrowed = api_selectors.compile_selector(metric.external.metric.selector)
            return self._open_external(metric.external.metric.name, narrowed, subscriber)
        except ValueError as error:
            return InvalidMetric(Unavailable("InvalidSelector", str(error)))

    def _open_resource(self, subscriber: Subscriber, resource: str, container: str = "") -> MetricSource:
        reading = functools.partial(resource_reading, resource, container)
        feed = self._resource_feed(subscriber)
        slow = PolledSource(feed, self.poller, subscriber.key, "resource", reading)
        if self.scraped is None or resource != OwnUsage.CPU.value:
            return slow
        return OwnUsageSource(slow, self.scraped, container)

    def _feed(self, subscriber: Subscriber, source: FeedSource) -> Feed:
        """Return the feed of a source, which other autoscalers may use already."""
        return self.poller.want(subscriber.key, subscriber.period, source)

    def _open_pods(self, metric: str, narrowed: LabelSelector, subscriber: Subscriber) -> MetricSource:
        open_feed = functools.partial(self._poll_pods, metric, narrowed, subscriber)
        if self.scraped is None:
            return open_feed()
        parts = matchers.from_selector(narrowed)
        return ScrapedPodsSource(metric, subscriber, open_feed, self.scraped, parts)

    def _open_external(self, metric: str, narrowed: LabelSelector, subscriber: Subscriber) -> MetricSource:
        open_feed = functools.partial(self._poll_external, metric, narrowed, subscriber)
        if self.scraped is None:
            return open_feed()
        return ScrapedExternalSource(metric, subscriber, open_feed, self.scraped, narrowed)

    def _poll_pods(self, metric: str, narrowed: LabelSelector, subscriber: Subscriber) -> PolledSource:
        question = CustomQuestion(
            "pods", subscriber.key.namespace, None, metric, subscriber.selector, narrowed
        )

        async def poll(ttl: float) -> PollResult:
            values = await self.reader.sample_objects(question, subscriber.names(), ttl)
            if values is not None:
                return _of_values(values, dict(values.items))
            asking = self.api.pods(subscriber.key.namespace, metric, str(subscriber.selector), str(narrowed))
            return await self._ask_api(asking, _of_custom, metric)

        key = ("pods", subscriber.key, question)  # each autoscaler has pods of its own
        feed = self._feed(subscriber, FeedSource(key, ("pods", metric, narrowed), poll))
        return PolledSource(feed, self.poller, subscriber.key, "custom", pods_reading)

    def _poll_object(
        self,
        metric: str,
        described: hpa.CrossVersionObjectReference,
        narrowed: LabelSelector,
        subscriber: Subscriber,
    ) -> PolledSource:
        namespace = subscriber.key.namespace

        async def poll(ttl: float) -> PollResult:
            resource = self._resource_of(described)
            is_namespace = resource == "namespaces"
            name = namespace if is_namespace else described.name
            within = None if is_namespace else namespace
            question = CustomQuestion(resource, within, name, metric, EVERYTHING, narrowed)
            values = await self.reader.sample_objects(question, (name,), ttl)
            if values is not None:
                return _of_values(values, dict(values.items))
            asking = self.api.described(resource, namespace, name, metric, str(narrowed))
            return await self._ask_api(asking, _of_one, metric)

        key = ("object", namespace, described, metric, narrowed)
        feed = self._feed(subscriber, FeedSource(key, ("object", described.kind, metric, narrowed), poll))
        return PolledSource(feed, self.poller, subscriber.key, "custom", object_reading)

    def _resource_of(self, described: hpa.CrossVersionObjectReference) -> str:
        """Return ``plural.group`` of a kind from discovery; NotSyncedError, KubernetesError."""
        group, slash, version = described.api_version.partition("/")
        group = group if slash and "/" not in version else ""
        kind = described.kind
        for resource in self.catalogue():
            if resource.kind == kind and resource.group == group:
                return str(resource.group_resource)
        shown = f"{kind}.{group}" if group else kind
        raise KubernetesError(
            404, "NotFound", f'unable to map kind {shown} to resource: no matches for kind "{kind}"'
        )

    def _poll_external(self, metric: str, narrowed: LabelSelector, subscriber: Subscriber) -> PolledSource:
        namespace = subscriber.key.namespace

        async def poll(ttl: float) -> PollResult:
            values = await self.reader.sample_series(ExternalQuestion(namespace, metric, narrowed), ttl)
            if values is not None:
                return _of_values(values, {}, tuple(item.milli for item in values.items))
            asking = self.api.external(namespace, metric, str(narrowed))
            return await self._ask_api(asking, _of_external, metric)

        key = ("external", namespace, metric, narrowed)
        feed = self._feed(subscriber, FeedSource(key, key, poll))
        return PolledSource(feed, self.poller, subscriber.key, "external", series_reading)

    def _resource_feed(self, subscriber: Subscriber) -> Feed:
        namespace, selector = subscriber.key.namespace, subscriber.selector
        question = ResourceQuestion("pods", namespace, None, selector, FieldSelector())

        async def poll(ttl: float) -> PollResult:
            if not self.usages.answers:
                return await self._ask_api(self.api.resource(namespace, str(selector)), _of_items)
            usages = await self.usages.resource(question, ttl)
            if usages.stands_in:
                raise InternalError(UNFETCHED)
            return PollResult(_of_usages(usages), min(self.api_period, usages.window * WINDOW_PART))

        queries = 2 * QUERIES if self.usages.answers else QUERIES  # our rules query cpu and memory
        key = ("resource", namespace, selector)
        source = FeedSource(key, ("resource", namespace), poll, queries, self.reader.freshness.ttl)
        return self._feed(subscriber, source)

    async def _ask_api(
        self,
        asking: Awaitable[Sequence[_T]],
        answer_of: Callable[[Sequence[_T]], SourceAnswer],
        metric: str = "",
    ) -> PollResult:
        """Ask another adapter; at the same period while it fails. No rule serves `metric`."""
        try:
            return PollResult(answer_of(await asking), self.api_period)
        except KubernetesError as error:
            is_unserved = metric and error.status in _UNSERVED_STATUS
            hint = f"; {self.reader.problems.silence() or _UNSERVED.format(metric)}" if is_unserved else ""
            return PollResult(None, self.api_period, f"{error}{hint}")


# -- answers -------------------------------------------------------------------------------------------------


def _span(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)


def _of_values(values: Values[Any], by_object: Mapping[str, int], series: tuple[int, ...] = ()) -> PollResult:
    times = {name: span_of(time) for name, time in values.sampled.items()}
    bounds = _span(values.lookback), _span(values.oldest)
    answer = SourceAnswer(by_object, times, series, *bounds, overdue=values.overdue)
    return PollResult(answer, merges=values.merges, crosses=values.crosses)


def _of_custom(values: Sequence[TimedCustomValue]) -> SourceAnswer:
    milli = {value.described_object.name: value.value.milli for value in values}
    times = {value.described_object.name: value.timestamp for value in values if value.timestamp is not None}
    seconds = _longest(value.span for value in values)
    return SourceAnswer(milli, times, (), _span(seconds), trusted=True)


def _of_one(values: Sequence[TimedCustomValue]) -> SourceAnswer:
    if len(values) != 1:
        count = f"returned {len(values)} results when we asked for exactly one"
        raise KubernetesError(0, "Count", f"the custom metrics API server {count}")
    return _of_custom(values)


def _of_external(values: Sequence[TimedExternalValue]) -> SourceAnswer:
    series = tuple(value.value.milli for value in values)
    times = {
        str(number): value.timestamp for number, value in enumerate(values) if value.timestamp is not None
    }
    seconds = _longest(value.window for value in values)
    return SourceAnswer({}, times, series, _span(seconds), trusted=True)


def _longest(windows: Iterable[int | None]) -> int | None:
    known = [*windows]
    if not known or None in known:
        return None
    return max(window for window in known if window is not None)


def _of_items(items: Sequence[hpa.PodMetrics]) -> SourceAnswer:
    times = {item.metadata.name: item.timestamp for item in items if item.timestamp is not None}
    lookback = _longest(item.window for item in items)
    return SourceAnswer({}, times, lookback=lookback, items=tuple(items), trusted=True)


def _of_usages(usages: ResourceAnswer) -> SourceAnswer:
    """Return an answer of our rules. Without times of samples the time of the query counts."""
    answer = _of_items([_metrics_of(item, usages.window) for item in usages.items])
    answer = answer._replace(overdue=PARTIAL if usages.partial else "")
    if usages.times is None:
        return answer
    return answer._replace(times={name: span_of(time) for name, time in usages.times.items()}, trusted=False)


def _metrics_of(usage: ObjectUsage, window: float) -> hpa.PodMetrics:
    """Return the usage of a pod over `window` seconds as the resource metrics API has it."""
    containers = tuple(
        hpa.ContainerMetrics(
            part.name, {"cpu": from_milli(part.usage.cpu), "memory": from_milli(part.usage.memory)}
        )
        for part in usage.containers
    )
    return hpa.PodMetrics(
        ObjectMeta(usage.name, usage.namespace), Instant(span_of(usage.time)), span_of(window), containers
    )
