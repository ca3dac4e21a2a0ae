"""The composition of the scaler: caches, election, and for each term of leadership the controller and its writers.

A part of the composition root, by itself because it is one idea: nothing here decides anything. Caches live as long as the process, so
that whoever takes over starts warm; everything that writes lives for one term and stands behind its fence.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.clients import leaderelection, ownpod
from adapter.clients.apidiscovery import CatalogueSource
from adapter.clients.autoscalerfiles import AutoscalerFiles, Read
from adapter.clients.autoscalers import Autoscalers, Rivals, TargetKey
from adapter.clients.events import EventRecorder
from adapter.clients.fence import Fence, LeaseFence, Unfenced
from adapter.clients.kubernetes import KubernetesClient
from adapter.clients.leaderelection import Election, Elector
from adapter.clients.leases import KubernetesLeases
from adapter.clients.metricsapi import MetricsAPI
from adapter.clients.mirror import STEP
from adapter.clients.podwatch import PodWatch
from adapter.clients.reflector import Surroundings as WatchSurroundings
from adapter.clients.scalewriter import ScaleWriter
from adapter.clients.statuswriter import StatusWriter
from adapter.clients.targets import Targets
from adapter.clients.writebudget import WriteBudget
from adapter.clients.writes import Writer
from adapter.config.options import Options
from adapter.controller import view
from adapter.controller.feeds import Feeds
from adapter.controller.hands import ClusterHands, FileHands
from adapter.controller.journal import Journal
from adapter.controller.loop import Controller
from adapter.controller.seams import Hands, Key
from adapter.controller.sources import Sources
from adapter.controller.work import Following, Surroundings
from adapter.errors import InputError
from adapter.model import instants, shards
from adapter.model.clock import Clock
from adapter.model.fastpathautoscaler import FastPathAutoscaler
from adapter.model.selectors import LabelSelector
from adapter.monitoring import FaultLog, Monitoring, facts
from adapter.provider.resource import ResourceProvider
from adapter.provider.scalervalues import ScalerProvider
from adapter.provider.scraped import ScrapedValues
from adapter.provider.scrapewants import ScrapeWants
from adapter.scaling.settings import Settings

_log = logging.getLogger(__name__)

_FILES_PERIOD = 2.0
"""How often, in seconds, the files of autoscalers are looked at."""

_LAST_WORDS = 0.5
"""How long, in seconds, the statuses and events of a term that ends in order may take: the next leader waits."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the scaler shares with the rest of the process."""

    client: KubernetesClient
    watching: WatchSurroundings
    kinds: CatalogueSource
    provider: ScalerProvider
    usages_of: Callable[[PodWatch], ResourceProvider]
    scraped: ScrapedValues | None
    clock: Clock
    monitoring: Monitoring
    faults: FaultLog
    random: Callable[[], float]


class Scaler:
    """Scales, while its `tasks` run. `namespaces` are what is watched, all of them with ``("",)``."""

    def __init__(self, options: Options, parts: Parts) -> None:
        """InputError where the settings, or the files of autoscalers, cannot be used."""
        self._options = options
        self._parts = parts
        self._shard = shards.parse_shard(options.shard)
        self._settings = settings_of(options)
        self.journal = Journal()
        self._controller: Controller | None = None
        self._namespace = ownpod.find_namespace() or "default"
        self._files: AutoscalerFiles | None = None
        self._from_files: dict[Key, FastPathAutoscaler] = {}
        self._left_out: set[Key] = set()
        namespaces: Sequence[str] = ("",)
        if options.autoscalers:
            self._files = AutoscalerFiles(options.autoscalers, self._namespace)
            read = self._files.read()
            if read.faults:
                raise InputError(read.faults)
            found = {each.metadata.namespace for each in read.autoscalers} | {self._namespace}
            namespaces = tuple(sorted(found))
        self._namespaces = namespaces
        watching, client = parts.watching, parts.client
        self.pods = PodWatch(client, watching, namespaces)
        self._usages = parts.usages_of(self.pods)
        self.targets = Targets(client, watching, parts.kinds, namespaces)
        self.rivals = Rivals(client, watching, self._rivals_changed, namespaces, objects=self._files is not None)
        self.objects = (
            None if self._files is not None else Autoscalers(client, watching, self._object_changed, namespaces)
        )
        self._wants: ScrapeWants | None = None
        if parts.scraped is not None:
            parts.scraped.subscribe_owners(self._scraped)
            self._wants = ScrapeWants(parts.scraped, self.targets, self.pods)
        self._by_target: dict[TargetKey, set[Key]] = {}
        self._targets_of: dict[Key, TargetKey] = {}
        if self._files is not None:
            self._adopt(read)
        self._elector = self._open_election() if options.leader_elect else None

    def _open_election(self) -> Elector:
        options, parts = self._options, self._parts
        namespace = options.leader_elect_resource_namespace or self._namespace
        name = self._shard.lease_name(options.leader_elect_resource_name)
        election = Election(
            ownpod.new_identity(ownpod.find_pod_name()),
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
        }
        if self._wants is not None:
            found["scaler: scraped pods"] = self._wants.run()
        if self.objects is not None:
            found["scaler: autoscalers"] = self.objects.run()
        if self._files is not None:
            found["scaler: files"] = self._follow_files(self._files)
        return found, self._elector.run(self._lead) if self._elector is not None else self._lead(Unfenced())

    def find_unsynced(self) -> str | None:
        """Return which cache has no first list yet, None where all have."""
        caches: dict[str, PodWatch | Rivals | Autoscalers | None] = {
            "pods": self.pods,
            "other autoscalers": self.rivals,
            "fastpathautoscalers": self.objects,
        }
        waiting = [name for name, cache in caches.items() if cache is not None and not cache.synced]
        return f"first list of {', '.join(waiting)} is not in" if waiting else None

    # -- who leads -----------------------------------------------------------------------------------------------------

    @property
    def leading(self) -> bool:
        """Whether decisions are made here now."""
        return self._controller is not None

    def show(self, namespace: str, name: str) -> view.Shown:
        """Return what is known of an autoscaler, or who leads."""
        leader = leaderelection.pod_of(self._elector.holder) if self._elector is not None else ""
        return view.show(self._controller, namespace, name, leader)

    async def _lead(self, fence: Fence | LeaseFence) -> None:
        """Decide and write for one term."""
        parts, clock, monitoring = self._parts, self._parts.clock, self._parts.monitoring
        budget = WriteBudget(self._options.kube_api_write_qps, clock, monitoring)
        writer = Writer(parts.client, fence, budget, clock, monitoring)
        scales = ScaleWriter(writer)
        statuses = StatusWriter(writer, clock, monitoring, parts.faults, self._status_failed)
        events = EventRecorder(writer, clock, parts.random, monitoring, parts.faults)
        hands: Hands = FileHands(scales) if self._files is not None else ClusterHands(scales, statuses, events)
        async with Feeds(
            clock, per_second=self._options.prometheus_max_queries_per_second, answered=self._answered
        ) as feeds:
            controller = self._build_controller(hands, feeds)
            self._controller = controller
            try:
                await self._put_all()
                work = {"decisions": controller.run()}
                if self._files is None:
                    work |= {"statuses": statuses.run(), "events": events.run()}
                async with asyncio.TaskGroup() as group:
                    for name, coroutine in work.items():
                        group.create_task(coroutine, name=name)
            finally:
                self._controller = None
                controller.close()
                if self._files is None:
                    await statuses.drain(_LAST_WORDS)
                    await events.drain(_LAST_WORDS)

    def _build_controller(self, hands: Hands, feeds: Feeds) -> Controller:
        parts = self._parts
        sources = Sources(
            parts.provider,
            self._usages,
            MetricsAPI(parts.client),
            parts.kinds.current,
            parts.scraped,
            feeds,
            api_period=self._options.horizontal_pod_autoscaler_sync_period,
        )
        around = Surroundings(
            self.targets,
            _WatchedPods(self.pods, parts.clock),
            self.rivals,
            sources,
            self._settings,
        )
        return Controller(around, hands, parts.clock, parts.monitoring, self.journal, random=parts.random)

    # -- what changes --------------------------------------------------------------------------------------------------

    def _all(self) -> list[FastPathAutoscaler]:
        if self.objects is not None:
            return [each.autoscaler for each in self.objects if each.autoscaler is not None]
        return list(self._from_files.values())

    async def _put_all(self) -> None:
        """Take all there are, in steps, each as it is by then."""
        for count, listed in enumerate(self._all(), 1):
            autoscaler = self._find(Key(listed.metadata.namespace, listed.metadata.name))
            if autoscaler is not None:
                self._put(autoscaler)
            if count % STEP == 0:
                await asyncio.sleep(0)

    def _find(self, key: Key) -> FastPathAutoscaler | None:
        if self.objects is None:
            return self._from_files.get(key)
        found = self.objects.find(*key)
        return None if found is None else found.autoscaler

    def _object_changed(self, namespace: str, name: str) -> None:
        """Follow an object of the cluster; one that cannot be read is left as it was and said."""
        assert self.objects is not None
        found = self.objects.find(namespace, name)
        subject = f"{namespace}/{name}"
        if found is not None and found.faults:
            self._parts.faults.met("autoscaler", "an autoscaler cannot be read", str(found.faults[0]), subject=subject)
            return
        self._parts.faults.ended("autoscaler", subject=subject)
        if found is None or found.autoscaler is None:
            self._remove(Key(namespace, name))
        else:
            self._put(found.autoscaler)

    def _put(self, autoscaler: FastPathAutoscaler) -> None:
        meta = autoscaler.metadata
        key = Key(meta.namespace, meta.name)
        target = TargetKey.of(meta.namespace, autoscaler.spec.scale_target_ref)
        before = self._targets_of.get(key)
        if before != target:
            self._unplace(key)
            self._targets_of[key] = target
            self._by_target.setdefault(target, set()).add(key)
        self.rivals.put(autoscaler)
        owned = self._shard.owns(*key)
        if self._wants is not None and (owned or self._options.scaler):
            # whoever leads, and whosever shard it is: this process answers for these pods, or will lead with what they have shown
            self._wants.put(autoscaler)
        if self._controller is not None and owned:
            self._controller.put(autoscaler)

    def _remove(self, key: Key) -> None:
        self._unplace(key)
        self.rivals.remove(*key)
        if self._wants is not None:
            self._wants.remove(*key)
        if self._controller is not None:
            self._controller.remove(key)

    def _unplace(self, key: Key) -> None:
        target = self._targets_of.pop(key, None)
        if target is not None:
            self._by_target[target].discard(key)
            if not self._by_target[target]:
                del self._by_target[target]

    def _rivals_changed(self, target: TargetKey) -> None:
        if self._controller is not None:
            self._controller.touch_all(tuple(self._by_target.get(target, ())))

    def _answered(self, owners: Iterable[Hashable]) -> None:
        if self._controller is not None:
            self._controller.touch_all(Key(*str(owner).split("/", 1)) for owner in owners)

    def _scraped(self, owner: str) -> None:
        if self._controller is not None:
            self._controller.touch(Key(*owner.split("/", 1)))

    def _status_failed(self, update: Any, error: Exception) -> None:
        """Tell of a status that was not taken, as an HPA is told."""
        found = self.objects.find(update.namespace, update.name) if self.objects is not None else None
        if found is not None and found.autoscaler is not None and self._controller is not None:
            self._controller.tell(found.autoscaler, "Warning", "FailedUpdateStatus", str(error))

    # -- files ---------------------------------------------------------------------------------------------------------

    def _adopt(self, read: Read) -> None:
        """Take what files say; a fault in one leaves its autoscalers as they were."""
        if read.faults:
            text = "; ".join(map(str, read.faults))
            self._parts.faults.met("autoscaler-files", "a file of autoscalers cannot be used", text)
        else:
            self._parts.faults.ended("autoscaler-files")
        found = {Key(each.metadata.namespace, each.metadata.name): each for each in read.autoscalers}
        strange = {key for key in found if key.namespace not in self._namespaces}
        for key in strange:
            text = f"{key} is in a namespace that is not watched: it is after a restart"
            self._parts.faults.met("autoscaler-files", "an autoscaler is left out", text, subject=str(key))
            del found[key]
        for key in self._left_out - strange:
            self._parts.faults.ended("autoscaler-files", subject=str(key))
        self._left_out = strange
        for key in self._from_files.keys() - found.keys():
            self._remove(key)
        self._from_files = found
        for autoscaler in found.values():
            self._put(autoscaler)
        _log.info("autoscalers in files", extra=facts(count=len(found)))

    async def _follow_files(self, files: AutoscalerFiles) -> None:
        while True:
            await asyncio.sleep(_FILES_PERIOD)
            read = files.poll()
            if read is not None:
                self._adopt(read)


class _WatchedPods:
    """The pods of a `PodWatch` as the controller wants them."""

    def __init__(self, watch: PodWatch, clock: Clock) -> None:
        self._watch = watch
        self._clock = clock
        self._looked = float("-inf")
        self._stale = ""

    def follow(
        self, namespace: str, selector: LabelSelector, autoscaler: str, changed: Callable[[], None]
    ) -> Following:
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
        instants.span_of(options.horizontal_pod_autoscaler_cpu_initialization_period),
        instants.span_of(options.horizontal_pod_autoscaler_initial_readiness_delay),
        instants.span_of(options.horizontal_pod_autoscaler_downscale_stabilization),
        scale_to_zero=True,
        strict=True,
    )
