"""The fallback for absent metrics (spec.fallback): when it starts and ends, and what it asks for.

`replicas` is that count before a decision, for `Sync.fallback`; windows, policies and maxReplicas apply to
it. `follow` notes the result. A fallback keeps or raises the replicas and never lowers them, and the metrics
that have values may ask for more.
"""

from typing import NamedTuple

from adapter.autoscaler.decide.sync import Decision, Event
from adapter.model.autoscaling.fastpath_autoscaler import FLOOR, LAST_GOOD, Fallback
from adapter.model.timestamps import SECOND, write_span

STARTED = "FallbackStarted"
ENDED = "FallbackEnded"


class Absence(NamedTuple):
    """What is remembered of absent metrics from one decision to the next.

    `since` is the first decision without a metric, None while none is absent. `last_good` is what the metrics
    asked for, before limits, when all of them last had a value; None if they never had. `active` says that
    the start of the fallback was reported, and its end was not.
    """

    since: int | None = None
    last_good: int | None = None
    active: bool = False


NOTHING_ABSENT = Absence()


def replicas(rules: Fallback, absence: Absence, now: int) -> int:
    """Return the least replicas if a metric is absent now; 0 while no fallback is in force."""
    if not _in_force(rules, absence, now):
        return 0
    return {FLOOR: rules.replicas, LAST_GOOD: absence.last_good}.get(rules.type) or 0


def follow(
    rules: Fallback | None, absence: Absence, decision: Decision, now: int
) -> tuple[Absence, tuple[Event, ...]]:
    """Return what is remembered after a decision, and an event if the fallback has started or ended.

    A decision that failed before it computed a metric changes nothing. One that needs no metric (paused, or
    at a zero that another client set) ends the absence, which starts over when metrics are computed again.
    """
    since, last_good = absence.since, absence.last_good
    if decision.absent is None:
        if decision.rescale or decision.error:
            return absence, ()
        since = None
    elif decision.absent:
        since = now if since is None else since
    else:
        since, last_good = None, decision.wanted
    after = Absence(since, last_good, absence.active)
    is_active = rules is not None and _in_force(rules, after, now)
    if is_active == absence.active:
        return after, ()
    absent = decision.absent
    event = _start(rules, after, absent, now) if rules and is_active else _end(rules, absence, absent, now)
    return after._replace(active=is_active), (event,)


def _in_force(rules: Fallback, absence: Absence, now: int) -> bool:
    """Tell whether metrics have been absent for `after`, and a LastGood count has not expired."""
    if absence.since is None:
        return False
    age = now - absence.since - rules.after
    if rules.type != LAST_GOOD:
        return age >= 0
    return absence.last_good is not None and 0 <= age < (rules.last_good_for or 0)


def _start(rules: Fallback, absence: Absence, absent: tuple[str, ...] | None, now: int) -> Event:
    what = "keeping the current replicas"
    if rules.type == FLOOR:
        what = f"keeping at least {rules.replicas} replicas"
    elif rules.type == LAST_GOOD:
        kept = write_span(rules.last_good_for or 0)
        what = f"keeping at least the last good {absence.last_good} replicas for {kept}"
    text = f"no value for {_age(absence, now)}: {', '.join(absent or ())}; {what}; scale-down is blocked"
    return Event("Warning", STARTED, text)


def _end(rules: Fallback | None, before: Absence, absent: tuple[str, ...] | None, now: int) -> Event:
    if rules is None:
        return Event("Normal", ENDED, "spec.fallback was removed")
    if absent:
        kept = write_span(rules.last_good_for or 0)
        text = f"the last good count expired after {kept}; keeping the current replicas"
        return Event("Warning", ENDED, text)
    if absent is None:
        return Event("Normal", ENDED, "metrics are not in use now")
    return Event("Normal", ENDED, f"all metrics have values again after {_age(before, now)}")


def _age(absence: Absence, now: int) -> str:
    """Return how long metrics have been absent, in whole seconds."""
    since = now if absence.since is None else absence.since
    return write_span((now - since) // SECOND * SECOND)
