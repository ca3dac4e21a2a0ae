"""Boosting a HorizontalPodAutoscaler: raises beside it, the floor that holds them, and when it is left alone.

Here: which decision may be done, the life of a floor, who has taken back what. Not here: any count (`decide`'s), publishing the floor
(`boost.view`), asking for it (`boost.model`). Law: a value goes in, a value comes out. Nothing is ever lowered, nothing is raised
at or to zero, or by a value that is not fresh. A floor begins with a raise and is 0 again once the autoscaler has shown it and `hold`
has passed, and at zero. Whoever takes back two raises within five minutes is right: then there is only advice, for an hour or until spec
or annotations are others.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide.autoscaler import Autoscaler
from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.decision import Decision, Event
from adapter.autoscaler.decide.observation import Band, Observation, Reading, Unavailable
from adapter.boost import floor as floors
from adapter.boost.floor import Demotion, FloorEntry
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.timestamps import SECOND, FineInstant, Span

NATIVE = frozenset({"kube-controller-manager", "k3s", "kubelite"})
"""The field managers of the native autoscaler: its own process, and those of k3s and MicroK8s, which run it inside another."""

LONGEST = floors.LONGEST
"""The end of every floor, shown or not."""

MOST = 2**31 - 1
LEAST_HOLD = 30 * SECOND
REVERSALS_WITHIN = 300 * SECOND
DEMOTED_FOR = 3600 * SECOND
SAY_AGAIN = 600 * SECOND
"""How soon it is told again that advice and reality differ."""

CLOCKS_AGREE = 3 * SECOND
"""By so much sooner a floor may have ended for the autoscaler that reads it than here."""

ADVICE, REVERSED, DEMOTED, NOT_BOOSTED = "ScalingAdvice", "RaiseReverted", "BoostDemoted", "NotBoosted"


class Boost(NamedTuple):
    """What stands beside the decisions for a HorizontalPodAutoscaler.

    `hold` is None where the annotation leaves it open, `fault` why it is only advised ("" where it is boosted, should the mode be Boost).
    `shown` is its ``status.currentReplicas``, `ambiguous` says that it finds its own selector ambiguous. `digest` tells one state of spec
    and annotations from another. `period` is how often the native controller looks.
    """

    mode: str
    fault: str = ""
    hold: int | None = None
    shown: int = 0
    ambiguous: bool = False
    digest: str = ""
    period: int = 15 * SECOND


class Floor(msgspec.Struct, frozen=True):
    """A raise that is held: at least `replicas` until `until`, raised from `before` at `at`; `shown` since the autoscaler knows of it.

    `hold` is how long it is held from then on. `excused` says that the native controller has once written what it had decided before,
    `stands` that the raise is known to have been made, and was not taken back since. By `added` the count had grown before, within the
    time that policies count: a ramp is many raises, and only the last has a floor. `target` is the uid of what was raised, "" where it
    is not known.
    """

    replicas: int
    until: int
    before: int
    at: int
    hold: int
    shown: int | None = None
    excused: bool = False
    stands: bool = False
    added: int = 0
    target: str = ""


class Boosting(msgspec.Struct, frozen=True):
    """What is remembered. `differs` is since when advice and reality differ, `told` when that was last said."""

    floor: Floor | None = None
    reversals: tuple[int, ...] = ()
    demotion: Demotion | None = None
    differs: int | None = None
    told: int | None = None


NOTHING = Boosting()


class Reversal(NamedTuple):
    """What a change by somebody else was: `counted` as a reversal; `demotes` where it was one too many."""

    counted: bool = False
    demotes: bool = False


# -- what may be done --------------------------------------------------------------------------------------------------------


def fresh(readings: Sequence[Reading]) -> list[Reading]:
    """Return readings without those that may be out of date: what is not fresh raises nothing here."""
    return [
        each
        if isinstance(each, Unavailable) or not each.overdue
        else Unavailable("Stale", f"not fresh: {each.overdue}")
        for each in readings
    ]


def refusal(
    made: Decision, observation: Observation, memory: Boosting, boost: Boost, band: Band, now: int
) -> str:
    """Return why a decision is not done, "" where it is: a raise, beyond tolerance of what is asked for and of what exists."""
    if demotion := active_demotion(memory, boost, now):
        return f"{demotion.by} took back what was raised here: this autoscaler is only advised"
    if boost.mode != BOOST:
        return "the mode is advise"
    if boost.fault:
        return boost.fault
    if boost.ambiguous:
        return "the autoscaler finds its selector ambiguous"
    if observation.replicas == 0:
        return "the target is at zero, which the autoscaler alone may leave"
    if made.replicas < observation.replicas:
        return "a boost lowers nothing: the autoscaler does when it sees fit"
    for count in (observation.replicas, observation.status_replicas):
        if made.replicas <= count * band.high:
            return f"{made.replicas} replicas are within tolerance of {count}, or fewer"
    return ""


def only_advised(memory: Boosting, boost: Boost, now: int) -> bool:
    """Tell whether nothing would be raised whatever is decided."""
    return boost.mode != BOOST or bool(boost.fault) or active_demotion(memory, boost, now) is not None


def capped(autoscaler: Autoscaler, most: int) -> Autoscaler:
    """Return an autoscaler that allows no more than the floor that was published for it."""
    lowest, highest = autoscaler.limits
    return msgspec.structs.replace(autoscaler, limits=ReplicaLimits(lowest, max(lowest, min(highest, most))))


# -- the floor ---------------------------------------------------------------------------------------------------------------


def begin(
    memory: Boosting, before: int, replicas: int, boost: Boost, spans: Sequence[int | None], now: int
) -> Boosting:
    """Return the memory with the floor of a raise from `before`. `spans` is how long one sample of each metric speaks of, if known."""
    hold = boost.hold
    if hold is None:
        hold = max(LEAST_HOLD, 2 * boost.period, *(span for span in spans if span is not None))
    last = memory.floor
    # a raise that answers the native controller's old decision is still the same one to it
    excused = last is not None and last.shown is None and last.excused
    floor = Floor(replicas, now + LONGEST, before, now, min(hold, LONGEST), excused=excused)
    return msgspec.structs.replace(memory, floor=floor)


def follow(
    memory: Boosting,
    boost: Boost,
    now: int,
    *,
    alone: bool = True,
    most: int = MOST,
    band: Band | None = None,
) -> Boosting:
    """Return the memory at `now`: a floor that was shown ends after its hold, and at once where nothing is boosted any more.

    `alone` says that nobody but the autoscaler and we scale its target. A floor is never more than the `most` replicas of today, and
    shown by what is within tolerance of it: within that the autoscaler takes the count that exists.
    """
    if memory.reversals and memory.reversals[-1] <= now - REVERSALS_WITHIN:
        memory = msgspec.structs.replace(memory, reversals=())
    demotion = active_demotion(memory, boost, now)
    if demotion is not memory.demotion:
        memory = msgspec.structs.replace(memory, demotion=demotion)
    floor = memory.floor
    if floor is None:
        return memory
    if boost.mode != BOOST or boost.fault or demotion is not None or not alone or now >= floor.until:
        return msgspec.structs.replace(memory, floor=None)
    held = min(floor.replicas, most)
    if floor.shown is None and held <= boost.shown * (1.0 if band is None else band.high):
        floor = msgspec.structs.replace(floor, shown=now, until=min(floor.until, now + floor.hold))
        return msgspec.structs.replace(memory, floor=floor)
    return memory


def active_demotion(memory: Boosting, boost: Boost, now: int) -> Demotion | None:
    """Return the demotion that still holds: neither over, nor of another spec."""
    found = memory.demotion
    return None if found is None or now >= found.until or found.digest != boost.digest else found


# -- the sentinel ------------------------------------------------------------------------------------------------------------


def takes_back(memory: Boosting, replicas: int, band: Band, most: int = MOST) -> bool:
    """Tell whether a count is below what is held, beyond the tolerance within which neither the native autoscaler nor we raise it."""
    held = 0 if memory.floor is None else min(memory.floor.replicas, most)
    return held > replicas * band.high


def judge(
    memory: Boosting, replicas: int, by: str, boost: Boost, band: Band, now: int, *, most: int = MOST
) -> tuple[Boosting, Reversal]:
    """Return the memory after somebody else has lowered the count to `replicas`, and whether that takes back what is held.

    Within tolerance of the floor nothing is taken back. The native controller's first write after a raise is excused while its status
    shows that it decided on the old count: after a conflict it writes what it had decided before.
    """
    floor = memory.floor
    if floor is None or not takes_back(memory, replicas, band, most):
        return memory, Reversal()
    if by in NATIVE and now >= floor.until - CLOCKS_AGREE:
        return memory, Reversal()  # it has read the end of the floor by another clock
    if by in NATIVE and not floor.excused and floor.shown is None and boost.shown < min(floor.replicas, most):
        floor = msgspec.structs.replace(floor, excused=True, stands=False)
        return msgspec.structs.replace(memory, floor=floor), Reversal()
    reversals = (*(at for at in memory.reversals if at > now - REVERSALS_WITHIN), now)
    if len(reversals) < 2:
        floor = msgspec.structs.replace(floor, stands=False)
        return msgspec.structs.replace(memory, floor=floor, reversals=reversals), Reversal(counted=True)
    demotion = Demotion(FineInstant(now + DEMOTED_FOR), by, boost.digest)
    memory = msgspec.structs.replace(memory, floor=None, reversals=(), demotion=demotion)
    return memory, Reversal(counted=True, demotes=True)


def reversal_event(by: str, before: int, after: int, *, demotes: bool) -> Event:
    """Return the event that tells of a raise that was taken back, and what to do about it."""
    what = f"{by} set the replicas from {before} to {after}, below what was raised here"
    remedy = _remedy(by)
    if demotes:
        text = f"{what}, for the second time in 5 minutes: for an hour, or until spec or annotations change, this autoscaler is only advised. {remedy}"
        return Event("Warning", DEMOTED, text)
    return Event("Warning", REVERSED, f"{what}. {remedy}")


def _remedy(by: str) -> str:
    if by in NATIVE:
        return "Check that the autoscaler reads the metric fastpath_replicas, and that no other one has the same target."
    return f"Let {by} leave spec.replicas alone, or remove the annotation fastpath.io/mode."


# -- advice ------------------------------------------------------------------------------------------------------------------


def advise(
    memory: Boosting, recommended: int, replicas: int, boost: Boost, now: int
) -> tuple[Boosting, Event | None]:
    """Return the memory after a decision that was not done, and the event that tells of it.

    It is told when advice and reality have differed for more than a period of the native controller, at most once in ten minutes.
    """
    if recommended == replicas:
        return (memory if memory.differs is None else msgspec.structs.replace(memory, differs=None)), None
    since = now if memory.differs is None else memory.differs
    is_told = memory.told is not None and now - memory.told < SAY_AGAIN
    if now - since <= boost.period or is_told:
        return (memory if memory.differs == since else msgspec.structs.replace(memory, differs=since)), None
    seconds = (now - since) // SECOND
    text = f"{recommended} replicas would be right, {replicas} are asked for: so for {seconds} s"
    return msgspec.structs.replace(memory, differs=since, told=now), Event("Normal", ADVICE, text)


# -- what is published -------------------------------------------------------------------------------------------------------


def entry_of(memory: Boosting, namespace: str, name: str, uid: str, seen: str) -> FloorEntry | None:
    """Return what is published of an autoscaler, None for nothing. `seen` is its resource version."""
    floor, demotion = memory.floor, memory.demotion
    if floor is None and demotion is None and not memory.reversals:
        return None
    entry = FloorEntry(
        namespace, name, uid, seen=seen, demoted=demotion, reversals=tuple(map(FineInstant, memory.reversals))
    )
    if floor is None:
        return entry
    return msgspec.structs.replace(
        entry,
        replicas=floor.replicas,
        until=FineInstant(floor.until),
        raised_from=floor.before,
        raised_at=FineInstant(floor.at),
        hold=Span(floor.hold),
        shown=None if floor.shown is None else FineInstant(floor.shown),
        stands=floor.stands,
        added=floor.added,
        target=floor.target,
        excused=floor.excused,
    )


def is_over(entry: FloorEntry, now: int) -> bool:
    """Tell whether an entry says nothing any more."""
    is_demoted = entry.demoted is not None and now < entry.demoted.until
    is_counted = any(at > now - REVERSALS_WITHIN for at in entry.reversals)
    return not is_demoted and not is_counted and (not entry.replicas or now >= entry.until)


def adopt(entry: FloorEntry | None, now: int) -> Boosting:
    """Return the memory of a new leader from what its predecessor published."""
    if entry is None:
        return NOTHING
    floor = None
    if entry.replicas and now < entry.until:
        until = min(entry.until, now + LONGEST)  # whatever the clock of the leader before was
        before, at = entry.raised_from, min(entry.raised_at, now)
        floor = Floor(
            entry.replicas,
            until,
            before,
            at,
            entry.hold,
            entry.shown,
            entry.excused,
            entry.stands,
            entry.added,
            entry.target,
        )
    demoted = entry.demoted
    if demoted is not None and demoted.until > now + DEMOTED_FOR:
        demoted = msgspec.structs.replace(demoted, until=FineInstant(now + DEMOTED_FOR))
    return Boosting(floor, tuple(min(at, now) for at in entry.reversals), demoted)


def shifted(memory: Boosting, by: int) -> Boosting:
    """Return the memory on a clock that was set forward by so many nanoseconds (back where negative)."""
    floor, demotion = memory.floor, memory.demotion
    if floor is not None:
        shown = None if floor.shown is None else floor.shown + by
        floor = msgspec.structs.replace(floor, until=floor.until + by, at=floor.at + by, shown=shown)
    if demotion is not None:
        demotion = msgspec.structs.replace(demotion, until=FineInstant(demotion.until + by))
    return Boosting(
        floor,
        tuple(at + by for at in memory.reversals),
        demotion,
        None if memory.differs is None else memory.differs + by,
        None if memory.told is None else memory.told + by,
    )
