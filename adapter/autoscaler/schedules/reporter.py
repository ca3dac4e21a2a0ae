"""Writes the statuses of the schedules of a shard for one term, each when it has changed.

What the windows tell is kept until their next boundary, and is computed in the turns of namespaces that the
book of schedules has. In each pass the schedules of the namespaces take turns as well, and a namespace has a
part of the writes.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import msgspec

from adapter import errors
from adapter.autoscaler.decide.scheduled import TOO_MANY_WINDOWS
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.loop import Controller
from adapter.autoscaler.schedules import status
from adapter.autoscaler.schedules.book import key_of, start
from adapter.autoscaler.schedules.status import Lookout, Outlook, ScheduleStatus, TargetState
from adapter.bounds.schedule.documents import ScheduleTarget
from adapter.kubernetes import client
from adapter.kubernetes.cache.autoscalers import WatchedHPA
from adapter.kubernetes.cache.schedules import SCHEDULES, ScheduleCache, WatchedSchedule
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.autoscaling.boost import MODE_ANNOTATION
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, PAUSED, FastPathAutoscaler
from adapter.model.autoscaling.shards import Shard
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


@dataclass(slots=True, eq=False)
class _Known:
    """What is known of one schedule: its object, the status that is stored, what is ahead."""

    found: WatchedSchedule
    written: ScheduleStatus
    lookout: Lookout | None = None
    """None for a schedule that cannot be used."""
    outlook: Outlook | None = None
    job: ScrapeJob | None = None
    retry_at: float = 0.0


class ScheduleReporter:
    """Keeps the statuses of schedules. `find_hpa` and `find_autoscaler` look into the caches."""

    def __init__(
        self,
        cache: ScheduleCache,
        writer: Writer,
        shard: Shard,
        problems: ProblemLog,
        turns: FairTurns,
        clock: Clock,
        find_hpa: Callable[[str, str], WatchedHPA | None],
        find_autoscaler: Callable[[Key], FastPathAutoscaler | None],
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._shard = shard
        self._problems = problems
        self._turns = turns
        self._clock = clock
        self._find_hpa = find_hpa
        self._find_autoscaler = find_autoscaler
        self._known: dict[tuple[str, str], _Known] = {}

    async def run(self, controller: Controller) -> None:
        """Write statuses until cancelled."""
        try:
            while True:
                computed = await self.write_all(controller)
                await asyncio.sleep(max(PERIOD, _REST * computed))
        finally:
            for (namespace, name), known in self._known.items():
                self._problems.resolve(PROBLEM, subject=f"{namespace}/{name}")
                self._stop(known)

    async def write_all(self, controller: Controller) -> float:
        """Write the statuses that have changed; return the seconds that it took to compute them."""
        if not self._cache.synced:
            return 0.0
        computed, written = 0.0, Counter[str]()
        self._follow(controller.now() // SECOND)
        await asyncio.sleep(0)  # most outlooks are known after one turn
        for known in self._in_turns():
            began, wanted = self._clock.monotonic(), None
            namespace = known.found.namespace
            with self._contained(known.found):
                wanted = self._describe(known, controller)
            computed += self._clock.monotonic() - began
            if (
                wanted is not None
                and wanted != known.written
                and began >= known.retry_at
                and written[namespace] < MOST_WRITES
            ):
                written[namespace] += 1
                with self._contained(known.found):
                    await self._write(known, wanted)
            await asyncio.sleep(0)
        return computed

    def _follow(self, now: int) -> None:
        """Follow the schedules of the cache, and have those looked at that are at a boundary."""
        former, self._known = self._known, {}
        for found in self._cache:
            key = found.namespace, found.name
            if self._shard.owns(*key):
                with self._contained(found):
                    self._known[key] = self._known_of(found, former.get(key), now)
                    former.pop(key, None)
        for (namespace, name), gone in former.items():
            self._problems.resolve(PROBLEM, subject=f"{namespace}/{name}")
            self._stop(gone)

    def _known_of(self, found: WatchedSchedule, known: _Known | None, now: int) -> _Known:
        """Return what is known of a schedule at `now`, in seconds."""
        if known is None or known.found.uid != found.uid:
            self._stop(known)
            known = _Known(found, status.decode(found.status))
        if found.schedule is None:
            self._stop(known)
            known.lookout = known.outlook = None
        elif known.lookout is None or known.found.schedule != found.schedule:
            self._stop(known)
            known.lookout, known.outlook = Lookout(found.schedule.schedule), None
        known.found = found
        if known.lookout is not None and known.job is None and not _is_current(known.outlook, now):
            steps, subject = _look(known, known.lookout, now), f"{found.namespace}/{found.name}"
            known.job = start(self._turns, found.namespace, steps, self._problems.defects, subject)
        return known

    def _contained(self, found: WatchedSchedule) -> AbstractContextManager[None]:
        message = "unexpected error about the status of a schedule"
        return self._problems.defects.contain(message, f"{found.namespace}/{found.name}")

    def _stop(self, known: _Known | None) -> None:
        if known is not None and known.job is not None:
            self._turns.abort(known.job)
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
        found, now = known.found, controller.now() // SECOND
        if found.schedule is None:
            return status.describe_invalid(found.faults, found.generation, known.written, now)
        if known.outlook is None or not _is_current(known.outlook, now):
            return None
        targets = {
            target: self._target_state(found.namespace, target, controller)
            for target in found.schedule.targets
        }
        return status.describe(found.schedule, found.generation, targets, known.outlook, known.written, now)

    def _target_state(self, namespace: str, target: ScheduleTarget, controller: Controller) -> TargetState:
        key = key_of(namespace, target)
        reason, message = self._obstacle(key)
        if reason:
            return TargetState(reason, message)
        state = controller.find(key)
        if state is None:
            return TargetState()
        if state.violations:
            return TargetState(status.INVALID_TARGET, str(state.violations[0]))
        if state.bounds.excess:
            return TargetState(TOO_MANY_WINDOWS, state.bounds.excess)
        return TargetState(lead=None if state.ready_times is None else state.lead)

    def _obstacle(self, key: Key) -> tuple[str, str]:
        """Return why the bounds do not reach a target as reason and message, "" if they do."""
        missing = status.TARGET_NOT_FOUND, f"there is no {key.kind} {key.namespace}/{key.name}"
        if not key.is_native:
            autoscaler = self._find_autoscaler(key)
            if autoscaler is None:
                return missing
            if autoscaler.spec.mode == PAUSED:
                return status.PAUSED, "scaling is paused by spec.mode"
            return "", ""
        hpa = self._find_hpa(key.namespace, key.name)
        if hpa is None:
            return missing
        asked = hpa.asked
        if asked is None:
            fault = next(iter(hpa.faults), f"it has no annotation {MODE_ANNOTATION}: boost")
            return status.NOT_BOOSTED, fault
        if asked.fault or asked.boosted.annotations.mode != BOOST:
            return status.NOT_BOOSTED, asked.fault or f"its annotation {MODE_ANNOTATION} is not boost"
        return "", ""

    async def _write(self, known: _Known, wanted: ScheduleStatus) -> None:
        found = known.found
        path = f"{client.path_of(SCHEDULES, found.namespace)}/{found.name}/status"
        subject = f"{found.namespace}/{found.name}"
        content = msgspec.json.encode({"metadata": {"uid": found.uid}, "status": wanted})
        try:
            await self._writer.acquire(WriteKind.STATUS, found.namespace, found.name)
            await self._writer.send(WriteKind.STATUS, "PATCH", path, content, content_type=_PATCH)
        except errors.NotLeadingError:
            return
        except errors.KubernetesError as error:
            if error.status != 404:
                message = "the status of a FastPathSchedule could not be written"
                self._problems.report(PROBLEM, message, str(error), subject=subject)
            known.retry_at = self._clock.monotonic() + RETRY
            return
        self._problems.resolve(PROBLEM, subject=subject)
        known.written, known.retry_at = wanted, 0.0


def _is_current(outlook: Outlook | None, now: int) -> bool:
    return outlook is not None and outlook.since <= now < outlook.until


def _look(known: _Known, lookout: Lookout, now: int) -> Generator[None, None, None]:
    try:
        known.outlook = yield from lookout.look(now)
    finally:
        known.job = None
