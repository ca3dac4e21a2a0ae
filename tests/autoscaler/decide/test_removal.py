"""Which pods a ReplicaSet removes once costs are written, and what the HPA controller is about to remove."""

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import removal
from adapter.autoscaler.decide.guards.boost import Boost, Boosting
from adapter.autoscaler.decide.observation import is_active
from adapter.autoscaler.decide.sync import Decision
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.autoscaling.floor import Floor
from adapter.model.objects.pods import PodFacts
from adapter.model.timestamps import SECOND, FineInstant
from tests.autoscaler.decide.synced import SyncedScaler
from tests.support.answers import answers
from tests.support.scaling import NOW, remembered


def pod(name: str, **facts: Any) -> WatchedPod:
    known: dict[str, Any] = {"ready": "True", "ready_since": NOW} | facts
    return WatchedPod(name, **known)


def removed(listed: list[WatchedPod], count: int) -> set[str]:
    """Return what a ReplicaSet deletes: the reference, from ``ActivePodsWithRanks`` of Kubernetes 1.36."""
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}

    def order(one: WatchedPod) -> tuple[int, bool, int, int]:
        return phases[one.phase], one.ready == "True", one.cost or 0, -one.ready_since

    active = [one for one in listed if not one.deleting and one.phase in phases]
    return {one.name for one in sorted(active, key=order)[:count]}


def marked(listed: list[WatchedPod], chosen: Iterable[removal.Chosen]) -> list[WatchedPod]:
    costs = dict(chosen)
    return [msgspec.structs.replace(one, cost=costs.get(one.name, one.cost)) for one in listed]


PODS = st.lists(
    st.builds(
        pod,
        st.just(""),
        phase=st.sampled_from(["Running", "Running", "Running", "Pending", "Failed", "Succeeded"]),
        ready=st.sampled_from(["True", "True", "False", None]),
        deleting=st.sampled_from([False, False, False, True]),
        ready_since=st.integers(0, 3),
        cost=st.sampled_from([None, None, None, None, -100, 0, 7]),
    ),
    min_size=6,
    max_size=12,
)


@given(PODS, st.integers(1, 8), st.lists(st.none() | st.integers(0, 5), min_size=12, max_size=12))
def test_the_idlest_pods_go(listed: list[WatchedPod], count: int, given_: list[int | None]) -> None:
    listed = [msgspec.structs.replace(one, name=f"web-{at}") for at, one in enumerate(listed)]
    values = {one.name: value for one, value in zip(listed, given_, strict=False) if value is not None}
    chosen = removal.choose(listed, values, count).costs
    gone = removed(marked(listed, chosen), count)

    ours = {one.name for one in listed if is_active(one) and one.running_and_ready and one.cost is None}
    ranked = ours & values.keys()
    stay = ranked - gone
    assert len(chosen) <= count
    assert dict(chosen).keys() <= ranked & gone
    assert all(values[name] <= min((values[other] for other in stay), default=6) for name in dict(chosen))
    assert all(cost < 0 for _, cost in chosen)
    # whatever is not ranked goes only where Kubernetes would have it go, or nothing idler is left
    assert stay == set() or not (gone & ours - values.keys())


def test_of_equal_pods_the_youngest_go_and_costs_follow_the_order() -> None:
    listed = [pod("old", ready_since=1), pod("young", ready_since=9), pod("busy"), pod("mid", ready_since=5)]
    values = {"old": 3, "young": 3, "mid": 3, "busy": 9}
    assert removal.choose(listed, values, 3) == ((("young", -4), ("mid", -3), ("old", -2)), ())


def test_pods_that_are_marked_already_need_no_other_cost() -> None:
    listed = [pod("a"), pod("b", cost=-3), pod("c")]
    assert removal.choose(listed, {"a": 0, "b": 1, "c": 2}, 3, {"b"}) == ((("a", -3), ("c", -1)), ())


def test_a_marked_pod_gives_its_place_to_one_that_is_clearly_idler() -> None:
    listed = [pod(name, cost=-4 if name in "cd" else None) for name in "abcd"]
    values = {"a": 10, "b": 70, "c": 90, "d": 100}
    choice = removal.choose(listed, values, 2, {"c", "d"})
    assert choice.without_exchange() == ((), ())
    assert choice == ((("a", -4),), ("d",))
    assert removal.choose(listed, values | {"a": 75, "b": 80}, 2, {"c", "d"}) == ((), ())


def test_an_exchange_is_apart_from_the_costs_that_are_missing() -> None:
    listed = [pod(name, cost=-4 if name == "d" else None) for name in "abcd"]
    choice = removal.choose(listed, {"a": 1, "b": 2, "c": 3, "d": 100}, 2, {"d"})
    assert choice.without_exchange() == ((("a", -4),), ())
    assert choice == ((("a", -4), ("b", -3)), ("d",))


def test_fewer_that_go_than_are_marked_lose_no_mark() -> None:
    listed = [pod(name, cost=-4) for name in "abc"]
    assert removal.choose(listed, {"a": 1, "b": 2, "c": 3}, 1, set("abc")) == ((), ())


def test_marked_pods_without_a_value_keep_their_mark() -> None:
    listed = [pod("a", cost=-4), pod("b"), pod("c")]
    assert removal.choose(listed, {"b": 1, "c": 2}, 2, {"a"}) == ((("b", -3),), ())


def test_the_cost_of_a_pod_may_be_unknown() -> None:
    assert removal.choose([PodFacts("a", ready="True")], {"a": 1}, 1) == ((("a", -1),), ())


def test_idle_pods() -> None:
    listed = [pod("new", ready="False"), pod("gone", deleting=True), pod("a"), pod("b"), pod("unknown")]
    assert removal.count_idle(listed, {"a": 500, "b": 501, "gone": 0}, 500) == 2
    assert removal.count_active(listed) == 4


@pytest.mark.parametrize(("kind", "labels", "has_one"), answers("decide/removal", "targets"))
def test_targets_with_a_replica_set(kind: str, labels: dict[str, str], has_one: bool) -> None:  # noqa: FBT001
    assert removal.has_replica_set(kind, [PodFacts("a", labels=labels)]) is has_one


# -- the scale-down of the HPA controller --------------------------------------------------------------------

AHEAD = 16 * SECOND


def decide(wanted: int | None, *wishes: tuple[int, int], current: int = 10) -> Decision:
    """Return a decision for a boosted HPA with a window of a minute; `wishes` are counts and ages in s."""
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 60}}
    boosted = Constraints(BOOST, boost=Boost(BOOST))
    scaler = SyncedScaler(current, constraints=boosted, behavior=behavior)
    scaler.change(history=remembered(*wishes))
    return scaler.decide(wanted, after=0)


@pytest.mark.parametrize(("wanted", "wishes", "count"), answers("decide/removal", "foreseen"))
def test_foreseen(wanted: int | None, wishes: list[tuple[int, int]], count: int) -> None:
    made = decide(wanted, *wishes)
    assert removal.foresee(made, Boosting(), 10, NOW + AHEAD) == count


def test_a_floor_keeps_the_count_until_it_ends() -> None:
    made = decide(4, (10, 50))
    held = Boosting(Floor(replicas=8, until=FineInstant(NOW + AHEAD + 1)))
    assert removal.foresee(made, held, 10, NOW + AHEAD) == 8
    assert removal.foresee(made, held, 10, NOW + AHEAD + 1) == 4


def test_nothing_is_foreseen_of_a_decision_about_no_metric() -> None:
    made = msgspec.structs.replace(decide(4, (10, 50)), wanted=None)
    assert removal.foresee(made, Boosting(), 10, NOW + AHEAD) == 10
    assert removal.foresee(decide(0, (0, 50), current=0), Boosting(), 0, NOW + AHEAD) == 0
