"""What holds while metrics are absent: since when they are, what they asked for last, and how many replicas that is worth.

Here: when a fallback begins and ends, and the count it asks for. Not here: what is made of that count; `decide` takes it as
`Observation.fallback` and lets windows, policies and the maximum limit it like any other. Law: a fallback holds or raises, it never
shrinks; the metrics that are there may always ask for more. Times are nanoseconds on the clock of the decisions.

Around one decision:

    observation = replace(observation, fallback=fallback.replicas(rules, absence, now))
    made = decide(autoscaler, observation, history, now)
    absence, events = fallback.follow(rules, absence, made, now)
"""

from typing import NamedTuple

from adapter.autoscaler.decide.decision import Decision, Event
from adapter.model.autoscaling.fastpath_autoscaler import FLOOR, LAST_GOOD, Fallback
from adapter.model.timestamps import write_span

STARTED = "FallbackStarted"
ENDED = "FallbackEnded"

_SECOND = 1_000_000_000


class Absence(NamedTuple):
    """What is remembered of the metrics of one autoscaler from one decision to the next.

    `since` is when a decision first missed a metric that is missed ever since, None while none is. `last_good` is what the metrics
    asked for, before anything limited it, when last all of them had a value; None where that never was. `active` says that the
    beginning of the fallback was told and its end was not.
    """

    since: int | None = None
    last_good: int | None = None
    active: bool = False


NOTHING_ABSENT = Absence()


def replicas(rules: Fallback | None, absence: Absence, now: int) -> int:
    """Return how many replicas the fallback asks for at least, should a metric be absent now; 0 where it asks for none."""
    if rules is None or not _in_force(rules, absence, now):
        return 0
    if rules.type == FLOOR:
        return rules.replicas or 0
    if rules.type == LAST_GOOD:
        return absence.last_good or 0
    return 0


def follow(
    rules: Fallback | None, absence: Absence, made: Decision, now: int
) -> tuple[Absence, tuple[Event, ...]]:
    """Return what is remembered after a decision, and the events of a beginning or an end.

    A decision that failed or was made before any metric was looked at says nothing about them; one that had no use for them (paused,
    at a zero of somebody else) ends the absence: it begins anew when they are looked at again.
    """
    since, last_good = absence.since, absence.last_good
    if made.absent is None:
        if made.rescale or made.error:
            return absence, ()
        since = None
    elif made.absent:
        since = now if since is None else min(since, now)
    else:
        since, last_good = None, made.wanted
    after = Absence(since, last_good, absence.active)
    is_active = rules is not None and _in_force(rules, after, now)
    if is_active == absence.active:
        return after, ()
    event = _start(rules, after, made, now) if rules and is_active else _end(rules, absence, made, now)
    return after._replace(active=is_active), (event,)


def shifted(absence: Absence, by: int) -> Absence:
    """Return what is remembered on a clock that was set forward by so many nanoseconds: ages stay what they are."""
    return absence if absence.since is None else absence._replace(since=absence.since + by)


def _in_force(rules: Fallback, absence: Absence, now: int) -> bool:
    """Tell whether metrics have been absent for long enough, and not for longer than the last good count is kept."""
    if absence.since is None:
        return False
    age = now - absence.since - rules.after
    if rules.type != LAST_GOOD:
        return age >= 0
    return absence.last_good is not None and 0 <= age < (rules.last_good_for or 0)


def _start(rules: Fallback, absence: Absence, made: Decision, now: int) -> Event:
    what = {
        FLOOR: f"at least {rules.replicas} replicas are kept",
        LAST_GOOD: f"at least {absence.last_good} replicas, asked for last, are kept for {write_span(rules.last_good_for or 0)}",
    }.get(rules.type, "the replicas are kept as they are")
    names = ", ".join(made.absent or ())
    return Event(
        "Warning", STARTED, f"no value for {_age(absence, now)}: {names}; {what} or raised, never lowered"
    )


def _end(rules: Fallback | None, before: Absence, made: Decision, now: int) -> Event:
    if rules is None:
        return Event("Normal", ENDED, "spec.fallback was removed")
    if made.absent:
        kept = write_span(rules.last_good_for or 0)
        return Event(
            "Warning", ENDED, f"the last good count was kept for {kept}: the replicas stay as they are"
        )
    if made.absent is None:
        return Event("Normal", ENDED, "metrics are not looked at now")
    return Event("Normal", ENDED, f"metrics have values again after {_age(before, now)}")


def _age(absence: Absence, now: int) -> str:
    """Return how long metrics have been absent, in whole seconds."""
    since = now if absence.since is None else absence.since
    return write_span((now - since) // _SECOND * _SECOND)
