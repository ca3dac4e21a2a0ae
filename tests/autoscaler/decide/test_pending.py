"""Pending capacity in one decision after another: pods, credited, traces, and what it never does."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide import guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import pending
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.guards.pending import HOLD, MOST_SLOTS, MOST_WITHIN, PendingState, Slots
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import (
    ExternalReading,
    ObjectReading,
    Observation,
    Reading,
    Settings,
    Unavailable,
)
from adapter.autoscaler.decide.prepared_spec import PreparedSpec, prepare
from adapter.autoscaler.decide.sync import Decision
from adapter.model.autoscaling.fastpath_autoscaler import BOOST, PAUSED
from adapter.model.autoscaling.pending_capacity import BacklogCredit
from adapter.model.objects.pods import PodFacts
from adapter.model.quantity import read
from adapter.model.timestamps import SECOND, FineInstant
from tests.support.answers import answers
from tests.support.controller import LIVE
from tests.support.scaling import NOW, cpu_metric, external_metric, hpa, object_metric, with_pending

THETA = 60 * SECOND
FAST = {"scaleUp": {"policies": [{"type": "Pods", "value": 100_000, "periodSeconds": 1}]}}
DOWN = Unavailable("Down", "no value")


def spec_of(
    throughput: str = "1", *, metrics: list[dict[str, Any]] | None = None, name: str = "jobs", **spec: Any
) -> PreparedSpec:
    """Return an autoscaler with a target of 10 jobs for each pod; an empty `throughput` is no option."""
    found = metrics or [external_metric("jobs", averageValue="10")]
    scaler = hpa(found, **({"behavior": FAST, "minReplicas": 1} | spec))
    return prepare(with_pending(scaler, **({name: throughput} if throughput else {})), LIVE)


def ready(count: int) -> list[PodFacts]:
    return [PodFacts(f"old-{number}", ready="True", created=NOW - 7200 * SECOND) for number in range(count)]


def starting(count: int, age: float, now: int = NOW, **facts: Any) -> list[PodFacts]:
    """Return pods that were made `age` seconds before `now` and are not Ready."""
    made = now - round(age * SECOND)
    pods = [PodFacts(f"new-{number}", ready="False", created=made) for number in range(count)]
    return [msgspec.structs.replace(each, **facts) for each in pods]


def see(
    jobs: float | Reading, replicas: int, pods: list[PodFacts], within: int | None = THETA, unsure: str = ""
) -> Observation:
    reading = ExternalReading([round(jobs * 1000)]) if isinstance(jobs, int | float) else jobs
    return Observation(
        replicas, replicas, "app=web", pods, [reading], ready_within=within, unsure_of_pods=unsure
    )


def after(state: PendingState | None) -> History:
    return History(pending=state)


def state(jobs: float, pods: int | None = 0, ago: float = 0, replicas: int = 10) -> PendingState:
    """Return what was remembered `ago` seconds before: a credit, and pods that were asked for then."""
    at = NOW - round(ago * SECOND)
    return PendingState(at, {"jobs": jobs * 1000}, pods, replicas, (Slots(at, pods),) if pods else ())


def credit_of(made: Decision) -> float:
    assert made.history.pending is not None
    return made.history.pending.credited["jobs"] / 1000


def texts_of(made: Decision) -> list[str]:
    return [each.text() for each in made.trace if each.name.startswith("pending")]


# -- one decision --------------------------------------------------------------------------------------------


RAISES: dict[str, tuple[list[PodFacts], PendingState, int, str]] = {
    "less the credit": ([*ready(10), *starting(10, 30)], state(500, 10, replicas=20), 20, "500|10|200"),
    "what remains": (ready(20), state(300), 40, "300|none|400"),
}
"""Replicas for 700 jobs; credit, pending pods and the rest as the trace has them."""


@pytest.mark.parametrize(("pods", "before", "replicas", "shown"), RAISES.values(), ids=RAISES)
def test_a_raise_counts_the_queue_less_the_credit(
    pods: list[PodFacts], before: PendingState, replicas: int, shown: str
) -> None:
    outcome = decide(spec_of(), see(700, 20, pods), after(before), NOW)

    assert outcome.replicas == replicas
    credit, pending_now, rest = shown.split("|")
    less = f"700 less {credit} that pending pods would have worked off ({pending_now} pending now) is {rest}"
    assert texts_of(outcome) == [f"jobs: {less}: {replicas} replicas instead of 70"]
    (status,) = outcome.status.current_metrics or ()
    assert status.external is not None
    assert str(status.external.current.average_value) == "35", "the status shows the value as measured"


def test_an_object_metric_counts_the_same() -> None:
    spec = spec_of(metrics=[object_metric("AverageValue", averageValue="10")], name="hits")
    before = after(PendingState(NOW, {"hits": 300_000.0}, 0, 20))

    assert decide(spec, see(ObjectReading(700_000), 20, ready(20)), before, NOW).replicas == 40


def test_other_metrics_are_as_without_the_option() -> None:
    both = [cpu_metric(), external_metric("jobs", averageValue="10")]
    seen = see(700, 20, ready(20))
    seen = msgspec.structs.replace(seen, readings=[DOWN, seen.readings[0]])

    assert decide(spec_of(metrics=both), seen, after(state(300)), NOW).replicas == 40


def test_a_raise_within_the_tolerance_is_none() -> None:
    made = decide(spec_of(), see(700, 20, ready(20)), after(state(485)), NOW)

    assert made.replicas == 20, "215 jobs are within the tolerance of 20 pods"


def test_a_scale_down_is_as_without_the_option() -> None:
    scaler = hpa([external_metric("jobs", averageValue="10")], behavior=FAST)
    at_once = msgspec.structs.replace(LIVE, downscale_stabilization=0)
    spec = prepare(with_pending(scaler, jobs="1"), at_once)

    made = decide(spec, see(120, 20, ready(20)), after(state(100)), NOW)

    assert (made.replicas, texts_of(made)) == (12, [])


# -- how the credit changes ----------------------------------------------------------------------------------


def test_it_grows_with_the_pods_that_were_pending() -> None:
    seen = see(10_000, 20, [*ready(15), *starting(5, 30)])

    made = decide(spec_of("500m"), seen, after(state(0, 10, ago=4, replicas=20)), NOW)

    assert credit_of(made) == 10 * 4 * 0.5
    assert made.history.pending is not None
    assert made.history.pending.pods == 5


def test_it_leaks() -> None:
    made = decide(spec_of(), see(10_000, 20, ready(20)), after(state(1000, ago=600)), NOW)

    assert credit_of(made) == pytest.approx(1000 * 2.718281828**-1)


@pytest.mark.parametrize(
    ("pods", "jobs", "credit"),
    [
        *((20, *each) for each in ((0, 0), (150, 0), (180, 0), (190, 10), (250, 70), (680, 500), (900, 500))),
        (1, 5, 5),
    ],
)
def test_it_never_exceeds_what_the_queue_has_beyond_its_target(pods: int, jobs: int, credit: float) -> None:
    """20 pods are kept for 180 to 220 jobs, a single one for any part of its target."""
    made = decide(spec_of(), see(jobs, pods, ready(pods)), after(state(500, replicas=pods)), NOW)

    assert credit_of(made) == credit


def test_without_a_value_it_goes_on() -> None:
    """The pods are pending whether or not the queue can be read; its next value limits the credit again."""
    waiting = see(DOWN, 20, [*ready(10), *starting(10, 30)])

    made = decide(spec_of(), waiting, after(state(100, 10, ago=2, replicas=20)), NOW)

    assert made.replicas == 20
    assert credit_of(made) == pytest.approx(120, rel=0.01)


def test_at_zero_there_is_none() -> None:
    scaler = hpa([external_metric("jobs", averageValue="10")], behavior=FAST, minReplicas=0)
    at_once = msgspec.structs.replace(LIVE, downscale_stabilization=0)
    fell = decide(prepare(scaler, at_once), see(0, 1, ready(1)), History(), NOW - SECOND)
    seen = msgspec.structs.replace(see(500, 0, []), status=fell.status)

    made = decide(prepare(with_pending(scaler, jobs="1"), LIVE), seen, after(state(400, replicas=0)), NOW)

    assert made.replicas == 50
    assert made.history.pending == PendingState(NOW, {"jobs": 0.0}, 0, 0, ())


# -- which pods are pending ----------------------------------------------------------------------------------


def started(groups: list[tuple[int, float, dict[str, Any]]]) -> list[PodFacts]:
    """Return starting pods: how many, how old, and what else is known of each group."""
    return [each for count, age, facts in groups for each in starting(count, age, **facts)]


@pytest.mark.parametrize(("groups", "unready"), answers("decide/pending", "pods"))
@pytest.mark.parametrize("age", [0, 59, 60, 119, 120, 10**6])
def test_a_slot_is_pending_until_a_pod_is_ready_and_for_the_start_up_time_at_most(
    groups: list[Any], unready: int, age: int
) -> None:
    """Of ten pods that were asked for."""
    before = PendingState(NOW, {}, 0, 20, (Slots(NOW - age * SECOND, 10),))

    found = pending.follow(before, {"jobs": 1000}, see(10_000, 20, [*ready(10), *started(groups)]), NOW)

    assert found.pods == (unready if age < 60 else 0)
    assert bool(found.slots) == (bool(unready) and age < 120)


@pytest.mark.parametrize(("groups", "count"), answers("decide/pending", "pods at the beginning"))
def test_at_the_beginning_of_a_term_slots_are_as_old_as_their_pods(groups: list[Any], count: int) -> None:
    seen = see(10_000, 20, [*ready(10), *started(groups)])

    assert pending.follow(None, {"jobs": 1000}, seen, NOW).pods == count


def test_the_credit_of_pods_that_are_overdue_at_the_beginning_of_a_term_is_withdrawn() -> None:
    inherited = PendingState(NOW, {"jobs": 900_000.0})
    seen = see(10_000, 20, [*ready(10), *starting(10, 3600)])

    found = pending.follow(inherited, {"jobs": 1000}, seen, NOW)

    assert found.credited == {"jobs": 300_000.0}, "ten pods had 600 jobs at most"


def test_the_credit_of_slots_without_a_ready_pod_is_withdrawn_when_one_is_overdue() -> None:
    """Six of the first ten pods are Ready, and none of the next five."""
    slots = (Slots(NOW - THETA - HOLD, 10), Slots(NOW - 20 * SECOND, 5))
    before = PendingState(NOW, {"jobs": 1_000_000.0}, 5, 25, slots)
    seen = see(10_000, 25, [*ready(16), *starting(9, 5)])

    found = pending.follow(before, {"jobs": 1000}, seen, NOW)

    assert found.slots == (Slots(NOW - 20 * SECOND, 5),)
    assert found.credited == {"jobs": (1000.0 - 4 * 60 - 5 * 20) * 1000}


def test_of_a_long_start_up_time_ten_minutes_count() -> None:
    before = PendingState(NOW, {"jobs": 0.0}, 10, 20, (Slots(NOW, 10),))
    found, pods = before, [*ready(10), *starting(10, 0)]
    for minute in range(1, 13):
        seen = see(10_000, 20, pods, within=24 * 3600 * SECOND)
        found = pending.follow(found, {"jobs": 1000}, seen, NOW + minute * THETA)
        assert (found.pods == 10) == (minute < 10), minute

    assert (found.credited["jobs"], found.slots) == (0.0, ())
    assert MOST_WITHIN == 10 * THETA


def test_the_raises_that_are_remembered_are_bounded() -> None:
    """The two that are closest become one, as old as the older one."""
    found = PendingState(NOW, {}, 0, 1, ())
    for second in range(100):
        found = pending.written(found._replace(at=NOW + second * SECOND), found.replicas + 2)

    assert found.slots is not None
    assert len(found.slots) == MOST_SLOTS
    assert sum(pods for _, pods in found.slots) == 200
    assert found.slots[0].since == NOW
    assert [since for since, _ in found.slots] == sorted({since for since, _ in found.slots})


def test_pods_that_do_not_exist_yet_are_pending_for_the_start_up_time() -> None:
    """As when others raised, and the Deployment controller has not made them, or a quota does not let it."""
    seen, counts = see(10_000, 20, ready(10)), []
    found = state(0, 0, ago=1, replicas=10)
    assert pending.follow(found, {"jobs": 1000}, seen, NOW).slots == (Slots(NOW, 10),)
    for second in (0, 59, 60):
        found = pending.follow(found, {"jobs": 1000}, seen, NOW + second * SECOND)
        counts.append(found.pods)

    assert counts == [10, 10, 0]


# -- what is not known ---------------------------------------------------------------------------------------


def test_before_a_start_was_seen_it_has_no_effect_and_says_so() -> None:
    seen = see(700, 20, [*ready(10), *starting(10, 30)], within=None)

    outcome = decide(spec_of(), seen, after(None), NOW)

    text = "jobs: pending pods are not counted, because no start-up time of the pods is known yet"
    assert (outcome.replicas, texts_of(outcome)) == (70, [text])
    assert outcome.history.pending == PendingState(NOW, {"jobs": 0.0}, None, 20, None)


def test_an_inherited_credit_counts_before_a_start_was_seen() -> None:
    """The ledger of the former leader may be read after its record."""
    inherited = PendingState(NOW - 600 * SECOND, {"jobs": 1000_000.0})

    made = decide(spec_of(), see(5000, 20, ready(20), within=None), after(inherited), NOW)

    assert credit_of(made) == pytest.approx(1000 * 2.718281828**-1)
    assert made.replicas == 464


def test_pods_that_may_be_out_of_date_add_nothing() -> None:
    seen = see(700, 20, [*ready(10), *starting(10, 30)], unsure="no watch event for pods for 90 s")

    made = decide(spec_of(), seen, after(state(300, 10, ago=1, replicas=20)), NOW)

    assert credit_of(made) == pytest.approx(300, rel=0.01)
    assert made.replicas == 41
    why, credit = texts_of(made)
    stale = "the pods may be out of date: no watch event for pods for 90 s"
    assert why == f"jobs: pending pods are not counted, because {stale}"
    assert "(unknown pending now)" in credit
    made = decide(spec_of(), seen, after(None), NOW)
    assert (made.replicas, texts_of(made)) == (70, [why]), "without a credit it says only what is not known"


# -- a new leader --------------------------------------------------------------------------------------------


def test_without_a_record_the_pods_that_are_pending_now_count() -> None:
    seen = see(700, 20, [*ready(10), *starting(4, 30), *starting(6, 10)])

    made = decide(spec_of(), seen, after(None), NOW)

    assert credit_of(made) == 4 * 30 + 6 * 10
    assert made.replicas == 52


def test_a_record_counts_if_it_says_more() -> None:
    credited = (BacklogCredit("jobs", read("500"), FineInstant(NOW - 5 * SECOND)),)
    inherited = memories.remember(Memory().status, pending=pending.inherited_state(credited, NOW)).history

    made = decide(spec_of(), see(700, 20, [*ready(19), *starting(1, 10)]), inherited, NOW)

    assert credit_of(made) == pytest.approx(500, rel=0.01)


def test_the_record_is_what_the_state_says() -> None:
    found = PendingState(NOW, {"jobs": 1500.7, "mails": 0.3}, 3, 20, (Slots(NOW, 3),))
    credited = pending.list_credits(found)

    assert credited == (BacklogCredit("jobs", read("1500m"), FineInstant(NOW)),)
    assert pending.inherited_state(credited, NOW + SECOND) == PendingState(NOW, {"jobs": 1500.0})
    assert pending.inherited_state(credited, NOW - SECOND) == PendingState(NOW - SECOND, {"jobs": 1500.0})
    for nothing in (None, (), (BacklogCredit("jobs", read("-1")),)):
        assert pending.inherited_state(nothing, NOW) is None
    assert pending.list_credits(None) == ()


# -- the state between decisions -----------------------------------------------------------------------------


def test_a_decision_that_is_not_written_keeps_the_state() -> None:
    spec, constraints = spec_of(), Constraints("Advise")
    memory = Memory(history=after(state(300)))

    made = guarded.decide(spec, see(700, 20, ready(20)), memory, NOW, constraints)

    assert (made.rescale, credit_of(made)) == (False, 300)


def test_a_boosted_autoscaler_raises_by_what_remains() -> None:
    constraints = Constraints(BOOST, boost=Boost(BOOST, shown=20))
    seen = see(700, 20, [*ready(10), *starting(10, 30)])
    counts = []
    for credit in (500, 200):
        memory = Memory(history=after(state(credit, 10, replicas=20)))
        made = guarded.decide(spec_of(), seen, memory, NOW, constraints)
        counts.append(made.replicas)
        memory, _ = memories.commit(memory, made, seen, NOW, constraints.boost)
        assert memory.history.pending is not None
        assert memory.history.pending.credited["jobs"] == credit * 1000

    assert counts == [20, 50]


def test_a_raise_that_was_written_is_pending_at_once() -> None:
    """The next decision may be a minute later, and the pods were asked for all that time."""
    memory = Memory(history=after(state(0)))
    seen = see(300, 10, ready(10))
    made = guarded.decide(spec_of(), seen, memory, NOW, Constraints())

    memory, _ = memories.commit(memory, made, seen, NOW)

    assert made.replicas == 30
    assert memory.history.pending == PendingState(NOW, {"jobs": 0.0}, 20, 30, (Slots(NOW, 20),))


def test_a_scale_down_that_was_written_takes_pending_pods_first() -> None:
    found = PendingState(NOW, {}, 5, 20, (Slots(NOW - 7, 3), Slots(NOW - 5, 2)))

    assert pending.written(found, 17) == PendingState(NOW, {}, 2, 17, (Slots(NOW - 7, 2),))
    assert pending.written(found, 10) == PendingState(NOW, {}, 0, 10, ())
    unsure = pending.written(found._replace(pods=None), 25)
    assert unsure == PendingState(NOW, {}, None, 25, (*(found.slots or ()), Slots(NOW, 5)))
    assert pending.written(PendingState(NOW, {}), 25) == PendingState(NOW, {}, None, 25, None)


def test_a_paused_autoscaler_forgets_and_one_without_the_option_too() -> None:
    seen = see(700, 20, ready(20))

    paused = guarded.decide(spec_of(), seen, Memory(history=after(state(300))), NOW, Constraints(PAUSED))
    removed = decide(spec_of(""), seen, after(state(300)), NOW)

    assert (paused.history.pending, removed.history.pending, removed.replicas) == (None, None, 70)


@pytest.mark.parametrize("by", [-7200 * SECOND, 7200 * SECOND])
def test_what_was_told_as_a_time_of_day_has_the_same_age_after_the_clock_was_set(by: int) -> None:
    """The record of the previous owner, and the times at which the API server has made pods."""
    credited = pending.list_credits(PendingState(NOW, {"jobs": 1500.0}), by)
    assert [credit.time for credit in credited] == [NOW + by]
    assert pending.inherited_state(credited, NOW + SECOND, by) == PendingState(NOW, {"jobs": 1500.0})

    pods = [*ready(10), *starting(4, 30, NOW + by), *starting(6, 10, NOW + by)]
    seen = msgspec.structs.replace(see(700, 20, pods), set_by=by)
    assert credit_of(decide(spec_of(), seen, after(None), NOW)) == 4 * 30 + 6 * 10


# -- what it never does --------------------------------------------------------------------------------------


@st.composite
def _seen(draw: st.DrawFn) -> Observation:
    replicas = draw(st.integers(0, 60))
    count = draw(st.integers(0, 60))
    pods = [
        PodFacts(
            f"web-{number}",
            draw(st.sampled_from(["Running", "Pending", "Failed"])),
            ready=draw(st.sampled_from(["True", "False", None])),
            created=NOW - draw(st.integers(-10, 200)) * SECOND,
            deleting=draw(st.integers(0, 9)) == 0,
        )
        for number in range(count)
    ]
    reading: Reading = DOWN
    if draw(st.integers(0, 5)):
        overdue = draw(st.sampled_from(["", "old"]))
        reading = ExternalReading(
            draw(st.lists(st.integers(0, 10**6), min_size=1, max_size=3)), overdue=overdue
        )
    return Observation(
        replicas,
        draw(st.integers(0, 60)),
        "app=web",
        pods,
        [reading],
        ready_within=draw(st.sampled_from([None, SECOND, THETA])),
        unsure_of_pods=draw(st.sampled_from(["", "", "stale"])),
    )


_STATES = st.none() | st.builds(
    PendingState,
    st.integers(NOW - 10**12, NOW + 10**10),
    st.dictionaries(st.sampled_from(["jobs", "mails"]), st.floats(0, 1e12)),
    st.none() | st.integers(0, 100),
    st.integers(0, 100),
    st.none()
    | st.lists(st.builds(Slots, st.integers(NOW - 10**12, NOW), st.integers(1, 50))).map(
        lambda slots: tuple(sorted(slots))
    ),
)


@given(_seen(), _STATES, st.sampled_from(["1m", "1", "1M"]), st.sampled_from([LIVE, Settings()]))
def test_it_only_withholds_raises(
    seen: Observation, before: PendingState | None, throughput: str, settings: Settings
) -> None:
    metric = external_metric("jobs", averageValue="10")
    scaler = hpa([metric], behavior=FAST, minReplicas=1)
    exact = decide(prepare(scaler, settings), seen, History(), NOW)
    made = decide(
        prepare(with_pending(scaler, jobs=throughput), settings), seen, History(pending=before), NOW
    )

    assert min(exact.replicas, seen.replicas) <= made.replicas <= max(exact.replicas, seen.replicas)
    assert made.replicas <= exact.replicas
    assert made.status.current_metrics == exact.status.current_metrics
    assert made.absent == exact.absent
    if exact.replicas <= seen.replicas:
        assert made.replicas == exact.replicas
    if found := made.history.pending:
        assert all(credit >= 0 for credit in found.credited.values())


@given(_seen(), st.sampled_from([LIVE, Settings()]))
def test_without_the_option_nothing_changes(seen: Observation, settings: Settings) -> None:
    """Start-up times and doubts are in every observation, and only the option reads them."""
    spec = prepare(hpa([external_metric("jobs", averageValue="10")], behavior=FAST), settings)
    plain = msgspec.structs.replace(seen, ready_within=None, unsure_of_pods="")

    assert decide(spec, seen, History(), NOW) == decide(spec, plain, History(), NOW)
