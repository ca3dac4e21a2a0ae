"""The servers that verbs ask: Prometheus and the API server, each at one moment.

Importing this module takes most of a second, so it is imported only when one of them is asked.
"""

import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from adapter.compose.clock import SystemClock
from adapter.config.options import PrometheusOptions, RulesOptions
from adapter.errors import PrometheusError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import codec, credentials
from adapter.kubernetes.client import KubernetesClient, ListWatch
from adapter.kubernetes.discovery import fetch_discovery
from adapter.model.clock import Clock
from adapter.model.metrics import QueryResult
from adapter.model.objects.label_selectors import LabelSelector
from adapter.model.objects.resources import APIResource, Catalogue
from adapter.prometheus.client import PrometheusClient, Querier
from adapter.prometheus.series import SeriesLister
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_tools.live.preview import SeriesLists
from fastpath_tools.live.reading import once


@dataclass(frozen=True, slots=True)
class PrometheusReader:
    """A Prometheus at one moment: `now` in epoch seconds, `look_back` how far back series are looked for."""

    client: Querier
    lister: SeriesLister
    now: float
    look_back: float

    async def lists(self, selectors: Sequence[str]) -> SeriesLists:
        """Return the series of each selector, or why they are unknown; an empty selector is not asked for."""
        empty = PrometheusError("query", "there is no seriesQuery")
        named = [selector for selector in selectors if selector]
        lists = await self.lister.series(named, self.now - self.look_back)
        return {selector: lists.get(selector, empty) for selector in selectors}

    async def ask(self, promql: str) -> QueryResult | PrometheusError:
        """Return the answer to a query, an error as a value."""
        try:
            return await self.client.query(promql, self.now)
        except PrometheusError as error:
            return error


async def open_prometheus(
    connection: PrometheusOptions,
    discovery: RulesOptions,
    clock: Clock,
    monitoring: Monitoring,
    problems: ProblemLog,
    stack: AsyncExitStack,
) -> PrometheusReader:
    """Return the Prometheus of a connection. InputError for files that cannot be used."""
    client = await PrometheusClient.open(connection, clock, monitoring, problems)
    stack.push_async_callback(client.close)
    lister = SeriesLister(client.origin, monitoring, problems, max_bytes=discovery.discovery_max_bytes)
    return PrometheusReader(client, lister, clock.wall(), discovery.look_back)


class ClusterReader:
    """The API server, as far as `check` asks it. KubernetesError when it cannot be asked."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    async def catalogue(self) -> Catalogue:
        return (await fetch_discovery(self._client)).catalogue

    @once
    async def names(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[str, ...]:
        """Return the names of the objects that match, in the order of its list."""
        objects: list[codec.PartialMetadata] = []
        source = ListWatch(codec.PARTIAL_METADATA, resource, namespace or "", selector)
        await self._client.list_objects(source, objects.extend)
        return tuple(item.name for item in objects)


async def open_servers(
    kubeconfig: str, connection: PrometheusOptions, discovery: RulesOptions, stack: AsyncExitStack
) -> tuple[ClusterReader | None, PrometheusReader | None]:
    """Return the servers that are named. InputError for files that cannot be used."""
    clock, monitoring = SystemClock(), Monitoring()
    problems = ProblemLog(monitoring, clock)
    cluster, prometheus = None, None
    if kubeconfig:
        configuration = await credentials.load_configuration([Path(kubeconfig)], clock, problems)
        connecting = await kubernetes.connect(configuration, random=random.random)
        cluster = ClusterReader(await stack.enter_async_context(connecting))
    if connection.prometheus_url:
        prometheus = await open_prometheus(connection, discovery, clock, monitoring, problems, stack)
    return cluster, prometheus
