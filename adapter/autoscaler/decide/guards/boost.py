"""Decides when to raise a HorizontalPodAutoscaler, how long to hold the raise, and when to only advise.

A raise that another program writes to the Scale does not last: the HPA controller computes its own count from
its own metrics every 15 s, and writes that. So each raise comes with a floor, which the HPA reads as one more
metric; an HPA follows its highest metric, and the count stays. The floor begins with the raise. It ends
`hold` after the status of the HPA has shown the raised count, after `LONGEST` in any case, and at once when
the target is at zero or the HPA is no longer boosted. From then on the stabilization window of the HPA counts
from the raise.

Boosting never lowers a count, never raises at or to zero, and never acts on a value that is not fresh. A
field manager that lowers the count below a held floor reverts the raise; the second reversal within five
minutes demotes the HPA to advise mode for an hour, or until spec or annotations change.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.guards.conflicts import ForeignChange
from adapter.autoscaler.decide.observation import Band, PodsReading, Reading, Unavailable, Ways
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.sync import Event, Sync
from adapter.bounds.timeline import Bounds
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.autoscaling.floor import (
    LONGEST,
    LONGEST_FORECAST,
    LONGEST_SCHEDULED,
    REVERSALS_WITHIN,
    Demotion,
    Floor,
)
from adapter.model.objects.api_objects import Metadata
from adapter.model.timestamps import SECOND, FineInstant, Span

NATIVE = frozenset({"kube-controller-manager", "k3s", "kubelite"})
"""The field managers of the HPA controller: its own process, and k3s and MicroK8s, which contain it."""

MOST = 2**31 - 1
LEAST_HOLD = 30 * SECOND
DEMOTED_FOR = 3600 * SECOND
SAY_AGAIN = 600 * SECOND
"""The shortest time between two ScalingAdvice events."""

CLOCKS_AGREE = 3 * SECOND
"""By how much the clocks of Fastpath's pods may differ: a floor may end this much sooner where the HPA reads
it.
"""

ADVICE, REVERSED, DEMOTED, NOT_BOOSTED = "ScalingAdvice", "RaiseReverted", "BoostDemoted", "NotBoosted"


class Boost(NamedTuple):
    """What is asked for a HorizontalPodAutoscaler, and what it shows of itself.

    `hold` is None if the annotation is absent. `fault` says why the HPA is only advised, "" if it may be
    boosted. `shown` is the count in its status. `ambiguous` is its AmbiguousSelector condition. `digest`
    changes with its spec and annotations. `period` is the sync period of the HPA controller.
    """

    mode: str
    fault: str = ""
    hold: int | None = None
    shown: int = 0
    ambiguous: bool = False
    digest: str = ""
    period: int = 15 * SECOND


class Boosting(msgspec.Struct, frozen=True):
    """What is remembered of a boosted HPA.

    `floor` is the raise that is held; of the `Floor` only what describes the raise is set, with times of
    decisions. `published` adds the rest, and makes times of day of these. `differs` is since when the
    recommendation and spec.replicas differ, `told` when an event last said so.
    """

    floor: Floor | None = None
    reversals: tuple[FineInstant, ...] = ()
    demotion: Demotion | None = None
    differs: int | None = None
    told: int | None = None


NOTHING = Boosting()


# -- what may be done ----------------------------------------------------------------------------------------


def fresh(readings: Sequence[Reading]) -> list[Reading]:
    """Replace readings that may be out of date by `Unavailable`: only fresh values raise.

    Where only some pods have such values, these count as pods without one, and the others may raise.
    """
    return [_fresh(reading) for reading in readings]


def _fresh(reading: Reading) -> Reading:
    if isinstance(reading, Ways):
        # One of them that may be out of date does not keep the others from raising.
        usual, *others = reading.ways
        later = [known for way in others if (known := way.fresh) is not None]
        if later:
            return Ways(tuple(later if usual.overdue else [usual, *later]))
        reading = usual
    if isinstance(reading, Unavailable) or not reading.overdue:
        return reading
    rest = reading.fresh if isinstance(reading, PodsReading) else None
    return rest if rest and rest.values else Unavailable("Stale", f"not fresh: {reading.overdue}")


def refusal(sync: Sync, memory: Boosting, boost: Boost, least: int) -> str:
    """Return why the count of a sync is not written, "" if it is.

    A raise has to exceed both spec.replicas and the pods that exist by more than the tolerance, so that the
    surge pods of a rollout do not become permanent. One to the floor of a schedule or a forecast, `least`, is
    exact.
    """
    replicas, observation = sync.replicas, sync.observation
    if demotion := active_demotion(memory, boost, sync.now):
        return f"boosting is off: field manager {demotion.by} reverted two raises"
    if boost.mode != BOOST:
        return "fastpath.io/mode is advise"
    if boost.fault:
        return boost.fault
    if boost.ambiguous:
        return "the HPA has the condition AmbiguousSelector"
    if observation.replicas == 0:
        return "the target is at zero; only the HPA scales from zero"
    if replicas < observation.replicas:
        return "boost never scales down; the HPA does"
    if replicas <= least:
        return ""
    for count in (observation.replicas, observation.status_replicas):
        if replicas <= count * sync.spec.band.high:
            return f"{replicas} replicas do not exceed {count} by more than the tolerance"
    return ""


def only_advised(memory: Boosting, boost: Boost, now: int) -> bool:
    """Tell whether no decision would be written."""
    return boost.mode != BOOST or bool(boost.fault) or active_demotion(memory, boost, now) is not None


def capped(spec: PreparedSpec, most: int) -> PreparedSpec:
    """Return the spec with `most`, the floor that was published for it, as its maximum."""
    lowest, highest = spec.limits
    return msgspec.structs.replace(spec, limits=ReplicaLimits(lowest, max(lowest, min(highest, most))))


# -- the floor -----------------------------------------------------------------------------------------------


def begin(
    memory: Boosting, before: int, replicas: int, boost: Boost, spans: Sequence[int | None], now: int
) -> Floor:
    """Return the floor of a raise from `before` to `replicas`.

    `spans` are the times that one sample of each metric covers, None if unknown.
    """
    hold = boost.hold
    if hold is None:
        hold = max(LEAST_HOLD, 2 * boost.period, *(span for span in spans if span is not None))
    last = memory.floor
    # The HPA controller has not seen this raise yet either: it is excused for one stale write in all.
    excused = last is not None and last.shown is None and last.excused
    return Floor(
        replicas=replicas,
        until=FineInstant(now + LONGEST),
        raised_from=before,
        raised_at=FineInstant(now),
        hold=Span(min(hold, LONGEST)),
        excused=excused,
    )


def follow(
    memory: Boosting, boost: Boost, band: Band, now: int, *, alone: bool = True, most: int = MOST
) -> Boosting:
    """Return the memory at `now`: start the hold of a floor that the HPA has shown, and end what is over.

    `alone` says that no other autoscaler has the same target. A floor counts as at most `most` replicas, the
    ``maxReplicas`` of today. A count within tolerance shows it, because an HPA leaves such a count as it is.
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
    if floor.shown is None and held <= boost.shown * band.high:
        until = FineInstant(min(floor.until, now + floor.hold))
        floor = msgspec.structs.replace(floor, shown=FineInstant(now), until=until)
        return msgspec.structs.replace(memory, floor=floor)
    return memory


def active_demotion(memory: Boosting, boost: Boost, now: int) -> Demotion | None:
    """Return the demotion unless it has ended, by time or by a change of spec or annotations."""
    demotion = memory.demotion
    if demotion is None or now >= demotion.until or demotion.digest != boost.digest:
        return None
    return demotion


# -- reversals -----------------------------------------------------------------------------------------------


def takes_back(memory: Boosting, replicas: int, band: Band, most: int = MOST) -> bool:
    """Tell whether a count is below the held floor by more than the tolerance of autoscalers."""
    held = 0 if memory.floor is None else min(memory.floor.replicas, most)
    return held > replicas * band.high


def judge(
    memory: Boosting,
    replicas: int,
    change: ForeignChange,
    boost: Boost,
    band: Band,
    now: int,
    *,
    most: int = MOST,
) -> tuple[Boosting, ForeignChange]:
    """Return the memory after a change to `replicas`, and the change with whether it reverts a raise.

    What it starts is not a pause, but a demotion. The first write of the HPA controller after a raise is
    excused while its status shows the old count, because it may be a retry of an older decision.
    """
    floor, by = memory.floor, change.by
    change = change._replace(reverses=False, starts_pause=False)
    if floor is None or not takes_back(memory, replicas, band, most):
        return memory, change
    if by in NATIVE and now >= floor.until - CLOCKS_AGREE:
        return memory, change  # By the clock of the pod that answered it, the floor had ended.
    if by in NATIVE and not floor.excused and floor.shown is None and boost.shown < min(floor.replicas, most):
        floor = msgspec.structs.replace(floor, excused=True, stands=False)
        return msgspec.structs.replace(memory, floor=floor), change
    change = change._replace(reverses=True)
    reversals = (*(at for at in memory.reversals if at > now - REVERSALS_WITHIN), FineInstant(now))
    if len(reversals) < 2:
        floor = msgspec.structs.replace(floor, stands=False)
        return msgspec.structs.replace(memory, floor=floor, reversals=reversals), change
    demotion = Demotion(FineInstant(now + DEMOTED_FOR), by, boost.digest)
    memory = msgspec.structs.replace(memory, floor=None, reversals=(), demotion=demotion)
    return memory, change._replace(starts_pause=True)


def reversal_event(by: str, before: int, after: int, *, demotes: bool) -> Event:
    """Return the event about a reversal, with what to do about it."""
    what = f"{by} scaled the target from {before} to {after} replicas, below its floor"
    remedy = f"Stop {by} from writing spec.replicas, or remove the annotation fastpath.io/mode."
    if by in NATIVE:
        remedy = (
            "Check that the HPA reads the metric fastpath_replicas, and that no other HPA has its target."
        )
    if demotes:
        until = "boosting is off for an hour, or until spec or annotations change"
        return Event("Warning", DEMOTED, f"{what}, for the second time in 5 minutes: {until}. {remedy}")
    return Event("Warning", REVERSED, f"{what}. {remedy}")


# -- advice --------------------------------------------------------------------------------------------------


def advise(
    memory: Boosting, recommended: int, replicas: int, boost: Boost, now: int
) -> tuple[Boosting, Event | None]:
    """Return the memory after a decision that was not written, and the event about it, if one is due.

    One is due when the recommendation and spec.replicas have differed for more than a period of the HPA
    controller, at most once in `SAY_AGAIN`.
    """
    if recommended == replicas:
        return (memory if memory.differs is None else msgspec.structs.replace(memory, differs=None)), None
    since = now if memory.differs is None else memory.differs
    is_told = memory.told is not None and now - memory.told < SAY_AGAIN
    if now - since <= boost.period or is_told:
        return (memory if memory.differs == since else msgspec.structs.replace(memory, differs=since)), None
    seconds = (now - since) // SECOND
    text = f"recommends {recommended} replicas, spec has {replicas}, for {seconds}s"
    return msgspec.structs.replace(memory, differs=since, told=now), Event("Normal", ADVICE, text)


# -- what is published ---------------------------------------------------------------------------------------


def scheduled_floor(bounds: Bounds, most: int, before: Floor | None, time: int) -> Floor:
    """Return a floor with those of bounds alone, each at most `most`, to be published at a time of day.

    One that is published `before` stays as it is while half of its time is left. The floor of a window ends
    with the window. That of a forecast ends soon, because without a scaler nothing tells that it is wrong.
    """
    known = before or Floor()
    scheduled, until, forecast, forecast_until = 0, FineInstant(0), min(bounds.forecast, most), FineInstant(0)
    if bounds.min and bounds.until is not None:
        scheduled, end = min(bounds.min, most), bounds.until * SECOND
        last = known.scheduled_until if known.scheduled == scheduled else 0
        until = _until(time, LONGEST_SCHEDULED, end, last)
    if forecast:
        last = known.forecast_until if known.forecast == forecast else 0
        forecast_until = _until(time, LONGEST_FORECAST, time + LONGEST_FORECAST, last)
    return Floor(scheduled=scheduled, scheduled_until=until, forecast=forecast, forecast_until=forecast_until)


def _until(time: int, longest: int, end: int, before: int) -> FineInstant:
    """Return until when a floor is published: as `before` while half of the longest time, or all, is left."""
    is_enough = min(end, time + longest // 2) <= before <= end
    return FineInstant(before if is_enough else min(end, time + longest))


def published(memory: Boosting, meta: Metadata, bounds: Floor, set_by: int = 0) -> Floor | None:
    """Return what is to be published of an HPA, with times of day; None for nothing.

    `bounds` is its `scheduled_floor`.
    """
    floor, demotion = memory.floor, memory.demotion
    is_bounded = bounds.scheduled or bounds.forecast
    if floor is None and demotion is None and not memory.reversals and not is_bounded:
        return None

    def time_of_day(at: int) -> FineInstant:
        return FineInstant(at + set_by)

    if floor is None:
        floor = Floor()
    else:
        until, raised_at = time_of_day(floor.until), time_of_day(floor.raised_at)
        shown = None if floor.shown is None else time_of_day(floor.shown)
        floor = msgspec.structs.replace(floor, until=until, raised_at=raised_at, shown=shown)
    if demotion is not None:
        demotion = msgspec.structs.replace(demotion, until=time_of_day(demotion.until))
    return msgspec.structs.replace(
        floor,
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        seen=meta.resource_version,
        demoted=demotion,
        reversals=tuple(map(time_of_day, memory.reversals)),
        scheduled=bounds.scheduled,
        scheduled_until=bounds.scheduled_until,
        forecast=bounds.forecast,
        forecast_until=bounds.forecast_until,
    )


def adopt(published: Floor, now: int, set_by: int = 0) -> Boosting:
    """Return the memory of a new owner from what the previous one published, maybe by a wrong clock."""
    floor, demotion = None, published.demoted
    if published.replicas and now < published.until - set_by:
        floor = Floor(
            replicas=published.replicas,
            until=FineInstant(min(published.until - set_by, now + LONGEST)),
            raised_from=published.raised_from,
            raised_at=FineInstant(min(published.raised_at - set_by, now)),
            shown=None if published.shown is None else FineInstant(published.shown - set_by),
            hold=published.hold,
            stands=published.stands,
            added=published.added,
            target=published.target,
            excused=published.excused,
        )
    if demotion is not None:
        until = FineInstant(min(demotion.until - set_by, now + DEMOTED_FOR))
        demotion = msgspec.structs.replace(demotion, until=until)
    return Boosting(floor, tuple(FineInstant(min(at - set_by, now)) for at in published.reversals), demotion)
