"""The loop: every autoscaler is decided as soon as something it depends on has changed, and at the latest after its period.

Here: which there are, when, and in which order. Not here: one decision (`deciding`) and its write (`writing`). Law: deciding never waits;
a write is awaited beside the loop, and until it has ended its autoscaler is not decided again. No step holds the event loop for long.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Iterable

from adapter.autoscaler.clock import Timeline
from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.decide.decision import Event
from adapter.autoscaler.decide.history import Events
from adapter.autoscaler.deciding import Attempt, Decider
from adapter.autoscaler.floor_keeper import FloorKeeper
from adapter.autoscaler.interfaces import Floors, Hands, Key
from adapter.autoscaler.journal import Journal
from adapter.autoscaler.reconcile import Writing
from adapter.autoscaler.reporter import Teller
from adapter.autoscaler.state import Surroundings, Work
from adapter.boost.floor import FloorEntry
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, FastPathAutoscaler
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND
from adapter.telemetry.logs import facts
from adapter.telemetry.metrics import Monitoring

_log = logging.getLogger(__name__)

_STEP = 0.004
"""For how long, in seconds, autoscalers are decided one after the other before other work may run."""

_GAP = 0.05
"""An autoscaler is not decided again within this part of its period: pods of one target are scraped one after the other."""

_CLOCK_PERIOD = 1.0
_RETRY_LIMIT = 15.0
"""The longest pause, in seconds, after writes that failed; the native controller tries again once in a period."""

_METRICS_DELAYED = Event(
    "Warning",
    "MetricsDelayed",
    "metrics are asked for less often than their period says: all queries of the namespace together exceed its share of "
    "--prometheus-max-queries-per-second; until a late value is asked for again it may raise, not shrink",
)

_DOUBLINGS = 10  # of that pause; after hours of failures it would be no number any more


class Controller:
    """All autoscalers that this process answers for, while it leads."""

    def __init__(
        self,
        around: Surroundings,
        hands: Hands,
        clock: Clock,
        monitoring: Monitoring,
        journal: Journal,
        *,
        random: Callable[[], float],
        floors: Floors | None = None,
    ) -> None:
        """`random` gives numbers in [0, 1): the first decisions of many autoscalers are spread over their period.

        Without `floors` no HorizontalPodAutoscaler is boosted.
        """
        self.journal = journal
        self._floors = FloorKeeper(floors)
        self._around = around
        self._hands = hands
        self._clock = clock
        self._timeline = Timeline(clock)
        self._monitoring = monitoring
        self._random = random
        self._works: dict[Key, Work] = {}
        self._queue: list[tuple[float, int, Key]] = []
        self._numbers = itertools.count()
        self._wake = asyncio.Event()
        self._writes: set[asyncio.Task[None]] = set()
        self._lag = monitoring.scaler_lag
        self._teller = Teller(hands, monitoring, journal)
        self._decider = Decider(hands, self._floors, self._teller, clock, self._timeline)
        self._writing = Writing(
            self._decider, hands, self._floors, self._teller, clock, self._timeline, self._note_defect
        )

    # -- which autoscalers ---------------------------------------------------------------------------------------------

    def put(
        self, autoscaler: FastPathAutoscaler, boost: Boost | None = None, published: FloorEntry | None = None
    ) -> None:
        """Take an autoscaler, or what has become of it.

        `boost` is for HorizontalPodAutoscalers, `published` what a leader before has published of a new one.
        """
        key = Key.of(autoscaler)
        events: tuple[Events, Events] | None = None
        work = self._works.get(key)
        if work is not None and work.object.metadata.uid != autoscaler.metadata.uid:
            # another object under the same name starts anew; what was done to the target lately counts all the same
            if work.object.spec.scale_target_ref == autoscaler.spec.scale_target_ref:
                events = work.memory.history.ups, work.memory.history.downs
            self.remove(key)
            work = None
        if work is None:
            work = self._works[key] = Work(
                autoscaler, self._around, lambda: self.touch(key), self._timeline.now(), events
            )
            self._monitoring.scaler_autoscalers.set(len(self._works))
            self._schedule(work, self._clock.monotonic() + self._random() * min(1.0, work.period))
            if published is not None:
                self._floors.adopt(work, published, self._timeline.now())
        elif work.adopt(autoscaler):
            self.touch(key)
        if boost is not None:
            before = work.boost
            work.boost = boost
            is_new = before is None or (before.mode, before.fault) != (boost.mode, boost.fault)
            if boost.mode == BOOST and boost.fault and is_new:
                self._hands.event(autoscaler, Event("Warning", boosting.NOT_BOOSTED, boost.fault))
            if before is not None and before.shown != boost.shown:
                self.touch(key)  # the floor may have been shown

    def tell(self, autoscaler: FastPathAutoscaler, kind: str, reason: str, message: str) -> None:
        """Have an event written that no decision made."""
        self._hands.event(autoscaler, Event(kind, reason, message))

    def report_delays(self, keys: Iterable[Key]) -> None:
        """Write an event for each autoscaler whose metrics are asked for later than they are due."""
        for key in keys:
            if (work := self._works.get(key)) is not None:
                self._hands.event(work.object, _METRICS_DELAYED)

    def remove(self, key: Key) -> None:
        """Let an autoscaler go."""
        work = self._works.pop(key, None)
        if work is None:
            return
        work.close()
        self._floors.forget(work)
        self._hands.forget(work.object)
        self._teller.forget(key)
        self._monitoring.scaler_autoscalers.set(len(self._works))

    def now(self) -> int:
        """Return the time of decisions."""
        return self._timeline.now()

    def find(self, key: Key) -> Work | None:
        """Return an autoscaler at work."""
        return self._works.get(key)

    def names(self) -> Iterable[Key]:
        """Return all that are at work."""
        return self._works.keys()

    def close(self) -> None:
        """Let all go; nothing is written about them any more, and what they wanted is no longer shown."""
        for work in self._works.values():
            work.close()
            self._teller.hide(work.key)
        self._works.clear()
        self._monitoring.scaler_autoscalers.set(0)

    # -- when ----------------------------------------------------------------------------------------------------------

    def touch(self, key: Key) -> None:
        """Note that something an autoscaler depends on has changed: it is decided at once, or after a short while if it just was.

        Changes do not cut the pause after a failed write short: whoever may not write would take the turns of those who may.
        """
        work = self._works.get(key)
        if work is None:
            return
        if work.busy:
            work.again = True
            return
        gap = self._period(work) if work.failures else _GAP * work.period
        self._schedule(work, max(self._clock.monotonic(), work.decided + gap))

    def touch_all(self, keys: Iterable[Key]) -> None:
        """Note the same of several."""
        for key in keys:
            self.touch(key)

    def _schedule(self, work: Work, due: float) -> None:
        """Have an autoscaler decided at `due`, unless that is to be done sooner anyway."""
        if work.due and work.due <= due:
            return
        work.due = due
        heapq.heappush(self._queue, (due, next(self._numbers), work.key))
        self._wake.set()

    async def run(self) -> None:
        """Decide for ever."""
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
        """Wait until somebody is due."""
        if self._queue:
            wait = self._queue[0][0] - self._clock.monotonic()
            if wait <= 0:
                await asyncio.sleep(0)
                return
        else:
            wait = _CLOCK_PERIOD
        try:
            async with asyncio.timeout(min(wait, _CLOCK_PERIOD)):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def tick(self) -> None:
        """Decide all that are due now."""
        self._follow_clock()
        started = now = self._clock.monotonic()
        while self._queue and self._queue[0][0] <= now:
            due, _, key = heapq.heappop(self._queue)
            work = self._works.get(key)
            if work is None or work.due != due or work.busy:
                continue
            work.due = 0.0
            self._lag.observe(now - due)
            work.decided = now
            try:
                self.decide(work)
            except Exception:  # noqa: BLE001 - logged with its traceback
                # a defect met by one autoscaler: nothing is written for it, and all others go on
                self._note_defect(work)
            now = self._clock.monotonic()
            self._schedule_next(work, now)
            if now - started > _STEP:
                await asyncio.sleep(0)
                started = now = self._clock.monotonic()

    def _note_defect(self, work: Work) -> None:
        self._monitoring.scaler_defects.inc()
        work.failures += 1
        _log.exception(
            "unexpected error while an autoscaler was decided", extra=facts(autoscaler=str(work.key))
        )

    def _schedule_next(self, work: Work, now: float) -> None:
        if not work.busy and not work.closed:
            self._schedule(work, now + self._period(work))

    def _period(self, work: Work) -> float:
        """Return after how many seconds an autoscaler is decided again if nothing happens; after failed writes with a pause."""
        if work.failures:
            return max(work.period, min(_RETRY_LIMIT, 2.0 ** min(work.failures - 1, _DOUBLINGS)))
        return work.period

    def _follow_clock(self) -> None:
        if by := self._timeline.jump():
            _log.warning(
                "the clock was set; ages stay what they are", extra=facts(seconds=round(by / SECOND, 3))
            )
            for work in self._works.values():
                work.set_clock(by)

    # -- one autoscaler ------------------------------------------------------------------------------------------------

    def decide(self, work: Work) -> None:
        """Decide one autoscaler now, and begin what follows."""
        attempt = self._decider.decide(work)
        if attempt is not None:
            work.busy = True
            task = asyncio.create_task(self._write(work, attempt), name=f"write {work.key}")
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)

    async def _write(self, work: Work, attempt: Attempt) -> None:
        try:
            await self._writing.write(work, attempt)
        finally:
            work.busy = False
            if not work.closed:
                self._go_on(work)

    def _go_on(self, work: Work) -> None:
        """Have an autoscaler decided again after a write."""
        work.due = 0.0
        self._schedule(work, self._clock.monotonic() + self._period(work))
        if work.again:
            work.again = False
            self.touch(work.key)
