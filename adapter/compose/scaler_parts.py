"""What a scaler is made of: its caches with its registry, and what leaves it.

The caches live as long as the process, so the next owner of a slice begins with warm ones.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from adapter.autoscaler.controller.actuator import Actuator
from adapter.autoscaler.controller.autoscaler_sources import AutoscalerSource, BoostedHPAs
from adapter.autoscaler.controller.changes import Changes
from adapter.autoscaler.controller.cost_keeper import CostKeeper
from adapter.autoscaler.controller.registry import AutoscalerRegistry
from adapter.autoscaler.decide.sync import Event
from adapter.autoscaler.inputs.follower import TargetFollowers
from adapter.autoscaler.inputs.scrape_subscriptions import EndpointSubscriptions, ScrapeSubscriptions
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.schedules.book import ScheduleBook
from adapter.autoscaler.schedules.reporter import ScheduleReporter
from adapter.boost.publisher import FloorWriter
from adapter.boost.view import FloorView
from adapter.compose.providers import Runtime
from adapter.kubernetes.cache.autoscalers import HPACache, ScaleConflicts
from adapter.kubernetes.cache.lister import NamespaceNames
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.scale_targets import ScaleTargets
from adapter.kubernetes.ownership.term import Term
from adapter.kubernetes.write.config_map import ConfigMapOutlet, StoreSlot
from adapter.kubernetes.write.events import EventOutlet
from adapter.kubernetes.write.outbox import Outbox
from adapter.kubernetes.write.status import StatusOutlet
from adapter.kubernetes.write.writer import WriteKind, Writer, WriteRateLimiter


class ScalerCaches:
    """`pods` is the cache that the rest of the process reads too, None for one of its own.

    `period` is the sync period of the HPA controller in nanoseconds.
    """

    def __init__(self, runtime: Runtime, pods: PodCache | None, period: int) -> None:
        watching, problems = runtime.watching, runtime.problems
        self.pods = PodCache(watching) if pods is None else pods
        self.targets = ScaleTargets(watching, runtime.resources)
        self.rivals = ScaleConflicts(watching)
        self.changes = Changes()
        self.schedules = ScheduleBook(watching, problems, self.changes)
        self.floors = FloorView(runtime.client, runtime.clock, runtime.namespace, problems)
        self.followers = TargetFollowers(self.targets, self.pods)
        self._endpoints = EndpointSubscriptions(runtime.scraped, watching, self.pods)
        self._scrapes = ScrapeSubscriptions(
            runtime.scraped, self.followers, problems.defects, self._endpoints
        )
        self.registry = AutoscalerRegistry(self.rivals, self._scrapes, self.changes)
        self.autoscalers = AutoscalerSource(self.registry, watching)
        hpas = self.rivals.hpas
        self.boosted_hpas = BoostedHPAs(self.registry, hpas, runtime.clock, problems, period)
        hpas.followers.append(self.boosted_hpas.changed)
        self.rivals.changed = self.registry.rivals_changed
        runtime.relister.subscribe(self._scrapes.rules_changed.set)
        runtime.relister.subscribe(self._endpoints.wake.set)
        runtime.scraped.subscribe(self.changes.note_scraped)

    def tasks(self, runtime: Runtime) -> dict[str, Coroutine[Any, Any, None]]:
        """Return what to run for them, by name."""
        tasks: dict[str, Coroutine[Any, Any, None]] = {
            "scaler: pods": self.pods.run(),
            "scaler: targets": self.targets.run(),
            "scaler: rivals": self.rivals.hpas.run(),
            "scaler: scraped pods": self._scrapes.run(),
            "scaler: scraped endpoints": self._endpoints.run(),
            "scaler: autoscalers": self.autoscalers.run(),
            "scaler: floors": self.floors.run(),
            "scaler: schedules": self.schedules.cache.run(),
        }
        if (scope := runtime.watching.scope) is not None:
            tasks["scaler: namespaces"] = NamespaceNames(runtime.watching, scope).run()
        return tasks

    def find_waiting(self) -> list[str]:
        """Return the kinds whose first list is not complete."""
        caches: dict[str, PodCache | HPACache | AutoscalerSource | ScheduleBook] = {
            "pods": self.pods,
            "horizontalpodautoscalers": self.rivals.hpas,
            "fastpathautoscalers": self.autoscalers,
            "fastpathschedules": self.schedules,
        }
        return [name for name, cache in caches.items() if not cache.synced]


class ScalerWrites:
    """Writes `rate` times a second at most."""

    def __init__(
        self, runtime: Runtime, caches: ScalerCaches, rate: float, random: Callable[[], float]
    ) -> None:
        clock, monitoring, problems = runtime.clock, runtime.monitoring, runtime.problems
        self._runtime = runtime
        self._autoscalers = caches.autoscalers
        self._limiter = WriteRateLimiter(rate, clock, monitoring)
        self.outbox = outbox = Outbox(self._limiter, clock, monitoring, problems.defects)
        statuses = StatusOutlet(outbox, problems, self._status_refused)
        events = EventOutlet(outbox, random, monitoring, problems)
        self.actuator = Actuator(outbox, statuses, events)
        self.costs = CostKeeper(outbox, self.actuator)
        self._floors = ConfigMapOutlet(outbox, WriteKind.FLOOR, "unexpected error while publishing floors")
        self._stores = ConfigMapOutlet(
            outbox, WriteKind.STATUS, "unexpected error while storing for the next owner"
        )
        self.schedules = ScheduleReporter(
            outbox, caches.schedules, problems, caches.rivals.hpas.find, caches.autoscalers.find_read
        )

    def begin(self, term: Term) -> tuple[FloorWriter, StoreSlot]:
        """Begin to write for a slice. Return what publishes its floors, and where its term stores."""
        runtime, number = self._runtime, term.number
        clock, monitoring, problems = runtime.clock, runtime.monitoring, runtime.problems
        writer = Writer(runtime.client, term, self._limiter, clock, monitoring, runtime.source_problems)
        self.outbox.begin(number, writer)
        common = writer, runtime.namespace, number, clock, problems
        return FloorWriter(StoreSlot(self._floors, *common)), StoreSlot(self._stores, *common)

    def _status_refused(self, update: Any, error: Exception) -> None:
        """Record the event that the HPA controller records if a status cannot be updated."""
        autoscaler = self._autoscalers.find_read(Key(update.namespace, update.name))
        if autoscaler is not None:
            self.actuator.event(autoscaler, Event("Warning", "FailedUpdateStatus", str(error)))
