"""One autoscaler decided: what is seen, what follows from it, what is remembered and told of it.

Here: from an autoscaler at work to what is to be written, and the end of a decision that writes nothing. Not here: when (`loop`), what is
decided (`autoscaler.decide.guarded`), from what (`work`), writing (`writing`). Law: deciding never waits.
"""

import logging
from typing import NamedTuple

import msgspec

from adapter.autoscaler.clock import Timeline
from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide import conflicts, decision, guarded
from adapter.autoscaler.decide.autoscaler import Autoscaler
from adapter.autoscaler.decide.conflicts import Change
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.guarded import Circumstances, Look
from adapter.autoscaler.floor_keeper import FloorKeeper
from adapter.autoscaler.interfaces import Hands, Target, Unfound
from adapter.autoscaler.reporter import Teller
from adapter.autoscaler.state import Seen, Work
from adapter.model.clock import Clock
from adapter.telemetry.logs import facts

_log = logging.getLogger(__name__)


class Attempt(NamedTuple):
    """A decision that is to be written: when it was made, with which spec, and how the clock stood."""

    seen: Seen
    made: Decision
    at: int
    prepared: Autoscaler
    moved: int
    change: Change | None
    """What somebody else was seen to have changed before it."""
    most: int | None = None
    """What may be written at most, because no more is published; None where nothing has to be."""


class Decider:
    """Decides autoscalers, each by itself."""

    def __init__(
        self, hands: Hands, floors: FloorKeeper, teller: Teller, clock: Clock, timeline: Timeline
    ) -> None:
        self._hands = hands
        self._floors = floors
        self._teller = teller
        self._clock = clock
        self._timeline = timeline

    def decide(self, work: Work) -> Attempt | None:
        """Decide one autoscaler now; return what is to be written, None where nothing is: then the decision is told of already."""
        now = self._timeline.now()
        self._floors.follow(work, now)
        if work.violations:
            self._conclude(work, guarded.refuse(work.memory, str(work.violations[0]), now), now)
            return None
        target = work.find_target()
        if isinstance(target, Unfound):
            self._miss(work, target, now)
            return None
        circumstances = work.circumstances()
        if circumstances is None:
            return None
        work.recognize(target.uid)
        attempt = self.attempt(work, target, circumstances, now)
        if attempt is None:
            return None
        if attempt.made.rescale:
            return attempt
        work.failures = 0
        self.keep_unwritten(work, attempt, now)
        return None

    def attempt(
        self,
        work: Work,
        target: Target,
        circumstances: Circumstances,
        now: int,
        *,
        before: Change | None = None,
        most: int | None = None,
    ) -> Attempt | None:
        """Return what a target comes to at `now`, at most so many replicas; None while there is nothing to be seen.

        `before` is what was seen to have changed already.
        """
        change = self._notice(work, target, now) or before
        seen = work.observe(target, circumstances, now, self._clock.monotonic())
        if isinstance(seen, Unfound):
            return None
        prepared = work.prepared if most is None else boosting.capped(work.prepared, most)
        made = guarded.decide(prepared, seen.observation, work.memory, now, circumstances)
        return Attempt(seen, made, now, work.prepared, work.moved, change, most)

    def keep_unwritten(self, work: Work, attempt: Attempt, now: int) -> None:
        """Remember a decision that writes nothing; one that only waits for an answer is told of when that is there."""
        if attempt.change is not None or not _waits(attempt.seen, attempt.made):
            self.keep(work, attempt, attempt.made, now, "none")

    def keep(self, work: Work, attempt: Attempt, made: Decision, now: int, outcome: str) -> None:
        """Remember a decision that is done, and tell of it."""
        seen, change = attempt.seen, attempt.change
        work.memory, events = guarded.keep(work.memory, made, seen.observation, now, seen.circumstances)
        self._teller.tell(work, made, events, now)
        self._teller.note(work, seen, made, events, change, now, outcome)

    def _notice(self, work: Work, target: Target, now: int) -> Change | None:
        """Take notice of the count, and tell of a change that begins a pause."""
        look = Look(target.replicas, target.manager, target.since)
        work.memory, change = guarded.notice(work.prepared, work.memory, look, now, work.boost)
        if change is not None:
            work.attempted = None  # whatever became of it, that is past
            if change.by != conflicts.OWN:
                told = facts(autoscaler=str(work.key), replicas=target.replicas, manager=change.by)
                _log.info("somebody else has scaled the target", extra=told)
            if event := guarded.change_event(work.memory, change, target.replicas, work.boost):
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
            self._conclude(work, made, now)

    def _conclude(self, work: Work, made: Decision, now: int) -> None:
        """Remember and tell of a decision that looked at nothing."""
        work.memory = msgspec.structs.replace(work.memory, status=made.status, history=made.history)
        self._teller.tell(work, made, made.events, now)
        self._teller.note(work, None, made, made.events, None, now, "none")


def _waits(seen: Seen, made: Decision) -> bool:
    """Tell whether a decision came to nothing for want of an answer that is under way: of that there is nothing to tell."""
    return bool(made.error) and seen.waits
