"""The composition of what values come from: the API server, Prometheus, pods, and the providers on top of them.

A part of the composition root, by itself because the adapter and the scaler alone stand on it alike: nothing here decides anything.
"""

import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.boost.provider import RESERVED, ObservedHPA
from adapter.boost.view import FloorView
from adapter.config.options import Options, PrometheusOptions, check_max_age
from adapter.config.rules_file import Parsed, RulesConfig
from adapter.errors import InputError, NotSyncedError
from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.hpa_cache import HPACache
from adapter.kubernetes.cache.list_watch import ReflectorContext
from adapter.kubernetes.cache.lister import ObjectLister, RunningPods
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.discovery import CatalogueSource
from adapter.model import pod_networks
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.clock import Clock
from adapter.prometheus.answers import Freshness, refresh_ahead
from adapter.prometheus.client import PrometheusClient
from adapter.prometheus.connection import PrometheusSettings
from adapter.prometheus.query_cache import QueryCache
from adapter.prometheus.series import SeriesLister
from adapter.provider.custom import Provider
from adapter.provider.relist import Relister
from adapter.provider.resource import DescribedObjects, ResourceProvider
from adapter.provider.rules import RuleSource
from adapter.provider.rules_files import RulesFiles
from adapter.scrape.cache import ScrapedValues
from adapter.scrape.http import Scraper
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems


@dataclass(frozen=True, slots=True)
class Base:
    """What stands under all sources: the API server, Prometheus, who keeps their answers, and what all of them share."""

    client: kubernetes.KubernetesClient
    watching: ReflectorContext
    cache: QueryCache
    resources: CatalogueSource
    relister: Relister
    met: SourceProblems
    freshness: Freshness
    scraped: ScrapedValues
    clock: Clock
    monitoring: Monitoring
    faults: ProblemLog


@dataclass(frozen=True, slots=True)
class Sources:
    """What answers the metrics APIs: the cluster's objects, and the providers that join them with values.

    `running` lists the pods whose phase is Running; None where the scaler's cache of pods answers for these, as for all pods.
    """

    objects: ObjectLister
    running: ObjectLister | None
    provider: Provider
    resource_provider: ResourceProvider


def read_rules(options: Options) -> tuple[RulesFiles, Parsed]:
    """Return the files and what they say; InputError when they cannot be used, with `--strict-config` for any fault."""
    files = RulesFiles(options.config)
    parsed = files.read()
    age = check_max_age(options, parsed.config)
    refused = (*parsed.fatal, *(parsed.faults if options.strict_config else ()), *((age,) if age else ()))
    if refused:
        raise InputError(refused)
    return files, parsed


async def open_base(
    options: Options, clock: Clock, monitoring: Monitoring, faults: ProblemLog, stack: AsyncExitStack
) -> Base:
    """Connect to both servers and build what stands on the connections; `stack` closes it all."""
    kubeconfig = Path(options.lister_kubeconfig) if options.lister_kubeconfig else None
    configuration = await credentials.load_configuration(kubeconfig, clock, faults)
    client = await stack.enter_async_context(await kubernetes.connect(configuration, random=random.random))
    settings = prometheus_settings(options)
    prometheus = await PrometheusClient.open(settings, clock, monitoring, faults)
    stack.push_async_callback(prometheus.close)
    cache = await stack.enter_async_context(
        QueryCache(prometheus, clock, monitoring, timeout=options.prometheus_timeout)
    )
    resources = CatalogueSource(client, clock, faults)
    surroundings = ReflectorContext(client, clock, monitoring, faults, random.random)
    relister = Relister(
        SeriesLister(prometheus.origin, monitoring, faults, max_bytes=options.discovery_max_bytes),
        clock,
        monitoring,
        faults,
        interval=options.metrics_relist_interval,
        max_age=options.look_back,
        reserved=RESERVED if options.serves_floors else frozenset(),
    )
    freshness = refresh_ahead(options.metrics_ttl, options.metrics_max_answer_age)
    met = SourceProblems(clock, faults)
    networks = pod_networks.parse_networks(options.scrape_pod_cidrs)
    scraper = await stack.enter_async_context(Scraper(clock, monitoring, faults, networks=networks))
    scraped = ScrapedValues(
        scraper,
        relister,
        clock,
        monitoring,
        met,
        per_second=options.scrape_max_per_second,
        random=random.random,
    )
    return Base(
        client, surroundings, cache, resources, relister, met, freshness, scraped, clock, monitoring, faults
    )


def open_sources(base: Base, pods: PodCache | None) -> Sources:
    """Build what answers the metrics APIs; `pods` is the cache of all pods that the scaler keeps anyway."""
    objects = ObjectLister(base.watching, pods=pods)
    if pods is not None:
        return Sources(
            objects, None, open_provider(base, objects), open_usages(base, RunningPods(pods), objects)
        )
    running = ObjectLister(base.watching, fields="status.phase=Running")
    return Sources(objects, running, open_provider(base, objects), open_usages(base, running, objects))


def open_provider(base: Base, objects: ObjectLister) -> Provider:
    """Build what answers questions about custom and external metrics."""
    return Provider(
        base.resources,
        objects,
        base.cache,
        base.relister,
        base.clock,
        base.monitoring,
        base.met,
        freshness=base.freshness,
        scraped=base.scraped,
    )


def open_usages(base: Base, running: DescribedObjects, objects: DescribedObjects) -> ResourceProvider:
    """Build what answers questions about cpu and memory, of pods from `running` and of nodes from `objects`."""
    return ResourceProvider(
        base.resources,
        running,
        objects,
        base.cache,
        base.relister,
        base.clock,
        base.monitoring,
        base.met,
        freshness=base.freshness,
    )


def open_rules(
    options: Options,
    base: Base,
    files: RulesFiles,
    parsed: Parsed,
    adopted: Callable[[RulesConfig], None] = lambda _: None,
) -> RuleSource:
    """Build what keeps the rules in force up to date; `adopted` is told of each configuration that takes effect."""
    return RuleSource(
        files,
        parsed,
        base.resources,
        base.relister,
        base.clock,
        base.monitoring,
        base.faults,
        strict=options.strict_config,
        check=lambda config: check_max_age(options, config),
        adopted=adopted,
    )


def prometheus_settings(options: PrometheusOptions) -> PrometheusSettings:
    """Return the part of the settings that concerns the connection to Prometheus."""
    return PrometheusSettings(
        url=options.prometheus_url,
        verb=options.prometheus_verb,
        headers=options.prometheus_headers,
        params=options.prometheus_query_params,
        ca_file=options.prometheus_ca_file,
        cert_file=options.prometheus_client_tls_cert_file,
        key_file=options.prometheus_client_tls_key_file,
        token_file=options.prometheus_token_file,
        basic_auth_file=options.prometheus_basic_auth_file,
        auth_incluster=options.prometheus_auth_incluster,
        kubeconfig=options.prometheus_auth_config,
        attempt_timeout=options.prometheus_attempt_timeout,
        request_timeout=options.prometheus_timeout,
        max_answer_bytes=options.prometheus_max_answer_bytes,
    )


@dataclass(frozen=True, slots=True)
class Floors:
    """What answers for floors: the cluster's autoscalers and what is published. `tasks` are those that nobody else runs."""

    hpas: HPACache
    view: FloorView
    tasks: Mapping[str, Coroutine[Any, Any, None]]

    def find_autoscaler(self, namespace: str, name: str) -> ObservedHPA | None:
        """Return a HorizontalPodAutoscaler as it is answered for; NotSyncedError before the first list."""
        if not self.hpas.synced:
            raise NotSyncedError("the first list of horizontalpodautoscalers is not in")
        found = self.hpas.find(namespace, name)
        if found is None:
            return None
        asked = found.asked
        if asked is None:
            return ObservedHPA(found.uid, found.resource_version, 0, boosts=False)
        spec = asked.boosted.autoscaler.spec
        return ObservedHPA(
            found.uid, found.resource_version, spec.max_replicas, spec.mode == BOOST and not asked.fault
        )


def open_floors(options: Options, base: Base, known: tuple[HPACache, FloorView] | None) -> Floors | None:
    """Return what answers for floors, None where nobody does: what the scaler has (`known`), or caches of its own."""
    if not options.serves_floors:
        return None
    if known is not None:
        return Floors(*known, {})
    view = FloorView(base.client, base.clock, credentials.find_namespace() or "default", base.faults)
    hpas = HPACache(base.watching)
    return Floors(hpas, view, {"floors": view.run(), "autoscalers": hpas.run()})
