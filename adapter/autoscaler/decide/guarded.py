"""A decision as it is made beside others: `decide`, and when what it says is not to be done.

Here: pauses, advice, other autoscalers and other writers of the same target, zero that is not ours. Not here: the arithmetic, which is
`decide`'s and stays upstream's, and who does what was decided. Law: nothing here makes a count; it only withholds one.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide import boost as boosting
from adapter.autoscaler.decide import conflicts as writing
from adapter.autoscaler.decide import decision, fallback
from adapter.autoscaler.decide import history as histories
from adapter.autoscaler.decide.autoscaler import Autoscaler
from adapter.autoscaler.decide.boost import Boost, Boosting
from adapter.autoscaler.decide.conflicts import OWN, Change, Writers
from adapter.autoscaler.decide.decision import Decision, Event
from adapter.autoscaler.decide.fallback import NOTHING_ABSENT, Absence
from adapter.autoscaler.decide.history import Events, History, Queued
from adapter.autoscaler.decide.observation import NO_STATUS, Observation
from adapter.autoscaler.decide.trace import Step
from adapter.model.autoscaling import conditions
from adapter.model.autoscaling.conditions import ABLE_TO_SCALE, SCALED_TO_ZERO, SCALING_ACTIVE, Conditions
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE, AUTO, BOOST, PAUSED, Fallback
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus
from adapter.model.timestamps import SECOND, Instant, read_instant

FOREIGN_AUTOSCALER, FOREIGN_WRITER = "ForeignAutoscaler", "ForeignWriter"

_DONE = frozenset({"SuccessfulRescale", "FailedRescale", FOREIGN_AUTOSCALER})
"""Reasons of events that are told beside a native autoscaler, which tells of all else itself."""

_INVALID_SPEC = "InvalidSpec"
_UNSEEN = frozenset({"FailedGetScale", _INVALID_SPEC})
"""Reasons of syncs that do not look at the count."""


class Circumstances(NamedTuple):
    """What stands beside the observation: the mode, other autoscalers of the target by kind and name, the rules for absent metrics.

    `boost` is None for autoscalers of our own, whose targets nobody else scales.
    """

    mode: str = AUTO
    rivals: tuple[str, ...] = ()
    fallback: Fallback | None = None
    boost: Boost | None = None


class Look(NamedTuple):
    """A count as it is seen, the field manager that owns it, and when that wrote it; both "" where they are not known."""

    replicas: int
    manager: str = ""
    since: str = ""


class Memory(msgspec.Struct, frozen=True):
    """All that is remembered of one autoscaler from one sync to the next, its status included."""

    status: HorizontalPodAutoscalerStatus = NO_STATUS
    history: History = History(Queued())
    writers: Writers = Writers()
    absence: Absence = NOTHING_ABSENT
    boost: Boosting = boosting.NOTHING


def remember(status: HorizontalPodAutoscalerStatus, ups: Events = (), downs: Events = ()) -> Memory:
    """Return what is known of an autoscaler from its object alone, as after a start or a change of leader.

    Recommendations are not kept: nothing shrinks for one window. Scale events are: no policy is exceeded by a change of leader.
    """
    own_zero = conditions.holds(status.conditions, SCALED_TO_ZERO)
    return Memory(status, History(Queued(), ups, downs), Writers(own_zero=own_zero))


def notice(
    autoscaler: Autoscaler, memory: Memory, look: Look, now: int, boost: Boost | None = None
) -> tuple[Memory, Change | None]:
    """Return the memory after a look at the count, and the change that it shows; every change counts in the policies.

    At the first look the floor that a leader before has published, else the status, tells what the count was. Where there is neither and
    the count is ours, it may be a raise from the minimum, made when the count was written.
    Beside a native autoscaler a change takes back what is held and not what was written last, and ends in advice, not in a pause. At zero
    nothing is held: whoever reads a floor there would leave zero by it.
    """
    floor = memory.boost.floor
    if floor is not None and not floor.stands and (look.replicas, look.manager) == (floor.replicas, OWN):
        floor = msgspec.structs.replace(floor, stands=True)  # nobody said so, but there it is
        memory = msgspec.structs.replace(memory, boost=msgspec.structs.replace(memory.boost, floor=floor))
    memory, change = _see(autoscaler, memory, look, now, boost)
    floor = memory.boost.floor
    if floor is not None and look.replicas == 0:
        memory = msgspec.structs.replace(memory, boost=msgspec.structs.replace(memory.boost, floor=None))
    elif (
        floor is not None
        and floor.stands
        and boosting.takes_back(memory.boost, look.replicas, autoscaler.band)
    ):
        # taken back by nobody, for the maximum is lower: nor is it for whoever leads next, when that is as it was
        floor = msgspec.structs.replace(floor, stands=False)
        memory = msgspec.structs.replace(memory, boost=msgspec.structs.replace(memory.boost, floor=floor))
    return memory, change


def _see(
    autoscaler: Autoscaler, memory: Memory, look: Look, now: int, boost: Boost | None
) -> tuple[Memory, Change | None]:
    replicas, manager = look.replicas, look.manager
    at, assumed = now, False
    if memory.writers.known is None and replicas:
        memory, assumed = _recall(autoscaler, memory, look)
        at = _written_at(look.since, now) if assumed else now
    seen = writing.seen(memory.writers, replicas, manager, now)
    if seen.change is None:
        if seen.writers is memory.writers:
            return memory, None
        return msgspec.structs.replace(memory, writers=seen.writers), None
    history = histories.with_change(
        memory.history, seen.change.replicas, at, _periods(autoscaler), assumed=assumed
    )
    memory, change = msgspec.structs.replace(memory, history=history, writers=seen.writers), seen.change
    if boost is None or change.by == OWN:
        return memory, change
    if change.replicas > 0:
        return memory, change  # a raise takes nothing back, though it be to less than the floor
    most = autoscaler.limits.highest
    boosted, reversal = boosting.judge(
        memory.boost, replicas, change.by, boost, autoscaler.band, now, most=most
    )
    change = change._replace(reverses=reversal.counted, starts_pause=reversal.demotes)
    return msgspec.structs.replace(memory, boost=boosted), change


def _recall(autoscaler: Autoscaler, memory: Memory, look: Look) -> tuple[Memory, bool]:
    """Return the memory with the count that there was before the first look, and whether that is only assumed."""
    floor, history, assumed = memory.boost.floor, memory.history, False
    if floor is not None and floor.stands:
        count: int | None = floor.replicas
        history = histories.with_change(
            history, floor.added + floor.replicas - floor.before, floor.at, _periods(autoscaler)
        )
    else:
        count = _count_after(memory.status)
        assumed = count is None and look.manager == OWN
        count = min(look.replicas, autoscaler.limits.lowest) if assumed else count
    writers = msgspec.structs.replace(memory.writers, known=count)
    return msgspec.structs.replace(memory, history=history, writers=writers), assumed


def _periods(autoscaler: Autoscaler) -> tuple[int, int]:
    """Return the longest periods of the policies up and down."""
    up, down = autoscaler.up, autoscaler.down
    return up.longest_period if up else 0, down.longest_period if down else 0


def _written_at(since: str, now: int) -> int:
    """Return when a count was written at the latest, as its object tells to the second; `now` where it does not."""
    try:
        return min(now, read_instant(since) + SECOND)
    except ValueError:
        return now


def change_event(memory: Memory, change: Change, replicas: int, boost: Boost | None) -> Event | None:
    """Return the event that tells of a change of the count to `replicas`, None where there is nothing to tell."""
    if boost is None:
        return foreign_writer_event(memory.writers) if change.starts_pause else None
    if not change.reverses:
        return None
    return boosting.reversal_event(
        change.by, replicas - change.replicas, replicas, demotes=change.starts_pause
    )


def keep(
    memory: Memory, made: Decision, observation: Observation, now: int, circumstances: Circumstances
) -> tuple[Memory, tuple[Event, ...]]:
    """Return the memory after a decision whose count, if it has one to write, was written; and the events of it all."""
    writers, boost = memory.writers, circumstances.boost
    if made.rescale:
        writers = writing.wrote(writers, observation.replicas, made.replicas)
    if boost is not None:
        return _keep_beside(
            memory, made, msgspec.structs.replace(writers, ours=None), observation, now, boost
        )
    if circumstances.fallback is None and not memory.absence.active:
        return Memory(made.status, made.history, writers), made.events
    absence, told = fallback.follow(circumstances.fallback, memory.absence, made, now)
    return Memory(made.status, made.history, writers, absence), (*made.events, *told)


def _keep_beside(
    memory: Memory, made: Decision, writers: Writers, observation: Observation, now: int, boost: Boost
) -> tuple[Memory, tuple[Event, ...]]:
    """Return the memory after a decision beside a native autoscaler, and its events: only what was done, and advice."""
    boosted, events = memory.boost, tuple(event for event in made.events if event.reason in _DONE)
    if boosting.only_advised(boosted, boost, now):
        # without values there is no advice: the status keeps what was wanted before
        has_values = not any(
            each.type == SCALING_ACTIVE and each.status == "False" for each in made.status.conditions or ()
        )
        recommended = made.status.desired_replicas if has_values else observation.replicas
        boosted, advice = boosting.advise(boosted, recommended, observation.replicas, boost, now)
        events = events if advice is None else (*events, advice)
    return Memory(made.status, made.history, writers, boost=boosted), events


def spec_changed(memory: Memory) -> Memory:
    """Return the memory after a change of the spec: pauses begin anew, nothing else is forgotten."""
    return msgspec.structs.replace(memory, writers=writing.spec_changed(memory.writers))


def shifted(memory: Memory, by: int) -> Memory:
    """Return the memory on a clock that was set forward by so many nanoseconds (back where negative)."""
    return Memory(
        memory.status,
        histories.shifted(memory.history, by),
        writing.shifted(memory.writers, by),
        fallback.shifted(memory.absence, by),
        boosting.shifted(memory.boost, by),
    )


def decide(
    autoscaler: Autoscaler, observation: Observation, memory: Memory, now: int, circumstances: Circumstances
) -> Decision:
    """Decide what one sync does and may do, at `now` nanoseconds; the status of the observation is that of the memory."""
    mode, rivals, rules, boost = circumstances
    history, writers = memory.history, memory.writers
    least = fallback.replicas(rules, memory.absence, now) if rules is not None else 0
    if least or observation.status is not memory.status:
        observation = msgspec.structs.replace(observation, status=memory.status, fallback=least)
    if mode == PAUSED:
        text = "scaling is paused by spec.mode"
        return _stand_back(observation, history, now, SCALING_ACTIVE, "ScalingPaused", text)
    if rivals:
        text = f"the target is scaled by {', '.join(rivals)} too: nothing is written while that is so"
        return _stand_back(observation, history, now, ABLE_TO_SCALE, FOREIGN_AUTOSCALER, text)
    seen = _with_true_zero(observation, writers, now)
    if mode == BOOST:
        seen = msgspec.structs.replace(seen, readings=boosting.fresh(seen.readings))
    made = decision.decide(autoscaler, seen, history, now)
    if observation.replicas == 0 and made.absent is None:
        # at a zero of somebody else nothing is looked at either
        made = msgspec.structs.replace(made, history=History(Queued(), history.ups, history.downs))
    if writers.is_paused(now):
        seconds = writers.pause // SECOND
        text = f"{writers.paused_by} takes back what is scaled here: nothing is written for {seconds} s"
        return _withhold(made, seen, history, now, FOREIGN_WRITER, text)
    if boost is not None:
        why = boosting.refusal(made, seen, memory.boost, boost, autoscaler.band, now) if made.rescale else ""
        return _withhold(made, seen, history, now, boosting.NOT_BOOSTED, why) if why else made
    if mode == ADVISE and made.rescale:
        text = f"the size would become {made.replicas}: spec.mode is Advise"
        return _withhold(made, seen, history, now, "AdviseOnly", text)
    return made


def failed(
    autoscaler: Autoscaler,
    observation: Observation,
    memory: Memory,
    now: int,
    circumstances: Circumstances,
    why: str,
) -> Decision:
    """Return what the same sync comes to when its count could not be written."""
    return decide(
        autoscaler, msgspec.structs.replace(observation, write_error=why), memory, now, circumstances
    )


def foreign_writer_event(writers: Writers) -> Event:
    """Return the event that tells of the beginning of a pause."""
    seconds = writers.pause // SECOND
    text = f"{writers.paused_by} took back the replicas set here twice in 5 minutes: nothing is written for {seconds} s"
    return Event("Warning", FOREIGN_WRITER, text)


def refuse(memory: Memory, why: str, now: int) -> Decision:
    """Return what a sync comes to whose autoscaler cannot be valid: nothing is looked at."""
    observation = Observation(memory.status.current_replicas, 0, "", (), ())
    observation = msgspec.structs.replace(observation, status=memory.status)
    return _stand_back(observation, memory.history, now, ABLE_TO_SCALE, _INVALID_SPEC, why)


def _count_after(status: HorizontalPodAutoscalerStatus) -> int | None:
    """Return the count that a target had after the sync that wrote a status: what was wanted, unless that was not done.

    None where no sync has seen a count yet.
    """
    if not status.conditions:
        return None
    if status.current_replicas == 0 and any(each.reason in _UNSEEN for each in status.conditions):
        return None
    if any(each.type == ABLE_TO_SCALE and each.reason == "SucceededRescale" for each in status.conditions):
        return (
            status.desired_replicas
        )  # though no metric may have had a value: bounds and fallbacks need none
    done = {each.type: each.status == "True" for each in status.conditions}
    is_done = done.get(ABLE_TO_SCALE, False) and done.get(SCALING_ACTIVE, True)
    return status.desired_replicas if is_done else status.current_replicas


def _with_true_zero(observation: Observation, writers: Writers, now: int) -> Observation:
    """Return the observation with the condition ScaledToZero as it is true: only a zero of our own is one."""
    status, is_own = observation.status, writers.own_zero
    if conditions.holds(status.conditions, SCALED_TO_ZERO) == is_own:
        return observation
    found = Conditions(status.conditions or (), now)
    found.set(SCALED_TO_ZERO, holds=is_own, reason="ScaledToZero" if is_own else "NotScaledToZero")
    return msgspec.structs.replace(
        observation, status=msgspec.structs.replace(status, conditions=found.listed())
    )


def _stand_back(
    observation: Observation, history: History, now: int, kind: str, reason: str, message: str
) -> Decision:
    """Return a decision that changes nothing and says why. It is told as an event when it begins."""
    before, current = observation.status, observation.replicas
    found = Conditions(before.conditions or (), now)
    found.set(kind, holds=False, reason=reason, message=message)
    status = HorizontalPodAutoscalerStatus(
        last_scale_time=before.last_scale_time,
        current_replicas=current,
        desired_replicas=current,
        conditions=found.listed(),
    )
    # whoever stood back knows no more of the past than after a start: when it goes on, nothing shrinks for one window
    history = History(Queued(), history.ups, history.downs)
    return Decision(
        current,
        rescale=False,
        reason="",
        status=status,
        status_changed=not conditions.same_status(before, status),
        events=() if _says(before.conditions or (), kind, reason) else (Event("Warning", reason, message),),
        error="",
        history=history,
        trace=(Step("withheld", {"replicas": current, "current": current, "message": message}),),
    )


def _withhold(
    made: Decision, observation: Observation, history: History, now: int, reason: str, message: str
) -> Decision:
    """Return a decision as it stands when its count is not written: the past has no new scale event, the target its old count."""
    before, current = observation.status, observation.replicas
    found = Conditions(made.status.conditions or (), now)
    found.set(ABLE_TO_SCALE, holds=False, reason=reason, message=message)
    zero = next((each for each in before.conditions or () if each.type == SCALED_TO_ZERO), None)
    if zero is None:
        found.remove(SCALED_TO_ZERO)
    else:
        found.set(SCALED_TO_ZERO, holds=zero.status == "True", reason=zero.reason, message=zero.message)
    status = msgspec.structs.replace(
        made.status,
        last_scale_time=before.last_scale_time,
        conditions=_keeping_times(found.listed(), before.conditions or (), Instant(now)),
    )
    events = tuple(
        event for event in made.events if event.reason not in {"SuccessfulRescale", "FailedRescale"}
    )
    return Decision(
        current,
        rescale=False,
        reason=made.reason,
        status=status,
        status_changed=not conditions.same_status(before, status),
        events=events,
        error=made.error,
        history=History(made.history.recommendations, history.ups, history.downs),
        trace=(
            *made.trace,
            Step("withheld", {"replicas": made.replicas, "current": current, "message": message}),
        ),
        absent=made.absent,
        wanted=made.wanted,
    )


def _keeping_times(
    listed: Sequence[Condition], before: Sequence[Condition], now: Instant
) -> tuple[Condition, ...]:
    """Return conditions with the times of those before where the status is the same: one set twice in a sync went there and back."""
    old = {each.type: each for each in before}
    kept = []
    for each in listed:
        earlier = old.get(each.type)
        since = earlier.last_transition_time if earlier is not None and earlier.status == each.status else now
        kept.append(msgspec.structs.replace(each, last_transition_time=since))
    return tuple(kept)


def _says(listed: Sequence[Condition], kind: str, reason: str) -> bool:
    return any(each.type == kind and each.reason == reason for each in listed)
