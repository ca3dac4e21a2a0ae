"""What the pages read from: the cluster, Prometheus and the scalers, connected while they are served."""

import asyncio
from contextlib import AsyncExitStack
from typing import Self

from adapter.compose.clock import SystemClock
from adapter.config.options import RulesOptions
from adapter.config.rules_config import Parsed
from adapter.kubernetes.client import KubernetesClient
from adapter.model.clock import Clock
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.doctor.metric_facts import MetricReader
from fastpath_tools.live import cluster_options, rules_files, servers
from fastpath_tools.live.cluster import LiveCluster
from fastpath_tools.live.scaler_access import LeaderReader
from fastpath_tools.live.servers import PrometheusReader
from fastpath_tools.live.sources import SourceReader
from fastpath_tools.ui.options import UiOptions

_REQUEST = 10.0
"""The timeout of a request to the API server."""


class ClusterAccess:
    """Connections, and readers that share them. `prometheus` is None without an address."""

    def __init__(
        self,
        options: UiOptions,
        client: KubernetesClient,
        clock: Clock,
        prometheus: PrometheusReader | None,
        scalers: LeaderReader,
        rules: Parsed | None,
    ) -> None:
        self.options = options
        self.clock = clock
        self.prometheus = prometheus
        self.scalers = scalers
        self.cluster = LiveCluster(client, clock, options.reference, options.lease_name)
        sources = SourceReader(self.cluster, rules, prometheus, clock)
        metrics = MetricReader(self.cluster, sources, scalers)
        period = options.horizontal_pod_autoscaler_sync_period
        self.doctor = Doctor(self.cluster, sources, metrics, clock, period)

    @classmethod
    async def open(cls, options: UiOptions, stack: AsyncExitStack) -> Self:
        """Connect until the `stack` is closed. InputError for a kubeconfig or rules that cannot be used."""
        options = await asyncio.to_thread(cluster_options.with_context, options)
        clock, monitoring = SystemClock(), Monitoring()
        rules = rules_files.parse_usable(options.config) if options.config else None
        client = await stack.enter_async_context(cluster_options.connect(options, request_timeout=_REQUEST))
        prometheus = None
        if options.prometheus_url:
            problems = ProblemLog(monitoring, clock)
            prometheus = await servers.open_prometheus(
                options, RulesOptions(), clock, monitoring, problems, stack
            )
        return cls(options, client, clock, prometheus, LeaderReader(options, stack, options), rules)
