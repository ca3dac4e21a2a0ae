"""The composition of the scaler: its caches, what decides and writes, and the slices that it owns.

A part of the composition root. There is one of each in a process. A slice that is taken adds a writer with a
fence, and its autoscalers; a slice that is given up is drained, and its autoscalers are dropped.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from adapter.autoscaler import debug
from adapter.autoscaler.actuator import ClusterActuator
from adapter.autoscaler.autoscaler_sources import AutoscalerSource, BoostedHPAs
from adapter.autoscaler.cost_keeper import CostKeeper
from adapter.autoscaler.decide.decision import Event
from adapter.autoscaler.decide.observation import Settings
from adapter.autoscaler.follower import TargetFollowers
from adapter.autoscaler.forecasts.book import ForecastBook
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.large_namespaces import LargeNamespaces
from adapter.autoscaler.metrics.factory import SourceFactory
from adapter.autoscaler.metrics.polling import DelayReporter, Poller
from adapter.autoscaler.metrics.scrape_subscriptions import EndpointSubscriptions, ScrapeSubscriptions
from adapter.autoscaler.ready_store import ReadyTimesStore
from adapter.autoscaler.registry import AutoscalerRegistry, Controller
from adapter.autoscaler.reporter import Journal
from adapter.autoscaler.schedules.book import ScheduleBook
from adapter.autoscaler.schedules.reporter import ScheduleReporter
from adapter.autoscaler.snapshot import AutoscalerContext
from adapter.boost.publisher import FloorWriter
from adapter.boost.view import FloorView
from adapter.compose.providers import Runtime
from adapter.config.options import Options
from adapter.forecast.metric_queries import RuleHistories
from adapter.forecast.service import ForecastService
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.autoscalers import ScaleConflicts
from adapter.kubernetes.cache.namespaces import NamespaceNames
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.scale_targets import ScaleTargets
from adapter.kubernetes.metrics_api import MetricsAPI
from adapter.kubernetes.ownership import installation_lock
from adapter.kubernetes.ownership.membership import MemberSettings
from adapter.kubernetes.ownership.slice_keeper import SliceKeeper
from adapter.kubernetes.ownership.term import Term
from adapter.kubernetes.write.config_map import ConfigMapOutlet, StoreSlot
from adapter.kubernetes.write.events import EventOutlet
from adapter.kubernetes.write.outbox import Outbox
from adapter.kubernetes.write.status import StatusOutlet
from adapter.kubernetes.write.writer import WriteKind, Writer, WriteRateLimiter
from adapter.model import timestamps
from adapter.model.autoscaling import slices
from adapter.model.clock import DecisionClock
from adapter.provider.resource import ResourceProvider
from adapter.provider.scaler_provider import ScalerProvider
from adapter.steps import run_steps

LOOK = 0.05  # seconds between two looks at the caches until they are synced
LISTED_SECONDS = 60.0
"""How long after the start a server of metrics is ready although its scaler has not listed a kind."""


class Scaler:
    """Scales while its `tasks` run.

    `pods` is the cache of all pods that the rest of the process reads too. Without it the scaler makes one
    of its own. `build_usages` builds the provider of cpu and memory on either.
    """

    def __init__(
        self,
        options: Options,
        runtime: Runtime,
        provider: ScalerProvider,
        build_usages: Callable[[PodCache], ResourceProvider],
        *,
        random: Callable[[], float],
        pods: PodCache | None = None,
    ) -> None:
        self._options = options
        self._began = runtime.clock.monotonic()
        self._runtime = runtime
        self._provider = provider
        self._random = random
        self._settings = build_settings(options)
        self.journal = Journal(options.journal_entries, keeps_inputs=options.journal_records)
        watching, client, clock, problems = runtime.watching, runtime.client, runtime.clock, runtime.problems
        self.pods = PodCache(watching) if pods is None else pods
        self._usages = build_usages(self.pods)
        self.targets = ScaleTargets(watching, runtime.resources)
        self.rivals = ScaleConflicts(watching)
        self._endpoints = EndpointSubscriptions(runtime.endpoints, watching, self.pods)
        self._followers = TargetFollowers(self.targets, self.pods)
        self._scrapes = ScrapeSubscriptions(
            runtime.scraped, self._followers, problems.defects, self._endpoints
        )
        runtime.relister.subscribe(self._scrapes.rules_changed.set)
        runtime.relister.subscribe(self._endpoints.wake.set)
        self._registry = AutoscalerRegistry(self.rivals, self._scrapes)
        self.rivals.changed = self._registry.rivals_changed
        runtime.scraped.subscribe(self._registry.scraped)
        runtime.scraped.follow_readiness(self.pods.became_ready)
        period = timestamps.span_of(options.horizontal_pod_autoscaler_sync_period)
        self._boosted_hpas = BoostedHPAs(self._registry, self.rivals.hpas, clock, problems, period)
        self._schedules = ScheduleBook(watching, problems)
        self._schedules.listener = self._registry
        self.floors = FloorView(client, clock, runtime.namespace, problems)
        self.rivals.hpas.followers.append(self._boosted_hpas.changed)
        self._source = AutoscalerSource(self._registry, problems, watching)
        self._histories = RuleHistories(runtime.relister, runtime.resources.current)
        self._forecaster = ForecastService(runtime.prometheus, problems)
        self._limiter = WriteRateLimiter(options.kube_api_write_qps, clock, runtime.monitoring)
        self._outbox = Outbox(self._limiter, clock, runtime.monitoring, problems.defects)
        statuses = StatusOutlet(self._outbox, clock, problems, self._status_refused)
        events = EventOutlet(self._outbox, clock, random, runtime.monitoring, problems)
        self._actuator = ClusterActuator(self._outbox, statuses, events)
        self._costs = CostKeeper(self._outbox, self._actuator, clock)
        self._floors = ConfigMapOutlet(
            self._outbox, WriteKind.FLOOR, "unexpected error while publishing floors"
        )
        self._stores = ConfigMapOutlet(
            self._outbox, WriteKind.STATUS, "unexpected error while storing for the next owner"
        )
        self._reporter = ScheduleReporter(
            self._outbox, self._schedules, problems, clock, self.rivals.hpas.find, self._source.find
        )
        self._forecasts = ForecastBook(self._forecaster, self._histories.build_queries, runtime.monitoring)
        self._keeper = self._open_slices()

    def _open_slices(self) -> SliceKeeper | None:
        options, runtime = self._options, self._runtime
        if not options.leader_elect:
            return None
        namespace = options.leader_elect_resource_namespace or runtime.namespace
        settings = MemberSettings(
            credentials.new_identity(),
            options.leader_elect_resource_name,
            options.leader_elect_lease_duration,
            options.leader_elect_renew_deadline,
            options.leader_elect_retry_period,
            os.environ.get("POD_UID", ""),  # the manifests take it from the Pod
        )
        wants = runtime.watching.scope.set if runtime.watching.scope is not None else lambda _: None
        return SliceKeeper(runtime.watching, namespace, settings, wants, self._wait_ready)

    def tasks(self) -> tuple[dict[str, Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]:
        """Return the tasks of the caches by name, and the scaling, which may be cancelled at any time."""
        caches: dict[str, Coroutine[Any, Any, None]] = {
            "scaler: pods": self.pods.run(),
            "scaler: targets": self.targets.run(),
            "scaler: rivals": self.rivals.run(),
            "scaler: scraped pods": self._scrapes.run(),
            "scaler: scraped endpoints": self._endpoints.run(),
            "scaler: large namespaces": LargeNamespaces(self._registry, self._runtime.monitoring).run(),
            "scaler: autoscalers": self._source.run(),
            "scaler: floors": self.floors.run(),
            "scaler: schedules": self._schedules.cache.run(),
        }
        if self._keeper is not None:
            caches["scaler: leases"] = self._keeper.view.cache.run()
        if (scope := self._runtime.watching.scope) is not None:
            caches["scaler: namespaces"] = NamespaceNames(self._runtime.watching, scope).run()
        return caches, self._run()

    def find_unsynced(self) -> str | None:
        """Return which caches have no first list yet, None if all have one."""
        return self._find_waiting(with_leases=True)

    def find_unlisted(self) -> str | None:
        """Return that without Leases, None in the first `LISTED_SECONDS`: a server of metrics needs none."""
        is_new = self._runtime.clock.monotonic() - self._began < LISTED_SECONDS
        return None if is_new else self._find_waiting(with_leases=False)

    def _find_waiting(self, *, with_leases: bool) -> str | None:
        caches: dict[str, PodCache | ScaleConflicts | AutoscalerSource | ScheduleBook] = {
            "pods": self.pods,
            "horizontalpodautoscalers": self.rivals,
            "fastpathautoscalers": self._source,
            "fastpathschedules": self._schedules,
        }
        waiting = [name for name, cache in caches.items() if not cache.synced]
        if with_leases and self._keeper is not None and not self._keeper.view.cache.synced:
            waiting.append("leases")
        return f"first list of {', '.join(waiting)} is not complete" if waiting else None

    def find_other_installation(self) -> str | None:
        """Return which other installation scales, or why that is not known; None if this one does."""
        active = self._runtime.problems.active()
        texts = [text for (fault, _), text in active.items() if fault in installation_lock.FAULTS]
        return "; ".join(texts) or None

    def count_scalers(self) -> int:
        """Return how many scalers share the autoscalers, as far as this one sees."""
        return 1 if self._keeper is None else sum(1 for _ in self._keeper.view.members())

    async def show(self, key: Sequence[str], query: str) -> tuple[int, bytes]:
        """Return the state of an autoscaler, or which process decides it, as an HTTP status and JSON.

        `key` are its namespace and name; without them it is a line for each that this process decides. The
        `query` may have ``journal=false``: a journal has the values of all pods at each change.
        """
        if not key:
            return await run_steps(debug.show_fleet(self._registry.controller, self._runtime.clock.wall()))
        namespace, name = key
        owner = "" if self._keeper is None else self._keeper.find_owner(slices.slice_of(namespace))
        controller, leader = self._registry.find_controller(namespace), credentials.pod_of(owner)
        with_journal = "journal=false" not in query.split("&")
        return debug.show(controller, namespace, name, leader, with_journal=with_journal)

    async def _run(self) -> None:
        """Decide and write for the slices that this process owns, without Leases for all."""
        problems, monitoring = self._runtime.problems, self._runtime.monitoring
        try:
            async with (
                Poller(
                    self._runtime.clock,
                    per_second=self._options.prometheus_max_queries_per_second,
                    answered=self._registry.answered,
                    delays=DelayReporter(monitoring, problems, self._registry.delayed),
                    defects=problems.defects,
                    scalers=self.count_scalers,
                ) as poller,
                asyncio.TaskGroup() as group,
            ):
                controller = self._build_controller(poller)
                self._registry.controller = self._forecasts.controller = controller
                tasks = {
                    "outbox": self._outbox.run(),
                    "decisions": controller.loop.run(),
                    "forecasts": self._forecasts.run(controller),
                    "statuses of schedules": self._reporter.run(controller),
                }
                for name, coroutine in tasks.items():
                    group.create_task(coroutine, name=f"scaler: {name}")

                async def work(term: Term) -> None:
                    await self._scale(term, controller)

                # The slices end first, one after the other: what decides and writes runs until the last has.
                if self._keeper is not None:
                    await self._keeper.run(work)
                async with asyncio.TaskGroup() as every:
                    for number in range(slices.COUNT):
                        every.create_task(work(Term(number)), name=f"slice {number}")
        finally:
            await self._forecaster.close()
            monitoring.forecast_values.set(0)

    async def _wait_ready(self) -> None:
        """Wait for what every decision needs, and the objects of all slices that are wanted."""
        await self._runtime.relister.attempted.wait()
        while self.find_unsynced() is not None:  # noqa: ASYNC110 - no event follows a failed list
            await asyncio.sleep(LOOK)
        if self._runtime.watching.scope is not None:
            await self._runtime.watching.scope.wait_complete()

    async def _scale(self, term: Term, controller: Controller) -> None:
        """Decide and write for a slice until cancelled; then end its term, with no write left in flight.

        The order of the end matters. Raises that wait for their floor are given up first, since writes wait
        for them. Then writes in progress end, and what they report is drained with the rest. The states are
        dropped last: until then they are what is stored for the next owner.
        """
        runtime, clock, number = self._runtime, self._runtime.clock, term.number
        problems = runtime.problems
        if runtime.watching.scope is not None:
            await runtime.watching.scope.wait_for(number)
        await self._registry.wait_for_any(number)
        writer = Writer(
            runtime.client, term, self._limiter, clock, runtime.monitoring, runtime.source_problems
        )
        self._outbox.begin(number, writer)
        floors = FloorWriter(StoreSlot(self._floors, writer, runtime.namespace, number, clock, problems))
        stored = StoreSlot(self._stores, writer, runtime.namespace, number, clock, problems)
        ready_times = ReadyTimesStore(controller.begin(number, floors), stored)
        self._forecasts.begin(number, stored)
        try:
            ready_times.submit()
            await self._source.put_all(number)
            await self._boosted_hpas.adopt_floors(number, floors)
            await asyncio.Event().wait()
        finally:
            self._boosted_hpas.end(number)
            floors.close()
            await controller.end(number)
            await self._outbox.drain(number)
            controller.drop(number)
            self._forecasts.end(number)

    def _build_controller(self, poller: Poller) -> Controller:
        runtime = self._runtime
        sources = SourceFactory(
            self._provider,
            self._usages,
            MetricsAPI(runtime.client, runtime.clock),
            runtime.resources.current,
            runtime.scraped,
            poller,
            endpoints=runtime.endpoints,
            api_period=self._options.horizontal_pod_autoscaler_sync_period,
        )
        context = AutoscalerContext(
            self._followers,
            self.rivals,
            sources,
            self._settings,
            DecisionClock(runtime.clock),
            self._forecasts,
            self._schedules,
            keeps_history=self._options.autoscaler_history,
            doubt=runtime.server_clock.doubt,
        )
        return Controller(
            context,
            self._actuator,
            runtime.monitoring,
            self.journal,
            random=self._random,
            costs=self._costs,
        )

    def _status_refused(self, update: Any, error: Exception) -> None:
        """Record the event that the HPA controller records if a status cannot be updated."""
        autoscaler = self._source.find(Key(update.namespace, update.name))
        if autoscaler is not None:
            self._actuator.event(autoscaler, Event("Warning", "FailedUpdateStatus", str(error)))


def build_settings(options: Options) -> Settings:
    """Return the controller's settings, which allow zero replicas and reject values that overflow."""
    return Settings(
        options.horizontal_pod_autoscaler_tolerance,
        timestamps.span_of(options.horizontal_pod_autoscaler_cpu_initialization_period),
        timestamps.span_of(options.horizontal_pod_autoscaler_initial_readiness_delay),
        timestamps.span_of(options.horizontal_pod_autoscaler_downscale_stabilization),
        scale_to_zero=True,
        strict=True,
    )
