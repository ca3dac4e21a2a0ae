"""The composition root: builds every object, and owns every task.

`run` is one process from start to orderly end. Nothing is decided here; what is built, and in which order it starts and stops, is.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any

from adapter.boost.provider import FLOOR_METRIC, FloorProvider
from adapter.compose import providers
from adapter.compose import security as gates
from adapter.compose.clock import SystemClock
from adapter.compose.providers import Base, Sources
from adapter.compose.scaler import Parts, Scaler
from adapter.config import checks
from adapter.config.options import Options
from adapter.config.rules_file import RulesConfig
from adapter.errors import NotSyncedError
from adapter.kubernetes.cache.lister import ObjectLister, RunningPods
from adapter.kubernetes.cache.pods import PodCache
from adapter.model.clock import Clock
from adapter.provider.custom import Provider
from adapter.provider.resource import ResourceProvider
from adapter.provider.rules import RuleSource
from adapter.provider.scaler import ScalerProvider
from adapter.rules.resource import NODES, PODS
from adapter.server.admin import LocalPages
from adapter.server.api.documents import Documents
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP, RESOURCE_GROUP
from adapter.server.health import Check, Health
from adapter.server.http import access_log as accesslog
from adapter.server.http.access_log import AccessLog
from adapter.server.http.handler import Handler
from adapter.server.http.serving import MetricsServer, Shutdown
from adapter.server.probes import ProbeListener
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

# How often the event loop is asked how late it wakes, in seconds.
_LAG_PERIOD = 0.1


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
    faults = ProblemLog(monitoring, clock)
    files, parsed = providers.read_rules(options)
    async with AsyncExitStack() as stack:
        gate = await gates.open_gate(options, clock, monitoring, faults, stack)
        certificate = gates.open_certificate(options, clock, gate.trust, monitoring)
        base = await providers.open_base(options, clock, monitoring, faults, stack)
        # autoscalers in files may lie in namespaces that are all the scaler may read; then it keeps pods of its own
        pods = PodCache(base.watching) if options.scaler and not options.autoscalers else None
        served = providers.open_sources(base, pods)
        scaler = None
        if options.scaler:
            scaler = _open_scaler(options, base, served.provider, lambda _: served.resource_provider, pods)
        known = None if scaler is None or scaler.floors is None else (scaler.rivals.hpas, scaler.floors)
        floors = providers.open_floors(options, base, known)
        if floors is not None:
            floor_metric = FloorProvider(floors.find_autoscaler, floors.view, clock)
            served.provider.register(FLOOR_METRIC, floor_metric)
        documents = Documents(served.provider, _groups(options, parsed.config), version)

        def adopted(config: RulesConfig) -> None:
            documents.serve(_groups(options, config))
            pod_kind, node_kind = map(base.resources.current().find, (PODS, NODES))
            if config.rules and pod_kind is not None:
                served.objects.start([pod_kind])
            if config.resource_rules is not None and pod_kind is not None and node_kind is not None:
                (served.objects if served.running is None else served.running).start([pod_kind])
                served.objects.start([node_kind])

        rules = providers.open_rules(options, base, files, parsed, adopted)
        access_log = _open_access_log(options, clock, monitoring, faults, stack)
        shutdown = Shutdown()
        health = Health(
            readyz=_readiness(shutdown, lambda: server.listening, gate, base, served, rules, floors)
        )
        server = MetricsServer(
            Handler(
                served.provider,
                documents,
                health,
                gate.access,
                own_metrics=monitoring,
                clock=clock,
                resource_provider=served.resource_provider,
                access_log=access_log,
                show_autoscaler=None if scaler is None else scaler.show,
            ),
            certificate,
            shutdown,
            judge=gate.access.judge,
            host=options.bind_address,
            port=options.secure_port,
            shutdown_delay=options.shutdown_delay,
            share_port=options.permit_port_sharing,
        )
        await server.start()
        stack.push_async_callback(server.stop)
        await _open_probes(options, health, stack)
        if scaler is not None:
            await _open_local_pages(options, health, monitoring, scaler, stack)
        work = {
            **_common_work(base, served.provider, rules),
            "serving certificate": certificate.follow(faults),
            "object cache": served.objects.run(),
            **({} if served.running is None else {"running pods": served.running.run()}),
            **{f"trust {number}": source.run() for number, source in enumerate(gate.sources)},
            **({"access log": access_log.run()} if access_log is not None else {}),
            **({} if scaler is None else {"scrapes": base.scraped.run()}),
            **({} if floors is None else floors.tasks),
        }
        await _run_until(stop, work, scaler, shutdown, started=lambda: started(server), close=server.stop)


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
    faults = ProblemLog(monitoring, clock)
    files, parsed = providers.read_rules(options)
    async with AsyncExitStack() as stack:
        base = await providers.open_base(options, clock, monitoring, faults, stack)
        provider = providers.open_provider(base, ObjectLister(base.watching))

        def usages_of(pods: PodCache) -> ResourceProvider:
            return providers.open_usages(base, RunningPods(pods), RunningPods(pods))

        scaler = _open_scaler(options, base, provider, usages_of)
        rules = providers.open_rules(options, base, files, parsed)
        shutdown = Shutdown()
        health = Health(readyz=[shutdown.check, Check("caches-synced", scaler.find_unsynced)])
        await _open_probes(options, health, stack)
        pages = await _open_local_pages(options, health, monitoring, scaler, stack)
        work = {
            **_common_work(base, provider, rules),
            "scrapes": base.scraped.run(),
            **await _open_scaler_metrics(options, base, provider, health, scaler, shutdown, version, stack),
        }
        await _run_until(stop, work, scaler, shutdown, started=lambda: started(pages), close=pages.stop)


_Work = Coroutine[Any, Any, None]


def _common_work(base: Base, provider: Provider, rules: RuleSource) -> dict[str, _Work]:
    """Return, by name, the tasks that adapter and scaler have in common."""
    return {
        "API discovery": base.resources.run(),
        "rules": rules.run(),
        "relist": base.relister.run(),
        "faults": provider.run(),
        "event-loop lag": _watch_lag(base.monitoring),
    }


async def _run_until(
    stop: asyncio.Event,
    work: Mapping[str, _Work],
    scaler: Scaler | None,
    shutdown: Shutdown,
    *,
    started: Callable[[], None],
    close: Callable[[], Awaitable[None]],
) -> None:
    """Run all tasks until `stop` is set, or one of them fails.

    Then end in order: readiness, the scaler, the listener that `close` ends, the rest. Readiness does not wait for the
    scaler, which may take seconds to release its lease: endpoints are removed meanwhile.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine, name=name) for name, coroutine in work.items()]
            scaling = None if scaler is None else group.create_task(_scale(scaler), name="scaler")
            started()
            await stop.wait()
            shutdown.begin()
            if (
                scaling is not None
            ):  # before the listener: another replica can scale while the last requests are answered
                scaling.cancel()
                await asyncio.wait([scaling])
            await close()
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


def _open_scaler(
    options: Options,
    base: Base,
    provider: Provider,
    usages_of: Callable[[PodCache], ResourceProvider],
    pods: PodCache | None = None,
) -> Scaler:
    parts = Parts(
        base.client,
        base.watching,
        base.resources,
        ScalerProvider(provider.resolver, provider.sampler, base.clock, base.met),
        usages_of,
        base.scraped,
        base.clock,
        base.monitoring,
        base.faults,
        random.random,
        pods,
    )
    return Scaler(options, parts)


async def _open_local_pages(
    options: Options, health: Health, monitoring: Monitoring, scaler: Scaler, stack: AsyncExitStack
) -> LocalPages:
    """Return the pages on the machine's own address, which `stack` closes."""
    pages = LocalPages(options.local_address, health, monitoring, scaler.show)
    await pages.start()
    stack.push_async_callback(pages.stop)
    return pages


async def _open_probes(options: Options, health: Health, stack: AsyncExitStack) -> None:
    """Answer kubelet's probes, where that is asked for, until `stack` ends."""
    address = checks.split_bind_address(options.health_probe_bind_address)
    if address is not None:
        listener = ProbeListener(*address, health)
        await listener.start()
        stack.push_async_callback(listener.stop)


async def _open_scaler_metrics(
    options: Options,
    base: Base,
    provider: Provider,
    health: Health,
    scaler: Scaler,
    shutdown: Shutdown,
    version: str,
    stack: AsyncExitStack,
) -> dict[str, _Work]:
    """Serve self-metrics and journal over HTTPS, where that is asked for, until `stack` ends; return what has to run.

    It is the server of the metrics APIs with no API group, so callers are authenticated and authorized alike.
    """
    address = checks.split_bind_address(options.metrics_bind_address)
    if address is None:
        return {}
    gate = await gates.open_gate(options, base.clock, base.monitoring, base.faults, stack)
    handler = Handler(
        provider,
        Documents(provider, (), version),
        health,
        gate.access,
        own_metrics=base.monitoring,
        clock=base.clock,
        show_autoscaler=scaler.show,
    )
    certificate = gates.open_certificate(options, base.clock, gate.trust, base.monitoring)
    server = MetricsServer(
        handler, certificate, shutdown, judge=gate.access.judge, host=address[0], port=address[1]
    )
    await server.start()
    stack.push_async_callback(server.stop)
    return {
        "serving certificate": certificate.follow(base.faults),
        **{f"trust {number}": source.run() for number, source in enumerate(gate.sources)},
    }


def _open_access_log(
    options: Options, clock: Clock, monitoring: Monitoring, faults: ProblemLog, stack: AsyncExitStack
) -> AccessLog | None:
    """Return the access log if one is asked for; `stack` writes its last lines."""
    if not options.access_log:
        return None
    log = AccessLog(accesslog.open_sink(options.access_log), clock, monitoring, faults)
    stack.push_async_callback(log.close)
    return log


def _groups(options: Options, config: RulesConfig) -> set[str]:
    """Return the API groups to serve: those asked for, and those that rules need."""
    needed = {
        CUSTOM_GROUP: bool(config.rules) or options.serves_floors,
        EXTERNAL_GROUP: bool(config.external_rules) or options.serves_floors,
        RESOURCE_GROUP: config.resource_rules is not None,
    }
    return {*options.serve_groups, *(group for group, is_needed in needed.items() if is_needed)}


def _readiness(
    shutdown: Shutdown,
    listening: Callable[[], bool],
    gate: gates.Gate,
    base: Base,
    served: Sources,
    rules: RuleSource,
    floors: providers.Floors | None,
) -> list[Check]:
    """Return the checks of readyz. The informational ones show a state and never fail it: an unready adapter harms the whole cluster."""

    def active(*names: str) -> str | None:
        return "; ".join(text for (fault, _), text in base.faults.active().items() if fault in names) or None

    def caches() -> str | None:
        try:
            base.resources.current()
        except NotSyncedError as error:
            return str(error)
        running = () if served.running is None else served.running.unsynced()
        waiting = ", ".join(map(str, (*served.objects.unsynced(), *running)))
        return f"first list of {waiting} is not in" if waiting else None

    return [
        Check("listener", lambda: None if listening() else "not listening"),
        Check("trust", gate.find_fault),
        shutdown.check,
        Check("caches-synced", caches),
        Check(
            "discovery-attempted",
            lambda: None if base.relister.attempted.is_set() else "series were not asked for yet",
        ),
        Check("prometheus", lambda: active("prometheus"), informational=True),
        Check("queries", lambda: active("query", "render"), informational=True),
        Check("values", lambda: active("value"), informational=True),
        Check("discovery", lambda: active("discovery", "discovery-worker"), informational=True),
        Check("credentials", lambda: active("credentials"), informational=True),
        Check("objects", lambda: active("informer", "watch", "list"), informational=True),
        Check("api-discovery", lambda: active("api-discovery", "api-group"), informational=True),
        Check("metric-names", lambda: active("metric-name"), informational=True),
        Check("series-names", lambda: active("series-name"), informational=True),
        *([] if floors is None else [Check("floors", lambda: active("floor-read"), informational=True)]),
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
