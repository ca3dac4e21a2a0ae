"""The servers that `fastpath check` asks: Prometheus and the API server.

Importing this module takes most of a second, so it is imported only when one of them is asked.
"""

import random
from contextlib import AsyncExitStack
from pathlib import Path

from adapter.compose.clock import SystemClock
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import codec, credentials
from adapter.kubernetes.client import KubernetesClient, ListWatch
from adapter.kubernetes.discovery import fetch_catalogue
from adapter.model.label_selectors import LabelSelector
from adapter.model.resources import APIResource, Catalogue
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_tools.check.options import CheckOptions
from fastpath_tools.live.prometheus import PrometheusReader, open_prometheus


class ClusterReader:
    """The API server, as far as `check` asks it. KubernetesError when it cannot be asked."""

    def __init__(self, client: KubernetesClient) -> None:
        self._client = client

    async def catalogue(self) -> Catalogue:
        return await fetch_catalogue(self._client)

    async def names(
        self, resource: APIResource, namespace: str | None, selector: LabelSelector
    ) -> tuple[str, ...]:
        """Return the names of the objects that match, in the order of its list."""
        names: list[str] = []

        def deliver(objects: list[codec.PartialMetadata]) -> None:
            names.extend(each.name for each in objects)

        source = ListWatch(codec.PARTIAL_METADATA, resource, namespace or "", selector)
        await self._client.list_objects(source, deliver)
        return tuple(names)


async def open_servers(
    options: CheckOptions, stack: AsyncExitStack
) -> tuple[ClusterReader | None, PrometheusReader | None]:
    """Return the servers that the options name. InputError for files that cannot be used."""
    clock, monitoring = SystemClock(), Monitoring()
    problems = ProblemLog(monitoring, clock)
    cluster, prometheus = None, None
    if options.lister_kubeconfig:
        path = Path(options.lister_kubeconfig)
        configuration = await credentials.load_configuration(path, clock, problems)
        connecting = await kubernetes.connect(configuration, random=random.random)
        cluster = ClusterReader(await stack.enter_async_context(connecting))
    if options.prometheus_url:
        prometheus = await open_prometheus(options, options, clock, monitoring, problems, stack)
    return cluster, prometheus
