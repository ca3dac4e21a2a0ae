"""The next change of the count while the load stays: against a sync in each second."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from adapter.autoscaler.decide import foresight
from adapter.autoscaler.decide.foresight import BoundsFrom, Foreseen
from adapter.bounds.timeline import Bounds
from adapter.model.timestamps import SECOND
from tests.autoscaler.decide.synced import AT_ONCE, SyncedScaler
from tests.support import thorough

LONGEST = 200
"""For how many seconds a sync is made in each: all windows and periods here end sooner."""


def foresee(scaler: SyncedScaler, wish: int | None, *ahead: BoundsFrom) -> Foreseen | None:
    seen = scaler.observe(wish)
    return foresight.foresee(scaler.spec, seen, scaler.memory, scaler.now, scaler.constraints, ahead)


def seconds_to(scaler: SyncedScaler, wish: int | None, *ahead: BoundsFrom) -> tuple[int, float] | None:
    foreseen = foresee(scaler, wish, *ahead)
    return None if foreseen is None else (foreseen.replicas, (foreseen.at - scaler.now) / SECOND)


def follow(scaler: SyncedScaler, wish: int | None, seconds: int) -> None:
    for _ in range(seconds):
        scaler.decide(wish)


def wait(scaler: SyncedScaler, wish: int | None) -> tuple[int, int] | None:
    """Return the first other count, and after how many seconds it is decided; None for none."""
    before = scaler.replicas
    for second in range(LONGEST):
        if scaler.decide(wish, after=min(second, 1)).replicas != before:
            return scaler.replicas, second
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
    scaler, last = SyncedScaler(replicas, behavior=behavior), load[-1][0]
    for wish, seconds in load:
        follow(scaler, wish, seconds)

    foreseen, came = seconds_to(scaler, last), wait(scaler, last)

    if came is None:
        assert foreseen is None
    else:
        assert foreseen is not None
        assert (foreseen[0], came[1] - 1 < foreseen[1] <= came[1]) == (came[0], True)


def settled() -> SyncedScaler:
    """Return one of ten replicas whose load has asked for them for longer than any window."""
    scaler = SyncedScaler()
    follow(scaler, 10, 400)
    return scaler


def test_no_more_than_64_decisions_are_made() -> None:
    scaler = settled()
    without = [BoundsFrom(scaler.now + second * SECOND, Bounds(min=1)) for second in range(1, 64)]
    begins = BoundsFrom(scaler.now + 64 * SECOND, Bounds(min=15))

    assert foresee(scaler, 10, *without, begins) is None
    assert foresee(scaler, 10, *without[1:], begins) is not None


def test_a_wait_for_idle_pods_ends() -> None:
    drain = {"prefer": "Idle", "metric": "connections", "drain": {"timeout": "60s"}}
    scaler = SyncedScaler(scaleDown=drain, behavior=AT_ONCE)
    scaler.decide(4, idle=0)
    seen = scaler.observe(4, idle=0)

    assert foresight.foresee(
        scaler.spec, seen, scaler.memory, scaler.now, scaler.constraints, ()
    ) == Foreseen(4, scaler.now + 60 * SECOND)
