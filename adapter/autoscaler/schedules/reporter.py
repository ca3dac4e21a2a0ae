"""Writes the statuses of the schedules of a shard for one term, each when it has changed."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from adapter import errors
from adapter.autoscaler.decide.scheduled import TOO_MANY_WINDOWS
from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.loop import Controller
from adapter.autoscaler.schedules import status
from adapter.autoscaler.schedules.book import key_of
from adapter.autoscaler.schedules.status import Outlook, ScheduleStatus, TargetState
from adapter.kubernetes import client
from adapter.kubernetes.cache.autoscalers import WatchedHPA
from adapter.kubernetes.cache.schedules import SCHEDULES, ScheduleCache, WatchedSchedule
from adapter.kubernetes.write.writer import WriteKind, Writer
from adapter.model.autoscaling.boost import MODE_ANNOTATION
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, PAUSED, FastPathAutoscaler
from adapter.model.autoscaling.shards import Shard
from adapter.model.schedules.documents import ScheduleTarget
from adapter.model.timestamps import SECOND
from adapter.telemetry.problems import ProblemLog

PERIOD = 1.0
"""How often, in seconds, the statuses are computed."""

RETRY = 15.0
"""Seconds before a status that could not be written is written again."""

PROBLEM = "schedule-status"

_PATCH = "application/merge-patch+json"


class _Known(NamedTuple):
    """What is known of one schedule: its object, the status that is stored, what is ahead."""

    found: WatchedSchedule
    written: ScheduleStatus
    outlook: Outlook | None
    retry_at: float = 0.0


class ScheduleReporter:
    """Keeps the statuses of schedules. `find_hpa` and `find_autoscaler` look into the caches."""

    def __init__(
        self,
        cache: ScheduleCache,
        writer: Writer,
        shard: Shard,
        problems: ProblemLog,
        find_hpa: Callable[[str, str], WatchedHPA | None],
        find_autoscaler: Callable[[Key], FastPathAutoscaler | None],
    ) -> None:
        self._cache = cache
        self._writer = writer
        self._shard = shard
        self._problems = problems
        self._find_hpa = find_hpa
        self._find_autoscaler = find_autoscaler
        self._known: dict[tuple[str, str], _Known] = {}

    async def run(self, controller: Controller) -> None:
        """Write statuses until cancelled."""
        try:
            while True:
                await self.write_all(controller)
                await asyncio.sleep(PERIOD)
        finally:
            for namespace, name in self._known:
                self._problems.resolve(PROBLEM, subject=f"{namespace}/{name}")

    async def write_all(self, controller: Controller) -> None:
        """Write the statuses that have changed."""
        if not self._cache.synced:
            return
        former, self._known = self._known, {}
        for found in tuple(self._cache):
            key = found.namespace, found.name
            if not self._shard.owns(*key):
                continue
            self._known[key] = known = self._look(found, former.get(key), controller.now() // SECOND)
            wanted = self._describe(known, controller)
            if wanted != known.written and asyncio.get_running_loop().time() >= known.retry_at:
                self._known[key] = await self._write(known, wanted)
            await asyncio.sleep(0)
        for gone in former.keys() - self._known.keys():
            self._problems.resolve(PROBLEM, subject="/".join(gone))

    def _look(self, found: WatchedSchedule, known: _Known | None, now: int) -> _Known:
        """Return what is known of a schedule at `now`, in seconds."""
        if known is None or known.found.uid != found.uid:
            known = _Known(found, status.decode(found.status), None)
        outlook = known.outlook
        if found.schedule is None:
            outlook = None
        elif outlook is None or known.found.schedule != found.schedule or now >= outlook.until:
            outlook = status.look_ahead(found.schedule.schedule, now)
        return known._replace(found=found, outlook=outlook)

    def _describe(self, known: _Known, controller: Controller) -> ScheduleStatus:
        found, now = known.found, controller.now() // SECOND
        if found.schedule is None or known.outlook is None:
            return status.describe_invalid(found.faults, found.generation, known.written, now)
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
        if state.schedule is not None and state.schedule.excess:
            return TargetState(TOO_MANY_WINDOWS, state.schedule.excess)
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
        if asked.fault or asked.boosted.autoscaler.spec.mode != BOOST:
            return status.NOT_BOOSTED, asked.fault or f"its annotation {MODE_ANNOTATION} is not boost"
        return "", ""

    async def _write(self, known: _Known, wanted: ScheduleStatus) -> _Known:
        found = known.found
        path = f"{client.path_of(SCHEDULES, found.namespace)}/{found.name}/status"
        subject = f"{found.namespace}/{found.name}"
        content = msgspec.json.encode({"metadata": {"uid": found.uid}, "status": wanted})
        try:
            await self._writer.acquire(WriteKind.STATUS, found.namespace, found.name)
            await self._writer.send(WriteKind.STATUS, "PATCH", path, content, content_type=_PATCH)
        except errors.NotLeadingError:
            return known
        except errors.KubernetesError as error:
            if error.status != 404:
                message = "the status of a FastPathSchedule could not be written"
                self._problems.report(PROBLEM, message, str(error), subject=subject)
            return known._replace(retry_at=asyncio.get_running_loop().time() + RETRY)
        self._problems.resolve(PROBLEM, subject=subject)
        return known._replace(written=wanted, retry_at=0.0)
