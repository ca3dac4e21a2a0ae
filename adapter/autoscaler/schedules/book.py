"""Which schedules are for which autoscaler, and when their bounds change.

A boundary is no event of the cluster, so nothing wakes the loop at it. `follow` looks every half a second
whether the bounds of an autoscaler are other than those of its last decision, and has it decided. The time
is that of decisions, which follows the clock of the machine when that is set.
"""

import asyncio
from collections.abc import Iterable, Sequence

from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.loop import Controller
from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.schedules import ScheduleCache, WatchedSchedule
from adapter.model.autoscaling.fastpath_autoscaler import HPA_KIND
from adapter.model.schedules.bounds import BoundsTimeline, ScheduledBounds, SpansOfDay
from adapter.model.schedules.documents import ScheduleTarget
from adapter.model.timestamps import SECOND
from adapter.telemetry.problems import ProblemLog

PERIOD = 0.5
"""How often, in seconds, boundaries are looked for."""

PROBLEM = "schedule"


class ScheduleBook:
    """The schedules of `namespaces`, by the autoscalers that they are for, while the tasks of `cache` run."""

    def __init__(self, watching: ReflectorContext, problems: ProblemLog, namespaces: Sequence[str]) -> None:
        self.cache = ScheduleCache(watching, self._changed, namespaces)
        self.controller: Controller | None = None
        """The controller of this term; None while this process does not lead."""
        self._problems = problems
        self._known: dict[tuple[str, str], WatchedSchedule] = {}
        self._by_target: dict[Key, dict[str, WatchedSchedule]] = {}
        self._timelines: dict[Key, BoundsTimeline] = {}
        self._spans: dict[str, SpansOfDay] = {}
        """The spans of each schedule, which all of its targets share."""

    @property
    def synced(self) -> bool:
        return self.cache.synced

    def bounds_of(self, key: Key, now: int, lead: int) -> ScheduledBounds | None:
        """Return the bounds of an autoscaler at `now`; a HorizontalPodAutoscaler has no ceiling."""
        timeline = self._timelines.get(key)
        found = None if timeline is None else timeline.at(now // SECOND, lead)
        if found is None or not key.is_native or found.ceiling is None:
            return found
        return None if found.floor is None else found.without_ceiling()

    async def follow(self, controller: Controller) -> None:
        """Have autoscalers decided when their bounds change, until cancelled."""
        self.controller = controller
        try:
            while True:
                await asyncio.sleep(PERIOD)
                self._look(controller)
        finally:
            self.controller = None

    def _look(self, controller: Controller) -> None:
        now = controller.now()
        for key in self._timelines:
            state = controller.find(key)
            if state is not None and self.bounds_of(key, now, state.lead) != state.schedule:
                controller.touch(key)

    def _changed(self, namespace: str, name: str) -> None:
        """Follow a change of a schedule. One that cannot be used stays as it was."""
        found, subject = self.cache.find(namespace, name), f"{namespace}/{name}"
        if found is not None and found.schedule is None:
            message = "a FastPathSchedule cannot be used; the last valid one counts"
            self._problems.report(PROBLEM, message, "; ".join(map(str, found.faults)), subject=subject)
            return
        self._problems.resolve(PROBLEM, subject=subject)
        self._spans.pop(subject, None)
        before = self._known.pop((namespace, name), None)
        touched = set(_keys(before))
        for key in touched:
            del self._by_target[key][subject]
        if found is not None and found.schedule is not None:
            self._known[namespace, name] = found
            self._spans[subject] = SpansOfDay(found.schedule.schedule)
            for key in _keys(found):
                self._by_target.setdefault(key, {})[subject] = found
                touched.add(key)
        for key in touched:
            self._build(key)
        if self.controller is not None:
            self.controller.touch_all(touched)

    def _build(self, key: Key) -> None:
        listed = self._by_target.get(key)
        if not listed:
            self._by_target.pop(key, None)
            self._timelines.pop(key, None)
            return
        self._timelines[key] = BoundsTimeline((), [self._spans[subject] for subject in sorted(listed)])


def key_of(namespace: str, target: ScheduleTarget) -> Key:
    """Return the key of a target in the namespace of its schedule."""
    return Key(namespace, target.name, is_native=target.kind == HPA_KIND)


def _keys(found: WatchedSchedule | None) -> Iterable[Key]:
    if found is None or found.schedule is None:
        return ()
    return [key_of(found.namespace, target) for target in found.schedule.targets]
