"""The composition of the scaler: caches, election, and for each term of leadership the controller and its writers.

A part of the composition root, by itself because it is one idea: nothing here decides anything. Not here: which autoscalers there are
(`autoscaler.registry`), where they are read (`autoscaler.autoscaler_sources`, `autoscaler.boosted_hpas`). Caches live as long as the process, so that
whoever takes over starts warm; everything that writes lives for one term and stands behind its fence.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.autoscaler import debug
from adapter.autoscaler.actuator import ClusterActuator, FileActuator
from adapter.autoscaler.autoscaler_sources import (
    AutoscalerFiles,
    AutoscalerFileSource,
    AutoscalerObjectSource,
    AutoscalerSource,
)
from adapter.autoscaler.boosted_hpas import BoostedHPAs
from adapter.autoscaler.decide.observation import Settings
from adapter.autoscaler.interfaces import Actuator, FollowedPods, Key
from adapter.autoscaler.journal import Journal
from adapter.autoscaler.loop import Controller
from adapter.autoscaler.metrics.factory import SourceFactory
from adapter.autoscaler.metrics.feed import DelayReporter
from adapter.autoscaler.metrics.polling import Poller
from adapter.autoscaler.registry import AutoscalerRegistry
from adapter.autoscaler.scrape_subscriptions import ScrapeSubscriptions
from adapter.autoscaler.snapshot import AutoscalerContext
from adapter.boost.cleaner import FloorCleaner
from adapter.boost.publisher import FloorWriter
from adapter.boost.view import FloorView
from adapter.config.options import Options
from adapter.errors import InputError
from adapter.kubernetes import credentials
from adapter.kubernetes.cache.list_watch import ReflectorContext as WatchSurroundings
from adapter.kubernetes.cache.pods import PodCache
from adapter.kubernetes.cache.scale_conflicts import ScaleConflicts
from adapter.kubernetes.cache.scale_targets import ScaleTargets
from adapter.kubernetes.client import KubernetesClient
from adapter.kubernetes.discovery import CatalogueSource
from adapter.kubernetes.leader import verdict
from adapter.kubernetes.leader.election import Elector
from adapter.kubernetes.leader.fence import Fence, LeaseFence, Unfenced
from adapter.kubernetes.leader.lease import KubernetesLeases
from adapter.kubernetes.leader.verdict import Election
from adapter.kubernetes.metrics_api import MetricsAPI
from adapter.kubernetes.write.client import Writer
from adapter.kubernetes.write.events import EventRecorder
from adapter.kubernetes.write.rate_limiter import WriteRateLimiter
from adapter.kubernetes.write.scale import ScaleWriter
from adapter.kubernetes.write.status import StatusWriter
from adapter.model import shards, timestamps
from adapter.model.clock import Clock
from adapter.model.selectors.label_selectors import LabelSelector
from adapter.provider.resource import ResourceProvider
from adapter.provider.scaler import ScalerProvider
from adapter.scrape.cache import ScrapedValues
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog

_LAST_WORDS = 0.5
"""How long, in seconds, the statuses and events of a term that ends in order may take: the next leader waits."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the scaler shares with the rest of the process."""

    client: KubernetesClient
    watching: WatchSurroundings
    kinds: CatalogueSource
    provider: ScalerProvider
    usages_of: Callable[[PodCache], ResourceProvider]
    scraped: ScrapedValues
    clock: Clock
    monitoring: Monitoring
    faults: ProblemLog
    random: Callable[[], float]
    pods: PodCache | None = None
    """The cache of all pods that the rest of the process reads too; None makes one of the namespaces of the autoscalers."""


class Scaler:
    """Scales, while its `tasks` run."""

    def __init__(self, options: Options, parts: Parts) -> None:
        """InputError where the settings, or the files of autoscalers, cannot be used."""
        self._options = options
        self._parts = parts
        self._shard = shards.parse_shard(options.shard)
        self._settings = settings_of(options)
        self.journal = Journal()
        self._namespace = credentials.find_namespace() or "default"
        self._files: AutoscalerFiles | None = None
        namespaces: Sequence[str] = ("",)
        if options.autoscalers:
            self._files = AutoscalerFiles(options.autoscalers, self._namespace)
            read = self._files.read()
            if read.faults:
                raise InputError(read.faults)
            found = {each.metadata.namespace for each in read.autoscalers} | {self._namespace}
            namespaces = tuple(sorted(found))
        watching, client = parts.watching, parts.client
        self.pods = PodCache(watching, namespaces) if parts.pods is None else parts.pods
        self._usages = parts.usages_of(self.pods)
        self.targets = ScaleTargets(client, watching, parts.kinds, namespaces)
        self.rivals = ScaleConflicts(watching, namespaces=namespaces, objects=self._files is not None)
        self._scrapes = ScrapeSubscriptions(parts.scraped, self.targets, self.pods)
        self._registry = AutoscalerRegistry(self.rivals, self._scrapes, self._shard, answers=options.scaler)
        self.rivals.changed = self._registry.rivals_changed
        parts.scraped.subscribe(self._registry.scraped)
        period = timestamps.span_of(options.horizontal_pod_autoscaler_sync_period)
        self._boosted_hpas = BoostedHPAs(self._registry, self.rivals.hpas, parts.clock, parts.faults, period)
        self.floors: FloorView | None = None
        if self._files is None:
            self.floors = FloorView(client, parts.clock, self._namespace, parts.faults)
            self.rivals.hpas.follow(self._boosted_hpas.changed)
            self._source: AutoscalerSource = AutoscalerObjectSource(
                self._registry, parts.faults, watching, namespaces
            )
        else:
            self._source = AutoscalerFileSource(self._registry, parts.faults, self._files, read, namespaces)
        self._elector = self._open_election() if options.leader_elect else None

    def _open_election(self) -> Elector:
        options, parts = self._options, self._parts
        namespace = options.leader_elect_resource_namespace or self._namespace
        name = self._shard.lease_name(options.leader_elect_resource_name)
        election = Election(
            credentials.new_identity(credentials.find_pod_name()),
            name,
            options.leader_elect_lease_duration,
            options.leader_elect_renew_deadline,
            options.leader_elect_retry_period,
        )
        store = KubernetesLeases(parts.client, namespace, name)
        return Elector(store, election, parts.clock, parts.random, parts.monitoring, parts.faults)

    def tasks(self) -> tuple[dict[str, Coroutine[Any, Any, None]], Coroutine[Any, Any, None]]:
        """Return the caches that are to run, by name, and the election, which ends in order when it is cancelled."""
        found: dict[str, Coroutine[Any, Any, None]] = {
            "scaler: pods": self.pods.run(),
            "scaler: targets": self.targets.run(),
            "scaler: rivals": self.rivals.run(),
            "scaler: scraped pods": self._scrapes.run(),
        }
        found["scaler: autoscalers" if self._files is None else "scaler: files"] = self._source.run()
        if self.floors is not None:
            found["scaler: floors"] = self.floors.run()
        return found, self._elector.run(self._lead) if self._elector is not None else self._lead(Unfenced())

    def find_unsynced(self) -> str | None:
        """Return which cache has no first list yet, None where all have."""
        caches: dict[str, PodCache | ScaleConflicts | AutoscalerSource] = {
            "pods": self.pods,
            "other autoscalers": self.rivals,
            "fastpathautoscalers": self._source,
        }
        waiting = [name for name, cache in caches.items() if not cache.synced]
        return f"first list of {', '.join(waiting)} is not in" if waiting else None

    # -- who leads -----------------------------------------------------------------------------------------------------

    def show(self, namespace: str, name: str) -> tuple[int, bytes]:
        """Return what is known of an autoscaler, or which process leads: an HTTP status and JSON."""
        leader = verdict.pod_of(self._elector.holder) if self._elector is not None else ""
        shown = debug.show(self._registry.controller, namespace, name, leader)
        return shown.status, debug.encode(shown.document)

    async def _lead(self, fence: Fence | LeaseFence) -> None:
        """Decide and write for one term."""
        parts, clock, monitoring = self._parts, self._parts.clock, self._parts.monitoring
        limiter = WriteRateLimiter(self._options.kube_api_write_qps, clock, monitoring)
        writer = Writer(parts.client, fence, limiter, clock, monitoring)
        scales = ScaleWriter(writer)
        statuses = StatusWriter(writer, clock, monitoring, parts.faults, self._status_failed)
        events = EventRecorder(writer, clock, parts.random, monitoring, parts.faults)
        actuator: Actuator = (
            FileActuator(scales) if self._files is not None else ClusterActuator(scales, statuses, events)
        )
        async with Poller(
            clock,
            per_second=self._options.prometheus_max_queries_per_second,
            answered=self._registry.answered,
            delays=DelayReporter(monitoring, parts.faults, self._registry.delayed),
            defect=monitoring.scaler_defects.inc,
        ) as poller:
            floors = self._open_floors(writer)
            controller = self._build_controller(actuator, poller, floors)
            self._registry.controller = controller
            try:
                await self._source.put_all()
                work = {"decisions": controller.run()}
                if self._files is None:
                    work |= {"statuses": statuses.run(), "events": events.run()}
                if floors is not None:
                    work |= {
                        "floors": floors.run(),
                        "floors of before": self._boosted_hpas.adopt_floors(floors),
                    }
                if self.floors is not None and self._shard.number == 1:
                    cleaner = FloorCleaner(writer, self.floors, self._shard, clock, parts.faults)
                    work["floors of other shards"] = cleaner.run()
                async with asyncio.TaskGroup() as group:
                    for name, coroutine in work.items():
                        group.create_task(coroutine, name=name)
            finally:
                self._registry.controller = None
                self._boosted_hpas.end()
                controller.close()
                if self._files is None:
                    await statuses.drain(_LAST_WORDS)
                    await events.drain(_LAST_WORDS)

    def _open_floors(self, writer: Writer) -> FloorWriter | None:
        if self.floors is None:
            return None
        return FloorWriter(writer, self.floors.namespace, self._shard, self._parts.faults)

    def _build_controller(self, actuator: Actuator, poller: Poller, floors: FloorWriter | None) -> Controller:
        parts = self._parts
        sources = SourceFactory(
            parts.provider,
            self._usages,
            MetricsAPI(parts.client),
            parts.kinds.current,
            parts.scraped,
            poller,
            api_period=self._options.horizontal_pod_autoscaler_sync_period,
        )
        context = AutoscalerContext(
            self.targets,
            _WatchedPods(self.pods, parts.clock),
            self.rivals,
            sources,
            self._settings,
        )
        return Controller(
            context, actuator, parts.clock, parts.monitoring, self.journal, random=parts.random, floors=floors
        )

    def _status_failed(self, update: Any, error: Exception) -> None:
        """Tell of a status that was not taken, as an HPA is told."""
        found = self._source.find(Key(update.namespace, update.name))
        if found is not None and self._registry.controller is not None:
            self._registry.controller.tell(found, "Warning", "FailedUpdateStatus", str(error))


class _WatchedPods:
    """The pods of a `PodCache` as the controller wants them."""

    def __init__(self, watch: PodCache, clock: Clock) -> None:
        self._watch = watch
        self._clock = clock
        self._looked = float("-inf")
        self._stale = ""

    def follow(
        self, namespace: str, selector: LabelSelector, autoscaler: str, changed: Callable[[], None]
    ) -> FollowedPods:
        """Keep the pods that match at hand."""
        return self._watch.follow(namespace, selector, autoscaler, changed)

    def stale(self) -> str:
        """Return why the cache may be out of date; looked at once a second, for every decision asks."""
        now = self._clock.monotonic()
        if now - self._looked >= 1.0:
            self._looked = now
            self._stale = self._watch.stale()
        return self._stale


def settings_of(options: Options) -> Settings:
    """Return the controller's settings. Zero is always allowed, and what overflows is no value."""
    return Settings(
        options.horizontal_pod_autoscaler_tolerance,
        timestamps.span_of(options.horizontal_pod_autoscaler_cpu_initialization_period),
        timestamps.span_of(options.horizontal_pod_autoscaler_initial_readiness_delay),
        timestamps.span_of(options.horizontal_pod_autoscaler_downscale_stabilization),
        scale_to_zero=True,
        strict=True,
    )
