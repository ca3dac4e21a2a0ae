"""A decision written: published first where a floor is to hold it, decided again where time or somebody else came between.

Here: from a decision to what became of its write. Not here: when an autoscaler is decided (`loop`), the wire (`seams.Hands`). Law: what is
written is right when its turn has come, and for the state that it is written onto.
"""

from collections.abc import Callable

import msgspec

from adapter import errors
from adapter.autoscaler.clock import Timeline
from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide import conflicts, guarded
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.deciding import Attempt, Decider
from adapter.autoscaler.floor_keeper import FloorKeeper
from adapter.autoscaler.interfaces import Hands, Outcome, ScaleSeen, Target, Unfound
from adapter.autoscaler.reporter import Teller
from adapter.autoscaler.state import Seen, Work, Written
from adapter.model.clock import Clock
from adapter.model.timestamps import SECOND

_FRESH = SECOND // 20
"""A decision whose write has waited for longer is made again when its turn has come."""


class Writing:
    """Writes decisions. `note_defect` is told of an autoscaler whose write ended in an error that nobody expected."""

    def __init__(
        self,
        decider: Decider,
        hands: Hands,
        floors: FloorKeeper,
        teller: Teller,
        clock: Clock,
        timeline: Timeline,
        note_defect: Callable[[Work], None],
    ) -> None:
        self._decider = decider
        self._hands = hands
        self._floors = floors
        self._teller = teller
        self._clock = clock
        self._timeline = timeline
        self._note_defect = note_defect

    async def write(self, work: Work, attempt: Attempt) -> None:
        """Write the count that was decided; where it had to wait, or somebody has written since, decide again first."""
        seen, made, now = attempt.seen, attempt.made, attempt.at
        latest = [attempt]
        started, aim, moved = self._clock.monotonic(), work.aim, work.moved
        floor, failure = None, ""
        sent: list[int] = []

        def again(look: ScaleSeen) -> int | None:
            return self._decide_again(work, aim, look, latest)

        def current() -> int | None:
            count = self._decide_late(work, aim, latest)
            if count is not None:
                sent.append(count)
            return count

        try:
            if work.boost is not None:
                floor, failure = await self._floors.publish(work, seen, made, now)
            if failure:
                outcome = Outcome(error=failure)
            else:
                latest[0] = latest[0]._replace(most=None if work.boost is None else made.replicas)
                outcome = await self._hands.scale(work.key, seen.target, made.replicas, again, current)
            if not work.closed and work.aim == aim:
                sent = sent or [made.replicas]
                is_last = (
                    bool(outcome.resource_version) or outcome.unknown
                )  # of several writes the last is held
                unsaid = None if is_last else _found_made(work, seen, sent)
                held = outcome if unsaid is None else Outcome(unsaid.resource_version)
                replicas = latest[-1].made.replicas if unsaid is None else unsaid.replicas
                self._floors.settle(
                    work, floor, work.moved - moved, max(sent) if held.unknown else replicas, held
                )
                self._end(work, latest[-1], outcome, started)
        except errors.NotLeadingError:
            pass  # whoever leads now decides, and that may be this process again
        except Exception:  # noqa: BLE001 - logged with its traceback
            self._note_defect(work)
            work.attempted = latest[-1].made.replicas
            if work.aim == aim:
                count = max(sent, default=made.replicas)
                self._floors.settle(work, floor, work.moved - moved, count, Outcome(unknown=True))

    def _end(self, work: Work, attempt: Attempt, outcome: Outcome, started: float) -> None:
        """Remember and tell what became of a write."""
        seen, made, now = attempt.seen, attempt.made, attempt.at
        if by := work.moved - attempt.moved:  # the clock was set meanwhile
            made = msgspec.structs.replace(made, history=histories.shifted(made.history, by))
            now += by
        work.attempted = made.replicas if outcome.unknown else None
        if outcome.error:
            work.failures += 1
            told = guarded.failed(
                attempt.prepared, seen.observation, work.memory, now, seen.circumstances, outcome.error
            )
            self._decider.keep(work, attempt, told, now, "failed")
            return
        work.failures = 0
        if not made.rescale:
            self._decider.keep_unwritten(work, attempt._replace(made=made), now)
        elif outcome.resource_version:
            work.written = Written(made.replicas, outcome.resource_version, seen.target.resource_version)
            self._teller.observe_stages(seen, now, self._clock.monotonic() - started)
            self._decider.keep(work, attempt, made, now, "written")

    def _decide_again(self, work: Work, aim: int, look: ScaleSeen, latest: list[Attempt]) -> int | None:
        """Return what is to be written onto a scale that was read anew, None where nothing is."""
        if work.closed or work.aim != aim:
            return None
        before, tried = latest[-1].seen, latest[-1].made
        manager = before.target.manager
        if look.replicas != before.target.replicas:
            # what we tried to write was written by us, though nobody said so; any other count has another writer
            ours = {work.attempted, tried.replicas} if look.unsure else {work.attempted}
            manager = conflicts.OWN if look.replicas in ours else ""
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

    def _decide_late(self, work: Work, aim: int, latest: list[Attempt]) -> int | None:
        """Return what is to be written now that the turn of a write has come, None where nothing is.

        While it waited the spec may have changed, another autoscaler may have come, and values may have grown old.
        """
        if work.closed or work.aim != aim:
            return None
        attempt = latest[-1]
        is_fresh = abs(self._timeline.now() - attempt.at) < _FRESH and work.moved == attempt.moved
        if (
            is_fresh
            and work.prepared is attempt.prepared
            and work.circumstances() == attempt.seen.circumstances
        ):
            return attempt.made.replicas
        return self._decide_on(work, attempt.seen.target, latest)

    def _decide_on(self, work: Work, target: Target, latest: list[Attempt]) -> int | None:
        """Decide once more, from a scale that is known, all else as it is now."""
        if work.violations:
            return None
        circumstances, most = work.circumstances() or latest[-1].seen.circumstances, latest[-1].most
        attempt = self._decider.attempt(
            work, target, circumstances, self._timeline.now(), before=latest[-1].change, most=most
        )
        if attempt is None:
            return None
        latest.append(attempt)
        made = attempt.made
        return made.replicas if made.rescale and (most is None or made.replicas <= most) else None


def _found_made(work: Work, seen: Seen, sent: list[int]) -> Written | None:
    """Return what the look after a write without an answer has found by our name, where that was sent: then it was made."""
    found = work.written
    if (
        found is None
        or found.resource_version == seen.target.resource_version
        or found.manager != conflicts.OWN
    ):
        return None  # nobody has looked, or somebody else has written
    return found if found.replicas in sent else None
