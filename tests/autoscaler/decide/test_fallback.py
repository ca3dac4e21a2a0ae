"""The fallback over time: when it begins and ends, what it asks for, and that it never shrinks anything."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide.decision import decide
from adapter.autoscaler.decide.guarded import Constraints
from adapter.autoscaler.decide.guards import fallback
from adapter.autoscaler.decide.guards.conflicts import OWN, ConflictState
from adapter.autoscaler.decide.guards.fallback import NOTHING_ABSENT, Absence
from adapter.autoscaler.decide.sync import Event
from adapter.model.autoscaling.fastpath_autoscaler import Fallback
from adapter.model.timestamps import SECOND, Span
from tests.autoscaler.decide.synced import SyncedScaler
from tests.support.controller import QUEUE
from tests.support.scaling import NOW, conditions_of

HOLD = Fallback("Hold", Span(60 * SECOND))
FLOOR = Fallback("Floor", Span(60 * SECOND), replicas=6)
LAST_GOOD = Fallback("LastGood", Span(60 * SECOND), last_good_for=Span(120 * SECOND))
STARTED = "Warning FallbackStarted: no value for 1m0s: external metric queue(nil); "


def _scaler(rules: Fallback | None, replicas: int, metrics: int = 1, **spec: Any) -> SyncedScaler:
    return SyncedScaler(replicas, QUEUE * metrics, Constraints(fallback=rules), **spec)


def _told(scaler: SyncedScaler) -> list[str]:
    return [text for text in scaler.told if "Fallback" in text]


def test_a_floor() -> None:
    scaler = _scaler(FLOOR, 3)
    assert scaler.at(0, 3).replicas == 3
    assert scaler.at(1, None).replicas == 3
    assert scaler.at(60.9, None).replicas == 3
    assert _told(scaler) == []
    made = scaler.at(61, None)
    assert _told(scaler) == [f"{STARTED}keeping at least 6 replicas; scale-down is blocked"]
    assert (made.replicas, made.rescale, made.reason) == (6, True, "fallback while metrics are absent")
    assert made.events[-1] == Event("Normal", "SuccessfulRescale", f"New size: 6; reason: {made.reason}")
    assert conditions_of(made)["ScalingActive"] == ("False", "FailedGetExternalMetric")
    assert conditions_of(made)["AbleToScale"] == ("True", "SucceededRescale")
    assert (made.status.desired_replicas, made.absent, made.wanted) == (
        6,
        ("external metric queue(nil)",),
        None,
    )
    assert [step.text() for step in made.trace if step.name == "fallback"] == [
        "metrics are absent: the fallback proposes 6"
    ]
    assert scaler.at(63, None).rescale is False
    assert scaler.at(100, 6).replicas == 6
    assert _told(scaler)[1:] == ["Normal FallbackEnded: all metrics have values again after 1m39s"]
    assert scaler.memory.absence == Absence(None, 6, active=False)


def test_a_floor_within_policies_and_the_maximum() -> None:
    policy = {"type": "Pods", "value": 1, "periodSeconds": 15}
    scaler = _scaler(FLOOR, 3, maxReplicas=5, behavior={"scaleUp": {"policies": [policy]}})
    counts = scaler.counts((0, 59, 60, 61, 70, 76, 92, 200), None)
    assert counts == [3, 3, 4, 4, 4, 5, 5, 5]
    made = scaler.at(201, None)
    assert conditions_of(made)["ScalingLimited"] == ("True", "TooManyReplicas")


def test_metrics_that_are_there_may_ask_for_more_than_the_floor_and_not_for_less() -> None:
    scaler = _scaler(FLOOR, 3, metrics=2)
    scaler.at(0, None, 3)
    assert scaler.at(59, None, 1).replicas == 3
    assert scaler.at(61, None, 1).replicas == 6
    made = scaler.at(62, None, 7)
    assert (made.replicas, made.reason) == (7, "external metric queue(nil) above target")
    scaler = _scaler(FLOOR, 3, metrics=2)
    scaler.at(0, None, 3)
    made = scaler.at(60, None, 4)
    assert (made.replicas, made.reason) == (6, "fallback while metrics are absent")
    assert conditions_of(made)["ScalingActive"] == ("True", "ValidMetricFound")


def test_the_last_good_count() -> None:
    policy = {"type": "Pods", "value": 2, "periodSeconds": 60}
    scaler = _scaler(LAST_GOOD, 3, behavior={"scaleUp": {"policies": [policy]}})
    made = scaler.at(0, 9)
    assert (made.replicas, made.wanted) == (5, 9)
    assert scaler.counts((1, 30, 60.9), None) == [5, 5, 5]
    assert scaler.counts((61, 62, 122.5, 179), None) == [7, 7, 9, 9]
    scaler.at(182, None)
    assert _told(scaler) == [
        f"{STARTED}keeping at least the last good 9 replicas for 2m0s; scale-down is blocked",
        "Warning FallbackEnded: the last good count expired after 2m0s; keeping the current replicas",
    ]
    assert scaler.at(183, None).replicas == 9
    assert len(_told(scaler)) == 2


def test_the_last_good_count_ends_at_the_exact_instant() -> None:
    absence = Absence(since=NOW, last_good=9)
    end = NOW + 60 * SECOND + 120 * SECOND
    assert fallback.replicas(LAST_GOOD, absence, end - 1) == 9
    assert fallback.replicas(LAST_GOOD, absence, end) == 0
    assert fallback.replicas(HOLD, absence, end) == 0


def test_holding_says_so() -> None:
    scaler = _scaler(HOLD, 3)
    assert scaler.counts((0, 60, 61), None) == [3, 3, 3]
    assert _told(scaler) == [f"{STARTED}keeping the current replicas; scale-down is blocked"]


def test_a_value_in_between_restarts_the_wait() -> None:
    scaler = _scaler(FLOOR, 3)
    for second, seen in ((0, None), (50, 3), (51, None), (110, None)):
        scaler.at(second, seen)
    assert (scaler.replicas, _told(scaler)) == (3, [])
    assert scaler.memory.absence.since == NOW + 51 * SECOND


@pytest.mark.parametrize("rules", [None, LAST_GOOD], ids=["without a fallback", "without a good count"])
def test_with_nothing_to_keep_nothing_happens(rules: Fallback | None) -> None:
    scaler = _scaler(rules, 3)
    assert scaler.counts((0, 61, 90, 1000), None) == [3] * 4
    assert (_told(scaler), scaler.memory.absence.active) == ([], False)


def test_a_fallback_that_is_removed_ends() -> None:
    scaler = _scaler(HOLD, 3)
    scaler.at(0, None)
    scaler.at(60, None)
    scaler.constrain(fallback=None)
    scaler.at(61, None)
    assert _told(scaler)[1:] == ["Normal FallbackEnded: spec.fallback was removed"]


def test_a_failed_write_is_reported_and_keeps_the_state() -> None:
    scaler = _scaler(FLOOR, 3)
    scaler.at(0, None)
    made = scaler.at(60, None, write_error="conflict")
    assert made.error == "failed to rescale Deployment/default/web: conflict"
    assert (scaler.replicas, scaler.memory.absence) == (3, Absence(NOW, None, active=True))
    assert scaler.at(61, None).replicas == 6
    assert len(_told(scaler)) == 1


@pytest.mark.parametrize(("own", "counts"), [(False, [0, 0]), (True, [0, 4])], ids=["another's", "our own"])
def test_of_zeros_only_one_of_our_own_is_raised(counts: list[int], *, own: bool) -> None:
    """To 4 of 6, as the policy allows."""
    scaler = _scaler(FLOOR, 0, minReplicas=0)
    scaler.change(conflicts=ConflictState(known=0, own_zero=own))
    scaler.manager = OWN if own else "kubectl"
    assert scaler.counts((0, 60), None) == counts
    assert scaler.last is not None
    assert (scaler.last.absent is None, scaler.memory.absence == NOTHING_ABSENT) == (not own, not own)


def test_a_fallback_ends_where_metrics_are_not_in_use() -> None:
    scaler = _scaler(FLOOR, 0, minReplicas=0)
    scaler.change(conflicts=ConflictState(known=0), absence=Absence(NOW - 100 * SECOND, None, active=True))
    scaler.manager = "kubectl"
    scaler.at(0, None)
    assert _told(scaler) == ["Normal FallbackEnded: metrics are not in use now"]


def test_a_correction_to_the_limits_says_nothing_about_metrics() -> None:
    scaler = _scaler(FLOOR, 20, maxReplicas=10)
    absence = Absence(NOW - 100 * SECOND, 4, active=True)
    scaler.change(absence=absence)
    assert scaler.at(0, None).replicas == 10
    assert scaler.memory.absence == absence


_RULES = st.sampled_from([HOLD, FLOOR, LAST_GOOD, msgspec.structs.replace(FLOOR, replicas=50)])
_READINGS = st.just(None) | st.integers(0, 30)


@given(
    _RULES,
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(1, 100), st.lists(_READINGS, min_size=2, max_size=2)), max_size=12),
)
def test_never_shrinks_and_never_leaves_the_limits(
    rules: Fallback, replicas: int, ticks: list[tuple[int, list[int | None]]]
) -> None:
    """At every step what comes out is at least what comes out without, and within maximum and policies."""
    scaler = _scaler(rules, replicas, metrics=2, maxReplicas=20)
    now = 0
    for pause, readings in ticks:
        now += pause
        before, history, seen = scaler.replicas, scaler.memory.history, scaler.observe(*readings)
        made = scaler.at(now, *readings)
        without = decide(scaler.spec, seen, history, NOW + now * SECOND)
        assert made.replicas >= without.replicas
        if None in readings:
            assert made.replicas >= before
        allowed = max(2 * before, before + 4)
        assert made.replicas <= max(before, min(20, allowed))
