"""Submits the statuses of the schedules of the slices that this process owns, each when it has changed.

What the windows tell is kept until their next boundary, and is computed in the turns of namespaces that the
book of schedules has.
"""

import asyncio
from collections.abc import Callable, Generator
from dataclasses import dataclass

import msgspec

from adapter import errors
from adapter.autoscaler.controller.registry import Controller
from adapter.autoscaler.decide.guards.scheduled import TOO_MANY_WINDOWS
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.schedules import status
from adapter.autoscaler.schedules.book import ScheduleBook, key_of, start
from adapter.autoscaler.schedules.status import Lookout, Outlook, ScheduleStatus, TargetState
from adapter.kubernetes import client
from adapter.kubernetes.cache.autoscalers import WatchedHPA
from adapter.kubernetes.cache.schedules import SCHEDULES, WatchedSchedule
from adapter.kubernetes.write.outbox import Outbox, OutboxKey, Outlet, SendTime
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.autoscaling.boost import MODE_ANNOTATION
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, PAUSED, FastPathAutoscaler
from adapter.model.timestamps import SECOND
from adapter.scrape.schedule import ScrapeJob
from adapter.telemetry.problems import ProblemLog

PERIOD = 1.0
"""The least pause, in seconds, between two passes over the statuses.

A status is made of several caches and of decisions, which do not all tell when what it shows has changed.
"""

_REST = 9
"""How many times as long as a pass has computed the pause is: statuses take a tenth of the time, at most."""

RETRY = 15.0
"""Seconds before a status that could not be written is written again."""

PROBLEM = "schedule-status"

_PATCH = "application/merge-patch+json"
AT_ONCE = 4
"""The number of statuses that are written at once."""


@dataclass(slots=True, eq=False)
class _Known:
    """What is known of one schedule: its object, the status that is stored, what is ahead."""

    watched: WatchedSchedule
    written: ScheduleStatus
    lookout: Lookout | None = None
    """None for a schedule that cannot be used."""
    outlook: Outlook | None = None
    job: ScrapeJob | None = None
    wanted: ScheduleStatus | None = None
    """The status that is submitted; None if what is stored is right."""

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


class ScheduleReporter(Outlet[_Known]):
    """Keeps the statuses of schedules. `find_hpa` and `find_autoscaler` look into the caches."""

    kind = WriteKind.STATUS
    unexpected = "unexpected error about the status of a schedule"
    at_once = AT_ONCE

    def __init__(
        self,
        outbox: Outbox,
        book: ScheduleBook,
        problems: ProblemLog,
        find_hpa: Callable[[str, str], WatchedHPA | None],
        find_autoscaler: Callable[[Key], FastPathAutoscaler | None],
    ) -> None:
        super().__init__(outbox)
        self._cache, self._looks = book.cache, book.turns
        self._problems = problems
        self._find_hpa, self._find_autoscaler = find_hpa, find_autoscaler
        self._known: dict[tuple[str, str], _Known] = {}

    async def run(self, controller: Controller) -> None:
        while True:
            computed = await self.submit_all(controller)
            await asyncio.sleep(max(PERIOD, _REST * computed))

    async def submit_all(self, controller: Controller) -> float:
        """Submit the statuses that have changed; return the seconds that it took to compute them."""
        if not self._cache.synced:
            return 0.0
        computed = 0.0
        self._follow(controller)
        await asyncio.sleep(0)  # most outlooks are known after one turn
        for known in list(self._known.values()):
            began = self.outbox.clock.monotonic()
            with self._problems.defects.contain(self.unexpected, known.subject):
                wanted = self._describe(known, controller)
                if wanted is not None and wanted != (known.wanted or known.written):
                    known.wanted = wanted
                    self.submit(OutboxKey(known.watched.namespace, known.watched.name), known)
            computed += self.outbox.clock.monotonic() - began
            await asyncio.sleep(0)
        return computed

    def _follow(self, controller: Controller) -> None:
        """Follow the schedules of the cache, and have those looked at that are at a boundary."""
        former, self._known = self._known, {}
        now = controller.loop.clock.time_of_day() // SECOND
        for watched in self._cache:
            key = watched.namespace, watched.name
            if controller.find_slice(watched.namespace) is not None:
                with self._problems.defects.contain(self.unexpected, "/".join(key)):
                    self._known[key] = self._follow_one(watched, former.get(key), now)
                    former.pop(key, None)
        for gone in former.values():
            self.withdraw(OutboxKey(gone.watched.namespace, gone.watched.name))
            self._problems.resolve(PROBLEM, subject=gone.subject)
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
            steps, defects = known.look(known.lookout, now), self._problems.defects
            known.job = start(self._looks, watched.namespace, steps, defects, known.subject)
        return known

    def _stop(self, known: _Known | None) -> None:
        if known is not None and known.job is not None:
            self._looks.abort(known.job)
            known.job = None

    def _describe(self, known: _Known, controller: Controller) -> ScheduleStatus | None:
        """Return the status as it is to be; None while what is ahead is not known."""
        watched, now = known.watched, controller.loop.clock.time_of_day() // SECOND
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
            hpa = self._find_hpa(key.namespace, key.name)
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
            autoscaler = self._find_autoscaler(key)
            if autoscaler is None:
                return missing
            if autoscaler.spec.mode == PAUSED:
                return TargetState(status.PAUSED, "scaling is paused by spec.mode")
        state = controller.find(key)
        if state is None:
            return TargetState()
        if state.spec.violations:
            return TargetState(status.INVALID_TARGET, str(state.spec.violations[0]))
        if state.bounds.now.excess:
            return TargetState(TOO_MANY_WINDOWS, state.bounds.now.excess)
        return TargetState(lead=None if state.ready_times is None else state.lead.of_raise(0, highest))

    # -- the wire --------------------------------------------------------------------------------------------

    def merge(self, before: _Known, new: _Known) -> _Known:  # noqa: ARG002 - what is known has the last one
        return new

    def due(self, value: _Known, now: float) -> SendTime | None:
        return None if value.wanted is None or value.wanted == value.written else SendTime(now)

    def subject(self, value: _Known) -> str:
        return value.subject

    async def send(self, value: _Known, writer: Writer) -> None:
        watched, wanted = value.watched, value.wanted
        path = f"{client.path_of(SCHEDULES, watched.namespace)}/{watched.name}/status"
        content = msgspec.json.encode({"metadata": {"uid": watched.uid}, "status": wanted})
        await writer.send(WriteKind.STATUS, "PATCH", path, content, content_type=_PATCH)
        assert wanted is not None, "else it is not due"
        value.written = wanted
        value.wanted = None if value.wanted is wanted else value.wanted
        self._problems.resolve(PROBLEM, subject=value.subject)

    def failed(self, value: _Known, error: Exception, tries: int) -> float:  # noqa: ARG002
        if isinstance(error, errors.KubernetesError) and error.status != 404:
            message = "the status of a FastPathSchedule could not be written"
            self._problems.report(PROBLEM, message, str(error), subject=value.subject)
        return RETRY

    def dropped(self, value: _Known) -> None:
        value.wanted = None
        self._problems.resolve(PROBLEM, subject=value.subject)
