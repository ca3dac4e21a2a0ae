"""Follows the endpoints of external rules that autoscalers read, and has them scraped.

The EndpointSlices of a Service are watched only while an autoscaler reads a metric from it. Pods come from
the scaler's cache where it covers their namespace; otherwise they have a watch of their own. Every replica
scrapes, whether it leads or not, as for pods.
"""

import asyncio
import contextlib
import functools

from adapter.autoscaler.interfaces import Key
from adapter.config.scrape_keys import Access, EndpointSource
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.endpoint_slices import ServiceEndpoints
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.label_selectors import EVERYTHING, LabelSelector
from adapter.scrape import endpoints as resolving
from adapter.scrape.endpoint_values import ScrapedEndpoints
from adapter.scrape.endpoints import FoundEndpoints

PERIOD = 1.0
"""How often, in seconds, pods are looked at while endpoints are read: a subscription to them would name an
autoscaler that selects them. Rules and EndpointSlices take effect at once."""


class EndpointSubscriptions:
    """The endpoints that autoscalers read. `run` watches them."""

    def __init__(self, endpoints: ScrapedEndpoints, context: ReflectorContext, pods: PodCache) -> None:
        self._endpoints = endpoints
        self._context = context
        self._pods = pods
        self.wake = asyncio.Event()
        """Set when rules, EndpointSlices or what autoscalers read may have changed."""
        self._group: asyncio.TaskGroup | None = None
        self._services: dict[tuple[str, str], ServiceEndpoints] = {}
        self._own_pods: dict[tuple[str, LabelSelector], PodCache] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}

    def put(self, autoscaler: FastPathAutoscaler) -> None:
        """Scrape the endpoints of the external metrics of a new or changed autoscaler."""
        metrics = autoscaler.spec.metrics or ()
        names = {each.external.metric.name for each in metrics if each.external is not None}
        self._endpoints.want(Key.of(autoscaler), names)
        self.wake.set()

    def remove(self, key: Key) -> None:
        self._endpoints.want(key, ())
        self.wake.set()

    async def run(self) -> None:
        """Follow endpoints and rules until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            while True:
                self.wake.clear()
                self._endpoints.follow()
                self.settle()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD if self._endpoints.groups else None):
                        await self.wake.wait()

    def settle(self) -> None:
        """Watch what the groups need and nothing else, and find the endpoints of each group."""
        groups = self._endpoints.groups
        sources = {source for source, _ in groups}
        services = {(source.namespace, source.service) for source in sources if source.service}
        for key in self._services.keys() - services:
            self._services.pop(key).abandon()
            self._stop(key)
        for namespace, name in services - self._services.keys():
            made = ServiceEndpoints(self._context, namespace, name, self.wake.set)
            self._services[namespace, name] = made
            self._start((namespace, name), made)
        own = {_pods_of(source) for source in sources if not self._pods.covers(source.namespace)}
        for pods_key in self._own_pods.keys() - own:
            del self._own_pods[pods_key]
            self._stop(pods_key)
        for namespace, selector in own - self._own_pods.keys():
            purpose = f"scrape of {selector}" if selector != EVERYTHING else "scrape"
            cache = PodCache(self._context, (namespace,), selector=selector, purpose=purpose)
            self._own_pods[namespace, selector] = cache
            self._start((namespace, selector), cache)
        for source, access in groups:
            with self._context.problems.defects.contain("unexpected error about endpoints", source):
                self._endpoints.put((source, access), self._find(source, access))

    def _start(self, key: object, cache: ServiceEndpoints | PodCache) -> None:
        assert self._group is not None, "used while it runs"
        self._tasks[key] = self._group.create_task(cache.run(), name=f"endpoints {key}")

    def _stop(self, key: object) -> None:
        self._tasks.pop(key).cancel()

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
        return resolving.resolve_service(
            source,
            access,
            service.slices,
            functools.partial(pods.find, source.namespace),
            _Addresses(pods, source.namespace).find,
        )


def _pods_of(source: EndpointSource) -> tuple[str, LabelSelector]:
    """Return which pods a source needs: for a Service any of its namespace."""
    return source.namespace, EVERYTHING if source.service else source.selector


class _Addresses:
    """The pods of a namespace by address, collected when the first one is looked up."""

    def __init__(self, pods: PodCache, namespace: str) -> None:
        self._pods = pods
        self._namespace = namespace
        self._found: dict[str, WatchedPod] | None = None

    def find(self, address: str) -> WatchedPod | None:
        if self._found is None:
            pods = self._pods.select(self._namespace, EVERYTHING)
            self._found = {each.ip: each for each in pods if not each.deleting}
        return self._found.get(address)
