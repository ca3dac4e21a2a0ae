"""Follows the HorizontalPodAutoscalers that ask to be boosted, and takes over their published floors.

At the beginning of a term no HPA is decided for until the floors of the previous leader are known. Each of
them is handed over once, with its HPA; those of HPAs that no longer ask for boosting are removed. This module
stays beside the registry and not in `adapter.boost`, because it is one of the sources that fill the registry.
"""

import asyncio
import itertools

from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.registry import AutoscalerRegistry
from adapter.boost.publisher import FloorWriter
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.autoscalers import BoostRequest, HPACache, WatchedHPA
from adapter.kubernetes.cache.store import STEP
from adapter.model.autoscaling.floor import Floor, is_newer, is_over
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND
from adapter.telemetry.problems import ProblemLog

_PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to take over the floors."""


class BoostedHPAs:
    """The HPAs with annotations of Fastpath. `period` (ns) is the sync period of the HPA controller."""

    def __init__(
        self, registry: AutoscalerRegistry, hpas: HPACache, clock: Clock, faults: ProblemLog, period: int
    ) -> None:
        self._registry = registry
        self._hpas = hpas
        self._clock = clock
        self._faults = faults
        self._period = period
        self._published: dict[str, Floor] = {}
        self._adopted = False

    # -- terms -----------------------------------------------------------------------------------------------

    async def adopt_floors(self, floors: FloorWriter) -> None:
        """Take over what the previous leader has published, then put all boosted HPAs."""
        pauses = itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1]))
        while True:
            try:
                self._published = dict(await floors.start())
            except NotLeadingError:
                await asyncio.sleep(next(pauses))  # the lease may be renewed yet, or the term ends
            except KubernetesError as error:
                self._faults.report("floors", "the published floors cannot be taken over", str(error))
                await asyncio.sleep(next(pauses))
            else:
                break
        self._faults.resolve("floors")
        self._adopted = True
        for count, listed in enumerate(self._asking(), 1):
            found = self._hpas.find(listed.namespace, listed.name)
            self.changed(found, listed.namespace, listed.name)
            if count % STEP == 0:
                await asyncio.sleep(0)
        self._drop_orphans(floors)

    def _asking(self) -> list[WatchedHPA]:
        return [each for each in self._hpas if each.asked is not None or each.faults]

    def _drop_orphans(self, floors: FloorWriter) -> None:
        """Remove floors that are over, and those of HPAs that no longer ask for boosting.

        A floor that was made from a newer version of its HPA than is cached stays: the cache is behind.
        """
        now = round(self._clock.wall() * SECOND)
        for uid, floor in list(self._published.items()):
            found = self._hpas.find(floor.namespace, floor.name)
            is_orphan = (
                found is not None
                and (found.uid != uid or found.asked is None)
                and not is_newer(floor.seen, found.resource_version)
            )
            if is_over(floor, now) or is_orphan:
                del self._published[uid]
                floors.want(uid, None)

    def end(self) -> None:
        """Note that the term is over: the next one has to take over the floors again."""
        self._adopted, self._published = False, {}

    # -- what changes ----------------------------------------------------------------------------------------

    def changed(self, found: WatchedHPA | None, namespace: str, name: str) -> None:
        """Follow a change of an HPA; `found` is None if it is gone."""
        subject = f"{namespace}/{name}"
        faults = found.faults if found is not None else ()
        if faults:
            self._faults.report(
                "annotation", "a HorizontalPodAutoscaler is ignored", "; ".join(faults), subject=subject
            )
        else:
            self._faults.resolve("annotation", subject=subject)
        asked = found.asked if found is not None else None
        if asked is None:
            self._registry.remove(Key.native(namespace, name))
        else:
            self._put(asked)

    def _put(self, asked: BoostRequest) -> None:
        autoscaler = asked.boosted.autoscaler
        controller = self._registry.note(autoscaler)
        if controller is not None and self._adopted:
            published = self._published.pop(
                autoscaler.metadata.uid, None
            )  # once: from now on the loop has it
            controller.put(autoscaler, self._boost_of(asked), published)

    def _boost_of(self, asked: BoostRequest) -> Boost:
        boosted = asked.boosted
        return Boost(
            boosted.autoscaler.spec.mode,
            asked.fault,
            boosted.annotations.hold,
            asked.shown,
            asked.ambiguous,
            boosted.digest,
            self._period,
        )
