"""Where autoscalers are read from: FastPathAutoscalers and boosted HPAs.

Each source keeps the registry up to date, and puts its autoscalers of a slice when a term begins. What cannot
be read stays as it was, and is reported.

At the beginning of a term no HorizontalPodAutoscaler is decided until the floors of the previous owner are
known. Each of them is handed over once, with its HPA; those of HPAs that no longer ask for boosting are
removed.
"""

import asyncio
import itertools
from dataclasses import dataclass, field

from adapter.autoscaler.controller.registry import AutoscalerRegistry
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.interfaces import Key
from adapter.boost.publisher import FloorWriter
from adapter.errors import KubernetesError, NotLeadingError
from adapter.kubernetes.cache.autoscalers import AutoscalerCache, HPACache, WatchedHPA
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.store import in_steps
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.floor import Floor, is_newer, is_over
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND
from adapter.runtime.steps import run_steps
from adapter.telemetry.problems import ProblemLog


class AutoscalerSource(AutoscalerCache):
    """The FastPathAutoscalers of the cluster, in the registry while `run` runs."""

    def __init__(self, registry: AutoscalerRegistry, watching: ReflectorContext) -> None:
        super().__init__(watching, self._follow)
        self._registry = registry
        self._problems = watching.problems

    def find_read(self, key: Key) -> FastPathAutoscaler | None:
        """Return an autoscaler, None if it does not exist or cannot be read."""
        watched = self.find(key.namespace, key.name)
        return None if watched is None else watched.autoscaler

    async def put_all(self, number: int) -> None:
        keys = [
            Key(one.namespace, one.name)
            for one in self
            if one.autoscaler is not None and slices.slice_of(one.namespace) == number
        ]
        await run_steps(in_steps(keys, self._register, self._problems.defects))

    def _register(self, key: Key) -> None:
        autoscaler = self.find_read(key)
        if autoscaler is not None:
            self._registry.put(autoscaler)

    def _follow(self, namespace: str, name: str) -> None:
        """Follow a change; an object that cannot be read stays as it was."""
        watched, subject = self.find(namespace, name), f"{namespace}/{name}"
        if watched is not None and watched.faults:
            message = "an autoscaler cannot be read"
            self._problems.report("autoscaler", message, str(watched.faults[0]), subject=subject)
            return
        self._problems.resolve("autoscaler", subject=subject)
        if watched is None or watched.autoscaler is None:
            self._registry.remove(Key(namespace, name))
        else:
            self._registry.put(watched.autoscaler)


# -- boosted HPAs --------------------------------------------------------------------------------------------

_PAUSES = (0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to take over the floors."""


@dataclass(slots=True, eq=False)
class BoostedHPAs:
    """The HPAs with annotations of Fastpath. `period` (ns) is the sync period of the HPA controller."""

    registry: AutoscalerRegistry
    hpas: HPACache
    clock: Clock
    problems: ProblemLog
    period: int
    _published: dict[int, dict[str, Floor]] = field(default_factory=dict, init=False)
    """The floors of the previous owner that were not handed over yet, of slices that took them over."""

    async def adopt_floors(self, number: int, floors: FloorWriter) -> None:
        """Take over what the previous owner of a slice has published, then put its boosted HPAs."""
        for pause in itertools.chain(_PAUSES, itertools.repeat(_PAUSES[-1])):
            try:
                published = dict(await floors.start())
                break
            except NotLeadingError:
                pass  # the lease may be renewed yet, or the term ends
            except KubernetesError as error:
                message = "the floors of the slice's previous owner cannot be adopted"
                self.problems.report("floors", message, str(error), subject=f"slice {number}")
            except Exception as error:  # noqa: BLE001 - everything else is scaled without the floors
                self.problems.defects.note("unexpected error while adopting floors", error)
            await asyncio.sleep(pause)
        self.problems.resolve("floors", subject=f"slice {number}")
        self._published[number] = published
        asking = [
            (hpa.namespace, hpa.name)
            for hpa in self.hpas
            if (hpa.asked is not None or hpa.faults) and slices.slice_of(hpa.namespace) == number
        ]

        def follow(name: tuple[str, str]) -> None:
            self.changed(self.hpas.find(*name), *name)

        await run_steps(in_steps(asking, follow, self.problems.defects))
        self._drop_orphans(published, floors)

    def _drop_orphans(self, published: dict[str, Floor], floors: FloorWriter) -> None:
        """Remove floors that are over, and those of HPAs that no longer ask for boosting.

        A floor that was made from a newer version of its HPA than is cached stays: the cache is behind.
        """
        now = round(self.clock.wall() * SECOND)
        for uid, floor in list(published.items()):
            with self.problems.defects.contain("unexpected error about a published floor", uid):
                hpa = self.hpas.find(floor.namespace, floor.name)
                is_orphan = (
                    hpa is not None
                    and (hpa.uid != uid or (hpa.asked is None and not hpa.unreadable))
                    and not is_newer(floor.seen, hpa.resource_version)
                )
                if is_over(floor, now) or is_orphan:
                    del published[uid]
                    floors.want(uid, None)

    def end(self, number: int) -> None:
        """Note that a slice is given up: its next owner has to take over the floors again."""
        self._published.pop(number, None)
        self.problems.resolve("floors", subject=f"slice {number}")

    def changed(self, hpa: WatchedHPA | None, namespace: str, name: str) -> None:
        """Follow a change of an HPA; `hpa` is None if it is gone."""
        subject = f"{namespace}/{name}"
        if hpa is not None and hpa.faults:
            message = f"a HorizontalPodAutoscaler is {'unreadable' if hpa.unreadable else 'ignored'}"
            self.problems.report("annotation", message, "; ".join(hpa.faults), subject=subject)
        else:
            self.problems.resolve("annotation", subject=subject)
        if hpa is None or (request := hpa.asked) is None:
            self.registry.remove(Key(namespace, name, is_native=True))
            return
        boosted = request.boosted
        self.registry.note(boosted.autoscaler)
        controller = self.registry.controller
        adopted = self._published.get(slices.slice_of(namespace))
        if controller is None or adopted is None:
            return
        boost = Boost(
            mode=boosted.annotations.mode,
            fault=request.fault,
            hold=boosted.annotations.hold,
            shown=request.shown,
            ambiguous=request.ambiguous,
            digest=boosted.digest,
            period=self.period,
        )
        # Only once: from now on the loop has the floor.
        published = adopted.pop(boosted.autoscaler.metadata.uid, None)
        controller.put(boosted.autoscaler, boost, published)
