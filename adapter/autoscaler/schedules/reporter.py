"""Writes the statuses of the schedules of a slice for one term, each when it has changed.

What the windows tell is kept until their next boundary, and is computed in the turns of namespaces that the
book of schedules has. In each pass the schedules of the namespaces take turns as well, and a namespace has a
part of the writes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

import msgspec

from adapter import errors
from adapter.autoscaler.decide.scheduled import TOO_MANY_WINDOWS
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.registry import Controller
from adapter.autoscaler.schedules import status
from adapter.autoscaler.schedules.book import key_of, start
from adapter.autoscaler.schedules.status import Lookout, Outlook, ScheduleStatus, TargetState
from adapter.kubernetes import client
from adapter.kubernetes.cache.autoscalers import WatchedHPA
from adapter.kubernetes.cache.schedules import SCHEDULES, ScheduleCache, WatchedSchedule
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.autoscaling import slices
from adapter.model.autoscaling.boost import MODE_ANNOTATION
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, PAUSED, FastPathAutoscaler
from adapter.model.clock import Clock
from adapter.model.fairness import Turns
from adapter.model.timestamps import SECOND
from adapter.scrape.schedule import FairTurns, ScrapeJob
from adapter.telemetry.problems import ProblemLog

PERIOD = 1.0
"""The least pause, in seconds, between two passes over the statuses.

A status is made of several caches and of decisions, which do not all tell when what it shows has changed.
"""

_REST = 9
"""How many times as long as a pass has computed the pause is: statuses take a tenth of the time, at most."""

MOST_WRITES = 20
"""The most statuses of one namespace that are written in a pass: the others wait for the next."""

RETRY = 15.0
"""Seconds before a status that could not be written is written again."""

PROBLEM = "schedule-status"

_PATCH = "application/merge-patch+json"
_UNEXPECTED = "unexpected error about the status of a schedule"


@dataclass(slots=True, eq=False)
class _Known:
    """What is known of one schedule: its object, the status that is stored, what is ahead."""

    watched: WatchedSchedule
    written: ScheduleStatus
    lookout: Lookout | None = None
    """None for a schedule that cannot be used."""
    outlook: Outlook | None = None
    job: ScrapeJob | None = None
    retry_at: float = 0.0

    @property
    def subject(self) -> str:
        return f"{self.watched.namespace}/{self.watched.name}"

    def outlook_at(self, now: int) -> Outlook | None:
        """Return what is ahead at `now`, in seconds, None while that is not known."""
        outlook = self.outlook
        return outlook if outlook is not None and outlook.since <= now < outlook.until else None

    def look(self, lookout: Lookout, now: int) -> Generator[None, None, None]:
        try:
            self.outlook = yield from lookout.look(now)
        finally:
            self.job = None


@dataclass(slots=True, eq=False)
class ScheduleReporter:
    """Keeps the statuses of schedules. `find_hpa` and `find_autoscaler` look into the caches."""

    cache: ScheduleCache
    writer: Writer
    number: int
    problems: ProblemLog
    turns: FairTurns
    clock: Clock
    find_hpa: Callable[[str, str], WatchedHPA | None]
    find_autoscaler: Callable[[Key], FastPathAutoscaler | None]
    _known: dict[tuple[str, str], _Known] = field(default_factory=dict, init=False)

    async def run(self, controller: Controller) -> None:
        try:
            while True:
                computed = await self.write_all(controller)
                await asyncio.sleep(max(PERIOD, _REST * computed))
        finally:
            for known in self._known.values():
                self.problems.resolve(PROBLEM, subject=known.subject)
                self._stop(known)

    async def write_all(self, controller: Controller) -> float:
        """Write the statuses that have changed; return the seconds that it took to compute them."""
        if not self.cache.synced:
            return 0.0
        computed, written, contain = 0.0, Counter[str](), self.problems.defects.contain
        self._follow(controller.loop.now() // SECOND)
        await asyncio.sleep(0)  # most outlooks are known after one turn
        for known in self._in_turns():
            began, wanted, namespace = self.clock.monotonic(), None, known.watched.namespace
            with contain(_UNEXPECTED, known.subject):
                wanted = self._describe(known, controller)
            computed += self.clock.monotonic() - began
            is_news = wanted is not None and wanted != known.written
            if wanted and is_news and began >= known.retry_at and written[namespace] < MOST_WRITES:
                written[namespace] += 1
                with contain(_UNEXPECTED, known.subject):
                    await self._write(known, wanted)
            await asyncio.sleep(0)
        return computed

    def _follow(self, now: int) -> None:
        """Follow the schedules of the cache, and have those looked at that are at a boundary."""
        former, self._known = self._known, {}
        for watched in self.cache:
            key = watched.namespace, watched.name
            if slices.slice_of(watched.namespace) == self.number:
                with self.problems.defects.contain(_UNEXPECTED, "/".join(key)):
                    self._known[key] = self._follow_one(watched, former.get(key), now)
                    former.pop(key, None)
        for gone in former.values():
            self.problems.resolve(PROBLEM, subject=gone.subject)
            self._stop(gone)

    def _follow_one(self, watched: WatchedSchedule, known: _Known | None, now: int) -> _Known:
        """Return what is known of a schedule at `now`, in seconds."""
        if known is None or known.watched.uid != watched.uid:
            self._stop(known)
            known = _Known(watched, status.decode(watched.status))
        if watched.schedule is None:
            self._stop(known)
            known.lookout = known.outlook = None
        elif known.lookout is None or known.watched.schedule != watched.schedule:
            self._stop(known)
            known.lookout, known.outlook = Lookout(watched.schedule.schedule), None
        known.watched = watched
        if known.lookout is not None and known.job is None and known.outlook_at(now) is None:
            steps, defects = known.look(known.lookout, now), self.problems.defects
            known.job = start(self.turns, watched.namespace, steps, defects, known.subject)
        return known

    def _stop(self, known: _Known | None) -> None:
        if known is not None and known.job is not None:
            self.turns.abort(known.job)
            known.job = None

    def _in_turns(self) -> Iterator[_Known]:
        """Yield what is known of each schedule, one of each namespace in turn."""
        turns: Turns[tuple[str, str]] = Turns()
        for key in self._known:
            turns.add(key[0], "", key)
        while turns:
            namespace, owner, key = turns.next()
            turns.discard(namespace, owner, key)
            yield self._known[key]

    def _describe(self, known: _Known, controller: Controller) -> ScheduleStatus | None:
        """Return the status as it is to be; None while what is ahead is not known."""
        watched, now = known.watched, controller.loop.now() // SECOND
        schedule, generation = watched.schedule, watched.generation
        if schedule is None:
            return status.describe_invalid(watched.faults, generation, known.written, now)
        outlook = known.outlook_at(now)
        if outlook is None:
            return None
        highest = max((window.min or 0 for window in schedule.schedule.windows), default=0)
        targets = {
            target: self._find_target(key_of(watched.namespace, target), controller, highest)
            for target in schedule.targets
        }
        return status.describe(schedule, generation, targets, outlook, known.written, now)

    def _find_target(self, key: Key, controller: Controller, highest: int) -> TargetState:
        """Return what is known of a target of windows whose highest minimum is `highest`."""
        missing = TargetState(status.TARGET_NOT_FOUND, f"there is no {key.kind} {key.namespace}/{key.name}")
        if key.is_native:
            hpa = self.find_hpa(key.namespace, key.name)
            if hpa is None:
                return missing
            request = hpa.asked
            if request is None:
                fault = next(iter(hpa.faults), f"it has no annotation {MODE_ANNOTATION}: boost")
                return TargetState(status.NOT_BOOSTED, fault)
            if request.fault or request.boosted.annotations.mode != BOOST:
                fault = request.fault or f"its annotation {MODE_ANNOTATION} is not boost"
                return TargetState(status.NOT_BOOSTED, fault)
        else:
            autoscaler = self.find_autoscaler(key)
            if autoscaler is None:
                return missing
            if autoscaler.spec.mode == PAUSED:
                return TargetState(status.PAUSED, "scaling is paused by spec.mode")
        state = controller.find(key)
        if state is None:
            return TargetState()
        if state.violations:
            return TargetState(status.INVALID_TARGET, str(state.violations[0]))
        if state.bounds.excess:
            return TargetState(TOO_MANY_WINDOWS, state.bounds.excess)
        return TargetState(lead=None if state.ready_times is None else state.lead.of_raise(0, highest))

    async def _write(self, known: _Known, wanted: ScheduleStatus) -> None:
        watched, subject = known.watched, known.subject
        path = f"{client.path_of(SCHEDULES, watched.namespace)}/{watched.name}/status"
        content = msgspec.json.encode({"metadata": {"uid": watched.uid}, "status": wanted})
        try:
            await self.writer.acquire(WriteKind.STATUS, watched.namespace, watched.name)
            await self.writer.send(WriteKind.STATUS, "PATCH", path, content, content_type=_PATCH)
        except errors.NotLeadingError:
            return
        except errors.KubernetesError as error:
            if error.status != 404:
                message = "the status of a FastPathSchedule could not be written"
                self.problems.report(PROBLEM, message, str(error), subject=subject)
            known.retry_at = self.clock.monotonic() + RETRY
            return
        self.problems.resolve(PROBLEM, subject=subject)
        known.written, known.retry_at = wanted, 0.0
