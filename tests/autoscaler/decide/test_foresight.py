"""The next change of the count while the load stays: against a sync in each second."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.autoscaler.decide import foresight
from adapter.autoscaler.decide.boost import Boost, Boosting
from adapter.autoscaler.decide.conflicts import ConflictState
from adapter.autoscaler.decide.foresight import BoundsFrom, Foreseen
from adapter.autoscaler.decide.observation import Settings
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.bounds.timeline import Bounds
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.autoscaling.floor import Floor
from adapter.model.timestamps import SECOND, FineInstant
from tests.support import thorough
from tests.support.controller import QUEUE, fpa
from tests.support.guarded import GuardedScaler

LONGEST = 200
"""For how many seconds a sync is made in each: all windows and periods here end sooner."""


class ForeseeingScaler(GuardedScaler):
    """One of which the next change is foreseen."""

    def foresee(self, *ahead: BoundsFrom) -> Foreseen | None:
        seen = msgspec.structs.replace(self.seen, replicas=self.replicas)
        return foresight.foresee(self.spec, seen, self.memory, self.now, self.constraints, ahead)

    def seconds_to(self, foreseen: Foreseen | None) -> tuple[int, float] | None:
        return None if foreseen is None else (foreseen.replicas, (foreseen.at - self.now) / SECOND)

    def wait(self, wish: int | None) -> tuple[int, int] | None:
        """Return the first other count, and after how many seconds it is decided; None for none."""
        before = self.replicas
        for second in range(LONGEST):
            if self.decide(wish, after=min(second, 1)).replicas != before:
                return self.replicas, second
        return None


_directions = st.fixed_dictionaries(
    {
        "stabilizationWindowSeconds": st.integers(0, 60),
        "selectPolicy": st.sampled_from(["Max", "Min", "Disabled"]),
        "policies": st.lists(
            st.fixed_dictionaries(
                {
                    "type": st.sampled_from(["Pods", "Percent"]),
                    "value": st.integers(1, 100),
                    "periodSeconds": st.integers(1, 60),
                }
            ),
            min_size=1,
            max_size=2,
        ),
    }
)


@settings(max_examples=500 if thorough.is_chosen() else 30)
@given(
    st.fixed_dictionaries({"scaleUp": _directions, "scaleDown": _directions}),
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 40)), min_size=1, max_size=6),
)
def test_a_change_is_foreseen_in_the_second_in_which_it_comes(
    behavior: dict[str, Any], replicas: int, load: list[tuple[int, int]]
) -> None:
    scaler = ForeseeingScaler(replicas, behavior=behavior)
    for wish, seconds in load:
        scaler.follow(wish, seconds)

    foreseen, came = scaler.seconds_to(scaler.foresee()), scaler.wait(load[-1][0])

    if came is None:
        assert foreseen is None
    else:
        assert foreseen is not None
        assert (foreseen[0], came[1] - 1 < foreseen[1] <= came[1]) == (came[0], True)


def test_a_scale_down_waits_for_the_window() -> None:
    scaler = ForeseeingScaler(10)
    scaler.follow(10, 5)
    scaler.follow(6, 10)

    assert scaler.seconds_to(scaler.foresee()) == (6, 290)


def test_without_behavior_a_recommendation_as_old_as_the_window_still_counts() -> None:
    scaler = ForeseeingScaler(10)
    scaler.spec = prepare(fpa(QUEUE), Settings())
    scaler.follow(10, 5)
    scaler.follow(6, 10)

    assert scaler.foresee() == Foreseen(6, scaler.now + 290 * SECOND + 1)


def test_a_count_that_follows_its_metrics_does_not_change() -> None:
    scaler = ForeseeingScaler(10)
    scaler.follow(10, 400)

    assert scaler.foresee() is None


def test_a_window_of_a_schedule_begins() -> None:
    scaler = ForeseeingScaler(10)
    scaler.follow(10, 400)

    begins = BoundsFrom(scaler.now + 60 * SECOND, Bounds(min=15))
    ends = BoundsFrom(scaler.now + 90 * SECOND, Bounds())
    assert scaler.seconds_to(scaler.foresee(begins, ends)) == (15, 60)


def test_no_more_than_64_decisions_are_made() -> None:
    scaler = ForeseeingScaler(10)
    scaler.follow(10, 400)

    without = [BoundsFrom(scaler.now + second * SECOND, Bounds(min=1)) for second in range(1, 64)]
    assert scaler.foresee(*without, BoundsFrom(scaler.now + 64 * SECOND, Bounds(min=15))) is None
    assert scaler.foresee(*without[1:], BoundsFrom(scaler.now + 64 * SECOND, Bounds(min=15))) is not None


def test_a_pause_after_reversals_ends() -> None:
    scaler = ForeseeingScaler(4)
    scaler.follow(4, 5)
    state = ConflictState(known=4, paused_until=scaler.now + 30 * SECOND, paused_by="argocd")
    scaler.memory = msgspec.structs.replace(scaler.memory, conflicts=state)
    scaler.follow(8, 5)

    assert scaler.seconds_to(scaler.foresee()) == (8, 25)


def test_a_fallback_begins() -> None:
    scaler = ForeseeingScaler(4, fallback={"type": "Floor", "after": "30s", "replicas": 9})
    scaler.follow(4, 5)
    scaler.follow(None, 10)

    assert scaler.seconds_to(scaler.foresee()) == (8, 21)  # a policy allows twice the pods


def test_a_last_good_count_never_lowers() -> None:
    scaler = ForeseeingScaler(4, fallback={"type": "LastGood", "after": "30s", "lastGoodFor": "60s"})
    scaler.follow(4, 5)
    scaler.follow(None, 10)

    assert scaler.foresee() is None


def test_a_wait_for_idle_pods_ends() -> None:
    drain = {"prefer": "Idle", "metric": "connections", "drain": {"timeout": "60s"}}
    down = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    scaler = ForeseeingScaler(10, scaleDown=drain, behavior=down)
    scaler.decide(4, idle=0)

    assert scaler.seconds_to(scaler.foresee()) == (4, 60)


def test_what_the_hpa_lowers_itself_is_foreseen_after_its_floor() -> None:
    scaler = ForeseeingScaler(10)
    scaler.constraints = scaler.constraints._replace(mode=BOOST, boost=Boost(mode=BOOST))
    scaler.follow(10, 5)
    scaler.follow(6, 400)
    assert scaler.seconds_to(scaler.foresee()) == (6, 0)

    floor = Floor(replicas=8, until=FineInstant(scaler.now + 20 * SECOND))
    scaler.memory = msgspec.structs.replace(scaler.memory, boost=Boosting(floor=floor))
    assert scaler.seconds_to(scaler.foresee()) == (8, 0)
    scaler.replicas = 8
    assert scaler.seconds_to(scaler.foresee()) == (6, 20)
