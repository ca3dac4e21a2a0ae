"""The control loop: decides each autoscaler when its inputs have changed, and once per period.

A `Controller` runs for one term of leadership. Deciding never waits: a write runs in a task of its own, and
its autoscaler is not decided again before it has ended. No step holds the event loop for more than a few
milliseconds.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.decide.decision import Event
from adapter.autoscaler.decide.history import Events
from adapter.autoscaler.floor_keeper import FloorKeeper
from adapter.autoscaler.interfaces import Actuator, Key
from adapter.autoscaler.reconcile import PendingScale, Reconciler
from adapter.autoscaler.reporter import Journal, Reporter
from adapter.autoscaler.scheduler import DecisionClock, Scheduler
from adapter.autoscaler.snapshot import AutoscalerContext
from adapter.autoscaler.state import AutoscalerState
from adapter.boost.publisher import FloorWriter
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, FastPathAutoscaler
from adapter.model.autoscaling.floor import Floor
from adapter.model.clock import Clock
from adapter.model.ready_times import ReadyLedger
from adapter.model.timestamps import SECOND
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import Defects

_log = logging.getLogger(__name__)

_STEP = 0.004
"""For how long, in seconds, autoscalers are decided in a row before other tasks may run."""

_GAP = 0.05
"""The least time between two decisions, as a part of the period: the pods of a target are scraped one by
one."""

_UNEXPECTED = "unexpected error while deciding an autoscaler"

_CLOCK_PERIOD = 1.0
_RETRY_LIMIT = 15.0
"""The longest pause, in seconds, after failed writes; the HPA controller retries once in a period of this
length."""

_DOUBLINGS = 10  # Cap on the exponent of that pause (2.0**n would overflow).

_METRICS_DELAYED = Event(
    "Warning",
    "MetricsDelayed",
    "metrics are queried less often than their period: the queries of this namespace exceed its share of "
    "--prometheus-max-queries-per-second; a late value may scale up but not down",
)


@dataclass(slots=True, eq=False)
class _Running:
    """An autoscaler in the loop."""

    state: AutoscalerState
    decided: float = float("-inf")
    """When it was last decided, in monotonic seconds."""
    changed: bool = False
    """Whether something has changed during the write in progress."""


class Controller:
    """The autoscalers that this process decides."""

    def __init__(
        self,
        context: AutoscalerContext,
        actuator: Actuator,
        clock: Clock,
        monitoring: Monitoring,
        journal: Journal,
        *,
        random: Callable[[], float],
        floors: FloorWriter | None = None,
    ) -> None:
        """`random` returns numbers in [0, 1), which spread the first decisions over a period.

        Without `floors` no HorizontalPodAutoscaler is boosted.
        """
        self.journal = journal
        self._context = context
        self._actuator = actuator
        self._clock = clock
        self._decision_clock = DecisionClock(clock)
        self._monitoring = monitoring
        self._defects = Defects(monitoring)
        self._random = random
        self._entries: dict[Key, _Running] = {}
        self._inherited: dict[str, ReadyLedger] = {}
        self._scheduler = Scheduler()
        self._wake = asyncio.Event()
        self._writes: set[asyncio.Task[None]] = set()
        self._lag = monitoring.scaler_lag
        self._floors = FloorKeeper(floors)
        self._reporter = Reporter(actuator, monitoring, journal)
        self._reconciler = Reconciler(actuator, self._floors, self._reporter, clock, self._decision_clock)

    # -- which autoscalers -----------------------------------------------------------------------------------

    def put(
        self, autoscaler: FastPathAutoscaler, boost: Boost | None = None, published: Floor | None = None
    ) -> None:
        """Add or update an autoscaler.

        `boost` is for HorizontalPodAutoscalers; `published` is the floor of a new one from the previous
        leader.
        """
        key = Key.of(autoscaler)
        events: tuple[Events, Events] | None = None
        entry = self._entries.get(key)
        if entry is not None and entry.state.object.metadata.uid != autoscaler.metadata.uid:
            # A new object of the same name starts without a past, but the policies still count recent
            # changes of the same target.
            former = entry.state
            if former.object.spec.scale_target_ref == autoscaler.spec.scale_target_ref:
                events = former.memory.history.ups, former.memory.history.downs
            self.remove(key)
            entry = None
        if entry is None:
            now = self._decision_clock.now()
            state = AutoscalerState(autoscaler, self._context, lambda: self.touch(key), now, events)
            if (inherited := self._inherited.pop(autoscaler.metadata.uid, None)) is not None:
                state.inherit(inherited)
            self._entries[key] = _Running(state)
            self._monitoring.scaler_autoscalers.set(len(self._entries))
            self._schedule(key, self._clock.monotonic() + self._random() * min(1.0, state.period))
            if published is not None:
                self._floors.adopt(state, published, now)
            self._context.forecasts.changed(key)
        else:
            state = entry.state
            if state.adopt(autoscaler):
                self._context.forecasts.changed(key)
                self.touch(key)
        if boost is not None:
            change = state.set_boost(boost)
            if boost.mode == BOOST and boost.fault and change.fault:
                self._actuator.event(autoscaler, Event("Warning", boosting.NOT_BOOSTED, boost.fault))
            if change.shown:
                self.touch(key)  # the status may show the floor

    def tell(self, autoscaler: FastPathAutoscaler, kind: str, reason: str, message: str) -> None:
        self._actuator.event(autoscaler, Event(kind, reason, message))

    def report_delays(self, keys: Iterable[Key]) -> None:
        """Write an event for each autoscaler whose metrics are queried late."""
        for key in keys:
            if (entry := self._entries.get(key)) is not None:
                with self._defects.contain(_UNEXPECTED, key):
                    self._actuator.event(entry.state.object, _METRICS_DELAYED)

    def inherit(self, ledgers: Mapping[str, ReadyLedger]) -> None:
        """Take the ready-time ledgers of the previous leader, by the uid of the autoscaler."""
        self._inherited = dict(ledgers)
        for key, entry in self._entries.items():
            ledger = self._inherited.pop(entry.state.object.metadata.uid, None)
            if ledger is not None:
                with self._defects.contain(_UNEXPECTED, key):
                    entry.state.inherit(ledger)

    def is_awaited(self, uid: str) -> bool:
        """Tell whether there is an inherited ledger for an autoscaler that is not here yet."""
        return uid in self._inherited

    def ledgers(self) -> Iterator[tuple[str, ReadyLedger]]:
        """Yield the ledgers that are not empty, each with the uid of its autoscaler."""
        for entry in self._entries.values():
            ledger = entry.state.kept_ledger
            if not ledger.is_empty:
                yield entry.state.object.metadata.uid, ledger

    def remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        state = entry.state
        self._scheduler.remove(key)
        state.close()
        self._floors.forget(state)
        self._actuator.forget(state.object)
        self._reporter.forget(key)
        self._context.forecasts.changed(key)
        self._monitoring.scaler_autoscalers.set(len(self._entries))

    def now(self) -> int:
        """Return the time of decisions, in nanoseconds."""
        return self._decision_clock.now()

    def seconds_until(self, instant: int) -> float:
        """Return the seconds to an instant of decisions, in nanoseconds; less than 0 after it."""
        return self._decision_clock.monotonic_at(instant) - self._clock.monotonic()

    def find(self, key: Key) -> AutoscalerState | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.state

    def names(self) -> Iterable[Key]:
        return self._entries.keys()

    def close(self) -> None:
        """Drop all autoscalers, and remove their metrics; nothing more is written about them."""
        for key, entry in self._entries.items():
            with self._defects.contain(_UNEXPECTED, key):
                entry.state.close()
                self._reporter.hide(key)
        self._entries.clear()
        self._monitoring.scaler_autoscalers.set(0)

    # -- when ------------------------------------------------------------------------------------------------

    def touch(self, key: Key) -> None:
        """Note that the inputs of an autoscaler have changed: decide it now, or soon if it was just decided.

        A change does not shorten the pause after a failed write. An autoscaler that may not write its target
        would otherwise take the write slots of the others.
        """
        entry = self._entries.get(key)
        if entry is None:
            return
        if entry.state.is_writing:
            entry.changed = True
            return
        gap = _period(entry.state) if entry.state.failures else _GAP * entry.state.period
        self._schedule(key, max(self._clock.monotonic(), entry.decided + gap))

    def touch_all(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.touch(key)

    def _schedule(self, key: Key, due: float) -> None:
        self._scheduler.schedule(key, due)
        self._wake.set()

    async def run(self) -> None:
        """Run the loop until cancelled; writes in progress are cancelled with it."""
        try:
            while True:
                self._wake.clear()
                await self._wait()
                await self.tick()
        finally:
            for task in self._writes:
                task.cancel()
            await asyncio.gather(*self._writes, return_exceptions=True)

    async def _wait(self) -> None:
        """Wait until an autoscaler is due, or the clock is to be looked at."""
        due = self._scheduler.next_due()
        wait = _CLOCK_PERIOD if due is None else due - self._clock.monotonic()
        if wait <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(min(wait, _CLOCK_PERIOD)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def tick(self) -> None:
        """Decide all autoscalers that are due now."""
        self._follow_clock()
        started = now = self._clock.monotonic()
        while (due := self._scheduler.pop(now)) is not None:
            entry = self._entries.get(due.key)
            if entry is None or entry.state.is_writing:
                continue
            self._lag.observe(now - due.at)
            entry.decided = now
            self._decide(entry)
            now = self._clock.monotonic()
            self._schedule_next(entry.state, now)
            if now - started > _STEP:
                await asyncio.sleep(0)
                started = now = self._clock.monotonic()

    def _schedule_next(self, state: AutoscalerState, now: float) -> None:
        """Have an autoscaler decided after its period, or when its bounds change before that."""
        if state.is_writing or state.is_closed:
            return
        due = now + _period(state)
        if state.boundary is not None and not state.failures:
            due = min(due, self._decision_clock.monotonic_at(state.boundary))
        self._schedule(state.key, due)

    def _follow_clock(self) -> None:
        if by := self._decision_clock.jump():
            told = facts(seconds=round(by / SECOND, 3))
            _log.warning("the system clock was set; recorded times are shifted with it", extra=told)
            for key, entry in self._entries.items():
                with self._defects.contain(_UNEXPECTED, key):
                    entry.state.set_clock(by)
                    if entry.state.boundary is not None:
                        self.touch(key)
            self._context.forecasts.clock_set()

    # -- one autoscaler --------------------------------------------------------------------------------------

    def _decide(self, entry: _Running) -> None:
        """Decide one autoscaler, and start its write if there is one."""
        state = entry.state
        try:
            pending = self._reconciler.decide(state)
        except Exception as error:  # noqa: BLE001 - one autoscaler's defect writes nothing for it and leaves the others alone
            self._note_defect(state, error)
            return
        if pending is not None:
            state.begin_write()
            task = asyncio.create_task(self._write(entry, pending), name=f"write {state.key}")
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _write(self, entry: _Running, pending: PendingScale) -> None:
        state = entry.state
        try:
            await self._reconciler.write(state, pending)
        except Exception as error:  # noqa: BLE001 - as above
            self._note_defect(state, error)
        finally:
            state.end_write()
            self._schedule_next(state, self._clock.monotonic())
            if entry.changed:
                entry.changed = False
                self.touch(state.key)

    def _note_defect(self, state: AutoscalerState, error: Exception) -> None:
        state.note_failure()
        self._defects.note(_UNEXPECTED, error, state.key)


def _period(state: AutoscalerState) -> float:
    """Return the seconds to the next decision if nothing changes; longer after failed writes."""
    if not state.failures:
        return state.period
    return max(state.period, min(_RETRY_LIMIT, 2.0 ** min(state.failures - 1, _DOUBLINGS)))
