"""Builds the connections to the API server and Prometheus, the caches, and the providers on top of them.

A part of the composition root that `run` and `run_scaler` share.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from adapter import net
from adapter.config.options import Options, check_max_age
from adapter.config.rules_config import Parsed, RulesConfig
from adapter.errors import InputError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.lister import RUNNING_PODS, ObjectLister
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.discovery import CatalogueSource
from adapter.kubernetes.server_clock import ServerClock
from adapter.model.clock import Clock
from adapter.model.objects import pod_networks
from adapter.model.objects.resources import Catalogue
from adapter.prometheus.answers import Freshness, refresh_ahead
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.connection import PrometheusConnection
from adapter.prometheus.query_cache import QueryCache
from adapter.prometheus.series import SeriesLister
from adapter.provider.metrics import RulesMetricsProvider
from adapter.provider.reader import ValueReader
from adapter.provider.relist import Relister
from adapter.provider.resolver import Resolver
from adapter.provider.resource import ResourceProvider
from adapter.provider.rule_source import RulesFiles, RuleSource
from adapter.rules.resource import NODES, PODS
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.http import Scraper
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems


@dataclass(frozen=True, slots=True)
class Runtime:
    """What all parts of a process share: connections, caches, clock, metrics and problems.

    `namespace` is that of the process, which has its Leases and ConfigMaps.
    """

    client: kubernetes.KubernetesClient
    prometheus: PrometheusConnection
    watching: ReflectorContext
    cache: QueryCache
    resources: CatalogueSource
    relister: Relister
    source_problems: SourceProblems
    freshness: Freshness
    scraped: ScrapedValues
    clock: Clock
    server_clock: ServerClock
    monitoring: Monitoring
    problems: ProblemLog
    namespace: str


@dataclass(frozen=True, slots=True)
class Providers:
    """What answers the metrics APIs: the listers of objects, and the providers that join objects with values.

    `running` lists the pods whose phase is Running; it is `objects` if the scaler's cache of pods is used.
    """

    objects: ObjectLister
    running: ObjectLister
    provider: RulesMetricsProvider
    resource_provider: ResourceProvider

    @property
    def listers(self) -> Sequence[ObjectLister]:
        return tuple(dict.fromkeys((self.objects, self.running)))

    def list_objects(self, config: RulesConfig, kinds: Catalogue) -> None:
        """List the objects that nearly all requests about these rules need, before the first one."""
        pods, nodes = kinds.find(PODS), kinds.find(NODES)
        if config.rules and pods is not None:
            self.objects.start([pods])
        if config.serves_usages and pods is not None and nodes is not None:
            self.running.start([pods])
            self.objects.start([nodes])


def read_rules(options: Options) -> tuple[RulesFiles, Parsed]:
    """Return the rules files and their content.

    Raises InputError if they cannot be used, with `--strict-config` for any fault.
    """
    files = RulesFiles(options.config)
    parsed = files.read()
    age = check_max_age(options, parsed.config)
    refused = (*parsed.fatal, *(parsed.faults if options.strict_config else ()), *((age,) if age else ()))
    if refused:
        raise InputError(refused)
    return files, parsed


async def open_runtime(
    options: Options, clock: Clock, monitoring: Monitoring, problems: ProblemLog, stack: AsyncExitStack
) -> Runtime:
    """Connect to the API server and Prometheus and build what uses the connections; `stack` closes it all."""
    files = [Path(options.lister_kubeconfig)] if options.lister_kubeconfig else []
    configuration = await credentials.load_configuration(files, clock, problems)
    client = await stack.enter_async_context(await kubernetes.connect(configuration, random=random.random))
    client.server_clock = ServerClock(clock, problems)
    prometheus = await PrometheusClient.open(options, clock, monitoring, problems)
    stack.push_async_callback(prometheus.close)
    cache = await stack.enter_async_context(
        QueryCache(prometheus, clock, monitoring, timeout=options.prometheus_timeout)
    )
    resources = CatalogueSource(client, clock, problems)
    context = ReflectorContext(client, clock, monitoring, problems, random.random)
    reserved: frozenset[str] = frozenset()
    if options.serves_floors:
        from adapter.boost.provider import RESERVED  # noqa: PLC0415 - as in `compose.floors`

        reserved = RESERVED
    source_problems = SourceProblems(clock, problems)
    relister = Relister(
        SeriesLister(prometheus.origin, monitoring, problems, max_bytes=options.discovery_max_bytes),
        clock,
        monitoring,
        problems,
        source_problems,
        interval=options.metrics_relist_interval,
        max_age=options.look_back,
        reserved=reserved,
    )
    freshness = refresh_ahead(options.metrics_ttl, options.metrics_max_answer_age)
    networks = pod_networks.parse_networks(options.scrape_pod_cidrs)
    scraper = Scraper(
        clock, monitoring, source_problems, files=net.raise_file_limit() // 2, networks=networks
    )
    await stack.enter_async_context(scraper)
    scraped = ScrapedValues(
        scraper.fetch,
        lambda: relister.registry,
        clock,
        monitoring,
        source_problems,
        per_second=options.scrape_max_per_second,
        random=random.random,
    )
    return Runtime(
        client,
        prometheus.origin,
        context,
        cache,
        resources,
        relister,
        source_problems,
        freshness,
        scraped,
        clock,
        client.server_clock,
        monitoring,
        problems,
        credentials.find_namespace() or configuration.namespace or "default",
    )


def open_providers(runtime: Runtime, pods: PodCache | None) -> Providers:
    """Build what answers the metrics APIs; `pods` is the scaler's cache of all pods, if there is one."""
    objects = ObjectLister(runtime.watching, pods=pods)
    provider = open_provider(runtime, objects)
    running = ObjectLister(runtime.watching, fields=RUNNING_PODS, pods=pods)
    usages = ResourceProvider(provider.reader, running, objects)
    return Providers(objects, running if pods is None else objects, provider, usages)


def open_provider(runtime: Runtime, objects: ObjectLister) -> RulesMetricsProvider:
    problems = runtime.source_problems
    reader = ValueReader(
        Resolver(runtime.resources, objects, runtime.relister, problems),
        runtime.cache,
        runtime.clock,
        runtime.monitoring,
        problems,
        runtime.freshness,
        runtime.scraped,
    )
    return RulesMetricsProvider(reader)


def open_rules(
    options: Options,
    runtime: Runtime,
    files: RulesFiles,
    parsed: Parsed,
    adopted: Callable[[RulesConfig], None] = lambda _: None,
) -> RuleSource:
    """Build the source that reloads the rules; it calls `adopted` with each configuration that it adopts."""
    return RuleSource(
        files,
        parsed,
        runtime.resources,
        runtime.relister,
        runtime.clock,
        runtime.monitoring,
        runtime.problems,
        strict=options.strict_config,
        check=lambda config: check_max_age(options, config),
        adopted=adopted,
    )
