"""The composition root: builds every object, owns every task, and is the only place that reads the clock.

`run` is one process from start to orderly end. Nothing is decided here; what is built, and in which order it starts and stops, is.
"""

import asyncio
import functools
import ipaddress
import random
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from adapter import gate as gates
from adapter.clients import credentials, kubernetes
from adapter.clients.apidiscovery import CatalogueSource
from adapter.clients.connection import PrometheusSettings
from adapter.clients.discovery import SeriesLister
from adapter.clients.informer import ObjectLister
from adapter.clients.podwatch import PodWatch
from adapter.clients.prometheus import PrometheusClient
from adapter.clients.querycache import Freshness, QueryCache
from adapter.clients.reflector import Surroundings
from adapter.clients.rulesfiles import RulesFiles
from adapter.clients.scraper import Scraper
from adapter.config.ciphers import openssl_cipher_list
from adapter.config.options import Options, check_max_age
from adapter.config.rulesfile import Parsed, RulesConfig
from adapter.errors import InputError, NotSyncedError
from adapter.model.clock import Clock
from adapter.monitoring import FaultLog, Monitoring
from adapter.provider.podobjects import PodObjects
from adapter.provider.relist import Relister
from adapter.provider.resource import DescribedObjects, ResourceProvider
from adapter.provider.rules import RuleSource
from adapter.provider.scalervalues import ScalerProvider
from adapter.provider.scraped import ScrapedValues
from adapter.provider.sourcefaults import SourceFaults
from adapter.rules.resource import NODES, PODS
from adapter.scaler import Parts, Scaler
from adapter.server import accesslog, tls
from adapter.server.accesslog import AccessLog
from adapter.server.api import CUSTOM_GROUP, EXTERNAL_GROUP, RESOURCE_GROUP
from adapter.server.documents import Documents
from adapter.server.handler import Handler
from adapter.server.health import Check, Health
from adapter.server.localpages import LocalPages
from adapter.server.serving import MetricsServer, Shutdown
from adapter.server.trust import Trust
from adapter.server.truststore import TrustStore

# How often the event loop is asked how late it wakes, in seconds.
_LAG_PERIOD = 0.1
# OpenSSL's security level refuses TLS 1.0 and 1.1 anyway; asking for them gets 1.2.
_MIN_VERSIONS = {"VersionTLS13": ssl.TLSVersion.TLSv1_3}


class SystemClock:
    """The machine's clock."""

    def wall(self) -> float:
        """Return seconds since the epoch."""
        return time.time()  # noqa: TID251 - the one place

    def monotonic(self) -> float:
        """Return seconds of the monotonic clock."""
        return time.monotonic()  # noqa: TID251 - the one place


@dataclass(frozen=True, slots=True)
class Sources:
    """Where values come from: the cluster's kinds, its objects, the registry, and the providers that join them.

    `running` has the pods whose phase is Running and nothing else.
    """

    resources: CatalogueSource
    objects: ObjectLister
    running: ObjectLister
    relister: Relister
    provider: ScalerProvider
    resource_provider: ResourceProvider


@dataclass(frozen=True, slots=True)
class Base:
    """What stands under all sources: the API server, Prometheus, and who keeps their answers."""

    client: kubernetes.KubernetesClient
    watching: Surroundings
    cache: QueryCache
    resources: CatalogueSource
    relister: Relister
    met: SourceFaults
    freshness: Freshness
    scraped: ScrapedValues


async def run(
    options: Options,
    version: str,
    stop: asyncio.Event,
    *,
    started: Callable[[MetricsServer], None] = lambda _: None,
    clock: Clock | None = None,
) -> None:
    """Serve until `stop` is set, then end in order; `started` is called once the listener is up.

    Raises InputError for settings and files that cannot be used, OSError where the address cannot be had.
    """
    clock = clock or SystemClock()
    monitoring = Monitoring(version)
    faults = FaultLog(monitoring, clock)
    files, parsed = _read_rules(options)
    async with AsyncExitStack() as stack:
        gate = await gates.open_gate(options, clock, monitoring, faults, stack)
        certificate = _serving_certificate(options, clock, gate.trust, monitoring)
        base = await _open_base(options, clock, monitoring, faults, stack)
        sources = _open_sources(base, clock, monitoring)
        scaler = None
        if options.scaler:
            scaler = _open_scaler(
                options, base, sources.provider, lambda _: sources.resource_provider, clock, monitoring, faults
            )
        documents = Documents(sources.provider, _groups(options, parsed.config), version)

        def adopted(config: RulesConfig) -> None:
            documents.serve(_groups(options, config))
            pods, nodes = map(sources.resources.current().find, (PODS, NODES))
            if config.rules and pods is not None:
                sources.objects.start([pods])
            if config.resource_rules is not None and pods is not None and nodes is not None:
                sources.running.start([pods])
                sources.objects.start([nodes])

        rules = RuleSource(
            files,
            parsed,
            sources.resources,
            sources.relister,
            clock,
            monitoring,
            faults,
            strict=options.strict_config,
            check=lambda config: check_max_age(options, config),
            adopted=adopted,
        )
        access_log = _open_access_log(options, clock, monitoring, faults, stack)
        shutdown = Shutdown()
        health = Health(readyz=_readiness(shutdown, lambda: server.listening, gate, sources, rules, faults))
        server = MetricsServer(
            Handler(
                sources.provider,
                documents,
                health,
                gate.access,
                own_metrics=monitoring,
                clock=clock,
                resource_provider=sources.resource_provider,
                access_log=access_log,
                autoscalers=None if scaler is None else scaler.show,
            ),
            certificate,
            shutdown,
            host=options.bind_address,
            port=options.secure_port,
            shutdown_delay=options.shutdown_delay,
            share_port=options.permit_port_sharing,
            share_address=options.permit_address_sharing,
        )
        await server.start()
        stack.push_async_callback(server.stop)
        work = {
            "object cache": sources.objects.run(),
            "running pods": sources.running.run(),
            "API discovery": sources.resources.run(),
            "rules": rules.run(),
            "relist": sources.relister.run(),
            "faults": sources.provider.run(),
            "event-loop lag": _watch_lag(monitoring),
            **{f"trust {number}": source.run() for number, source in enumerate(gate.sources)},
            **({"access log": access_log.run()} if access_log is not None else {}),
            **({} if scaler is None else {"scrapes": base.scraped.run()}),
        }
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(coroutine, name=name) for name, coroutine in work.items()]
                scaling = None if scaler is None else group.create_task(_scale(scaler), name="scaler")
                started(server)
                await stop.wait()
                if scaling is not None:  # first of all: somebody else can scale while the last requests are answered
                    scaling.cancel()
                    await asyncio.wait([scaling])
                await server.stop()
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise _sole(failures) from None


async def run_scaler(
    options: Options,
    version: str,
    stop: asyncio.Event,
    *,
    started: Callable[[LocalPages], None] = lambda _: None,
    clock: Clock | None = None,
) -> None:
    """Scale until `stop` is set, and serve no metrics API; otherwise as `run`.

    Nothing here needs a right beyond the namespaces of the autoscalers, where these stand in files.
    """
    clock = clock or SystemClock()
    monitoring = Monitoring(version)
    faults = FaultLog(monitoring, clock)
    files, parsed = _read_rules(options)
    async with AsyncExitStack() as stack:
        base = await _open_base(options, clock, monitoring, faults, stack)
        provider = _open_provider(base, ObjectLister(base.watching), clock, monitoring)

        def usages_of(pods: PodWatch) -> ResourceProvider:
            return _open_usages(base, PodObjects(pods), PodObjects(pods), clock, monitoring)

        scaler = _open_scaler(options, base, provider, usages_of, clock, monitoring, faults)
        rules = RuleSource(
            files,
            parsed,
            base.resources,
            base.relister,
            clock,
            monitoring,
            faults,
            strict=options.strict_config,
            check=lambda config: check_max_age(options, config),
            adopted=lambda _: None,
        )
        shutdown = Shutdown()
        health = Health(readyz=[shutdown.check, Check("caches-synced", scaler.find_unsynced)])
        pages = LocalPages(options.local_address, health, monitoring, scaler.show)
        await pages.start()
        stack.push_async_callback(pages.stop)
        work = {
            "API discovery": base.resources.run(),
            "rules": rules.run(),
            "relist": base.relister.run(),
            "faults": provider.run(),
            "event-loop lag": _watch_lag(monitoring),
            "scrapes": base.scraped.run(),
        }
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(coroutine, name=name) for name, coroutine in work.items()]
                scaling = group.create_task(_scale(scaler), name="scaler")
                started(pages)
                await stop.wait()
                scaling.cancel()
                await asyncio.wait([scaling])
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise _sole(failures) from None


async def _scale(scaler: Scaler) -> None:
    """Run the scaler. Its election ends first when this is cancelled, while caches and connections are still there."""
    caches, leading = scaler.tasks()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine, name=name) for name, coroutine in caches.items()]
        try:
            await leading
        finally:
            for task in tasks:
                task.cancel()


def _sole(failure: BaseException) -> BaseException:
    """Return what failed where just one thing did: a group of one says no more than its member."""
    while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
        failure = failure.exceptions[0]
    return failure


def _read_rules(options: Options) -> tuple[RulesFiles, Parsed]:
    """Return the files and what they say; InputError when they cannot be used, with `--strict-config` for any fault."""
    files = RulesFiles(options.config)
    parsed = files.read()
    age = check_max_age(options, parsed.config)
    refused = (*parsed.fatal, *(parsed.faults if options.strict_config else ()), *((age,) if age else ()))
    if refused:
        raise InputError(refused)
    return files, parsed


async def _open_base(
    options: Options, clock: Clock, monitoring: Monitoring, faults: FaultLog, stack: AsyncExitStack
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
    surroundings = Surroundings(client, clock, monitoring, faults, random.random)
    relister = Relister(
        SeriesLister(prometheus.origin, monitoring, faults, max_bytes=options.discovery_max_bytes),
        clock,
        monitoring,
        faults,
        interval=options.metrics_relist_interval,
        max_age=options.look_back,
    )
    freshness = Freshness(options.metrics_ttl, options.metrics_max_answer_age)
    met = SourceFaults(clock, faults)
    scraper = await stack.enter_async_context(Scraper(clock, monitoring, faults))
    scraped = ScrapedValues(
        scraper,
        relister,
        clock,
        monitoring,
        met,
        per_second=options.scrape_max_per_second,
        random=random.random,
    )
    return Base(client, surroundings, cache, resources, relister, met, freshness, scraped)


def _open_sources(base: Base, clock: Clock, monitoring: Monitoring) -> Sources:
    """Build what answers the metrics APIs."""
    objects = ObjectLister(base.watching)
    running = ObjectLister(base.watching, fields="status.phase=Running")
    provider = _open_provider(base, objects, clock, monitoring)
    usages = _open_usages(base, running, objects, clock, monitoring)
    return Sources(base.resources, objects, running, base.relister, provider, usages)


def _open_provider(base: Base, objects: ObjectLister, clock: Clock, monitoring: Monitoring) -> ScalerProvider:
    return ScalerProvider(
        base.resources,
        objects,
        base.cache,
        base.relister,
        clock,
        monitoring,
        base.met,
        freshness=base.freshness,
        scraped=base.scraped,
    )


def _open_usages(
    base: Base, running: DescribedObjects, objects: DescribedObjects, clock: Clock, monitoring: Monitoring
) -> ResourceProvider:
    return ResourceProvider(
        base.resources,
        running,
        objects,
        base.cache,
        base.relister,
        clock,
        monitoring,
        base.met,
        freshness=base.freshness,
    )


def _open_scaler(
    options: Options,
    base: Base,
    provider: ScalerProvider,
    usages_of: Callable[[PodWatch], ResourceProvider],
    clock: Clock,
    monitoring: Monitoring,
    faults: FaultLog,
) -> Scaler:
    parts = Parts(
        base.client,
        base.watching,
        base.resources,
        provider,
        usages_of,
        base.scraped,
        clock,
        monitoring,
        faults,
        random.random,
    )
    return Scaler(options, parts)


def _open_access_log(
    options: Options, clock: Clock, monitoring: Monitoring, faults: FaultLog, stack: AsyncExitStack
) -> AccessLog | None:
    """Return the access log if one is asked for; `stack` writes its last lines."""
    if not options.access_log:
        return None
    log = AccessLog(accesslog.open_sink(options.access_log), clock, monitoring, faults)
    stack.push_async_callback(log.close)
    return log


def prometheus_settings(options: Options) -> PrometheusSettings:
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
    )


def _serving_certificate(
    options: Options, clock: Clock, trust: TrustStore, monitoring: Monitoring
) -> tls.ServingCertificate:
    """Return the pair given, or the self-signed one of `--cert-dir`, and beside it those for further server names.

    From then on it asks clients for certificates of whatever authorities `trust` comes to hold.
    """
    minimum = _MIN_VERSIONS.get(options.tls_min_version, ssl.TLSVersion.TLSv1_2)
    ciphers = openssl_cipher_list(options.tls_cipher_suites)
    build = functools.partial(tls.build_context, minimum=minimum, ciphers=ciphers)
    named = []
    for each in options.tls_sni_cert_keys:
        pair = tls.Pair(Path(each.certificate), Path(each.key))
        certificate = tls.ServingCertificate(pair, build, ask_clients=trust.asks_for_certificates)
        named.append((each.names or tls.names_of(pair), certificate))
    if options.tls_cert_file:
        own = tls.Pair(Path(options.tls_cert_file), Path(options.tls_private_key_file))
    else:
        bound = ipaddress.ip_address(options.bind_address)
        addresses = ["127.0.0.1"] if bound.is_unspecified else ["127.0.0.1", options.bind_address]
        own = tls.ensure_self_signed(Path(options.cert_dir), clock, addresses=addresses)
    certificate = tls.ServingCertificate(own, build, named, ask_clients=trust.asks_for_certificates)

    def changed(now: Trust) -> None:
        monitoring.trust_generation.set(now.generation)
        certificate.believe(now.pem)

    trust.changed = changed
    changed(trust.current)
    return certificate


def _groups(options: Options, config: RulesConfig) -> set[str]:
    """Return the API groups to serve: those asked for, and those that rules need."""
    needed = {
        CUSTOM_GROUP: bool(config.rules),
        EXTERNAL_GROUP: bool(config.external_rules),
        RESOURCE_GROUP: config.resource_rules is not None,
    }
    return {*options.serve_groups, *(group for group, is_needed in needed.items() if is_needed)}


def _readiness(
    shutdown: Shutdown,
    listening: Callable[[], bool],
    gate: gates.Gate,
    sources: Sources,
    rules: RuleSource,
    faults: FaultLog,
) -> list[Check]:
    """Return the checks of readyz. The informational ones show a state and never fail it: an unready adapter harms the whole cluster."""

    def active(*names: str) -> str | None:
        return "; ".join(text for (fault, _), text in faults.active().items() if fault in names) or None

    def caches() -> str | None:
        try:
            sources.resources.current()
        except NotSyncedError as error:
            return str(error)
        waiting = ", ".join(map(str, (*sources.objects.unsynced(), *sources.running.unsynced())))
        return f"first list of {waiting} is not in" if waiting else None

    return [
        Check("listener", lambda: None if listening() else "not listening"),
        Check("trust", gate.find_fault),
        shutdown.check,
        Check("caches-synced", caches),
        Check(
            "discovery-attempted",
            lambda: None if sources.relister.attempted.is_set() else "series were not asked for yet",
        ),
        Check("prometheus", lambda: active("prometheus"), informational=True),
        Check("queries", lambda: active("query", "render"), informational=True),
        Check("values", lambda: active("value"), informational=True),
        Check("discovery", lambda: active("discovery", "discovery-worker"), informational=True),
        Check("credentials", lambda: active("credentials"), informational=True),
        Check("objects", lambda: active("informer", "watch", "list"), informational=True),
        Check("api-discovery", lambda: active("api-discovery", "api-group"), informational=True),
        Check("rules", lambda: "; ".join(map(str, rules.faults)) or None, informational=True),
        Check("config-reload", lambda: "; ".join(map(str, rules.refused)) or None, informational=True),
    ]


async def _watch_lag(monitoring: Monitoring) -> None:
    """Measure for ever how much later than asked the event loop wakes a timer."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _LAG_PERIOD
        await asyncio.sleep(_LAG_PERIOD)
        monitoring.loop_lag.observe(max(0.0, loop.time() - due))
