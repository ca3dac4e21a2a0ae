"""The loop: every autoscaler is decided as soon as something it depends on has changed, and at the latest after its period.

Here: when, in which order, and what follows from a decision. Not here: what is decided (`scaling.live`), from what (`work`), how it is
written (`seams.Hands`). Law: deciding never waits; a write is awaited beside the loop, and until it has ended its autoscaler is not
decided again. No step holds the event loop for long.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from adapter import errors
from adapter.controller.floors import FloorKeeper
from adapter.controller.journal import Journal
from adapter.controller.seams import Floors, Hands, Key, Outcome, ScaleSeen, Target, Unfound
from adapter.controller.telling import Teller
from adapter.controller.timeline import Timeline
from adapter.controller.work import Seen, Surroundings, Work, Written
from adapter.model.clock import Clock
from adapter.model.fastpathautoscaler import BOOST, FastPathAutoscaler
from adapter.model.floors import FloorEntry
from adapter.model.instants import SECOND
from adapter.monitoring import Monitoring, facts
from adapter.scaling import boost as boosting
from adapter.scaling import decision, live, writers
from adapter.scaling import history as histories
from adapter.scaling.autoscaler import Autoscaler
from adapter.scaling.boost import Boost
from adapter.scaling.decision import Decision, Event
from adapter.scaling.history import Events
from adapter.scaling.live import Circumstances, Look
from adapter.scaling.writers import Change

_log = logging.getLogger(__name__)

_STEP = 0.004
"""For how long, in seconds, autoscalers are decided one after the other before other work may run."""

_GAP = 0.05
"""An autoscaler is not decided again within this part of its period: pods of one target are scraped one after the other."""

_FRESH = SECOND // 20
"""A decision whose write has waited for longer is made again when its turn has come."""

_CLOCK_PERIOD = 1.0
_RETRY_LIMIT = 15.0
"""The longest pause, in seconds, after writes that failed; the native controller tries again once in a period."""

_DOUBLINGS = 10  # of that pause; after hours of failures it would be no number any more


class _Attempt(NamedTuple):
    """A decision that is being written: when it was made, with which spec, and how the clock stood."""

    seen: Seen
    made: Decision
    at: int
    prepared: Autoscaler
    moved: int
    change: Change | None
    """What somebody else was seen to have changed before it."""
    most: int | None = None
    """What may be written at most, because no more is published; None where nothing has to be."""


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
            work = self._works[key] = Work(autoscaler, self._around, lambda: self.touch(key), events)
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
        _log.exception("unexpected error while an autoscaler was decided", extra=facts(autoscaler=str(work.key)))

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
            _log.warning("the clock was set; ages stay what they are", extra=facts(seconds=round(by / SECOND, 3)))
            for work in self._works.values():
                work.set_clock(by)

    # -- one autoscaler ------------------------------------------------------------------------------------------------

    def decide(self, work: Work) -> None:
        """Decide one autoscaler now, and begin what follows."""
        now = self._timeline.now()
        self._floors.follow(work, now)
        if work.violations:
            self._conclude(work, live.refuse(work.memory, str(work.violations[0]), now), None, now)
            return
        target = work.find_target()
        if isinstance(target, Unfound):
            self._miss(work, target, now)
            return
        circumstances = work.circumstances()
        if circumstances is None:
            return
        work.recognize(target.uid)
        change = self._notice(work, target, now)
        seen = work.observe(target, circumstances, now, self._clock.monotonic())
        if isinstance(seen, Unfound):
            return
        made = live.decide(work.prepared, seen.observation, work.memory, now, circumstances)
        if made.rescale:
            work.busy = True
            task = asyncio.create_task(self._write(work, seen, made, change, now), name=f"write {work.key}")
            self._writes.add(task)
            task.add_done_callback(self._writes.discard)
            return
        work.failures = 0
        if change is not None or not _waits(seen, made):
            self._keep(work, seen, made, change, now, "none")

    def _notice(self, work: Work, target: Target, now: int) -> Change | None:
        """Take notice of the count, and tell of a change that begins a pause."""
        look = Look(target.replicas, target.manager, target.since)
        work.memory, change = live.notice(work.prepared, work.memory, look, now, work.boost)
        if change is not None:
            work.attempted = None  # whatever became of it, that is past
            if change.by != writers.OWN:
                told = facts(autoscaler=str(work.key), replicas=target.replicas, manager=change.by)
                _log.info("somebody else has scaled the target", extra=told)
            if event := live.change_event(work.memory, change, target.replicas, work.boost):
                self._hands.event(work.object, event)
            if work.boost is not None and not work.busy:  # what is being written is settled, and shown then
                self._floors.show(work)
        return change

    def _miss(self, work: Work, why: Unfound, now: int) -> None:
        """Tell of a target that cannot be read; of one that is not known yet there is nothing to tell."""
        if why.known:
            memory = work.memory
            made = decision.without_scale(work.prepared, memory.status, why.message, memory.history, now)
            if work.boost is not None:
                made = msgspec.structs.replace(made, events=())  # the native controller tells of it itself
            self._conclude(work, made, None, now)

    def _keep(self, work: Work, seen: Seen, made: Decision, change: Change | None, now: int, outcome: str) -> None:
        """Remember a decision that is done, and tell of it."""
        work.memory, events = live.keep(work.memory, made, seen.observation, now, seen.circumstances)
        self._teller.tell(work, made, events, now)
        self._teller.note(work, seen, made, events, change, now, outcome)

    def _conclude(self, work: Work, made: Decision, seen: Seen | None, now: int) -> None:
        """Remember and tell of a decision that looked at nothing."""
        work.memory = msgspec.structs.replace(work.memory, status=made.status, history=made.history)
        self._teller.tell(work, made, made.events, now)
        self._teller.note(work, seen, made, made.events, None, now, "none")

    # -- writing -------------------------------------------------------------------------------------------------------

    async def _write(self, work: Work, seen: Seen, made: Decision, change: Change | None, now: int) -> None:
        """Write the count that was decided; where it had to wait, or somebody has written since, decide again first."""
        latest = [_Attempt(seen, made, now, work.prepared, work.moved, change)]
        started, aim, moved = self._clock.monotonic(), work.aim, work.moved
        floor, failure = None, ""

        def again(look: ScaleSeen) -> int | None:
            return self._decide_again(work, aim, look, latest)

        def current() -> int | None:
            return self._decide_late(work, aim, latest)

        try:
            if work.boost is not None:
                floor, failure = await self._floors.publish(work, seen, made, now)
            if failure:
                outcome = Outcome(error=failure)
            else:
                latest[0] = latest[0]._replace(most=None if work.boost is None else made.replicas)
                outcome = await self._hands.scale(work.key, seen.target, made.replicas, again, current)
            if not work.closed and work.aim == aim:
                held = _made_unsaid(work, seen, made) or outcome
                self._floors.settle(work, floor, work.moved - moved, latest[-1].made, held)
                self._end_write(work, latest[-1], outcome, started)
        except errors.NotLeadingError:
            pass  # whoever leads now decides, and that may be this process again
        except Exception:  # noqa: BLE001 - logged with its traceback
            self._note_defect(work)
            work.attempted = latest[-1].made.replicas
            if work.aim == aim:
                self._floors.settle(work, floor, work.moved - moved, latest[-1].made, Outcome(unknown=True))
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

    def _end_write(self, work: Work, attempt: _Attempt, outcome: Outcome, started: float) -> None:
        """Remember and tell what became of a write."""
        seen, made, now, change = attempt.seen, attempt.made, attempt.at, attempt.change
        if by := work.moved - attempt.moved:  # the clock was set meanwhile
            made = msgspec.structs.replace(made, history=histories.shifted(made.history, by))
            now += by
        work.attempted = made.replicas if outcome.unknown else None
        if outcome.error:
            work.failures += 1
            circumstances: Circumstances = seen.circumstances
            told = live.failed(attempt.prepared, seen.observation, work.memory, now, circumstances, outcome.error)
            self._keep(work, seen, told, change, now, "failed")
            return
        work.failures = 0
        if not made.rescale:
            if change is not None or not _waits(seen, made):
                self._keep(work, seen, made, change, now, "none")
        elif outcome.resource_version:
            work.written = Written(made.replicas, outcome.resource_version, seen.target.resource_version)
            self._teller.observe_stages(seen, now, self._clock.monotonic() - started)
            self._keep(work, seen, made, change, now, "written")

    def _decide_again(self, work: Work, aim: int, look: ScaleSeen, latest: list[_Attempt]) -> int | None:
        """Return what is to be written onto a scale that was read anew, None where nothing is."""
        if work.closed or work.aim != aim:
            return None
        before, tried = latest[-1].seen, latest[-1].made
        manager = before.target.manager
        if look.replicas != before.target.replicas:
            # what we tried to write was written by us, though nobody said so; any other count has another writer
            ours = {work.attempted, tried.replicas} if look.unsure else {work.attempted}
            manager = writers.OWN if look.replicas in ours else ""
            cached = work.find_target()
            if not isinstance(cached, Unfound) and cached.resource_version == look.resource_version:
                manager = cached.manager
            if work.boost is not None and not manager and look.replicas < before.target.replicas:
                most = work.object.spec.max_replicas
                if boosting.takes_back(work.memory.boost, look.replicas, work.prepared.band, most):
                    return None  # the caches will tell who it was: before that nobody is judged, or answered
        target = before.target._replace(
            replicas=look.replicas,
            status_replicas=look.status_replicas,
            selector=look.selector,
            resource_version=look.resource_version,
            manager=manager,
            uid=look.uid or before.target.uid,
        )
        work.recognize(target.uid)
        if work.aim != aim:
            return None  # another object has its name: it is decided from the beginning
        work.written = Written(look.replicas, look.resource_version, before.target.resource_version, manager)
        return self._decide_on(work, target, latest)

    def _decide_late(self, work: Work, aim: int, latest: list[_Attempt]) -> int | None:
        """Return what is to be written now that the turn of a write has come, None where nothing is.

        While it waited the spec may have changed, another autoscaler may have come, and values may have grown old.
        """
        if work.closed or work.aim != aim:
            return None
        attempt = latest[-1]
        is_fresh = abs(self._timeline.now() - attempt.at) < _FRESH and work.moved == attempt.moved
        if is_fresh and work.prepared is attempt.prepared and work.circumstances() == attempt.seen.circumstances:
            return attempt.made.replicas
        return self._decide_on(work, attempt.seen.target, latest)

    def _decide_on(self, work: Work, target: Target, latest: list[_Attempt]) -> int | None:
        """Decide once more, from a scale that is known, all else as it is now."""
        if work.violations:
            return None
        now = self._timeline.now()
        change = self._notice(work, target, now) or latest[-1].change
        circumstances = work.circumstances() or latest[-1].seen.circumstances
        seen = work.observe(target, circumstances, now, self._clock.monotonic())
        if isinstance(seen, Unfound):
            return None
        most = latest[-1].most
        prepared = work.prepared if most is None else boosting.capped(work.prepared, most)
        made = live.decide(prepared, seen.observation, work.memory, now, circumstances)
        latest.append(_Attempt(seen, made, now, work.prepared, work.moved, change, most))
        return made.replicas if made.rescale and (most is None or made.replicas <= most) else None


def _made_unsaid(work: Work, seen: Seen, made: Decision) -> Outcome | None:
    """Return what became of a write without an answer whose count a look has found there, by our name: it was made."""
    found = work.written
    if found is None or found.resource_version == seen.target.resource_version:
        return None  # nobody has looked
    if (found.manager, found.replicas) != (writers.OWN, made.replicas):
        return None
    return Outcome(found.resource_version, unknown=True)


def _waits(seen: Seen, made: Decision) -> bool:
    """Tell whether a decision came to nothing for want of an answer that is under way: of that there is nothing to tell."""
    return bool(made.error) and seen.waits
