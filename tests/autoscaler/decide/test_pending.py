"""Pending capacity in one decision after another: pods, credited, traces, and what it never does.

`scripts/credit` has stories of an autoscaler with a target of 10 jobs for each pod, which works off one job a
second and starts for a minute. After `> ` something happens:

- `spec FIELD=VALUE ...` is another spec: `pending` is what a pod works off, nothing is no option; `metrics`
  are names; with `at-once` it lowers without a window. `mode MODE SHOWN` is how it acts.
- `before FIELD=VALUE ...` is what is remembered of `ago` seconds before: a `credit`, `pods` that were pending
  or `slots` as N@AGE, and `replicas`. `recorded JOBS AGO` is what the former leader has published.
- `see FIELD=VALUE ...` decides on `jobs`, on pods that are `ready` or `starting` as N@AGE, `of` so many
  replicas, that start `within` so many seconds, or `unsure` for a reason. `next SECONDS ...` does so later,
  writes what it decides and goes on from there. `measured` is what the status shows.

`scripts/test tests/autoscaler/decide/test_pending.py --update` writes what is decided and remembered then.
"""

from collections.abc import Iterable
from pathlib import Path
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
from adapter.autoscaler.decide.guards.pending import MOST_SLOTS, PendingState, Slots
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
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.model.autoscaling.pending_capacity import BacklogCredit
from adapter.model.objects.pods import PodFacts
from adapter.model.quantity import read
from adapter.model.timestamps import SECOND, FineInstant
from tests.support.answers import answers
from tests.support.controller import LIVE
from tests.support.scaling import NOW, cpu_metric, external_metric, hpa, object_metric, with_pending
from tests.support.scripts import Scripts

THETA = 60 * SECOND
FAST = {"scaleUp": {"policies": [{"type": "Pods", "value": 100_000, "periodSeconds": 1}]}}
DOWN = Unavailable("Down", "no value")
MANY = ExternalReading([10_000_000])
JOBS = external_metric("jobs", averageValue="10")
METRICS = {"jobs": JOBS, "hits": object_metric("AverageValue", averageValue="10"), "cpu": cpu_metric()}
SCRIPTS = Scripts(Path(__file__).parent / "scripts" / "credit")


def ready_pods(count: int) -> list[PodFacts]:
    return [PodFacts(f"old-{number}", ready="True", created=NOW - 7200 * SECOND) for number in range(count)]


def starting(count: int, age: float, now: int = NOW, **facts: Any) -> list[PodFacts]:
    """Return pods that were made `age` seconds before `now` and are not Ready."""
    made = now - round(age * SECOND)
    pods = [PodFacts(f"new-{number}", ready="False", created=made) for number in range(count)]
    return [msgspec.structs.replace(each, **facts) for each in pods]


def see(*readings: Reading, of: int, pods: list[PodFacts], **more: Any) -> Observation:
    return Observation(of, of, "app=web", pods, readings, **{"ready_within": THETA} | more)


def started(groups: Iterable[tuple[int, float, dict[str, Any]]], now: int = NOW) -> list[PodFacts]:
    """Return starting pods: how many, how old, and what else is known of each group."""
    return [each for count, age, facts in groups for each in starting(count, age, now, **facts)]


def read_words(words: Iterable[str]) -> dict[str, str]:
    return {name: text for name, _, text in (word.partition("=") for word in words)}


def groups_of(text: str) -> list[tuple[int, int]]:
    """Return counts and ages in seconds, of `10@30,5@10`."""
    groups = [group.split("@") for group in text.split(",") if group]
    return [(int(count), int(age)) for count, age in groups]


class PendingScript:
    """The words of a story, and what is remembered between two decisions."""

    def __init__(self) -> None:
        self._now: int = NOW
        self._constraints = Constraints()
        self._memory = Memory()
        self.spec()

    def spec(self, *words: str) -> None:
        given = {"pending": "1", "metrics": "jobs", "minReplicas": "1"} | read_words(words)
        names = given["metrics"].split(",")
        scaler = hpa([METRICS[name] for name in names], behavior=FAST, minReplicas=int(given["minReplicas"]))
        if given["pending"]:
            scaler = with_pending(scaler, **{names[-1]: given["pending"]})
        window = 0 if "at-once" in given else LIVE.downscale_stabilization
        self._spec = prepare(scaler, msgspec.structs.replace(LIVE, downscale_stabilization=window))
        self._metrics = names

    def mode(self, mode: str, shown: str = "") -> None:
        boost = Boost(mode, shown=int(shown)) if shown else None
        self._constraints = Constraints(mode, boost=boost)

    def before(self, *words: str) -> None:
        given = {"credit": "0", "pods": "0", "ago": "0", "replicas": "20"} | read_words(words)
        at, pods = self._now - int(given["ago"]) * SECOND, int(given["pods"])
        slots = [Slots(at, pods)] if pods else []
        if "slots" in given:
            slots = [Slots(self._now - age * SECOND, count) for count, age in groups_of(given["slots"])]
        credited = {self._metrics[-1]: float(given["credit"]) * 1000}
        self._remember(PendingState(at, credited, pods, int(given["replicas"]), tuple(slots)))

    def recorded(self, jobs: str, ago: str) -> None:
        credited = (BacklogCredit("jobs", read(jobs), FineInstant(self._now - int(ago) * SECOND)),)
        self._remember(pending.inherited_state(credited, self._now))

    def _remember(self, state: PendingState | None) -> None:
        self._memory = msgspec.structs.replace(self._memory, history=History(pending=state))

    def see(self, *words: str) -> list[str]:
        seen = self._seen(**read_words(words))
        self._made = made = guarded.decide(self._spec, seen, self._memory, self._now, self._constraints)
        traces = [each.text() for each in made.trace if each.name.startswith("pending")]
        return [f"{made.replicas} replicas: {self._state(made.history.pending)}", *traces]

    def next(self, seconds: str, *words: str) -> list[str]:
        self._now += int(seconds) * SECOND
        said, seen = self.see(*words), self._seen(**read_words(words))
        boost = self._constraints.boost
        self._memory, _ = memories.commit(self._memory, self._made, seen, self._now, boost)
        return [*said, f"then {self._state(self._memory.history.pending)}"]

    def write(self, replicas: str) -> str:
        state = self._memory.history.pending
        assert state is not None
        self._remember(pending.written(state, int(replicas)))
        return self._state(self._memory.history.pending)

    def measured(self) -> str:
        (metric,) = self._made.status.current_metrics or ()
        assert metric.external is not None
        return f"{metric.external.current.average_value} for each pod"

    def _seen(
        self,
        jobs: str = "none",
        ready: str = "0",
        starting: str = "",
        of: str = "",
        within: str = "60",
        unsure: str = "",
    ) -> Observation:
        begun = groups_of(starting)
        pods = [*ready_pods(int(ready)), *started([(*group, {}) for group in begun], self._now)]
        amount = round(float(jobs) * 1000) if jobs != "none" else None
        values: dict[str, Reading] = {
            "jobs": ExternalReading([amount or 0]),
            "hits": ObjectReading(amount or 0),
            "cpu": DOWN,
        }
        return see(
            *(DOWN if amount is None else values.get(name, DOWN) for name in self._metrics),
            of=int(of or len(pods)),
            pods=pods,
            ready_within=None if within == "unknown" else int(within) * SECOND,
            unsure_of_pods=unsure,
            status=self._memory.status,
        )

    def _state(self, state: PendingState | None) -> str:
        if state is None:
            return "nothing is remembered"
        credit = ", ".join(f"{credit / 1000:.6g}" for credit in state.credited.values())
        slots = [f"{slot.pods}@{(self._now - slot.since) // SECOND}" for slot in state.slots or ()]
        count = "unknown" if state.pods is None else state.pods
        known = ",".join(slots) or "none" if state.slots is not None else "unknown"
        return f"credit {credit or 'none'}, {count} pending, slots {known}"


@pytest.mark.parametrize("title", SCRIPTS.titles)
async def test_script(title: str, pytestconfig: pytest.Config) -> None:
    await SCRIPTS.play(title, PendingScript(), pytestconfig)


@pytest.mark.parametrize(("groups", "unready"), answers("decide/pending", "pods"))
@pytest.mark.parametrize("age", [0, 59, 60, 119, 120, 10**6])
def test_a_slot_is_pending_until_a_pod_is_ready_and_for_the_start_up_time_at_most(
    groups: list[Any], unready: int, age: int
) -> None:
    """Of ten pods that were asked for."""
    before = PendingState(NOW, {}, 0, 20, (Slots(NOW - age * SECOND, 10),))

    found = pending.follow(
        before, {"jobs": 1000}, see(MANY, of=20, pods=[*ready_pods(10), *started(groups)]), NOW
    )

    assert found.pods == (unready if age < 60 else 0)
    assert bool(found.slots) == (bool(unready) and age < 120)


@pytest.mark.parametrize(("groups", "count"), answers("decide/pending", "pods at the beginning"))
def test_at_the_beginning_of_a_term_slots_are_as_old_as_their_pods(groups: list[Any], count: int) -> None:
    seen = see(MANY, of=20, pods=[*ready_pods(10), *started(groups)])

    assert pending.follow(None, {"jobs": 1000}, seen, NOW).pods == count


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


def test_the_record_is_what_the_state_says() -> None:
    found = PendingState(NOW, {"jobs": 1500.7, "mails": 0.3}, 3, 20, (Slots(NOW, 3),))
    credited = pending.list_credits(found)

    assert credited == (BacklogCredit("jobs", read("1500m"), FineInstant(NOW)),)
    assert pending.inherited_state(credited, NOW + SECOND) == PendingState(NOW, {"jobs": 1500.0})
    assert pending.inherited_state(credited, NOW - SECOND) == PendingState(NOW - SECOND, {"jobs": 1500.0})
    for nothing in (None, (), (BacklogCredit("jobs", read("-1")),)):
        assert pending.inherited_state(nothing, NOW) is None
    assert pending.list_credits(None) == ()


@pytest.mark.parametrize("by", [-7200 * SECOND, 7200 * SECOND])
def test_what_was_told_as_a_time_of_day_has_the_same_age_after_the_clock_was_set(by: int) -> None:
    """The record of the previous owner, and the times at which the API server has made pods."""
    credited = pending.list_credits(PendingState(NOW, {"jobs": 1500.0}), by)
    assert [credit.time for credit in credited] == [NOW + by]
    assert pending.inherited_state(credited, NOW + SECOND, by) == PendingState(NOW, {"jobs": 1500.0})

    pods = [*ready_pods(10), *starting(4, 30, NOW + by), *starting(6, 10, NOW + by)]
    assert pending.follow(None, {"jobs": 1000}, see(MANY, of=20, pods=pods, set_by=by), NOW).credited == {
        "jobs": (4 * 30 + 6 * 10) * 1000.0
    }


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
