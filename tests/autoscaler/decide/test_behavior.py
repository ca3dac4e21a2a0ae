"""Windows, policies and limits beyond the worked examples, with the behaviors of Kubernetes' docs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide import behavior
from adapter.autoscaler.decide.behavior import Normalized, Policy, ReplicaLimits, Rules
from adapter.autoscaler.decide.history import History, RecommendationList
from adapter.model.timestamps import SECOND
from tests.support.scaling import NOW, Story, remembered

WIDE = ReplicaLimits(1, 10**6)


def _rules(*policies: tuple[str, int, int], select: str = "Max", window: float = 0) -> Rules:
    listed = (Policy(kind == "Percent", value, period * SECOND) for kind, value, period in policies)
    return Rules(int(window * SECOND), select, tuple(listed))


FREE = _rules(("Percent", 10**6, 1))


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


# --- without behavior --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (_legacy(5, 5), ["stabilization does not change 5"]),
        (
            _legacy(3, 5, past=remembered((4, 9))),
            ["3 becomes 4 (scale-down stabilization): the highest recommendation in 300 s was 4"],
        ),
        (
            _legacy(3, 5, window=90.5, past=remembered((4, 90.5))),
            ["3 becomes 4 (scale-down stabilization): the highest recommendation in 90.5 s was 4"],
        ),
        (
            _legacy(9, 1),
            [
                "stabilization does not change 9",
                "9 limited to 4 by twice the replicas, at least 4, in one sync",
            ],
        ),
        (
            _legacy(9, 5, ReplicaLimits(1, 8)),
            ["stabilization does not change 9", "9 limited to 8 by the maximum"],
        ),
        (
            _legacy(0, 5, ReplicaLimits(1, 8)),
            ["stabilization does not change 0", "0 limited to 1 by the minimum"],
        ),
    ],
)
def test_legacy_in_words(found: Normalized, words: list[str]) -> None:
    assert [step.text() for step in found.steps] == words


# --- with behavior -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("up", "down", "stale"),
    [(60, 300, 300), (300, 60, 300), (0, 0, 0)],
)
def test_entries_outside_all_windows_are_overwritten(up: float, down: float, stale: float) -> None:
    rules = _rules(("Pods", 1, 1), window=up), _rules(("Pods", 1, 1), window=down)
    past = remembered((1, stale + 0.001), (2, stale))

    found = _modern(9, 5, up=rules[0], down=rules[1], past=past)

    assert isinstance(found.recommendations, RecommendationList)
    assert [entry.replicas for entry in found.recommendations.entries] == [9, 2]


@pytest.mark.parametrize(
    ("wanted", "current", "limits", "rules", "replicas", "limited"),
    [
        pytest.param(9, 5, ReplicaLimits(1, 8), FREE, 8, "TooManyReplicas", id="the maximum"),
        pytest.param(8, 5, ReplicaLimits(1, 8), FREE, 8, "DesiredWithinRange", id="the maximum itself"),
        pytest.param(
            9,
            5,
            ReplicaLimits(1, 8),
            _rules(("Pods", 3, 60)),
            8,
            "TooManyReplicas",
            id="the policy's limit is the maximum",
        ),
        pytest.param(
            9,
            5,
            ReplicaLimits(1, 9),
            _rules(("Pods", 3, 60)),
            8,
            "ScaleUpLimit",
            id="the policy's limit is below",
        ),
        pytest.param(1, 5, ReplicaLimits(2, 8), FREE, 2, "TooFewReplicas", id="the minimum"),
        pytest.param(2, 5, ReplicaLimits(2, 8), FREE, 2, "DesiredWithinRange", id="the minimum itself"),
        pytest.param(
            1,
            5,
            ReplicaLimits(2, 8),
            _rules(("Pods", 3, 60)),
            2,
            "TooFewReplicas",
            id="the policy's limit is the minimum",
        ),
        pytest.param(
            0,
            5,
            ReplicaLimits(1, 8),
            _rules(("Pods", 3, 60)),
            2,
            "ScaleDownLimit",
            id="the policy's limit is above",
        ),
        pytest.param(
            1, 5, WIDE, _rules(("Pods", 3, 60), select="Disabled"), 5, "ScaleDownLimit", id="disabled down"
        ),
        pytest.param(
            1,
            5,
            ReplicaLimits(0, 8),
            _rules(("Percent", 300, 60)),
            1,
            "DesiredWithinRange",
            id="more than all",
        ),
        pytest.param(
            5,
            5,
            ReplicaLimits(6, 8),
            FREE,
            5,
            "DesiredWithinRange",
            id="limits do not matter without a change",
        ),
    ],
)
def test_limits(
    wanted: int, current: int, limits: ReplicaLimits, rules: Rules, replicas: int, limited: str
) -> None:
    found = _modern(wanted, current, limits, rules, rules)

    assert (found.replicas, found.limited, found.is_limited) == (
        replicas,
        limited,
        limited != "DesiredWithinRange",
    )


@pytest.mark.parametrize(
    ("rules", "up", "down", "by"),
    [
        pytest.param(_rules(("Pods", 4, 60)), 14, 6, "Pods 4 per 60 s", id="pods"),
        pytest.param(_rules(("Percent", 50, 60)), 15, 5, "Percent 50 per 60 s", id="per cent"),
        pytest.param(_rules(("Percent", 300, 60)), 40, -20, "Percent 300 per 60 s", id="more than all"),
        pytest.param(
            _rules(("Pods", 4, 60), ("Percent", 50, 15)), 15, 5, "Percent 50 per 15 s", id="the farthest"
        ),
        pytest.param(
            _rules(("Pods", 4, 60), ("Percent", 50, 15), select="Min"),
            14,
            6,
            "Pods 4 per 60 s",
            id="the nearest",
        ),
        pytest.param(
            _rules(("Pods", 5, 60), ("Percent", 50, 15)), 15, 5, "Pods 5 per 60 s", id="the first of equals"
        ),
        pytest.param(
            _rules(("Pods", 4, 60), select="Disabled"), 10, 10, "a policy that is disabled", id="disabled"
        ),
        pytest.param(
            _rules(("Pods", 2**31 - 1, 60)),
            -(2**31) + 9,
            10 - (2**31 - 1),
            f"Pods {2**31 - 1} per 60 s",
            id="it wraps",
        ),
        pytest.param(
            _rules(("Percent", 2**31 - 1, 60)),
            214748375,
            -214748354,
            f"Percent {2**31 - 1} per 60 s",
            id="a great deal",
        ),
    ],
)
def test_policy_limits(rules: Rules, up: int, down: int, by: str) -> None:
    for limit, expected in ((behavior.raise_limit, up), (behavior.lower_limit, down)):
        replicas, policy = limit(10, rules, (), (), NOW)
        assert (replicas, str(policy)) == (expected, by)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (_modern(5, 5), ["stabilization does not change 5"]),
        (
            _modern(9, 5, up=_rules(("Percent", 10**6, 1), window=60), past=remembered((7, 9))),
            ["9 becomes 7 (scale-up stabilization): the lowest recommendation in 60 s was 7"],
        ),
        (
            _modern(99, 10, up=_rules(("Percent", 20, 60))),
            ["stabilization does not change 99", "99 limited to 12 by Percent 20 per 60 s"],
        ),
        (
            _modern(99, 10, ReplicaLimits(1, 11)),
            ["stabilization does not change 99", "99 limited to 11 by the maximum"],
        ),
        (
            _modern(1, 10, down=_rules(("Pods", 3, 15))),
            ["stabilization does not change 1", "1 limited to 7 by Pods 3 per 15 s"],
        ),
        (
            _modern(1, 10, ReplicaLimits(2, 11)),
            ["stabilization does not change 1", "1 limited to 2 by the minimum"],
        ),
        (
            _modern(99, 10, up=_rules(("Pods", 3, 15), select="Disabled")),
            ["stabilization does not change 99", "99 limited to 10 by a policy that is disabled"],
        ),
    ],
)
def test_in_words(found: Normalized, words: list[str]) -> None:
    assert [step.text() for step in found.steps] == words


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
    story = Story(80, behavior={"scaleDown": {**NOW_DOWN, "policies": [PODS_4, PERCENT_10]}})

    assert story.follow(0, 720, 60, 10) == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16, 12]


def test_no_way_down() -> None:
    story = Story(80, behavior={"scaleDown": {**NOW_DOWN, "selectPolicy": "Disabled"}})

    assert story.follow(0, 1200, 60, 10) == [80] * 21


def test_the_default_way_up_doubles_every_fifteen_seconds() -> None:
    story = Story(1, maxReplicas=100, behavior={})

    assert story.follow(0, 75, 15, 100) == [5, 10, 20, 40, 80, 100]
