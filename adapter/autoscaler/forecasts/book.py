"""The forecasts of autoscalers: a job for each once an hour, and a minimum each minute.

A job is done by a process of its own (`ForecastWorker`), one after the other. It makes the plan of the next
hour, and once a day a new verdict. The hours and minutes at which that happens come from the name of the
autoscaler, so that jobs are spread over the hour and verdicts over the day.

The jobs come in turns of namespaces (`JobQueue`): one with many autoscalers delays another by a job at most.
Plans come before verdicts, since a plan has to be ready when its hour begins. After some plans a verdict has
its turn.

A verdict takes seconds of CPU, and a change of the spec asks for a new one. So verdicts of an autoscaler are
some time apart, also after it was changed, or deleted and made again. Only a job that cost next to nothing,
such as one for a metric without a query, is repeated at once after a change.

All due times are times of day: the next minute, the next job, the end of a pause. The loop of decisions
reports what may bring them forward: an autoscaler that changes, and a clock that was set.

The next owner goes on with the verdicts, plans and accounts that this one has stored (`VerdictStore`). They
are read before the first job. A failed job is repeated after `RETRY`. Until then the plans that were made
count, and the last one ends with its hour.
"""

import asyncio
import functools
from collections.abc import Sequence
from typing import Any, Final, Protocol

from cachetools import FIFOCache

from adapter.autoscaler.controller.loop import Due, Scheduler
from adapter.autoscaler.controller.registry import Controller
from adapter.autoscaler.forecasts import forecast
from adapter.autoscaler.forecasts.forecast import PAUSE, RETRY, AutoscalerForecast, Queries, pause_after
from adapter.autoscaler.forecasts.verdict_store import KIND, VerdictStore
from adapter.autoscaler.interfaces import UNKNOWN_FORECAST, ForecastBound, Key
from adapter.bounds.forecast import job as jobs
from adapter.bounds.forecast.job import STEP, ForecastAnswer, ForecastJob, HistoryQuery
from adapter.bounds.forecast.plan import HOUR
from adapter.bounds.forecast.stored import build_fingerprint
from adapter.errors import InputError, NotSyncedError
from adapter.kubernetes.cache.store import in_steps
from adapter.kubernetes.write.config_map import StoreSlot
from adapter.model.autoscaling import slices
from adapter.model.fairness import Turns
from adapter.model.timestamps import SECOND
from adapter.runtime.steps import run_steps
from adapter.runtime.waits import wait_for
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects

_UNEXPECTED = "unexpected error while making a forecast"

_SOON = 5
"""Seconds to the next try while the rules are not known yet."""

_IN_A_ROW = 50
"""After so many autoscalers other tasks may run."""

PLANS_IN_A_ROW: Final = 3
"""The number of plans after which a waiting verdict has its turn."""

MOST_PAUSES: Final = 10_000
"""The number of autoscalers whose last verdict is remembered."""


class JobQueue:
    """The jobs that are due, one an autoscaler, of which one is done at a time."""

    def __init__(self) -> None:
        self._plans: Turns[Key] = Turns()
        self._verdicts: Turns[Key] = Turns()
        self._in_a_row = 0
        self.wake = asyncio.Event()
        """Set when a job was added."""

    def add(self, key: Key, *, judges: bool) -> None:
        """Add a job that is due; it keeps its place if it is there already."""
        kind, other = (self._verdicts, self._plans) if judges else (self._plans, self._verdicts)
        other.discard(key.namespace, key, key)
        kind.add(key.namespace, key, key)
        self.wake.set()

    def discard(self, key: Key) -> None:
        for turns in (self._plans, self._verdicts):
            turns.discard(key.namespace, key, key)

    def take(self) -> Key | None:
        """Remove the job whose turn it is and return its autoscaler; None if no job is due."""
        is_plan = bool(self._plans) and (self._in_a_row < PLANS_IN_A_ROW or not self._verdicts)
        turns = self._plans if is_plan else self._verdicts
        if not turns:
            return None
        self._in_a_row = self._in_a_row + 1 if is_plan and self._verdicts else 0
        return turns.take()


class Pauses:
    """The time of day until which an autoscaler has to wait for its next verdict, in seconds."""

    def __init__(self, most: int = MOST_PAUSES) -> None:
        self._ends: FIFOCache[Key, int] = FIFOCache(most)

    def begin(self, key: Key, now: int, seconds: int) -> None:
        if seconds:
            self._ends[key] = now + seconds

    def end_of(self, key: Key, now: int) -> int:
        """Return when an autoscaler may have a verdict, `now` if it may have one at once."""
        end = self._ends.get(key, now)
        # The clock may have been set back: then a pause that is far away says nothing.
        return end if now < end <= now + PAUSE else now


class ForecastWorker(Protocol):
    async def run(self, job: ForecastJob) -> ForecastAnswer:
        """Return the answer to a job; one that fails is an answer too."""
        ...


class ForecastBook:
    """The forecasts of the autoscalers that ask for one, while `run` runs."""

    controller: Controller
    """Set before the first autoscaler comes."""

    def __init__(self, worker: ForecastWorker, queries: Queries, monitoring: Monitoring) -> None:
        self._worker = worker
        self._queries = queries
        self._monitoring = monitoring
        self._defects = Defects(monitoring)
        self._entries: dict[Key, AutoscalerForecast] = {}
        self._stores: dict[int, VerdictStore] = {}
        """Where the verdicts of the slices that this process owns are stored."""
        self._jobs = Scheduler()
        self._queue = JobQueue()
        self._pauses = Pauses()
        self._index: int | None = None
        self._has_unknown = False
        """Whether there are stored verdicts whose queries are not known yet."""
        self._sooner = asyncio.Event()
        """Set when something may be due sooner than before."""

    def bound_of(self, key: Key) -> ForecastBound:
        entry = self._entries.get(key)
        return UNKNOWN_FORECAST if entry is None else entry.bound

    def document_of(self, key: Key) -> dict[str, Any] | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.document()

    # -- the tasks -------------------------------------------------------------------------------------------

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._look_when_due(), name="forecasts: steps")
            group.create_task(self._work_when_queued(), name="forecasts: jobs")

    def begin(self, number: int, slot: StoreSlot) -> VerdictStore:
        """Begin a term of a slice: its verdicts are stored, those of its previous owner are read first."""
        forecasts = functools.partial(self._find_of_slice, number)
        self._stores[number] = store = VerdictStore(forecasts, self._sooner.set, slot)
        store.submit()
        return store

    def end(self, number: int) -> None:
        self._stores.pop(number, None)

    def _find_of_slice(self, number: int) -> list[AutoscalerForecast]:
        entries = list(self._entries.items())
        return [entry for key, entry in entries if slices.slice_of(key.namespace) == number]

    def _now(self) -> int:
        """Return the time of day, in seconds."""
        return self.controller.loop.clock.time_of_day() // SECOND

    async def _look_when_due(self) -> None:
        while True:
            self._sooner.clear()
            due = self._now() + STEP
            with self._defects.contain(_UNEXPECTED):
                due = await self.look()
            await wait_for(self._sooner, self.controller.loop.seconds_until(due * SECOND))

    async def _work_when_queued(self) -> None:
        while True:
            has_worked = False
            self._queue.wake.clear()
            with self._defects.contain(_UNEXPECTED):
                has_worked = await self.work()
            if not has_worked:
                await self._queue.wake.wait()

    async def look(self) -> int:
        """Compute the minimums of a minute that has begun and queue the jobs that are due.

        Return when there is more to do, in seconds.
        """
        now = self._now()
        await self._restore_all(now)
        before, self._index = self._index, now // STEP
        if self._index != before and before is not None:
            await self._step(self._index)
        due_now = iter(functools.partial(self._jobs.pop, now), None)
        await run_steps(in_steps(due_now, functools.partial(self._enqueue, now), self._defects))
        following, due = (now // STEP + 1) * STEP, self._jobs.next_due()
        if self._has_unknown:
            following = min(following, now + _SOON)
        return following if due is None else min(following, int(due))

    async def _restore_all(self, now: int) -> None:
        numbers = {slices.slice_of(key.namespace) for key in self._entries}
        await asyncio.gather(*(self._stores[number].begin() for number in numbers & self._stores.keys()))
        self._has_unknown = False
        restorable = [entry for entry in self._entries.values() if self._find_store(entry) is not None]
        restore = functools.partial(self._restore, now)
        await run_steps(in_steps(restorable, restore, self._defects, KIND.in_a_row))

    def _find_store(self, entry: AutoscalerForecast) -> VerdictStore | None:
        """Return the store that has an unclaimed verdict on an autoscaler, None without one."""
        store = self._stores.get(slices.slice_of(entry.state.key.namespace))
        uid = entry.state.spec.object.metadata.uid
        return store if store is not None and store.is_unclaimed(uid) else None

    def _restore(self, now: int, entry: AutoscalerForecast) -> None:
        """Go on with the verdict of the previous owner, if it is about what is asked for now."""
        key, autoscaler, store = entry.state.key, entry.state.spec.object, self._find_store(entry)
        if self._entries.get(key) is not entry or store is None:
            return
        try:
            fingerprint = build_fingerprint(entry.basis, tuple(self._queries(autoscaler)))
        except NotSyncedError:
            self._has_unknown = True
            return
        except InputError:
            return  # the metric may be known by the next step
        stored = store.take(autoscaler.metadata.uid, now)
        if stored is None or entry.verdict is not None:
            return
        self._pauses.begin(key, stored.judged, PAUSE)
        if stored.is_about(fingerprint, now):
            entry.restore(stored, now)
            self._schedule(entry, entry.due)
            self.controller.loop.touch(key)
        else:
            self._pause(entry, now)

    def _enqueue(self, now: int, due: Due) -> None:
        self._queue.add(due.key, judges=self._entries[due.key].is_judged_at(now))

    async def _step(self, index: int) -> None:
        for count, entry in enumerate(list(self._entries.values()), 1):
            key = entry.state.key
            if self._entries.get(key) is entry:
                with self._defects.contain(_UNEXPECTED, key):
                    if entry.step(index):
                        self.controller.loop.touch(key)
                    self._show(entry)
            if count % _IN_A_ROW == 0:
                await asyncio.sleep(0)

    async def work(self) -> bool:
        """Do the job whose turn it is; return whether there was one."""
        key = self._queue.take()
        if key is None:
            return False
        entry, now = self._entries[key], self._now()
        entry.due = now + RETRY  # unless the job says when the next one is
        with self._defects.contain(_UNEXPECTED, key):
            await self._do(entry, now)
        if self._entries.get(key) is entry:
            self._schedule(entry, entry.due)
        await asyncio.sleep(0)
        return True

    async def _do(self, entry: AutoscalerForecast, now: int) -> None:
        key, judges = entry.state.key, entry.is_judged_at(now)
        queries: Sequence[HistoryQuery] = ()
        try:
            answer = entry.build_job(self._queries, now)
            if isinstance(answer, ForecastJob):
                queries = answer.queries
                answer = await self._worker.run(answer)
        except NotSyncedError:
            entry.due = now + _SOON
            return
        except Exception as error:  # noqa: BLE001 - one autoscaler's defect leaves the others alone
            self._defects.note(_UNEXPECTED, error, key)
            answer = ForecastAnswer(reason=jobs.WORKER_FAILED, problem="an unexpected error: see the log")
        after = self._entries.get(key)
        if judges:
            self._pauses.begin(key, now, pause_after(answer))
        if after is entry:
            self._monitoring.forecast_values.set(answer.values)
            entry.take(answer, queries, now, judges=judges)
            self._show(entry)
        elif after is not None:  # what the job was for has changed
            self._pause(after, now)
            self._show(after)

    def _show(self, entry: AutoscalerForecast) -> None:
        has_changed, event = entry.show()
        if event is not None:
            self.controller.actuator.event(entry.state.spec.object, event)
        if has_changed:
            self.controller.loop.touch(entry.state.key)

    # -- which autoscalers -----------------------------------------------------------------------------------

    def changed(self, key: Key) -> None:
        """Follow an autoscaler that is new, has another spec, or is gone."""
        with self._defects.contain(_UNEXPECTED, key):
            now, known = self._now(), self._entries.get(key)
            entry = forecast.follow(self.controller.find(key), known, self._monitoring, now)
            if entry is known:
                return
            self._drop(key)
            if entry is not None:
                self._entries[key] = entry
                self._schedule(entry, entry.due)
                self._pause(entry, now)
                entry.bound = entry.bound._replace(readiness=entry.readiness())

    def clock_set(self) -> None:
        """Follow the time of day: when the clock was set back, a time that is far away says nothing."""
        now = self._now()
        for entry in self._entries.values():
            self._schedule(entry, now if entry.due > now + 2 * HOUR else entry.due)

    def _pause(self, entry: AutoscalerForecast, now: int) -> None:
        """Let the first verdict wait, if the autoscaler had another one a short time ago."""
        end = self._pauses.end_of(entry.state.key, now)
        if end > now:
            entry.paused = end
            self._schedule(entry, max(entry.due, end))

    def _schedule(self, entry: AutoscalerForecast, due: int) -> None:
        """Have the next job done at a time, and no sooner."""
        entry.due, key = due, entry.state.key
        self._queue.discard(key)
        self._jobs.remove(key)
        self._jobs.schedule(key, due)
        self._sooner.set()

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.series.remove()
            self._jobs.remove(key)
            self._queue.discard(key)
