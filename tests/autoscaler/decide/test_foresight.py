"""The next change of the count while the load stays: against a sync in each second."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.autoscaler.decide import foresight, guarded
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.boost import Boost, Boosting
from adapter.autoscaler.decide.conflicts import ConflictState
from adapter.autoscaler.decide.foresight import BoundsFrom, Foreseen
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.memory import Memory
from adapter.autoscaler.decide.observation import Observation, Reading, Settings, Unavailable
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.bounds.timeline import Bounds
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.autoscaling.floor import Floor
from adapter.model.timestamps import SECOND, FineInstant
from tests.support import thorough
from tests.support.controller import QUEUE, fpa, wanted
from tests.support.scaling import NOW, pods

LONGEST = 200
"""For how many seconds a sync is made in each: all windows and periods here end sooner."""


class Story:
    """An autoscaler that is decided once a second."""

    def __init__(self, *, replicas: int = 4, **spec: Any) -> None:
        autoscaler = fpa(QUEUE, **spec)
        self.spec = prepare(fastpath_autoscaler.with_defaults(autoscaler), Settings())
        self.constraints = Constraints.of(autoscaler.spec)
        self.memory, self.now, self.replicas = Memory(), int(NOW), replicas
        self.seen = self.observe(replicas)

    def observe(self, wish: int | None) -> Observation:
        reading: Reading = Unavailable("NoMetrics", "none") if wish is None else wanted(wish)
        return Observation(self.replicas, self.replicas, "app=web", pods(self.replicas), [reading])

    def decide(self, wish: int | None, seconds: int = 1) -> None:
        for _ in range(seconds):
            self.now += SECOND
            self.seen = self.observe(wish)
            decision = guarded.decide(self.spec, self.seen, self.memory, self.now, self.constraints)
            self.memory, _ = memories.commit(
                self.memory, decision, self.seen, self.now, self.constraints.boost, self.constraints.fallback
            )
            self.replicas = decision.replicas

    def foresee(self, *ahead: BoundsFrom) -> Foreseen | None:
        seen = msgspec.structs.replace(self.seen, replicas=self.replicas)
        return foresight.foresee(self.spec, seen, self.memory, self.now, self.constraints, ahead)

    def seconds_to(self, foreseen: Foreseen | None) -> tuple[int, float] | None:
        return None if foreseen is None else (foreseen.replicas, (foreseen.at - self.now) / SECOND)

    def wait(self, wish: int | None) -> tuple[int, int] | None:
        """Return the first other count, and after how many seconds it is decided; None for none."""
        before = self.replicas
        seen = msgspec.structs.replace(self.seen, replicas=before)
        for second in range(LONGEST):
            decision = guarded.decide(
                self.spec, seen, self.memory, self.now + second * SECOND, self.constraints
            )
            if decision.replicas != before:
                return decision.replicas, second
            self.memory, _ = memories.commit(
                self.memory,
                decision,
                seen,
                self.now + second * SECOND,
                self.constraints.boost,
                self.constraints.fallback,
            )
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
    story = Story(replicas=replicas, behavior=behavior)
    for wish, seconds in load:
        story.decide(wish, seconds)

    foreseen, came = story.seconds_to(story.foresee()), story.wait(load[-1][0])

    if came is None:
        assert foreseen is None
    else:
        assert foreseen is not None
        assert (foreseen[0], came[1] - 1 < foreseen[1] <= came[1]) == (came[0], True)


def test_a_scale_down_waits_for_the_window() -> None:
    story = Story(replicas=10)
    story.decide(10, 5)
    story.decide(6, 10)

    assert story.seconds_to(story.foresee()) == (6, 290)


def test_without_behavior_a_recommendation_as_old_as_the_window_still_counts() -> None:
    story = Story(replicas=10)
    story.spec = prepare(fpa(QUEUE), Settings())
    story.decide(10, 5)
    story.decide(6, 10)

    assert story.foresee() == Foreseen(6, story.now + 290 * SECOND + 1)


def test_a_count_that_follows_its_metrics_does_not_change() -> None:
    story = Story(replicas=10)
    story.decide(10, 400)

    assert story.foresee() is None


def test_a_window_of_a_schedule_begins() -> None:
    story = Story(replicas=10)
    story.decide(10, 400)

    begins = BoundsFrom(story.now + 60 * SECOND, Bounds(min=15))
    ends = BoundsFrom(story.now + 90 * SECOND, Bounds())
    assert story.seconds_to(story.foresee(begins, ends)) == (15, 60)


def test_no_more_than_64_decisions_are_made() -> None:
    story = Story(replicas=10)
    story.decide(10, 400)

    without = [BoundsFrom(story.now + second * SECOND, Bounds(min=1)) for second in range(1, 64)]
    assert story.foresee(*without, BoundsFrom(story.now + 64 * SECOND, Bounds(min=15))) is None
    assert story.foresee(*without[1:], BoundsFrom(story.now + 64 * SECOND, Bounds(min=15))) is not None


def test_a_pause_after_reversals_ends() -> None:
    story = Story(replicas=4)
    story.decide(4, 5)
    state = ConflictState(known=4, paused_until=story.now + 30 * SECOND, paused_by="argocd")
    story.memory = msgspec.structs.replace(story.memory, conflicts=state)
    story.decide(8, 5)

    assert story.seconds_to(story.foresee()) == (8, 25)


def test_a_fallback_begins() -> None:
    story = Story(replicas=4, fallback={"type": "Floor", "after": "30s", "replicas": 9})
    story.decide(4, 5)
    story.decide(None, 10)

    assert story.seconds_to(story.foresee()) == (8, 21)  # a policy allows twice the pods


def test_a_last_good_count_never_lowers() -> None:
    story = Story(replicas=4, fallback={"type": "LastGood", "after": "30s", "lastGoodFor": "60s"})
    story.decide(4, 5)
    story.decide(None, 10)

    assert story.foresee() is None


def test_a_wait_for_idle_pods_ends() -> None:
    drain = {"prefer": "Idle", "metric": "connections", "drain": {"timeout": "60s"}}
    down = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    story = Story(replicas=10, scaleDown=drain, behavior=down)
    story.seen = msgspec.structs.replace(story.observe(4), idle=0)
    decision = guarded.decide(story.spec, story.seen, story.memory, story.now, story.constraints)
    story.memory, _ = memories.commit(story.memory, decision, story.seen, story.now)

    assert story.seconds_to(story.foresee()) == (4, 60)


def test_what_the_hpa_lowers_itself_is_foreseen_after_its_floor() -> None:
    story = Story(replicas=10)
    story.constraints = story.constraints._replace(mode=BOOST, boost=Boost(mode=BOOST))
    story.decide(10, 5)
    story.decide(6, 400)
    assert story.seconds_to(story.foresee()) == (6, 0)

    floor = Floor(replicas=8, until=FineInstant(story.now + 20 * SECOND))
    story.memory = msgspec.structs.replace(story.memory, boost=Boosting(floor=floor))
    assert story.seconds_to(story.foresee()) == (8, 0)
    story.replicas = 8
    assert story.seconds_to(story.foresee()) == (6, 20)
