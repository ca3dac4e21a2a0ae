"""The composition of the scaler: its caches, what decides and writes, and the slices that it owns.

A part of the composition root. There is one of each in a process. A slice that is taken adds a writer with a
fence, and its autoscalers; a slice that is given up is drained, and its autoscalers are dropped.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from adapter.autoscaler.controller.ready_store import ReadyTimesStore
from adapter.autoscaler.controller.registry import Controller
from adapter.autoscaler.controller.reporter import Journal
from adapter.autoscaler.decide.observation import Settings
from adapter.autoscaler.explain import debug
from adapter.autoscaler.forecasts.book import ForecastBook
from adapter.autoscaler.inputs.factory import SourceFactory
from adapter.autoscaler.inputs.polling import DelayReporter, Poller
from adapter.autoscaler.inputs.snapshot import AutoscalerContext
from adapter.compose.providers import Runtime
from adapter.compose.scaler_parts import ScalerCaches, ScalerWrites
from adapter.config.options import Options
from adapter.forecast.metric_queries import RuleHistories
from adapter.forecast.service import ForecastService
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.metrics_api import MetricsAPI
from adapter.kubernetes.ownership import installation_lock
from adapter.kubernetes.ownership.membership import MemberSettings
from adapter.kubernetes.ownership.slice_keeper import SliceKeeper
from adapter.kubernetes.ownership.term import Term
from adapter.model import timestamps
from adapter.model.autoscaling import slices
from adapter.model.clock import DecisionClock
from adapter.provider.reader import ValueReader
from adapter.provider.resource import ResourceProvider
from adapter.runtime.steps import run_steps

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
        reader: ValueReader,
        build_usages: Callable[[PodCache], ResourceProvider],
        *,
        random: Callable[[], float],
        pods: PodCache | None = None,
    ) -> None:
        self._options = options
        self._runtime = runtime
        self._random = random
        self._began = runtime.clock.monotonic()
        self.journal = Journal(options.journal_entries, keeps_inputs=options.journal_records)
        period = timestamps.span_of(options.horizontal_pod_autoscaler_sync_period)
        self.caches = ScalerCaches(runtime, pods, period)
        self._writes = ScalerWrites(runtime, self.caches, options.kube_api_write_qps, random)
        self._providers = reader, build_usages(self.caches.pods)
        histories = RuleHistories(runtime.relister, runtime.resources.current)
        self._forecaster = ForecastService(runtime.prometheus, runtime.problems)
        self._forecasts = ForecastBook(self._forecaster, histories.build_queries, runtime.monitoring)
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
        caches = self.caches.tasks(self._runtime)
        if self._keeper is not None:
            caches["scaler: leases"] = self._keeper.view.cache.run()
        return caches, self._run()

    def find_unsynced(self) -> str | None:
        """Return which caches have no first list yet, None if all have one."""
        return self._find_waiting(with_leases=True)

    def find_unlisted(self) -> str | None:
        """Return that without Leases, None in the first `LISTED_SECONDS`: a server of metrics needs none."""
        is_new = self._runtime.clock.monotonic() - self._began < LISTED_SECONDS
        return None if is_new else self._find_waiting(with_leases=False)

    def _find_waiting(self, *, with_leases: bool) -> str | None:
        waiting = self.caches.find_waiting()
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
            return await run_steps(
                debug.show_fleet(self.caches.registry.controller, self._runtime.clock.wall())
            )
        namespace, name = key
        owner = "" if self._keeper is None else self._keeper.find_owner(slices.slice_of(namespace))
        controller, leader = self.caches.registry.find_controller(namespace), credentials.pod_of(owner)
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
                    answered=self.caches.changes.note,
                    delays=DelayReporter(monitoring, problems, self.caches.registry.delayed),
                    defects=problems.defects,
                    scalers=self.count_scalers,
                ) as poller,
                asyncio.TaskGroup() as group,
            ):
                controller = self._build_controller(poller)
                self.caches.registry.controller = self._forecasts.controller = controller
                tasks = {
                    "outbox": self._writes.outbox.run(),
                    "decisions": controller.loop.run(),
                    "forecasts": self._forecasts.run(),
                    "statuses of schedules": self._writes.schedules.run(controller),
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
        caches, number = self.caches, term.number
        if self._runtime.watching.scope is not None:
            await self._runtime.watching.scope.wait_for(number)
        await caches.changes.wait_for_any(number)
        floors, stored = self._writes.begin(term)
        ready_times = ReadyTimesStore(controller.begin(number, floors), stored)
        self._forecasts.begin(number, stored)
        try:
            ready_times.submit()
            await caches.autoscalers.put_all(number)
            await caches.boosted_hpas.adopt_floors(number, floors)
            await asyncio.Event().wait()
        finally:
            caches.boosted_hpas.end(number)
            floors.close()
            await controller.end(number)
            await self._writes.outbox.drain(number)
            controller.drop(number)
            self._forecasts.end(number)

    def _build_controller(self, poller: Poller) -> Controller:
        runtime = self._runtime
        sources = SourceFactory(
            *self._providers,
            MetricsAPI(runtime.client, runtime.clock),
            runtime.resources.current,
            runtime.scraped,
            poller,
            api_period=self._options.horizontal_pod_autoscaler_sync_period,
        )
        context = AutoscalerContext(
            self.caches.followers,
            self.caches.rivals,
            sources,
            build_settings(self._options),
            DecisionClock(runtime.clock),
            self.caches.changes,
            self._forecasts,
            self.caches.schedules,
            keeps_history=self._options.autoscaler_history,
            doubt=runtime.server_clock.doubt,
        )
        return Controller(
            context,
            self._writes.actuator,
            runtime.monitoring,
            self.journal,
            random=self._random,
            costs=self._writes.costs,
        )


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
