"""Where the values of each metric come from: a rule of ours, direct scrapes, or another adapter behind the API server.

Here: from a metric of a spec to the feed that asks for it. Not here: when (`feeds`), from its answer to a reading (`source`).
Law: one question is asked once however many autoscalers ask it; which source answers is decided each time it is asked.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from adapter.autoscaler import readings
from adapter.autoscaler.decide import readings as answers
from adapter.autoscaler.decide.observation import Unavailable
from adapter.autoscaler.feed import QUERIES, Asked, Feed
from adapter.autoscaler.metric_source import (
    FedObject,
    FedPods,
    FedSeries,
    FedUsage,
    Nothing,
    ScrapedPods,
    Site,
    Source,
)
from adapter.autoscaler.polling import Feeds
from adapter.autoscaler.readings import Answer
from adapter.errors import InternalError, KubernetesError
from adapter.kubernetes.metrics_api import Described, MetricsAPI, TimedCustomValue, TimedExternalValue
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, MetricSpec
from adapter.model.autoscaling.metric_lists import PodMetrics
from adapter.model.metrics import CustomQuestion, ExternalQuestion, ResourceAnswer, ResourceQuestion
from adapter.model.resources import Catalogue
from adapter.model.selectors import api_selectors
from adapter.model.selectors.field_selectors import FieldSelector
from adapter.model.selectors.label_selectors import EVERYTHING, LabelSelector
from adapter.model.timestamps import SECOND
from adapter.provider.scaler import PARTIAL, ObjectSamples, ScalerProvider
from adapter.scrape.cache import ScrapedValues
from adapter.telemetry.problems import UNFETCHED

_T = TypeVar("_T")

HPA_PERIOD = 15.0
"""How often, in seconds, another adapter's metrics are asked for: as often as the native controller asks."""

WINDOW_PART = 1 / 8
"""How often our own rules' usages are asked for: a window is taken for that of four samples."""


class ResourceUsages(Protocol):
    """Cpu and memory of pods from rules of ours; met by `ResourceProvider`."""

    @property
    def answers(self) -> bool:
        """Whether there are such rules."""
        ...

    async def resource(self, question: ResourceQuestion, *, sampled: bool = False) -> ResourceAnswer:
        """Return usages; with `sampled` partial ones too, and the times of their samples. StatusError."""
        ...


class Sources:
    """Makes sources."""

    def __init__(
        self,
        provider: ScalerProvider,
        usages: ResourceUsages,
        api: MetricsAPI,
        catalogue: Callable[[], Catalogue],
        scraped: ScrapedValues | None,
        feeds: Feeds,
        *,
        api_period: float = HPA_PERIOD,
    ) -> None:
        """`scraped` is None where nothing is scraped."""
        self._provider = provider
        self._usages = usages
        self._api = api
        self._catalogue = catalogue
        self._scraped = scraped
        self._feeds = feeds
        self._api_period = api_period

    def open(self, metric: MetricSpec, site: Site) -> Source:
        """Return the source of a metric; one whose selector is wrong has no value, which `decide` knows without it."""
        if metric.resource is not None and metric.type == "Resource":
            return FedUsage(self._resource_feed(site), self._feeds, site.owner, metric.resource.name, "")
        if metric.container_resource is not None and metric.type == "ContainerResource":
            source = metric.container_resource
            return FedUsage(self._resource_feed(site), self._feeds, site.owner, source.name, source.container)
        try:
            if metric.pods is not None and metric.type == "Pods":
                narrowed = api_selectors.compile_selector(metric.pods.metric.selector)
                return self._open_pods(metric.pods.metric.name, narrowed, site)
            if metric.object is not None and metric.type == "Object":
                narrowed = api_selectors.compile_selector(metric.object.metric.selector)
                feed = self._object_feed(
                    metric.object.metric.name, metric.object.described_object, narrowed, site
                )
                return FedObject(feed, self._feeds, site.owner)
            assert metric.external is not None
            narrowed = api_selectors.compile_selector(metric.external.metric.selector)
            return FedSeries(
                self._external_feed(metric.external.metric.name, narrowed, site), self._feeds, site.owner
            )
        except ValueError as error:
            return Nothing(Unavailable("InvalidSelector", str(error)))

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _open_pods(self, metric: str, narrowed: LabelSelector, site: Site) -> Source:
        def open_feed() -> FedPods:
            return FedPods(self._pods_feed(metric, narrowed, site), self._feeds, site.owner)

        if self._scraped is None:
            return open_feed()
        return ScrapedPods(self._scraped, metric, narrowed, site, open_feed)

    def _pods_feed(self, metric: str, narrowed: LabelSelector, site: Site) -> Feed:
        question = CustomQuestion("pods", site.namespace, None, metric, site.selector, narrowed)

        async def ask(ttl: float) -> Asked:
            if await self._provider.knows_custom(question):
                return _asked(await self._provider.sample_objects(question, site.names(), ttl))
            asking = self._api.pods(site.namespace, metric, str(site.selector), str(narrowed))
            return await self._ask_api(asking, _of_custom)

        key = ("pods", site.owner, question)  # the pods are the owner's own
        group = ("pods", metric, narrowed)
        return self._feeds.want(site.owner, site.period, key, lambda: Feed(key, group, ask, shares=True))

    # -- objects and external metrics ----------------------------------------------------------------------------------

    def _object_feed(
        self, metric: str, described: CrossVersionObjectReference, narrowed: LabelSelector, site: Site
    ) -> Feed:
        namespace = site.namespace

        async def ask(ttl: float) -> Asked:
            resource = self._resource_of(described)
            is_namespace = resource == "namespaces"
            name = namespace if is_namespace else described.name
            within = None if is_namespace else namespace
            question = CustomQuestion(resource, within, name, metric, EVERYTHING, narrowed)
            if await self._provider.knows_custom(question):
                return _asked(await self._provider.sample_objects(question, (name,), ttl))
            asking = self._api.described(Described(resource, namespace, name), metric, str(narrowed))
            return await self._ask_api(asking, _of_one)

        key = ("object", namespace, described, metric, narrowed)
        group = ("object", described.kind, metric, narrowed)
        return self._feeds.want(site.owner, site.period, key, lambda: Feed(key, group, ask, shares=True))

    def _resource_of(self, described: CrossVersionObjectReference) -> str:
        """Return ``plural.group`` of a kind, as the catalogue has it. NotSyncedError, KubernetesError."""
        group, slash, version = described.api_version.partition("/")
        group = group if slash and "/" not in version else ""
        kind = described.kind
        for resource in self._catalogue():
            if resource.kind == kind and resource.group == group:
                return str(resource.group_resource)
        shown = f"{kind}.{group}" if group else kind
        raise KubernetesError(
            404, "NotFound", f'unable to map kind {shown} to resource: no matches for kind "{kind}"'
        )

    def _external_feed(self, metric: str, narrowed: LabelSelector, site: Site) -> Feed:
        namespace = site.namespace

        async def ask(ttl: float) -> Asked:
            if await self._provider.knows_external(metric):
                samples = await self._provider.sample_series(
                    ExternalQuestion(namespace, metric, narrowed), ttl
                )
                times = {} if samples.time is None else {"": readings.nanoseconds(samples.time)}
                bounds = _span(samples.lookback), _span(samples.oldest)
                return Asked(Answer({}, times, samples.values, *bounds, overdue=samples.overdue))
            return await self._ask_api(self._api.external(namespace, metric, str(narrowed)), _of_external)

        key = ("external", namespace, metric, narrowed)
        return self._feeds.want(site.owner, site.period, key, lambda: Feed(key, key, ask))

    # -- cpu and memory ------------------------------------------------------------------------------------------------

    def _resource_feed(self, site: Site) -> Feed:
        question = ResourceQuestion("pods", site.namespace, None, site.selector, FieldSelector())

        async def ask(_: float) -> Asked:
            if self._usages.answers:
                usages = await self._usages.resource(question, sampled=True)
                if usages.stands_in:
                    raise InternalError(UNFETCHED)
                return Asked(_of_usages(usages), min(self._api_period, usages.window * WINDOW_PART))
            return await self._ask_api(self._api.resource(site.namespace, str(site.selector)), _of_items)

        key = ("resource", site.namespace, site.selector)
        group, queries = ("resource", site.namespace), QUERIES
        if self._usages.answers:
            queries *= 2  # cpu and memory by rules of ours
        return self._feeds.want(
            site.owner, site.period, key, lambda: Feed(key, group, ask, shares=True, queries=queries)
        )

    async def _ask_api(
        self, asking: Awaitable[Sequence[_T]], answer_of: Callable[[Sequence[_T]], Answer]
    ) -> Asked:
        """Ask another adapter: no more often while that fails than while it answers."""
        try:
            return Asked(answer_of(await asking), self._api_period)
        except KubernetesError as error:
            return Asked(None, self._api_period, str(error))


# -- answers ---------------------------------------------------------------------------------------------------------------


def _span(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)


def _asked(samples: ObjectSamples) -> Asked:
    times = {name: readings.nanoseconds(time) for name, time in samples.times.items()}
    bounds = _span(samples.lookback), _span(samples.oldest)
    answer = Answer(samples.values, times, (), *bounds, overdue=samples.overdue)
    return Asked(answer, merges=samples.merges, crosses=samples.crosses)


def _of_custom(values: Sequence[TimedCustomValue]) -> Answer:
    found = {value.described_object.name: value.value.milli for value in values}
    times = {value.described_object.name: value.timestamp for value in values if value.timestamp is not None}
    return Answer(found, times, (), _longest(value.window_seconds for value in values), trusted=True)


def _of_one(values: Sequence[TimedCustomValue]) -> Answer:
    if len(values) != 1:
        count = f"returned {len(values)} results when we asked for exactly one"
        raise KubernetesError(0, "Count", f"the custom metrics API server {count}")
    return _of_custom(values)


def _of_external(values: Sequence[TimedExternalValue]) -> Answer:
    series = tuple(value.value.milli for value in values)
    times = {
        str(number): value.timestamp for number, value in enumerate(values) if value.timestamp is not None
    }
    return Answer({}, times, series, _longest(value.window for value in values), trusted=True)


def _longest(windows: Iterable[int | None]) -> int | None:
    """Return the longest window that is said, None where one is not."""
    found = [*windows]
    if not found or None in found:
        return None
    return max(window for window in found if window is not None) * SECOND


def _of_items(items: Sequence[PodMetrics]) -> Answer:
    times = {item.metadata.name: item.timestamp for item in items if item.timestamp is not None}
    windows = [item.window for item in items if item.window is not None]
    lookback = max(windows) if windows and len(windows) == len(items) else None
    return Answer({}, times, lookback=lookback, items=tuple(items), trusted=True)


def _of_usages(usages: ResourceAnswer) -> Answer:
    """Return an answer of rules of ours. Where the times of samples are not known, the query's own time counts."""
    answer = _of_items([answers.metrics_of(item, usages.window) for item in usages.items])
    answer = answer._replace(overdue=PARTIAL if usages.partial else "")
    if usages.times is None:
        return answer
    return answer._replace(
        times={name: readings.nanoseconds(time) for name, time in usages.times.items()}, trusted=False
    )
