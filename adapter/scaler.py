"""The composition of the scaler: caches, election, and for each term of leadership the controller and its writers.

A part of the composition root, by itself because it is one idea: nothing here decides anything. Caches live as long as the process, so
that whoever takes over starts warm; everything that writes lives for one term and stands behind its fence.
"""

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from adapter.clients import leaderelection, ownpod
from adapter.clients.apidiscovery import CatalogueSource
from adapter.clients.autoscalerfiles import AutoscalerFiles, Read
from adapter.clients.autoscalers import AskingHPA, Autoscalers, Rivals, TargetKey, WatchedHPA
from adapter.clients.events import EventRecorder
from adapter.clients.fence import Fence, LeaseFence, Unfenced
from adapter.clients.floors import FloorView
from adapter.clients.floorwriter import FloorWriter
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
from adapter.errors import InputError, KubernetesError, NotLeadingError
from adapter.model import instants, shards
from adapter.model.clock import Clock
from adapter.model.fastpathautoscaler import FastPathAutoscaler
from adapter.model.floors import FloorEntry
from adapter.model.instants import SECOND
from adapter.model.selectors import LabelSelector
from adapter.monitoring import FaultLog, Monitoring, facts
from adapter.provider.resource import ResourceProvider
from adapter.provider.scalervalues import ScalerProvider
from adapter.provider.scraped import ScrapedValues
from adapter.provider.scrapewants import ScrapeWants
from adapter.scaling import boost as boosting
from adapter.scaling.boost import Boost
from adapter.scaling.settings import Settings

_log = logging.getLogger(__name__)

_FILES_PERIOD = 2.0
"""How often, in seconds, the files of autoscalers are looked at."""

_PAUSES = (0.5, 1.0, 2.0, 5.0)
"""After how many seconds it is tried again to read the floors."""

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
        self.floors: FloorView | None = None
        self._published: dict[str, FloorEntry] = {}
        self._adopted = False
        if self._files is None:
            self.floors = FloorView(client, parts.clock, self._namespace, parts.faults)
            self.rivals.follow(self._hpa_changed)
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
        if self.floors is not None:
            found["scaler: floors"] = self.floors.run()
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
            floors = self._open_floors(writer)
            controller = self._build_controller(hands, feeds, floors)
            self._controller = controller
            try:
                await self._put_all()
                work = {"decisions": controller.run()}
                if self._files is None:
                    work |= {"statuses": statuses.run(), "events": events.run()}
                if floors is not None:
                    work |= {"floors": floors.run(), "floors of before": self._adopt_floors(floors)}
                async with asyncio.TaskGroup() as group:
                    for name, coroutine in work.items():
                        group.create_task(coroutine, name=name)
            finally:
                self._controller = None
                self._adopted, self._published = False, {}
                controller.close()
                if self._files is None:
                    await statuses.drain(_LAST_WORDS)
                    await events.drain(_LAST_WORDS)

    def _open_floors(self, writer: Writer) -> FloorWriter | None:
        if self.floors is None:
            return None
        return FloorWriter(writer, self.floors, self._shard, self._parts.faults)

    async def _adopt_floors(self, floors: FloorWriter) -> None:
        """Take over what the leader before has published; before that no HorizontalPodAutoscaler is worked on."""
        pauses = itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1]))
        while True:
            try:
                self._published = dict(await floors.start())
            except NotLeadingError:
                await asyncio.sleep(next(pauses))  # the fence opens again, or the term ends
            except KubernetesError as error:
                self._parts.faults.met("floors", "the floors of HorizontalPodAutoscalers cannot be read", str(error))
                await asyncio.sleep(next(pauses))
            else:
                break
        self._parts.faults.ended("floors")
        self._adopted = True
        for count, listed in enumerate(self._asking(), 1):
            found = self.rivals.find(listed.namespace, listed.name)
            self._hpa_changed(found, listed.namespace, listed.name)
            if count % STEP == 0:
                await asyncio.sleep(0)
        self._drop_orphans(floors)

    def _drop_orphans(self, floors: FloorWriter) -> None:
        """Have nothing published of who asks for nothing any more, and nothing that is over.

        Where the cache is behind what an entry was made from, its autoscaler may come yet.
        """
        now = round(self._parts.clock.wall() * SECOND)
        for uid, entry in list(self._published.items()):
            found = self.rivals.find(entry.namespace, entry.name)
            is_left = found is not None and (found.uid != uid or found.asked is None)
            if boosting.is_over(entry, now) or (is_left and not _is_newer(entry.seen, found)):
                del self._published[uid]
                floors.want(uid, None)

    def _build_controller(self, hands: Hands, feeds: Feeds, floors: FloorWriter | None) -> Controller:
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
        return Controller(
            around, hands, parts.clock, parts.monitoring, self.journal, random=parts.random, floors=floors
        )

    # -- what changes --------------------------------------------------------------------------------------------------

    def _all(self) -> list[FastPathAutoscaler]:
        if self.objects is not None:
            return [each.autoscaler for each in self.objects if each.autoscaler is not None]
        return list(self._from_files.values())

    def _asking(self) -> list[WatchedHPA]:
        """Return the HorizontalPodAutoscalers whose annotations speak of us; none where autoscalers stand in files."""
        if self._files is not None:
            return []
        return [each for each in self.rivals.hpas() if each.asked is not None or each.faults]

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

    def _put(self, autoscaler: FastPathAutoscaler, boost: Boost | None = None) -> None:
        key = Key.of(autoscaler)
        target = TargetKey.of(key.namespace, autoscaler.spec.scale_target_ref)
        before = self._targets_of.get(key)
        if before != target:
            self._unplace(key)
            self._targets_of[key] = target
            self._by_target.setdefault(target, set()).add(key)
        if boost is None:
            self.rivals.put(autoscaler)
        owned = self._shard.owns(*key.plain)
        if self._wants is not None and (owned or self._options.scaler):
            # whoever leads, and whosever shard it is: this process answers for these pods, or will lead with what they have shown
            self._wants.put(autoscaler, key.name)
        if self._controller is not None and owned and (boost is None or self._adopted):
            published = self._published.pop(autoscaler.metadata.uid, None)  # once: what it becomes is the controller's
            self._controller.put(autoscaler, boost, published)

    def _remove(self, key: Key) -> None:
        self._unplace(key)
        if not key.is_native:
            self.rivals.remove(*key)
        if self._wants is not None:
            self._wants.remove(*key)
        if self._controller is not None:
            self._controller.remove(key)

    def _hpa_changed(self, found: WatchedHPA | None, namespace: str, name: str) -> None:
        """Follow what the annotations of a HorizontalPodAutoscaler ask for."""
        subject = f"{namespace}/{name}"
        faults = found.faults if found is not None else ()
        if faults:
            self._parts.faults.met(
                "annotation", "a HorizontalPodAutoscaler is left alone", "; ".join(faults), subject=subject
            )
        else:
            self._parts.faults.ended("annotation", subject=subject)
        asked = found.asked if found is not None else None
        if asked is None:
            self._remove(Key.native(namespace, name))
        else:
            self._put(asked.boosted.autoscaler, self._boost_of(asked))

    def _boost_of(self, asked: AskingHPA) -> Boost:
        boosted = asked.boosted
        period = instants.span_of(self._options.horizontal_pod_autoscaler_sync_period)
        return Boost(
            boosted.autoscaler.spec.mode,
            asked.fault,
            boosted.wishes.hold,
            asked.shown,
            asked.ambiguous,
            boosted.digest,
            period,
        )

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


def _is_newer(seen: str, found: WatchedHPA | None) -> bool:
    """Tell whether an entry may have been made from a newer version than was found."""
    cached = "" if found is None else found.resource_version
    return not (seen.isdecimal() and cached.isdecimal()) or int(seen) > int(cached)


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
