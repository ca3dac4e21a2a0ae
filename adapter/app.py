"""The composition root: builds every object, owns every task, and is the only place that reads the clock.

`run` is one process from start to orderly end. Nothing is decided here; what is built, and in which order it starts and stops, is.
"""

import asyncio
import functools
import random
import ssl
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from adapter.clients import credentials, kubernetes
from adapter.clients.apidiscovery import CatalogueSource
from adapter.clients.connection import PrometheusSettings
from adapter.clients.discovery import SeriesLister
from adapter.clients.informer import ObjectLister
from adapter.clients.prometheus import PrometheusClient
from adapter.clients.querycache import Freshness, QueryCache
from adapter.clients.reflector import Surroundings
from adapter.clients.rulesfiles import RulesFiles
from adapter.config.ciphers import openssl_cipher_list
from adapter.config.options import Options, check_max_age
from adapter.config.rulesfile import Parsed, RulesConfig
from adapter.errors import InputError, NotSyncedError
from adapter.model.clock import Clock
from adapter.model.metrics import GroupResource
from adapter.monitoring import FaultLog, Monitoring
from adapter.provider.provider import Provider
from adapter.provider.relist import Relister
from adapter.provider.rules import RuleSource
from adapter.server import tls
from adapter.server.api import CUSTOM_GROUP, EXTERNAL_GROUP
from adapter.server.documents import Documents
from adapter.server.handler import Handler
from adapter.server.health import Check, Health
from adapter.server.serving import MetricsServer, Shutdown

# How often the event loop is asked how late it wakes, in seconds.
_LAG_PERIOD = 0.1
_PODS = GroupResource("", "pods")
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
    """Where values come from: the cluster's kinds, its objects, the registry, and the provider that joins them."""

    resources: CatalogueSource
    objects: ObjectLister
    relister: Relister
    provider: Provider


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
    certificate = _serving_certificate(options, clock)
    async with AsyncExitStack() as stack:
        sources = await _open_sources(options, clock, monitoring, faults, stack)
        documents = Documents(sources.provider, _groups(options, parsed.config), version)

        def adopted(config: RulesConfig) -> None:
            documents.serve(_groups(options, config))
            pods = sources.resources.current().find(_PODS)
            if config.rules and pods is not None:
                sources.objects.start([pods])

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
        shutdown = Shutdown()
        health = Health(readyz=_readiness(shutdown, lambda: server.listening, sources, rules, faults))
        server = MetricsServer(
            Handler(sources.provider, documents, health, own_metrics=monitoring, clock=clock),
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
            "API discovery": sources.resources.run(),
            "rules": rules.run(),
            "relist": sources.relister.run(),
            "faults": sources.provider.run(),
            "event-loop lag": _watch_lag(monitoring),
        }
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(coroutine, name=name) for name, coroutine in work.items()]
                started(server)
                await stop.wait()
                await server.stop()
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as failures:
            raise _sole(failures) from None


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


async def _open_sources(
    options: Options, clock: Clock, monitoring: Monitoring, faults: FaultLog, stack: AsyncExitStack
) -> Sources:
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
    objects = ObjectLister(Surroundings(client, clock, monitoring, faults, random.random))
    relister = Relister(
        SeriesLister(prometheus.origin, monitoring, faults, max_bytes=options.discovery_max_bytes),
        clock,
        monitoring,
        faults,
        interval=options.metrics_relist_interval,
        max_age=options.look_back,
    )
    freshness = Freshness(options.metrics_ttl, options.metrics_max_answer_age)
    provider = Provider(resources, objects, cache, relister, clock, monitoring, faults, freshness=freshness)
    return Sources(resources, objects, relister, provider)


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


def _serving_certificate(options: Options, clock: Clock) -> tls.ServingCertificate:
    """Return the pair given, or the self-signed one of `--cert-dir`, and beside it those for further server names."""
    minimum = _MIN_VERSIONS.get(options.tls_min_version, ssl.TLSVersion.TLSv1_2)
    ciphers = openssl_cipher_list(options.tls_cipher_suites)
    build = functools.partial(tls.build_context, minimum=minimum, ciphers=ciphers)
    named = []
    for each in options.tls_sni_cert_keys:
        pair = tls.Pair(Path(each.certificate), Path(each.key))
        named.append((each.names or tls.names_of(pair), tls.ServingCertificate(pair, build)))
    if options.tls_cert_file:
        own = tls.Pair(Path(options.tls_cert_file), Path(options.tls_private_key_file))
    else:
        own = tls.ensure_self_signed(Path(options.cert_dir), clock, addresses=["127.0.0.1", options.bind_address])
    return tls.ServingCertificate(own, build, named)


def _groups(options: Options, config: RulesConfig) -> set[str]:
    """Return the API groups to serve: those asked for, and those that rules need."""
    needed = {CUSTOM_GROUP: config.rules, EXTERNAL_GROUP: config.external_rules}
    return {*options.serve_groups, *(group for group, entries in needed.items() if entries)}


def _readiness(
    shutdown: Shutdown,
    listening: Callable[[], bool],
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
        waiting = ", ".join(map(str, sources.objects.unsynced()))
        return f"first list of {waiting} is not in" if waiting else None

    return [
        Check("listener", lambda: None if listening() else "not listening"),
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
