"""HorizontalPodAutoscalers that ask to be advised or boosted, and the floors that a leader before has published of them.

Here: following what their annotations ask for, and taking over at the beginning of a term. Not here: what annotations mean
(`boost.model`), what becomes of a floor (`floors`). Law: none is worked on before it is known what is published, which counts once; of
who asks for nothing any more nothing stays published.
"""

import asyncio
import itertools

from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.registry import AutoscalerRegistry
from adapter.boost.floor import FloorEntry
from adapter.boost.publisher import FloorWriter
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.hpas import AskingHPA, Rivals, WatchedHPA
from adapter.kubernetes.cache.store import STEP
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND
from adapter.telemetry.problems import ProblemLog

_PAUSES = (0.5, 1.0, 2.0, 5.0)
"""After how many seconds it is tried again to read the floors."""


class Natives:
    """The HorizontalPodAutoscalers among `rivals` whose annotations speak of us. `period` is the native controller's, in nanoseconds."""

    def __init__(
        self, roster: AutoscalerRegistry, rivals: Rivals, clock: Clock, faults: ProblemLog, period: int
    ) -> None:
        self._roster = roster
        self._rivals = rivals
        self._clock = clock
        self._faults = faults
        self._period = period
        self._published: dict[str, FloorEntry] = {}
        self._adopted = False

    # -- terms ---------------------------------------------------------------------------------------------------------

    async def adopt_floors(self, floors: FloorWriter) -> None:
        """Take over what the leader before has published; before that no HorizontalPodAutoscaler is worked on."""
        pauses = itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1]))
        while True:
            try:
                self._published = dict(await floors.start())
            except NotLeadingError:
                await asyncio.sleep(next(pauses))  # the fence opens again, or the term ends
            except KubernetesError as error:
                self._faults.report(
                    "floors", "the floors of HorizontalPodAutoscalers cannot be read", str(error)
                )
                await asyncio.sleep(next(pauses))
            else:
                break
        self._faults.resolve("floors")
        self._adopted = True
        for count, listed in enumerate(self._asking(), 1):
            found = self._rivals.find(listed.namespace, listed.name)
            self.changed(found, listed.namespace, listed.name)
            if count % STEP == 0:
                await asyncio.sleep(0)
        self._drop_orphans(floors)

    def _asking(self) -> list[WatchedHPA]:
        """Return those whose annotations speak of us."""
        return [each for each in self._rivals.hpas() if each.asked is not None or each.faults]

    def _drop_orphans(self, floors: FloorWriter) -> None:
        """Have nothing published of who asks for nothing any more, and nothing that is over.

        Where the cache is behind what an entry was made from, its autoscaler may come yet.
        """
        now = round(self._clock.wall() * SECOND)
        for uid, entry in list(self._published.items()):
            found = self._rivals.find(entry.namespace, entry.name)
            is_left = found is not None and (found.uid != uid or found.asked is None)
            if boosting.is_over(entry, now) or (is_left and not _is_newer(entry.seen, found)):
                del self._published[uid]
                floors.want(uid, None)

    def end(self) -> None:
        """Note that the term is over: what is published is to be taken over anew in the next."""
        self._adopted, self._published = False, {}

    # -- what changes --------------------------------------------------------------------------------------------------

    def changed(self, found: WatchedHPA | None, namespace: str, name: str) -> None:
        """Follow what the annotations of a HorizontalPodAutoscaler ask for."""
        subject = f"{namespace}/{name}"
        faults = found.faults if found is not None else ()
        if faults:
            self._faults.report(
                "annotation", "a HorizontalPodAutoscaler is left alone", "; ".join(faults), subject=subject
            )
        else:
            self._faults.resolve("annotation", subject=subject)
        asked = found.asked if found is not None else None
        if asked is None:
            self._roster.remove(Key.native(namespace, name))
        else:
            self._put(asked)

    def _put(self, asked: AskingHPA) -> None:
        autoscaler = asked.boosted.autoscaler
        controller = self._roster.note(autoscaler)
        if controller is not None and self._adopted:
            published = self._published.pop(
                autoscaler.metadata.uid, None
            )  # once: what it becomes is the controller's
            controller.put(autoscaler, self._boost_of(asked), published)

    def _boost_of(self, asked: AskingHPA) -> Boost:
        boosted = asked.boosted
        return Boost(
            boosted.autoscaler.spec.mode,
            asked.fault,
            boosted.wishes.hold,
            asked.shown,
            asked.ambiguous,
            boosted.digest,
            self._period,
        )


def _is_newer(seen: str, found: WatchedHPA | None) -> bool:
    """Tell whether an entry may have been made from a newer version than was found."""
    cached = "" if found is None else found.resource_version
    return not (seen.isdecimal() and cached.isdecimal()) or int(seen) > int(cached)
