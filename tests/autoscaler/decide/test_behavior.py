"""Windows, policies and limits beyond the worked examples, with the behaviors of Kubernetes' docs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide import behavior
from adapter.autoscaler.decide.behavior import Normalized, Policy, ReplicaLimits, Rules
from adapter.autoscaler.decide.history import History, ScaleEvent
from adapter.model.timestamps import SECOND
from tests.autoscaler.decide.synced import SyncedScaler
from tests.support.answers import answers
from tests.support.scaling import NOW, remembered

WIDE = ReplicaLimits(1, 10**6)


def _rules(*policies: tuple[str, int, int], select: str = "Max", window: float = 0) -> Rules:
    listed = (Policy(kind == "Percent", value, period * SECOND) for kind, value, period in policies)
    return Rules(int(window * SECOND), select, tuple(listed))


FREE = _rules(("Percent", 10**6, 1))
THREE_PODS = _rules(("Pods", 3, 60))


def _legacy(
    wanted: int, current: int, limits: ReplicaLimits = WIDE, window: float = 300, past: History | None = None
) -> Normalized:
    recommendations = (past or History()).recommendations
    return behavior.normalize_legacy(wanted, current, limits, int(window * SECOND), recommendations, NOW)


def _modern(
    wanted: int,
    current: int,
    limits: ReplicaLimits = WIDE,
    up: Rules = FREE,
    down: Rules = FREE,
    past: History | None = None,
) -> Normalized:
    return behavior.normalize(wanted, current, limits, up, down, past or History(), NOW)


def test_without_behavior_a_recommendation_of_exactly_the_age_of_the_window_counts() -> None:
    stabilized, *_ = _legacy(3, 5, window=90.5, past=remembered((4, 90.5))).steps
    words = "3 becomes 4 (scale-down stabilization): the highest recommendation in 90.5 s was 4"

    assert stabilized.text() == words


@pytest.mark.parametrize(
    ("wanted", "current", "limits", "rules", "replicas", "limited"), answers("decide/behavior", "limits")
)
def test_limits(
    wanted: int, current: int, limits: list[int], rules: dict[str, Any], replicas: int, limited: str
) -> None:
    both = _rules(*rules["policies"], select=rules["select"])
    normalized = _modern(wanted, current, ReplicaLimits(*limits), both, both)

    is_limited = limited != "DesiredWithinRange"
    assert (normalized.replicas, normalized.limited, normalized.is_limited) == (replicas, limited, is_limited)


@pytest.mark.parametrize(("rules", "up", "down", "by"), answers("decide/behavior", "policies"))
def test_policy_limits(rules: dict[str, Any], up: int, down: int, by: str) -> None:
    for limit, expected in ((behavior.raise_limit, up), (behavior.lower_limit, down)):
        replicas, policy = limit(10, _rules(*rules["policies"], select=rules["select"]), (), (), NOW)
        assert (replicas, str(policy)) == (expected, by)


def test_longest_period() -> None:
    assert _rules(("Pods", 1, 15), ("Percent", 1, 600), ("Pods", 1, 60)).longest_period == 600 * SECOND


_RULES = st.builds(
    lambda policies, select, window: _rules(*policies, select=select, window=window),
    st.lists(
        st.tuples(st.sampled_from(["Pods", "Percent"]), st.integers(1, 300), st.integers(1, 1800)),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["Max", "Min", "Disabled"]),
    st.integers(0, 3600),
)
_PAST = st.lists(st.tuples(st.integers(0, 60), st.floats(0, 4000)), max_size=6)
_CHANGES = st.lists(st.tuples(st.integers(1, 20), st.floats(0, 2000)), max_size=4)


@given(
    wanted=st.integers(0, 200),
    current=st.integers(1, 50),
    up=_RULES,
    down=_RULES,
    entries=_PAST,
    ups=_CHANGES,
    downs=_CHANGES,
    window=st.integers(0, 3600),
)
def test_stays_within_minimum_and_maximum(
    wanted: int,
    current: int,
    up: Rules,
    down: Rules,
    entries: list[tuple[int, float]],
    ups: list[tuple[int, float]],
    downs: list[tuple[int, float]],
    window: int,
) -> None:
    limits = ReplicaLimits(1, 50)
    past = remembered(*entries, ups=ups, downs=downs)

    modern = _modern(wanted, current, limits, up, down, past)
    legacy = _legacy(wanted, current, limits, window, past)

    assert 1 <= modern.replicas <= 50
    assert 1 <= legacy.replicas <= 50
    if up.select == "Disabled":
        assert modern.replicas <= current
    if down.select == "Disabled":
        assert modern.replicas >= current
    if wanted >= current:
        assert modern.replicas >= current
    else:
        assert modern.replicas <= current
    assert all(step.text() for step in (*modern.steps, *legacy.steps))


# --- what Kubernetes' documentation shows ------------------------------------------------------------------

NOW_DOWN = {"stabilizationWindowSeconds": 0}
PODS_4 = {"type": "Pods", "value": 4, "periodSeconds": 60}
PERCENT_10 = {"type": "Percent", "value": 10, "periodSeconds": 60}


def test_ten_per_cent_or_four_pods_a_minute() -> None:
    """80 pods lose 8, then 8 of 72, and below 40 four a minute, which is more than a tenth then."""
    scaler = SyncedScaler(
        80, behavior={"scaleDown": {**NOW_DOWN, "policies": [PODS_4, PERCENT_10]}}, maxReplicas=80
    )

    assert scaler.counts(range(0, 721, 60), 10) == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16, 12]


@pytest.mark.parametrize(("facts", "room"), [({}, 4), ({"assumed": True}, 0), ({"inherited": True}, 0)])
def test_a_change_of_uncertain_time_makes_no_room_for_its_opposite(facts: dict[str, bool], room: int) -> None:
    changes = (ScaleEvent(4, NOW - SECOND, **facts),)
    assert behavior.raise_limit(10, THREE_PODS, (), changes, NOW)[0] == 13 + room
    assert behavior.lower_limit(10, THREE_PODS, changes, (), NOW)[0] == 7 - room
    assert behavior.raise_limit(10, THREE_PODS, changes, (), NOW)[0] == 9
    assert behavior.lower_limit(10, THREE_PODS, (), changes, NOW)[0] == 11
