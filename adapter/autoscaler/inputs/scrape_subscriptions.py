"""What is scraped for autoscalers: the pods of their targets, and the endpoints of external rules.

Every replica scrapes, also one without slices: each serves the metrics, and a new owner has the rates at
once. A target and its pods are followed only while a metric of the autoscaler is scraped, and the
EndpointSlices of a Service are watched only while an autoscaler reads a metric from it. The pods of endpoints
come from the scaler's cache where it covers their namespace; otherwise they have a watch of their own.
"""

import asyncio
import functools
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from adapter.autoscaler.inputs.follower import TargetFollower, TargetFollowers
from adapter.autoscaler.interfaces import Key
from adapter.config.rules_config import Access, EndpointSource
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.endpoint_slices import ServiceEndpoints
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.scale_targets import ScaleTarget
from adapter.kubernetes.cache.store import in_steps
from adapter.model.autoscaling import scale_down
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.hpa import CrossVersionObjectReference, MetricSpec
from adapter.model.objects.label_selectors import EVERYTHING, LabelSelector
from adapter.runtime.steps import run_steps
from adapter.runtime.waits import wait_for
from adapter.scrape import endpoints as resolving
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.endpoints import FoundEndpoints
from adapter.scrape.readings import OwnUsage, ScrapedMetric
from adapter.telemetry.problems import Defects

PERIOD = 1.0
"""How often, in seconds, pods are looked at while endpoints are read: a subscription to them would name an
autoscaler that selects them. Rules and EndpointSlices take effect at once."""


class EndpointSubscriptions:
    """The endpoints that autoscalers read. `run` watches them."""

    def __init__(self, scraped: ScrapedValues, context: ReflectorContext, pods: PodCache) -> None:
        self._scraped = scraped
        self._context = replace(context, scope=None)  # a rule may name a namespace of another slice
        self._pods = pods
        self.wake = asyncio.Event()
        """Set when rules, EndpointSlices or what autoscalers read may have changed."""
        self._group: asyncio.TaskGroup | None = None
        self._services: dict[tuple[str, str], ServiceEndpoints] = {}
        self._own_pods: dict[tuple[str, LabelSelector], PodCache] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as self._group:
            while True:
                self.wake.clear()
                self._scraped.follow()
                self.settle()
                await wait_for(self.wake, PERIOD if self._scraped.sources else None)

    def settle(self) -> None:
        """Watch what the groups need and nothing else, and find the endpoints of each group."""
        assert self._group is not None, "used while it runs"
        groups = self._scraped.sources
        sources = {source for source, _ in groups}
        services = {(source.namespace, source.service) for source in sources if source.service}
        for key in self._services.keys() - services:
            self._services.pop(key).stop()
        for namespace, name in services - self._services.keys():
            service = ServiceEndpoints(self._context, namespace, name, self.wake.set)
            self._services[namespace, name] = service
            service.start(self._group)
        own = {_pods_of(source) for source in sources if not self._pods.covers(source.namespace)}
        for pods_key in self._own_pods.keys() - own:
            self._own_pods.pop(pods_key).stop()
        for namespace, selector in own - self._own_pods.keys():
            purpose = f"scrape of {selector}" if selector != EVERYTHING else "scrape"
            cache = PodCache(self._context, namespace, selector=selector, purpose=purpose)
            self._own_pods[namespace, selector] = cache
            cache.start(self._group)
        for source, access in groups:
            with self._context.problems.defects.contain("unexpected error about endpoints", source):
                self._scraped.put_endpoints((source, access), self._find(source, access))

    def _find(self, source: EndpointSource, access: Access) -> FoundEndpoints:
        pods = self._own_pods.get(_pods_of(source), self._pods)
        try:
            pods.check_synced()
        except NotSyncedError as error:
            return FoundEndpoints((), str(error), known=False)
        if not source.service:
            return resolving.resolve_pods(source, access, pods.select(source.namespace, source.selector))
        service = self._services[source.namespace, source.service]
        if service.unknown:
            return FoundEndpoints(
                (), f"the endpoints of {source} are unknown: {service.unknown}", known=False
            )

        @functools.cache
        def addresses() -> dict[str, WatchedPod]:
            """Return the pods of the namespace by address; they are collected if one is looked up."""
            return {pod.ip: pod for pod in pods.select(source.namespace, EVERYTHING) if not pod.deleting}

        find = functools.partial(pods.find, source.namespace)
        return resolving.resolve_service(
            source, access, service.slices, find, lambda address: addresses().get(address)
        )


def _pods_of(source: EndpointSource) -> tuple[str, LabelSelector]:
    """Return which pods a source needs: for a Service any of its namespace."""
    return source.namespace, EVERYTHING if source.service else source.selector


# -- pods ----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class ScrapeSubscriptions:
    """The autoscalers whose pods or endpoints are scraped. `run` follows changes of the rules."""

    scraped: ScrapedValues
    followers: TargetFollowers
    defects: Defects
    endpoints: EndpointSubscriptions
    """Those of external metrics."""
    rules_changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    """Set when metrics may have started or stopped being scraped."""
    _subscriptions: dict[Key, "_Subscription"] = field(default_factory=dict, init=False)

    def put(self, autoscaler: FastPathAutoscaler) -> None:
        """Scrape the pods and endpoints of a new or changed autoscaler while its metrics are scraped."""
        key, spec = Key.of(autoscaler), autoscaler.spec
        listed = scale_down.scraped_metrics(spec.removal_order, spec.metrics or ())
        external = (metric.external for metric in spec.metrics or ())
        self._want_endpoints(key, {metric.metric.name for metric in external if metric is not None})
        metrics = frozenset(metric for metric in map(_scraped_metric, listed) if metric is not None)
        known = self._subscriptions.get(key)
        if known is not None and (known.reference, known.metrics) == (spec.scale_target_ref, metrics):
            return
        self._remove(key)
        if metrics:
            subscription = _Subscription(self, key, spec.scale_target_ref, metrics)
            self._subscriptions[key] = subscription
            subscription.settle()

    def remove(self, key: Key) -> None:
        self._want_endpoints(key, ())
        self._remove(key)

    def _want_endpoints(self, key: Key, metrics: Collection[str]) -> None:
        self.scraped.want_endpoints(key, metrics)
        self.endpoints.wake.set()

    def _remove(self, key: Key) -> None:
        gone = self._subscriptions.pop(key, None)
        if gone is not None:
            gone.close()

    async def run(self) -> None:
        while True:
            await self.rules_changed.wait()
            self.rules_changed.clear()
            await run_steps(in_steps(list(self._subscriptions.items()), self._settle, self.defects))

    def _settle(self, known: tuple[Key, "_Subscription"]) -> None:
        key, subscription = known
        if self._subscriptions.get(key) is subscription:
            subscription.settle()


def _scraped_metric(metric: MetricSpec) -> ScrapedMetric | None:
    """Return what pods may be scraped for, None for a metric that is not about pods."""
    if metric.pods is not None:
        return metric.pods.metric.name
    source = metric.resource or metric.container_resource
    return None if source is None or source.name != OwnUsage.CPU.value else OwnUsage.CPU


@dataclass(slots=True, eq=False)
class _Subscription:
    """One autoscaler: its target, and with that its pods."""

    parent: ScrapeSubscriptions
    key: Key
    reference: CrossVersionObjectReference
    metrics: frozenset[ScrapedMetric]
    _follower: TargetFollower | None = None
    _selector: str = ""

    def settle(self) -> None:
        """Follow the target if one of the metrics is scraped."""
        if not any(map(self.parent.scraped.entry_of, self.metrics)):
            self.close()
            return
        if self._follower is None:
            self._follower = self.parent.followers.join(self.key, self.reference, self._look)
        self._look()

    def close(self) -> None:
        if self._follower is not None:
            self._follower.leave(self._look)
            self._follower = None
            self.parent.scraped.forget(self.key)

    def _look(self) -> None:
        """Have the pods of the target as it is now scraped; a target that does not exist has none."""
        if self._follower is None:
            return
        target = self._follower.target.find()
        # A decision may have selected by a newer scale than the cache has: only a change in the cache counts.
        if isinstance(target, ScaleTarget) and (
            target.selector != self._selector or self._follower.pods is None
        ):
            self._selector = target.selector
            self._follower.select(target.selector)
        following = self._follower.pods
        if following is None:
            self.parent.scraped.forget(self.key)
            return
        try:
            pods = following.pods
        except NotSyncedError:
            return
        self.parent.scraped.want(self.key, self.key.namespace, self.metrics, pods)
