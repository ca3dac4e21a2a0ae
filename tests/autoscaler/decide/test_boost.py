"""Raises beside a native autoscaler: what is done, what is held, when it is left alone."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.autoscaler.decide import decision, guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide import sync as syncing
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import boost as boosting
from adapter.autoscaler.decide.guards.boost import DEMOTED_FOR, NOTHING, Boost, Boosting
from adapter.autoscaler.decide.guards.conflicts import OWN, ConflictState, ForeignChange, ScaleObservation
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import (
    NO_STATUS,
    Band,
    ExternalReading,
    ObjectReading,
    Observation,
    PodsReading,
    Reading,
    Settings,
    Unavailable,
)
from adapter.autoscaler.decide.sync import Decision
from adapter.model.autoscaling import boost as handshaking
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE, BOOST
from adapter.model.autoscaling.floor import LONGEST, Demotion, Floor
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus, encode_scalar
from adapter.model.objects.api_objects import Metadata
from adapter.model.timestamps import SECOND, FineInstant, Span
from tests.autoscaler.decide.synced import SyncedScaler
from tests.support.answers import answers
from tests.support.scaling import (
    NOW,
    autoscaler,
    cpu_metric,
    external_metric,
    object_metric,
    pods,
    pods_metric,
    reading,
)

BAND = Band(0.9, 1.1)
ON = Boost(BOOST, digest="one")
ADVISED = Boost(ADVISE, digest="one")
NATIVE = "kube-controller-manager"


def raised(replicas: int, before: int = 4, *, at: int = NOW, hold: int = 30 * SECOND) -> Floor:
    """Return the floor of a raise that has just been made."""
    return Floor(
        replicas=replicas,
        until=FineInstant(at + LONGEST),
        raised_from=before,
        raised_at=FineInstant(at),
        hold=Span(hold),
    )


HELD = Boosting(raised(8))
METRICS = [external_metric(averageValue="1")]
PREPARED = autoscaler(METRICS, maxReplicas=40, behavior={})


def seen(replicas: int, wanted: int, *, exist: int | None = None, overdue: str = "") -> Observation:
    exist = replicas if exist is None else exist
    reading = ExternalReading([wanted * 1000], overdue=overdue)
    return Observation(replicas, exist, "app=web", pods(exist), [reading])


QUICK = {"scaleDown": {"stabilizationWindowSeconds": 0}}
"""A behavior that shrinks at once."""


def boosted(
    replicas: int, metrics: Sequence[dict[str, Any]] = METRICS, boost: Boost = ON, **spec: Any
) -> SyncedScaler:
    return SyncedScaler(replicas, metrics, Constraints(boost.mode, boost=boost), maxReplicas=40, **spec)


def decide(
    observation: Observation,
    boost: Boost = ON,
    memory: Boosting = NOTHING,
    behavior: dict[str, Any] | None = None,
) -> Decision:
    prepared = autoscaler(METRICS, maxReplicas=40, behavior=behavior or {})
    return guarded.decide(
        prepared, observation, Memory(boost=memory), NOW, Constraints(boost.mode, boost=boost)
    )


# -- scaling -------------------------------------------------------------------------------------------------


DEMOTED = Boosting(demotion=Demotion(FineInstant(NOW + SECOND), "argocd", "one"))
REFUSED: dict[str, tuple[Observation, Boost, Boosting, str]] = {
    "advised": (seen(4, 8), ADVISED, NOTHING, "fastpath.io/mode is advise"),
    "no handshake": (seen(4, 8), ON._replace(fault="no handshake"), NOTHING, "no handshake"),
    "ambiguous": (seen(4, 8), ON._replace(ambiguous=True), NOTHING, "AmbiguousSelector"),
    "demoted": (seen(4, 8), ON, DEMOTED, "field manager argocd reverted two raises"),
    "a rollout's surge": (seen(18, 23, exist=22), ON, NOTHING, "do not exceed 22 by more than the tolerance"),
    "fewer than exist": (seen(10, 14, exist=20), ON, NOTHING, "do not exceed 20 by more than the tolerance"),
}


@pytest.mark.parametrize(("observation", "boost", "memory", "why"), REFUSED.values(), ids=REFUSED)
def test_a_raise_that_is_not_done(observation: Observation, boost: Boost, memory: Boosting, why: str) -> None:
    made = decide(observation, boost, memory)

    assert (made.rescale, made.replicas) == (False, observation.replicas)
    assert why in made.trace[-1].text()
    assert made.status.desired_replicas > observation.replicas, "what would be right is told all the same"
    _, events = memories.commit(Memory(boost=memory), made, observation, NOW, boost)
    assert not events


def test_a_shrink_is_the_autoscalers() -> None:
    made = decide(seen(8, 4), behavior=QUICK)

    assert (made.rescale, made.replicas, made.status.desired_replicas) == (False, 8, 4)
    assert "never scales down" in made.trace[-1].text()


@pytest.mark.parametrize("own", [False, True])
def test_zero_is_the_autoscalers(*, own: bool) -> None:
    scaler = boosted(0, minReplicas=1)
    scaler.manager = OWN if own else NATIVE
    made = scaler.decide(8)

    assert (made.rescale, made.replicas) == (False, 0)


def test_a_raise_from_zero_is_refused() -> None:
    sync = syncing.Sync.begin(PREPARED, seen(0, 8), NO_STATUS, History(), NOW)
    sync.desired = 8

    assert "at zero" in boosting.refusal(sync, NOTHING, ON, 0)


def test_only_fresh_values_raise() -> None:
    late = decide(seen(4, 8, overdue="its answer is late"))

    assert (late.rescale, late.replicas) == (False, 4)
    assert "its answer is late" in late.trace[-3].text() + late.trace[-2].text() + late.trace[-1].text()
    _, events = memories.commit(Memory(), late, seen(4, 8), NOW, ON)
    assert not events, "the HPA controller reports its own metrics"


@pytest.mark.parametrize(("late", "replicas"), answers("decide/boost", "late pods"))
def test_a_pod_whose_value_is_not_fresh_counts_as_missing(late: Sequence[str], replicas: int) -> None:
    values = {f"web-{number}": 20_000 for number in range(9)} | {"web-0": 10_000}
    read = PodsReading(values, {}, "late", 0, {"web-9": 20_000}, ["web-0"], late)

    assert boosted(10, [pods_metric("10")]).decide(read).replicas == replicas


def test_a_failed_metric_blocks_no_raise() -> None:
    made = boosted(4, [*METRICS, external_metric("other", averageValue="1")]).decide(None, 8)

    assert (made.rescale, made.replicas) == (True, 8)


def test_policies_count_what_others_raised() -> None:
    """Four pods in 15 s: three of them are another writer's."""
    four = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}]}}
    scaler = boosted(4, behavior=four)
    scaler.replicas, scaler.manager = 7, NATIVE

    assert scaler.decide(20).replicas == 8


def test_no_more_than_was_published() -> None:
    prepared = autoscaler(METRICS, maxReplicas=40, minReplicas=2, behavior={})

    assert boosting.capped(prepared, 8).limits == (2, 8)
    assert boosting.capped(prepared, 50).limits == (2, 40)
    assert boosting.capped(prepared, 1).limits == (2, 2)


def test_others_on_the_target_end_it() -> None:
    circumstances = Constraints(BOOST, ("HorizontalPodAutoscaler/other",), boost=ON)
    made = guarded.decide(PREPARED, seen(4, 8), Memory(), NOW, circumstances)

    assert (made.rescale, [event.reason for event in made.events]) == (False, ["ForeignAutoscaler"])
    assert boosting.follow(HELD, ON, BAND, NOW, alone=False).floor is None


# -- the floor -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "spans", "hold"), answers("decide/boost", "holds"))
def test_how_long_it_is_held(given: dict[str, Any], spans: list[int | None], hold: int) -> None:
    changes: dict[str, Any] = {name: seconds * SECOND for name, seconds in given.items()}
    boost = ON._replace(**changes)
    known = [None if span is None else span * SECOND for span in spans]
    assert boosting.begin(NOTHING, 4, 8, boost, known, NOW) == raised(8, hold=hold * SECOND)


def follow(memory: Boosting, boost: Boost = ON, after: int = 0, **bounds: Any) -> Boosting:
    return boosting.follow(memory, boost, BAND, NOW + after, **bounds)


def test_it_ends_its_hold_after_it_was_shown() -> None:
    boost = ON._replace(shown=7)
    assert follow(HELD, boost, 20 * SECOND) is HELD

    memory = follow(HELD, boost._replace(shown=8), 21 * SECOND)
    assert memory.floor is not None
    assert (memory.floor.shown, memory.floor.until) == (NOW + 21 * SECOND, NOW + 51 * SECOND)
    # that it is not shown any more later changes nothing
    assert follow(memory, boost, 51 * SECOND - 1) is memory
    assert follow(memory, boost, 51 * SECOND).floor is None


@pytest.mark.parametrize(("count", "is_shown"), [(18, False), (19, True), (21, True)])
def test_what_is_within_tolerance_has_shown_it(count: int, *, is_shown: bool) -> None:
    floor = follow(Boosting(raised(20)), ON._replace(shown=count)).floor
    assert floor is not None
    assert (floor.shown is not None) is is_shown


def test_a_floor_is_no_more_than_may_be_today() -> None:
    shown = follow(HELD, ON._replace(shown=6), most=6).floor
    assert shown is not None
    assert shown.shown == NOW
    assert lower(HELD, 6, "kubectl", most=6) == (HELD, False, False)


ENDS: dict[str, tuple[Boosting, Boost, int]] = {
    "though it never was shown": (HELD, ON, LONGEST),
    "with the boost": (HELD, ADVISED, 0),
    "with the handshake": (HELD, ON._replace(fault="no handshake"), 0),
    "with a demotion that was adopted": (msgspec.structs.replace(HELD, demotion=DEMOTED.demotion), ON, 0),
}


@pytest.mark.parametrize(("memory", "boost", "after"), ENDS.values(), ids=ENDS)
def test_it_ends(memory: Boosting, boost: Boost, after: int) -> None:
    assert follow(NOTHING) is NOTHING
    assert follow(HELD, ON, LONGEST - 1).floor is not None
    assert follow(memory, boost, after).floor is None


def test_a_further_raise_begins_anew() -> None:
    shown = follow(HELD, ON._replace(shown=8), SECOND)

    assert boosting.begin(shown, 8, 16, ON, [], NOW + 2 * SECOND) == raised(16, before=8, at=NOW + 2 * SECOND)


# -- reversals -----------------------------------------------------------------------------------------------


def lower(
    memory: Boosting, replicas: int, by: str, boost: Boost = ON, after: int = 0, **bounds: Any
) -> tuple[Boosting, bool, bool]:
    """Return the memory after a change to `replicas`, whether it reverts a raise, and whether it demotes."""
    change = ForeignChange(-1, by)
    memory, change = boosting.judge(memory, replicas, change, boost, BAND, NOW + after, **bounds)
    return memory, change.reverses, change.starts_pause


def raise_again(memory: Boosting, before: int, replicas: int, boost: Boost = ON, after: int = 0) -> Boosting:
    floor = boosting.begin(memory, before, replicas, boost, [], NOW + after)
    return msgspec.structs.replace(memory, floor=floor)


@pytest.mark.parametrize(
    ("held", "replicas", "reverses"),
    [(8, 8, False), (8, 9, False), (8, 20, False), (20, 19, False), (20, 18, True), (None, 1, False)],
)
def test_what_takes_a_raise_back(held: int | None, replicas: int, *, reverses: bool) -> None:
    """A raise does not, nor does a count within tolerance, nor any count without a floor."""
    memory = NOTHING if held is None else Boosting(raised(held))

    after, is_reversal, _ = lower(memory, replicas, "kubectl")

    assert (is_reversal, after is memory) == (reverses, not reverses)


def test_the_native_controller_is_excused_once() -> None:
    """After a conflict it writes what it had decided on the old count."""
    stale = ON._replace(shown=4)
    memory, reverses, _ = lower(HELD, 5, NATIVE, stale)
    assert not reverses

    # our further raise answers that; the next time it counts
    memory = raise_again(memory, 5, 8, stale, SECOND)
    assert lower(memory, 5, NATIVE, stale, 2 * SECOND)[1:] == (True, False)


def test_a_raise_after_one_that_was_shown_may_be_excused_again() -> None:
    memory, _, _ = lower(HELD, 5, NATIVE)
    memory = follow(raise_again(memory, 5, 8), ON._replace(shown=8))
    memory = raise_again(memory, 8, 16)

    assert lower(memory, 8, NATIVE, ON._replace(shown=8))[1:] == (False, False)


@pytest.mark.parametrize(
    ("by", "shown"), [("argocd-controller", 4), (NATIVE, 8)], ids=["another writer", "it has seen our count"]
)
def test_no_other_write_is_excused(by: str, shown: int) -> None:
    memory = follow(HELD, ON._replace(shown=shown))

    assert lower(memory, 4, by, ON._replace(shown=shown))[1:] == (True, False)


@pytest.mark.parametrize("after", [299 * SECOND, 300 * SECOND])
def test_two_within_five_minutes_end_it(after: int) -> None:
    memory, _, _ = lower(HELD, 4, "argocd")
    memory, *outcome = lower(raise_again(memory, 4, 8), 4, "argocd", after=after)

    assert outcome == [True, after < 300 * SECOND]
    if after < 300 * SECOND:
        assert memory.floor is None
        assert memory.demotion == Demotion(FineInstant(NOW + after + DEMOTED_FOR), "argocd", "one")
        assert boosting.only_advised(memory, ON, NOW + after)


def test_a_reversal_of_long_ago_is_forgotten() -> None:
    memory, _, _ = lower(HELD, 4, "argocd")

    assert follow(memory, after=299 * SECOND).reversals == (NOW,)
    assert follow(memory, after=300 * SECOND).reversals == ()


@pytest.mark.parametrize(
    ("boost", "after"),
    [(ON, DEMOTED_FOR), (ON._replace(digest="two"), 0)],
    ids=["in time", "with another spec"],
)
def test_a_demotion_ends(boost: Boost, after: int) -> None:
    memory = Boosting(demotion=Demotion(FineInstant(NOW + DEMOTED_FOR), "argocd", "one"))

    assert boosting.only_advised(memory, ON, NOW)
    assert not boosting.only_advised(memory, boost, NOW + after)
    assert follow(memory, boost, after).demotion is None


@pytest.mark.parametrize(("by", "demotes", "words"), answers("decide/boost", "reversals"))
def test_the_event_names_writer_and_remedy(by: str, words: str, *, demotes: bool) -> None:
    event = boosting.reversal_event(by, 8, 4, demotes=demotes)

    assert event.type == "Warning"
    assert event.message.startswith(f"{by} scaled the target from 8 to 4 replicas")
    assert words in event.message


def test_a_write_without_a_response_stands_once_its_count_shows() -> None:
    memory = Memory(conflicts=ConflictState(known=8)).with_floor(raised(8))
    memory, change = memories.observe(PREPARED, memory, ScaleObservation(8, OWN), NOW, ON)

    assert (change, memory.boost.floor) == (None, msgspec.structs.replace(raised(8), stands=True))


def test_whose_zero_it_is_follows_its_manager() -> None:
    memory = Memory(conflicts=ConflictState(known=0, own_zero=True))
    memory, change = memories.observe(PREPARED, memory, ScaleObservation(0, "kubectl"), NOW)

    assert (change, memory.conflicts.own_zero) == (None, False)


def test_a_change_is_judged_where_it_is_noticed() -> None:
    memory = Memory(conflicts=ConflictState(known=8), boost=HELD)
    memory, change = memories.observe(PREPARED, memory, ScaleObservation(4, "argocd"), NOW, ON)

    assert change is not None
    assert (change.reverses, change.starts_pause) == (True, False)
    event = memories.change_event(memory, change, 4, ON)
    assert event is not None
    assert event.message.startswith("argocd scaled the target from 8 to 4 replicas")
    assert not memory.conflicts.is_paused(NOW)

    memory, change = memories.observe(PREPARED, memory, ScaleObservation(8, OWN), NOW, ON)
    assert change is not None
    assert memories.change_event(memory, change, 8, ON) is None
    memory, change = memories.observe(PREPARED, memory, ScaleObservation(4, "argocd"), NOW, ON)
    assert change is not None
    assert change.starts_pause
    assert memory.boost.demotion is not None


# -- advice --------------------------------------------------------------------------------------------------


def test_advice_is_told_when_it_has_differed_for_a_period() -> None:
    memory, event = boosting.advise(NOTHING, 8, 4, ADVISED, NOW)
    assert event is None
    memory, event = boosting.advise(memory, 9, 4, ADVISED, NOW + 15 * SECOND)
    assert event is None
    memory, event = boosting.advise(memory, 9, 4, ADVISED, NOW + 16 * SECOND)
    assert event is not None
    assert (event.type, event.message) == ("Normal", "recommends 9 replicas, spec has 4, for 16s")
    memory, event = boosting.advise(memory, 9, 4, ADVISED, NOW + 615 * SECOND)
    assert event is None
    memory, event = boosting.advise(memory, 9, 4, ADVISED, NOW + 616 * SECOND)
    assert event is not None


def test_advice_that_is_followed_begins_anew() -> None:
    memory, _ = boosting.advise(NOTHING, 8, 4, ADVISED, NOW)
    memory, event = boosting.advise(memory, 8, 8, ADVISED, NOW + 15 * SECOND)
    assert (memory, event) == (NOTHING, None)
    assert boosting.advise(memory, 8, 8, ADVISED, NOW) == (memory, None)
    memory, _ = boosting.advise(memory, 8, 4, ADVISED, NOW + 16 * SECOND)
    _, event = boosting.advise(memory, 8, 4, ADVISED, NOW + 17 * SECOND)
    assert event is None


@pytest.mark.parametrize(("boost", "told"), [(ADVISED, True), (ON, False)])
def test_only_who_is_advised_is_told(boost: Boost, *, told: bool) -> None:
    scaler = boosted(8, boost=boost, behavior=QUICK)
    scaler.counts((0, 16), 4)

    assert [text.partition(":")[0] for text in scaler.told] == (["Normal ScalingAdvice"] if told else [])


def test_a_raise_of_ours_is_no_writer_to_be_reversed() -> None:
    made = decide(seen(4, 8))
    assert (made.rescale, made.replicas) == (True, 8)
    memory, events = memories.commit(Memory(boost=HELD), made, seen(4, 8), NOW, ON)

    assert (memory.conflicts.known, memory.conflicts.ours, memory.boost) == (8, None, HELD)
    assert [event.reason for event in events] == ["SuccessfulRescale"]


# -- publishing ----------------------------------------------------------------------------------------------

TIMES = st.integers(NOW, NOW + LONGEST).map(FineInstant)
PAST = st.integers(NOW - LONGEST, NOW).map(FineInstant)
FLOORS = st.builds(
    Floor,
    replicas=st.integers(1, 1000),
    until=st.integers(NOW + 1, NOW + LONGEST).map(FineInstant),
    raised_from=st.integers(1, 1000),
    raised_at=PAST,
    hold=st.integers(SECOND, LONGEST).map(Span),
    shown=st.none() | PAST,
    excused=st.booleans(),
    stands=st.booleans(),
    added=st.integers(0, 1000),
    target=st.text(),
)
DEMOTIONS = st.builds(Demotion, until=TIMES, by=st.text(), digest=st.text())
MEMORIES = st.builds(
    Boosting,
    floor=st.none() | FLOORS,
    reversals=st.lists(PAST, max_size=1).map(tuple),
    demotion=st.none() | DEMOTIONS,
)


@given(MEMORIES, st.just(0) | st.integers(-3600 * SECOND, 3600 * SECOND))
def test_a_new_leader_knows_what_was_published(memory: Boosting, set_by: int) -> None:
    meta = Metadata(name="web", namespace="shop", uid="uid-1", resource_version="12")
    entry = boosting.published(memory, meta, Floor(), set_by)

    if entry is None:
        assert memory == NOTHING
        return
    assert boosting.adopt(entry, NOW, set_by) == memory
    assert entry.until == (0 if memory.floor is None else memory.floor.until + set_by)
    assert (entry.namespace, entry.name, entry.uid, entry.seen) == ("shop", "web", "uid-1", "12")


# -- the handshake at rest -----------------------------------------------------------------------------------

OWN_METRICS = {
    "external": external_metric(averageValue="1"),
    "external value": external_metric("pressure", value="1"),
    "object": object_metric("AverageValue", averageValue="1"),
    "object value": object_metric("Value", value="1"),
    "pods": pods_metric(),
    "cpu": cpu_metric(),
}
HANDSHAKES: list[tuple[str, Reading]] = [
    (handshaking.EXTERNAL, ExternalReading([0])),
    (handshaking.OBJECT, ObjectReading(0)),
]
AMOUNTS = st.none() | st.integers(-2, 60).map(lambda count: count * 1000) | st.integers(0, 60_000)


class Sync(NamedTuple):
    """One sync: seconds since the last, an amount for each metric that there may be (None is no value), pods
    beyond those asked for.
    """

    pause: int
    amounts: Mapping[str, int | None]
    surge: int


SYNCS = st.builds(
    Sync, st.integers(1, 400), st.fixed_dictionaries(dict.fromkeys(OWN_METRICS, AMOUNTS)), st.integers(-3, 5)
)


def reading_of(kind: str, amount: int | None, count: int) -> Reading:
    if amount is None:
        return Unavailable("Gone", "gone")
    if kind in {"pods", "cpu"}:
        return reading(*[abs(amount) // max(1, count)] * count)
    return ObjectReading(amount) if kind.startswith("object") else ExternalReading([amount])


def counts(
    spec: Mapping[str, Any], kinds: Sequence[str], syncs: Sequence[Sync], first: int, place: int = -1
) -> list[int]:
    """Return what a native autoscaler sets at each sync; with a handshake at a place among its metrics, whose
    floor is 0.
    """
    metrics, (way, none) = [OWN_METRICS[kind] for kind in kinds], HANDSHAKES[place % len(HANDSHAKES)]
    if place >= 0:
        plain = msgspec.to_builtins(handshaking.handshake("web", way), enc_hook=encode_scalar)
        metrics.insert(place, plain)
    scaler = autoscaler(metrics, Settings(scale_to_zero=True), **spec)
    history, status, replicas = History(), HorizontalPodAutoscalerStatus(), first
    at: int = NOW
    found = []
    for sync in syncs:
        at += sync.pause * SECOND
        exist = max(0, replicas + sync.surge)
        readings = [reading_of(kind, sync.amounts[kind], exist) for kind in kinds]
        if place >= 0:
            readings.insert(place, none)
        seen_now = Observation(replicas, exist, "app=web", pods(exist), readings, status)
        made = decision.decide(scaler, seen_now, history, at)
        history, status, replicas = made.history, made.status, made.replicas
        found.append(replicas)
    return found


@given(
    kinds=st.lists(st.sampled_from(sorted(OWN_METRICS)), min_size=1, max_size=3, unique=True),
    syncs=st.lists(SYNCS, min_size=1, max_size=6),
    first=st.integers(0, 45),
    lowest=st.integers(0, 3),
    behavior=st.sampled_from([None, {}, QUICK]),
    place=st.integers(0, 3),
)
@example(["external"], [Sync(15, {"external": 17_900}, 0)], 20, 1, QUICK, 1)
@example(["pods"], [Sync(15, {"pods": 20_000}, 2)], 20, 1, QUICK, 0)
def test_a_floor_of_zero_changes_no_decision_of_the_autoscaler(
    kinds: list[str], syncs: list[Sync], first: int, lowest: int, behavior: dict[str, Any] | None, place: int
) -> None:
    if not any(kind.startswith(("external", "object")) for kind in kinds):
        lowest = max(lowest, 1)  # a minimum of zero without such a metric is refused
    spec = {"maxReplicas": 40, "minReplicas": lowest} | ({} if behavior is None else {"behavior": behavior})

    assert counts(spec, kinds, syncs, first, min(place, len(kinds))) == counts(spec, kinds, syncs, first)


def test_what_a_wrong_clock_published_ends_in_time() -> None:
    assert boosting.adopt(Floor(replicas=8, until=FineInstant(NOW)), NOW) == NOTHING, "it is over"
    hours = FineInstant(NOW + 7200 * SECOND)
    memory = boosting.adopt(Floor(replicas=8, until=hours, demoted=Demotion(hours, "argocd")), NOW)

    assert memory.floor is not None
    assert memory.demotion is not None
    assert (memory.floor.until, memory.demotion.until) == (NOW + LONGEST, NOW + DEMOTED_FOR)


def test_a_raise_to_less_than_the_floor_takes_nothing_back() -> None:
    memory = Memory(conflicts=ConflictState(known=2), boost=HELD)
    memory, change = memories.observe(PREPARED, memory, ScaleObservation(5, NATIVE), NOW, ON)

    assert change is not None
    assert not change.reverses
    assert memory.boost is HELD


def test_without_values_there_is_no_advice() -> None:
    scaler = boosted(4, boost=ADVISED)
    scaler.change(boost=Boosting(differs=NOW - 600 * SECOND))
    scaler.decide(None)

    assert (scaler.told, scaler.memory.boost.differs) == ([], None)
