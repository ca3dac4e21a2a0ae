"""The servers that `fastpath check` asks: Prometheus and the API server, each at one moment.

Importing this module takes most of a second, so it is imported only when one of them is asked.
"""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from adapter.config.options import PrometheusOptions, RulesOptions
from adapter.errors import PrometheusError
from adapter.model.clock import Clock
from adapter.model.metrics import QueryResult
from adapter.prometheus.client import PrometheusClient, Querier
from adapter.prometheus.series import SeriesLister
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_tools.live.preview import SeriesLists


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
