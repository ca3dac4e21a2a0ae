"""The composition root: builds every object and owns every task.

`run` serves the metrics APIs and `run_scaler` only scales; each is one process from start to shutdown. This
module determines what is built and in which order it starts and stops. All decisions are made elsewhere.
"""

import asyncio
import functools
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from adapter.compose import providers
from adapter.compose.clock import SystemClock
from adapter.compose.providers import Providers, Runtime
from adapter.compose.security import Security, open_security
from adapter.config import checks
from adapter.config.options import Options
from adapter.config.rules_config import RulesConfig
from adapter.errors import NotSyncedError
from adapter.kubernetes import credentials
from adapter.kubernetes.apiservices import RegistrationWatch
from adapter.kubernetes.cache.lister import RUNNING_PODS, ObjectLister
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.scope import SliceScope
from adapter.model.clock import Clock
from adapter.provider.metrics import RulesMetricsProvider
from adapter.provider.resource import ResourceProvider
from adapter.provider.rule_source import RuleSource
from adapter.server.api import paths
from adapter.server.api.documents import Documents
from adapter.server.health import Check, Health, ProbeListener
from adapter.server.http.access_log import AccessLog, open_sink
from adapter.server.http.connection_server import MetricsServer, Shutdown
from adapter.server.http.endpoints import LocalPages
from adapter.server.http.handler import Handler
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

if TYPE_CHECKING:  # it takes a sixth of the start, and most replicas serve only
    from adapter.compose.scaler import Scaler

# Seconds between two measurements of the lag of the event loop.
_LAG_PERIOD = 0.1

# The informational checks of readyz, each with the problems that it shows.
_INFORMATIONAL = {
    "prometheus": ("prometheus",),
    "queries": ("query", "render"),
    "values": ("value",),
    "discovery": ("discovery", "discovery-worker"),
    "credentials": ("credentials",),
    "serving-certificate": ("serving-certificate",),
    "objects": ("informer", "watch", "list", "object"),
    "api-discovery": ("api-discovery", "api-group"),
    "metric-names": ("metric-name",),
    "series-names": ("series-name",),
    "floors": ("floor-read",),
}


async def run(
    options: Options,
    version: str,
    stop: asyncio.Event,
    *,
    started: Callable[[MetricsServer], None] = lambda _: None,
    clock: Clock | None = None,
) -> None:
    """Serve until `stop` is set, then shut down in order; `started` is called once the server listens.

    Raises InputError for settings and files that cannot be used, OSError if the address cannot be bound.
    """
    clock = clock or SystemClock()
    monitoring = Monitoring(version)
    problems = ProblemLog(monitoring, clock)
    files, parsed = providers.read_rules(options)
    # The order below is that of needs, and the stack closes in reverse: what answers requests stops before
    # what it reads from.
    async with AsyncExitStack() as stack:
        security = await open_security(options, clock, monitoring, problems, stack)
        runtime = await providers.open_runtime(options, clock, monitoring, problems, stack)
        pods = PodCache(runtime.watching) if options.scaler else None
        served = providers.open_providers(runtime, pods)
        optional: dict[str, Callable[[], _Work]] = {}
        scaler = None
        if options.scaler:
            optional["scrapes"] = runtime.scraped.run
            scaler = _open_scaler(options, runtime, served.provider, lambda _: served.resource_provider, pods)
        if options.serves_floors:
            from adapter.compose.floors import serve_floors  # noqa: PLC0415 - see there

            known = None if scaler is None else (scaler.caches.rivals.hpas, scaler.caches.floors)
            optional |= serve_floors(runtime, served.provider, known)
        documents = Documents(
            served.provider,
            _groups(options, parsed.config),
            version,
            paths.PREVIEW_VERSIONS if options.serve_v1_preview else paths.VERSIONS,
        )

        def adopted(config: RulesConfig) -> None:
            documents.serve(_groups(options, config))
            served.list_objects(config, runtime.resources.current())

        rules = providers.open_rules(options, runtime, files, parsed, adopted)
        access_log: AccessLog | None = None
        if options.access_log:
            access_log = AccessLog(open_sink(options.access_log), clock, monitoring, problems)
            stack.push_async_callback(access_log.flush)
            optional["access log"] = access_log.run
        shutdown = Shutdown()
        checks = _readiness(options, shutdown, lambda: server.listening, security, runtime, served, rules)
        if scaler is not None:
            checks.append(Check("scaler-caches-synced", scaler.find_unlisted))
            checks.append(Check("installation", scaler.find_other_installation, informational=True))
        health = Health(readyz=checks)
        monitoring.ready.labels("serve").set_function(health.is_ready)
        server = MetricsServer(
            Handler(
                served.provider,
                documents,
                health,
                security.access,
                own_metrics=monitoring,
                clock=clock,
                ask_usages=served.resource_provider.resource,
                access_log=access_log,
                show_autoscalers=None if scaler is None else scaler.show,
            ),
            security.certificate,
            shutdown,
            host=options.bind_address,
            port=options.secure_port,
            shutdown_delay=options.shutdown_delay,
            share_port=options.permit_port_sharing,
        )
        await _start(server, stack)
        await _open_probes(options, health, stack)
        if scaler is not None:
            await _start(LocalPages(options.local_address, health, monitoring, scaler.show), stack)
        work = {
            **_common_work(runtime, rules),
            **security.tasks(problems, clock),
            **{f"object cache {number}": lister.run() for number, lister in enumerate(served.listers)},
            **{name: run() for name, run in optional.items()},
        }
        if namespace := credentials.find_namespace():  # outside of a cluster no APIService can lead here
            groups, names = options.serve_groups, lambda: security.certificate.names
            watch = RegistrationWatch(runtime.client, groups, namespace, names, monitoring)
            work["APIServices"] = watch.run()
        await _run_until(stop, work, scaler, shutdown, started=lambda: started(server), close=server.stop)


async def run_scaler(
    options: Options,
    version: str,
    stop: asyncio.Event,
    *,
    started: Callable[[LocalPages], None] = lambda _: None,
) -> None:
    """Scale until `stop` is set, and serve no metrics API; otherwise as `run`."""
    clock = SystemClock()
    monitoring = Monitoring(version)
    problems = ProblemLog(monitoring, clock)
    files, parsed = providers.read_rules(options)
    async with AsyncExitStack() as stack:
        runtime = await providers.open_runtime(options, clock, monitoring, problems, stack)
        if options.leader_elect:  # else it has all
            runtime = replace(runtime, watching=replace(runtime.watching, scope=SliceScope()))
        provider = providers.open_provider(runtime, ObjectLister(runtime.watching))

        def build_usages(pods: PodCache) -> ResourceProvider:
            running = ObjectLister(runtime.watching, fields=RUNNING_PODS, pods=pods)
            return ResourceProvider(provider.reader, running, running)

        scaler = _open_scaler(options, runtime, provider, build_usages)
        rules = providers.open_rules(options, runtime, files, parsed)
        shutdown = Shutdown()
        # informational: a Deployment whose new pods stand back unready never ends an update
        other = Check("installation", scaler.find_other_installation, informational=True)
        health = Health(readyz=[shutdown.check, Check("caches-synced", scaler.find_unsynced), other])
        monitoring.ready.labels("scale").set_function(health.is_ready)
        await _open_probes(options, health, stack)
        pages = LocalPages(options.local_address, health, monitoring, scaler.show)
        await _start(pages, stack)
        security: Security | None = None
        if address := checks.split_bind_address(options.metrics_bind_address):
            # Self-metrics and journal over HTTPS: the server of the metrics APIs with no API group, so it
            # authenticates and authorizes callers alike.
            security = await open_security(options, clock, monitoring, problems, stack)
            handler = Handler(
                provider,
                Documents(provider, (), version),
                health,
                security.access,
                own_metrics=monitoring,
                clock=clock,
                show_autoscalers=scaler.show,
            )
            server = MetricsServer(handler, security.certificate, shutdown, host=address[0], port=address[1])
            await _start(server, stack)
        work = _common_work(runtime, rules) | {"scrapes": runtime.scraped.run()}
        if security is not None:
            work |= security.tasks(problems, clock)
        await _run_until(stop, work, scaler, shutdown, started=lambda: started(pages), close=pages.stop)


_Work = Coroutine[Any, Any, None]


def _common_work(runtime: Runtime, rules: RuleSource) -> dict[str, _Work]:
    """Return, by name, the tasks that adapter and scaler have in common."""
    return {
        "API discovery": runtime.resources.run(),
        "rules": rules.run(),
        "relist": runtime.relister.run(),
        "faults": runtime.source_problems.run(),
        "event-loop lag": _watch_lag(runtime.monitoring),
    }


async def _run_until(
    stop: asyncio.Event,
    work: Mapping[str, _Work],
    scaler: "Scaler | None",
    shutdown: Shutdown,
    *,
    started: Callable[[], None],
    close: Callable[[], Awaitable[None]],
) -> None:
    """Run all tasks until `stop` is set, or one of them fails.

    Then shut down in order: readiness, the scaler, the listener that `close` ends, the rest. Readiness ends
    before the scaler, which may take seconds to release its lease, so that the process is removed from the
    endpoints meanwhile.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine, name=name) for name, coroutine in work.items()]
            scaling = None if scaler is None else group.create_task(_scale(scaler), name="scaler")
            started()
            await stop.wait()
            shutdown.begin()
            if scaling is not None:
                # before the listener, so that another replica can scale while the last requests are answered
                scaling.cancel()
                await asyncio.wait([scaling])
            await close()
            for task in tasks:
                task.cancel()
    except BaseExceptionGroup as failures:
        failure: BaseException = failures
        while isinstance(failure, BaseExceptionGroup) and len(failure.exceptions) == 1:
            failure = failure.exceptions[0]
        raise failure from None


async def _scale(scaler: "Scaler") -> None:
    """Run the scaler; on cancellation end the membership first, while caches and connections still work."""
    caches, leading = scaler.tasks()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(coroutine, name=name) for name, coroutine in caches.items()]
        try:
            await leading
        finally:
            for task in tasks:
                task.cancel()


def _open_scaler(
    options: Options,
    runtime: Runtime,
    provider: RulesMetricsProvider,
    build_usages: Callable[[PodCache], ResourceProvider],
    pods: PodCache | None = None,
) -> "Scaler":
    from adapter.compose.scaler import Scaler  # noqa: PLC0415 - as above

    scaler = Scaler(options, runtime, provider.reader, build_usages, random=random.random, pods=pods)
    provider.reader.became_ready = scaler.caches.pods.became_ready
    return scaler


async def _start(part: LocalPages | MetricsServer | ProbeListener, stack: AsyncExitStack) -> None:
    await part.start()
    stack.push_async_callback(part.stop)


async def _open_probes(options: Options, health: Health, stack: AsyncExitStack) -> None:
    """Answer the kubelet's probes until `stack` ends, if an address is configured for them."""
    address = checks.split_bind_address(options.health_probe_bind_address)
    if address is not None:
        await _start(ProbeListener(*address, health), stack)


def _groups(options: Options, config: RulesConfig) -> set[str]:
    """Return the API groups to serve: those of the options, and those that rules need."""
    needed = {
        paths.CUSTOM_GROUP: bool(config.rules) or options.serves_floors,
        paths.EXTERNAL_GROUP: bool(config.external_rules) or options.serves_floors,
        paths.RESOURCE_GROUP: config.serves_usages,
    }
    return {*options.serve_groups, *(group for group, is_needed in needed.items() if is_needed)}


def _readiness(
    options: Options,
    shutdown: Shutdown,
    listening: Callable[[], bool],
    security: Security,
    runtime: Runtime,
    served: Providers,
    rules: RuleSource,
) -> list[Check]:
    """Return the checks of readyz.

    The informational ones show a state and never fail it: an unready adapter harms the whole cluster.
    """

    def active(names: Collection[str]) -> str | None:
        texts = [text for (fault, _), text in runtime.problems.active().items() if fault in names]
        return "; ".join(texts) or None

    def caches() -> str | None:
        try:
            runtime.resources.current()
        except NotSyncedError as error:
            return str(error)
        waiting = ", ".join(str(kind) for lister in served.listers for kind in lister.unsynced())
        return f"first list of {waiting} is not complete" if waiting else None

    return [
        Check("listener", lambda: None if listening() else "not listening"),
        Check("trust", security.find_fault),
        shutdown.check,
        Check("caches-synced", caches),
        Check(
            "discovery-attempted",
            lambda: None if runtime.relister.attempted.is_set() else "series have not been requested yet",
        ),
        *(
            Check(name, functools.partial(active, faults), informational=True)
            for name, faults in _INFORMATIONAL.items()
            if name != "floors" or options.serves_floors
        ),
        Check("series", runtime.relister.find_rules_without_series, informational=True),
        Check("rules", lambda: "; ".join(map(str, rules.faults)) or None, informational=True),
        Check("config-reload", lambda: "; ".join(map(str, rules.refused)) or None, informational=True),
    ]


async def _watch_lag(monitoring: Monitoring) -> None:
    """Measure until cancelled how much later than requested the event loop wakes a timer."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _LAG_PERIOD
        await asyncio.sleep(_LAG_PERIOD)
        monitoring.loop_lag.observe(max(0.0, loop.time() - due))
