"""Raises beside a native autoscaler: what is done, what is held, when it is left alone.

`scripts/floors` has stories of the floor of a boosted HPA. After `> ` something happens:

- `raised FROM TO` is a raise of ours, `scaled REPLICAS BY` what another client writes, or `us`.
- `hpa FIELD=VALUE ...` is what the HPA shows, and how it is boosted; `most REPLICAS` its maximum.
- `at SECONDS` is a time, from the beginning; `demoted BY` a demotion that was published before.
- `advise WANTED REPLICAS` is a recommendation that differs, or does not.

`scripts/test tests/autoscaler/decide/test_boost.py --update` writes what is remembered and told then.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
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
from adapter.autoscaler.decide.guards.conflicts import OWN, ConflictState, ScaleObservation
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
from tests.support.scripts import Scripts

BAND = Band(0.9, 1.1)
ON = Boost(BOOST, digest="one")
ADVISED = Boost(ADVISE, digest="one")
NATIVE = "kube-controller-manager"
SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "floors")


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


class FloorScript:
    """A boosted HPA at 4 replicas whose target others scale too."""

    def __init__(self) -> None:
        self._boost = ON
        self._now: int = NOW
        self._memory = Memory(conflicts=ConflictState(known=4))
        self.most("40")

    def most(self, replicas: str) -> None:
        self._spec = autoscaler(METRICS, maxReplicas=int(replicas), behavior={})

    def at(self, seconds: str) -> str:
        self._now = NOW + round(float(seconds) * SECOND)
        return self._follow()

    def hpa(self, *words: str) -> str:
        given: dict[str, Any] = dict(word.split("=") for word in words)
        if "shown" in given:
            given["shown"] = int(given["shown"])
        self._boost = self._boost._replace(**given)
        return self._follow()

    def raised(self, before: str, replicas: str) -> str:
        floor = boosting.begin(self._memory.boost, int(before), int(replicas), self._boost, [], self._now)
        state = msgspec.structs.replace(self._memory.conflicts, known=int(replicas))
        self._memory = msgspec.structs.replace(self._memory.with_floor(floor), conflicts=state)
        return self._state()

    def scaled(self, replicas: str, by: str) -> list[str]:
        seen_now, manager = int(replicas), OWN if by == "us" else by
        scale = ScaleObservation(seen_now, manager)
        self._memory, change = memories.observe(self._spec, self._memory, scale, self._now, self._boost)
        event = change and memories.change_event(self._memory, change, seen_now, self._boost)
        assert not self._memory.conflicts.is_paused(self._now)
        return [self._state(), *([event.reason] if event else [])]

    def demoted(self, by: str) -> str:
        demotion = Demotion(FineInstant(self._now + DEMOTED_FOR), by, self._boost.digest)
        boost = msgspec.structs.replace(self._memory.boost, demotion=demotion)
        self._memory = msgspec.structs.replace(self._memory, boost=boost)
        return self._follow()

    def advise(self, wanted: str, count: str) -> str:
        boost, event = boosting.advise(self._memory.boost, int(wanted), int(count), self._boost, self._now)
        self._memory = msgspec.structs.replace(self._memory, boost=boost)
        return f"{event.type}: {event.message}" if event else "nothing is told"

    def _follow(self) -> str:
        band, most = self._spec.band, self._spec.limits.highest
        boost = boosting.follow(self._memory.boost, self._boost, band, self._now, most=most)
        self._memory = msgspec.structs.replace(self._memory, boost=boost)
        return self._state()

    def _state(self) -> str:
        memory, said = self._memory.boost, ["no floor"]
        if floor := memory.floor:
            facts = ("excused",) * floor.excused + ("stands",) * floor.stands
            shown = "not shown" if floor.shown is None else "shown"
            left = f"for {(floor.until - self._now) / SECOND:g} s"
            said = [f"floor {floor.replicas} from {floor.raised_from} {left}", shown, *facts]
        if memory.reversals:
            said.append(f"{len(memory.reversals)} reversal")
        if demotion := memory.demotion:
            assert boosting.only_advised(memory, self._boost, self._now)
            said.append(f"demoted by {demotion.by} for {(demotion.until - self._now) / SECOND:g} s")
        return ", ".join(said)


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, pytestconfig: pytest.Config) -> None:
    await SCRIPTS.play(title, FloorScript(), pytestconfig)


@pytest.mark.parametrize(("by", "demotes", "words"), answers("decide/boost", "reversals"))
def test_the_event_names_writer_and_remedy(by: str, words: str, *, demotes: bool) -> None:
    event = boosting.reversal_event(by, 8, 4, demotes=demotes)

    assert event.type == "Warning"
    assert event.message.startswith(f"{by} scaled the target from 8 to 4 replicas")
    assert words in event.message


def test_whose_zero_it_is_follows_its_manager() -> None:
    memory = Memory(conflicts=ConflictState(known=0, own_zero=True))
    memory, change = memories.observe(PREPARED, memory, ScaleObservation(0, "kubectl"), NOW)

    assert (change, memory.conflicts.own_zero) == (None, False)


def test_a_count_that_the_status_tells_is_not_assumed() -> None:
    memory = Memory(status=SyncedScaler(10).decide(10).status)
    _, change = memories.observe(PREPARED, memory, ScaleObservation(10, OWN), NOW)
    assert change is None


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


def test_without_values_there_is_no_advice() -> None:
    scaler = boosted(4, boost=ADVISED)
    scaler.change(boost=Boosting(differs=NOW - 600 * SECOND))
    scaler.decide(None)

    assert (scaler.told, scaler.memory.boost.differs) == ([], None)
