"""The forecasts of a term: a job for each autoscaler once an hour, and a minimum each minute.

A job is done by a process of its own (`ForecastWorker`), one after the other, in turns of namespaces
(`forecasts.queue`). It makes the plan of the next hour, and once a day a new verdict. The hours and minutes
at which that happens come from the name of the autoscaler, so that jobs are spread over the hour and verdicts
over the day.

Each minute the demand that decisions have seen steps through the plan, and what comes out is the
minimum. That takes microseconds, and other tasks may run in between.

All times are due times of the decision clock: the next minute, the next job, the end of a pause. The loop of
decisions reports what may bring them forward: an autoscaler that changes, and a clock that was set.

Nothing outlives the term: the next leader makes verdicts and plans again. A failed job is repeated after
`RETRY`. Until then the plans that were made count, and the last one ends with its hour.
"""

import asyncio
import contextlib
import functools
import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec

from adapter.autoscaler.forecasts.demand import demand_of, request_of
from adapter.autoscaler.forecasts.queue import RETRY, JobQueue, Pauses, pause_after
from adapter.autoscaler.forecasts.series import ForecastSeries
from adapter.autoscaler.interfaces import UNKNOWN_FORECAST, ForecastBound, Key
from adapter.autoscaler.loop import Controller
from adapter.autoscaler.scheduler import Due, Scheduler
from adapter.autoscaler.state import AutoscalerState
from adapter.bounds.forecast import job as jobs
from adapter.bounds.forecast import minimum
from adapter.bounds.forecast import verdict as verdicts
from adapter.bounds.forecast.job import NO_CARD, STEP, ForecastAnswer, ForecastJob, HistoryQuery
from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.plan import HOUR, PlannedMinimum
from adapter.bounds.forecast.verdict import UNJUDGED, ForecastCard, Readiness, Verdict
from adapter.errors import InputError, NotSyncedError
from adapter.kubernetes.cache.store import in_steps
from adapter.model.autoscaling import forecast as forecast_spec
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.forecast import FLOOR, ForecastSettings
from adapter.model.quantity import from_milli
from adapter.model.timestamps import SECOND
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects

_UNEXPECTED = "unexpected error while making a forecast"

SETTLED = 60
"""Seconds after which Prometheus has all samples of an hour."""

SPREAD = 2400
"""Over so many seconds of an hour the jobs are spread."""

_SOON = 5
"""Seconds to the next try while the rules are not known yet."""

_IN_A_ROW = 50
"""After so many autoscalers other tasks may run."""

_STEPS_KNOWN = 2
"""For so many steps a minimum holds without being computed again."""

_SYNCS = 2
"""A decision that is older than so many periods says nothing about the demand."""


class ForecastWorker(Protocol):
    """Does the jobs."""

    async def run(self, job: ForecastJob) -> ForecastAnswer:
        """Return the answer to a job; one that fails is an answer too."""
        ...

    async def close(self) -> None: ...


_CARD = msgspec.json.Decoder(ForecastCard | None)

Queries = Callable[[FastPathAutoscaler], Sequence[HistoryQuery]]
"""Returns the query of each metric of an autoscaler. InputError for one without, NotSyncedError."""


class _Basis(NamedTuple):
    """What verdict and plans were made for: after a change both are made again."""

    spec: object
    settings: ForecastSettings


@dataclass(slots=True, eq=False)
class _ForecastEntry:
    """The forecast of one autoscaler."""

    state: AutoscalerState
    settings: ForecastSettings
    basis: _Basis
    spread: int
    due: int
    """When the next job is, in seconds of the decision clock."""
    series: ForecastSeries
    planned: PlannedMinimum
    until: int = 0
    """The minimum holds until then, in nanoseconds, unless it is computed again."""
    verdict: Verdict | None = None
    limits: Limits | None = None
    card: msgspec.Raw = field(default_factory=lambda: NO_CARD)
    failure: ForecastAnswer | None = None
    """The answer of the last job if it failed."""
    paused: int = 0
    """The first verdict waits until then, in seconds of the decision clock; 0 if it does not."""
    shown: Readiness = UNJUDGED
    told: str = ""
    """The reason of the last event."""

    @property
    def key(self) -> Key:
        return self.state.key

    @property
    def minimum(self) -> int:
        """The minimum that acts."""
        return self.planned.minimum if self.settings.mode == FLOOR else 0

    def readiness(self) -> Readiness:
        if self.failure is not None:
            return Readiness(holds=False, reason=self.failure.reason, message=self.failure.problem)
        if self.verdict is None and self.paused:
            return verdicts.paused(self.paused)
        return verdicts.readiness_of(self.settings.mode, self.verdict, self.planned.withheld)

    def is_judged_at(self, now: int) -> bool:
        """Tell whether the job at `now` makes a new verdict."""
        if self.verdict is None or self.verdict.missing:
            return True
        hour, last = now // HOUR, self.verdict.at // HOUR
        return hour > last and (hour % 24 == self.spread % 24 or hour - last > 24)


class ForecastBook:
    """The forecasts of the autoscalers that ask for one, while `run` runs."""

    def __init__(self, worker: ForecastWorker, queries: Queries, monitoring: Monitoring) -> None:
        self.controller: Controller | None = None
        """The controller of this term; None while this process does not lead."""
        self._worker = worker
        self._queries = queries
        self._monitoring = monitoring
        self._defects = Defects(monitoring)
        self._entries: dict[Key, _ForecastEntry] = {}
        self._jobs = Scheduler()
        self._queue = JobQueue()
        self._pauses = Pauses()
        self._index: int | None = None
        self._sooner = asyncio.Event()
        """Set when something may be due sooner than before."""
        self._queued = asyncio.Event()

    # -- what others ask -------------------------------------------------------------------------------------

    def bound_of(self, key: Key) -> ForecastBound:
        entry = self._entries.get(key)
        return UNKNOWN_FORECAST if entry is None else ForecastBound(entry.minimum, entry.until, entry.shown)

    def document_of(self, key: Key) -> dict[str, Any] | None:
        """Return what `debug` shows of a forecast, None without one."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        said, card = entry.shown, _CARD.decode(entry.card)
        return {
            "card": None if card is None else msgspec.structs.replace(card, mode=entry.settings.mode),
            "floor": entry.minimum,
            "withheld": entry.planned.withheld,
            "condition": {"status": str(said.holds), "reason": said.reason, "message": said.message},
        }

    # -- the tasks of a term ---------------------------------------------------------------------------------

    async def run(self, controller: Controller) -> None:
        """Make forecasts until cancelled."""
        self.controller = controller
        try:
            for _ in in_steps(list(controller.names()), self.changed, self._defects):
                await asyncio.sleep(0)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._look_when_due(controller), name="forecasts: steps")
                group.create_task(self._work_when_queued(controller), name="forecasts: jobs")
        finally:
            self.controller = None
            for key in list(self._entries):
                self._drop(key)
            self._pauses = Pauses()
            self._index = None
            self._monitoring.forecast_values.set(0)
            await self._worker.close()

    async def _look_when_due(self, controller: Controller) -> None:
        while True:
            self._sooner.clear()
            due = controller.now() // SECOND + STEP
            with self._defects.contain(_UNEXPECTED):
                due = await self.look(controller)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(controller.seconds_until(due * SECOND)):
                    await self._sooner.wait()

    async def _work_when_queued(self, controller: Controller) -> None:
        while True:
            self._queued.clear()
            has_worked = False
            with self._defects.contain(_UNEXPECTED):
                has_worked = await self.work(controller)
            if not has_worked:
                await self._queued.wait()

    async def look(self, controller: Controller) -> int:
        """Compute the minimums of a minute that has begun and queue the jobs that are due.

        Return when there is more to do, in seconds.
        """
        now = controller.now() // SECOND
        before, self._index = self._index, now // STEP
        if self._index != before and before is not None:
            await self._step(controller, self._index)
        due_now = iter(functools.partial(self._jobs.pop, now), None)
        for _ in in_steps(due_now, functools.partial(self._enqueue, now), self._defects):
            await asyncio.sleep(0)
        following, due = (now // STEP + 1) * STEP, self._jobs.next_due()
        return following if due is None else min(following, int(due))

    def _enqueue(self, now: int, due: Due) -> None:
        self._queue.add(due.key, judges=self._entries[due.key].is_judged_at(now))
        self._queued.set()

    async def work(self, controller: Controller) -> bool:
        """Do the job whose turn it is; return whether there was one."""
        key = self._queue.take()
        if key is None:
            return False
        entry, now = self._entries[key], controller.now() // SECOND
        entry.due = now + RETRY  # unless the job says when the next one is
        with self._defects.contain(_UNEXPECTED, key):
            await self._do(controller, entry, now)
        if self._entries.get(key) is entry:
            self._schedule(entry, entry.due)
        await asyncio.sleep(0)
        return True

    async def _do(self, controller: Controller, entry: _ForecastEntry, now: int) -> None:
        """Do a job of an autoscaler."""
        key, judges = entry.key, entry.is_judged_at(now)
        try:
            answer = await self._answer(entry, now)
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
            self._take(entry, answer, now, judges=judges)
            self._show(controller, entry)
        elif after is not None:  # what the job was for has changed
            self._pause(after, now)
            self._show(controller, after)

    # -- which autoscalers -----------------------------------------------------------------------------------

    def changed(self, key: Key) -> None:
        """Follow an autoscaler that is new, has another spec, or is gone."""
        if (controller := self.controller) is not None:
            with self._defects.contain(_UNEXPECTED, key):
                self._put(key, controller.find(key), controller.now() // SECOND)

    def clock_set(self) -> None:
        """Follow the clock of decisions: when it was set back, a time that is far away says nothing."""
        if (controller := self.controller) is not None:
            now = controller.now() // SECOND
            for entry in self._entries.values():
                self._schedule(entry, now if entry.due > now + 2 * HOUR else entry.due)

    def _put(self, key: Key, state: AutoscalerState | None, now: int) -> None:
        settings = None if state is None or state.violations else _settings_of(state.object)
        if state is None or settings is None:
            self._drop(key)
            return
        plain = msgspec.structs.replace(state.object.spec, mode="", forecast=None)
        basis, entry = _Basis(plain, settings._replace(mode="")), self._entries.get(key)
        if entry is not None and (entry.state, entry.basis) == (state, basis):
            entry.settings = settings
            return
        self._drop(key)
        due = max(now, now // HOUR * HOUR + SETTLED)
        spread, series = zlib.crc32(str(key).encode()), ForecastSeries(self._monitoring, key)
        entry = _ForecastEntry(state, settings, basis, spread, due, series, PlannedMinimum(STEP))
        self._entries[key] = entry
        self._schedule(entry, due)
        self._pause(entry, now)
        entry.shown = entry.readiness()

    def _pause(self, entry: _ForecastEntry, now: int) -> None:
        """Let the first verdict wait, if the autoscaler had another one a short time ago."""
        end = self._pauses.end_of(entry.key, now)
        if end > now:
            entry.paused = end
            self._schedule(entry, max(entry.due, end))

    def _schedule(self, entry: _ForecastEntry, due: int) -> None:
        """Have the next job done at a time, and no sooner."""
        entry.due = due
        self._queue.discard(entry.key)
        self._jobs.remove(entry.key)
        self._jobs.schedule(entry.key, due)
        self._sooner.set()

    def _drop(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.series.remove()
            self._jobs.remove(key)
            self._queue.discard(key)

    # -- minimums --------------------------------------------------------------------------------------------

    async def _step(self, controller: Controller, index: int) -> None:
        """Compute the minimums of the step that begins."""
        for count, entry in enumerate(list(self._entries.values()), 1):
            if self._entries.get(entry.key) is entry:
                with self._defects.contain(_UNEXPECTED, entry.key):
                    self._step_one(controller, entry, index)
            if count % _IN_A_ROW == 0:
                await asyncio.sleep(0)

    def _step_one(self, controller: Controller, entry: _ForecastEntry, index: int) -> None:
        before = entry.minimum
        entry.planned.step(index, _last_demand(entry.state, index * STEP * SECOND))
        entry.until = (index + 1 + _STEPS_KNOWN) * STEP * SECOND
        if entry.minimum != before:
            controller.touch(entry.key)
        self._show(controller, entry)

    # -- jobs ------------------------------------------------------------------------------------------------

    async def _answer(self, entry: _ForecastEntry, now: int) -> ForecastAnswer:
        state = entry.state
        autoscaler, last = state.object, state.last
        pods = () if last is None or last.snapshot is None else last.snapshot.observation.pods
        try:
            queries = tuple(self._queries(autoscaler))
            milli = request_of(autoscaler.spec.metrics or (), pods)
        except InputError as error:
            said = "; ".join(f"{each.path}: {each.expected}" for each in error.faults)
            return ForecastAnswer(reason=jobs.NO_QUERY, problem=said)
        except ValueError as error:
            return ForecastAnswer(reason=jobs.UNSUPPORTED, problem=str(error))
        job = ForecastJob(
            str(state.key),
            msgspec.structs.replace(autoscaler, status=None),
            "boost" if state.key.is_native else "fast",
            entry.settings,
            tuple(max(1, math.ceil(each.ready / 1000)) for each in state.ledger.starts()),
            queries,
            now,
            None if milli is None else from_milli(milli),
            entry.verdict,
            entry.limits,
            entry.is_judged_at(now),
            entry.planned.plan is None,
        )
        return await self._worker.run(job)

    def _take(self, entry: _ForecastEntry, answer: ForecastAnswer, now: int, *, judges: bool) -> None:
        self._monitoring.forecast_values.set(answer.values)
        if answer.verdict is None:
            entry.failure, entry.due = answer, now + (max(RETRY, pause_after(answer)) if judges else RETRY)
            return
        entry.failure, entry.verdict, entry.limits = None, answer.verdict, answer.limits
        entry.card = answer.card.copy()  # else it would keep the whole line of the worker
        for plan in answer.plans:
            entry.planned.take(plan)
        entry.due = (now // HOUR + 1) * HOUR + SETTLED + entry.spread % SPREAD

    # -- what is shown ---------------------------------------------------------------------------------------

    def _show(self, controller: Controller, entry: _ForecastEntry) -> None:
        before, said = entry.shown, entry.readiness()
        if said != before:  # decisions tell by the object whether the condition has changed
            entry.shown = said
        entry.series.show(entry.minimum, entry.verdict, entry.planned.day, ready=said.holds)
        if said == before:
            return
        event = _event_of(before, said, entry.planned.withheld)
        if event is not None and event.reason != entry.told:
            entry.told = event.reason
            controller.tell(entry.state.object, event.kind, event.reason, said.message)
        controller.touch(entry.key)


def _settings_of(autoscaler: FastPathAutoscaler) -> ForecastSettings | None:
    asked = autoscaler.spec.forecast
    try:
        return None if asked is None else forecast_spec.settings_of(asked)
    except ValueError:  # a time zone that this machine does not know, which is a violation of the spec
        return None


def _last_demand(state: AutoscalerState, now: int) -> float:
    """Return the demand that the last decision before `now` saw, NaN if it saw none or is old."""
    last = state.last
    if last is None or last.snapshot is None or now - last.at > _SYNCS * state.period * SECOND:
        return math.nan
    return demand_of(state.object.spec.metrics or (), last.snapshot.observation)


class _Event(NamedTuple):
    kind: str
    reason: str


def _event_of(before: Readiness, said: Readiness, withheld: str) -> _Event | None:
    """Return the event of a promotion or a demotion, None for no event."""
    acted = {verdicts.ACTING, verdicts.ADVISING, verdicts.WITHHELD}
    if said.reason == verdicts.ACTING:
        return _Event("Normal", "ForecastActs")
    if said.reason == verdicts.ADVISING:
        return _Event("Normal", "ForecastAdvises")
    if said.reason == verdicts.WITHHELD and withheld != minimum.UNKNOWN:
        return _Event("Warning", "ForecastWithheld")
    if said.reason == verdicts.REFUSED and before.reason in acted:
        return _Event("Warning", "ForecastRefused")
    if not said.holds and before.holds:
        return _Event("Warning", "ForecastFailed")
    return None
