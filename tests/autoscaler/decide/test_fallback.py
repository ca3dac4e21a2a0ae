"""The fallback over time: when it begins and ends, what it asks for, and that it never shrinks anything."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide import fallback
from adapter.autoscaler.decide.decision import Decision, Event, decide
from adapter.autoscaler.decide.fallback import NOTHING_ABSENT, Absence
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.observation import ExternalReading, Observation, Reading, Settings, Unavailable
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.model.autoscaling.fastpath_autoscaler import Fallback
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus
from adapter.model.timestamps import SECOND, Span
from tests.support.scaling import NOW, autoscaler, conditions_of, external_metric, pods

GONE = Unavailable("NoMetrics", "nothing")
QUEUE = external_metric(averageValue="1")
HOLD = Fallback("Hold", Span(60 * SECOND))
FLOOR = Fallback("Floor", Span(60 * SECOND), replicas=6)
LAST_GOOD = Fallback("LastGood", Span(60 * SECOND), last_good_for=Span(120 * SECOND))
BEHAVIOR: dict[str, Any] = {}


def _wants(count: int) -> ExternalReading:
    return ExternalReading([count * 1000])


class ScalerWithFallback:
    """One autoscaler from decision to decision, each of which is done."""

    def __init__(self, rules: Fallback | None, scaler: PreparedSpec, replicas: int) -> None:
        self.rules, self.scaler, self.replicas = rules, scaler, replicas
        self.absence = NOTHING_ABSENT
        self.history = History()
        self.told: list[str] = []

    def at(self, seconds: float, *readings: Reading, **seen: Any) -> Decision:
        """Decide, so many seconds after the beginning."""
        now = NOW + round(seconds * SECOND)
        observation = Observation(
            self.replicas,
            self.replicas,
            "app=web",
            pods(self.replicas),
            list(readings),
            **seen,
            fallback=0 if self.rules is None else fallback.replicas(self.rules, self.absence, now),
        )
        made = decide(self.scaler, observation, self.history, now)
        self.absence, events = fallback.follow(self.rules, self.absence, made, now)
        self.told += [f"{event.type} {event.reason}: {event.message}" for event in events]
        self.history, self.replicas = made.history, made.replicas
        return made


def _story(rules: Fallback | None, replicas: int, metrics: int = 1, **spec: Any) -> ScalerWithFallback:
    return ScalerWithFallback(
        rules, autoscaler([QUEUE] * metrics, **{"behavior": BEHAVIOR, **spec}), replicas
    )


def test_a_floor() -> None:
    story = _story(FLOOR, 3)
    assert story.at(0, _wants(3)).replicas == 3
    assert story.at(1, GONE).replicas == 3
    assert story.at(60.9, GONE).replicas == 3
    assert story.told == []
    made = story.at(61, GONE)
    name = "external metric queue(nil)"
    assert story.told == [
        (
            f"Warning FallbackStarted: no value for 1m0s: {name}; keeping at least 6 replicas; scale-down is "
            "blocked"
        )
    ]
    assert (made.replicas, made.rescale, made.reason) == (6, True, "fallback while metrics are absent")
    assert made.events[-1] == Event("Normal", "SuccessfulRescale", f"New size: 6; reason: {made.reason}")
    assert conditions_of(made)["ScalingActive"] == ("False", "FailedGetExternalMetric")
    assert conditions_of(made)["AbleToScale"] == ("True", "SucceededRescale")
    assert (made.status.desired_replicas, made.absent, made.wanted) == (6, (name,), None)
    assert [step.text() for step in made.trace if step.name == "fallback"] == [
        "metrics are absent: the fallback proposes 6"
    ]
    assert story.at(63, GONE).rescale is False
    assert story.at(100, _wants(6)).replicas == 6
    assert story.told[1:] == ["Normal FallbackEnded: all metrics have values again after 1m39s"]
    assert story.absence == Absence(None, 6, active=False)


def test_a_floor_within_policies_and_the_maximum() -> None:
    policy = {"type": "Pods", "value": 1, "periodSeconds": 15}
    story = _story(FLOOR, 3, maxReplicas=5, behavior={"scaleUp": {"policies": [policy]}})
    counts = [story.at(second, GONE).replicas for second in (0, 59, 60, 61, 70, 76, 92, 200)]
    assert counts == [3, 3, 4, 4, 4, 5, 5, 5]
    made = story.at(201, GONE)
    assert conditions_of(made)["ScalingLimited"] == ("True", "TooManyReplicas")


def test_metrics_that_are_there_may_ask_for_more_than_the_floor_and_not_for_less() -> None:
    story = _story(FLOOR, 3, metrics=2)
    story.at(0, GONE, _wants(3))
    assert story.at(59, GONE, _wants(1)).replicas == 3
    assert story.at(61, GONE, _wants(1)).replicas == 6
    made = story.at(62, GONE, _wants(7))
    assert (made.replicas, made.reason) == (7, "external metric queue(nil) above target")


def test_a_floor_above_what_the_others_ask_for() -> None:
    story = _story(FLOOR, 3, metrics=2)
    story.at(0, GONE, _wants(3))
    made = story.at(60, GONE, _wants(4))
    assert (made.replicas, made.reason) == (6, "fallback while metrics are absent")
    assert conditions_of(made)["ScalingActive"] == ("True", "ValidMetricFound")


def test_the_last_good_count() -> None:
    policy = {"type": "Pods", "value": 2, "periodSeconds": 60}
    story = _story(LAST_GOOD, 3, behavior={"scaleUp": {"policies": [policy]}})
    made = story.at(0, _wants(9))
    assert (made.replicas, made.wanted) == (5, 9)
    assert [story.at(second, GONE).replicas for second in (1, 30, 60.9)] == [5, 5, 5]
    assert [story.at(second, GONE).replicas for second in (61, 62, 122.5, 179)] == [7, 7, 9, 9]
    story.at(182, GONE)
    assert story.told == [
        (
            "Warning FallbackStarted: no value for 1m0s: external metric queue(nil); "
            "keeping at least the last good 9 replicas for 2m0s; scale-down is blocked"
        ),
        "Warning FallbackEnded: the last good count expired after 2m0s; keeping the current replicas",
    ]
    assert story.at(183, GONE).replicas == 9
    assert len(story.told) == 2


def test_the_last_good_count_ends_at_the_exact_instant() -> None:
    absence = Absence(since=NOW, last_good=9)
    end = NOW + 60 * SECOND + 120 * SECOND
    assert fallback.replicas(LAST_GOOD, absence, end - 1) == 9
    assert fallback.replicas(LAST_GOOD, absence, end) == 0


def test_holding_says_so() -> None:
    story = _story(HOLD, 3)
    assert [story.at(second, GONE).replicas for second in (0, 60, 61)] == [3, 3, 3]
    assert story.told == [
        (
            "Warning FallbackStarted: no value for 1m0s: external metric queue(nil); "
            "keeping the current replicas; scale-down is blocked"
        )
    ]


def test_a_value_in_between_restarts_the_wait() -> None:
    story = _story(FLOOR, 3)
    for second, seen in ((0, GONE), (50, _wants(3)), (51, GONE), (110, GONE)):
        story.at(second, seen)
    assert (story.replicas, story.told) == (3, [])
    assert story.absence.since == NOW + 51 * SECOND


@pytest.mark.parametrize("rules", [None, LAST_GOOD], ids=["without a fallback", "without a good count"])
def test_with_nothing_to_keep_nothing_happens(rules: Fallback | None) -> None:
    story = _story(rules, 3)
    assert [story.at(second, GONE).replicas for second in (0, 61, 90, 1000)] == [3] * 4
    assert (story.told, story.absence.active) == ([], False)


def test_a_fallback_that_is_removed_ends() -> None:
    story = _story(HOLD, 3)
    story.at(0, GONE)
    story.at(60, GONE)
    story.rules = None
    story.at(61, GONE)
    assert story.told[1:] == ["Normal FallbackEnded: spec.fallback was removed"]


def test_a_failed_write_is_reported_and_keeps_the_state() -> None:
    story = _story(FLOOR, 3)
    story.at(0, GONE)
    made = story.at(60, GONE, write_error="conflict")
    assert made.error == "failed to rescale Deployment/default/web: conflict"
    assert (story.replicas, story.absence) == (3, Absence(NOW, None, active=True))
    assert story.at(61, GONE).replicas == 6
    assert len(story.told) == 1


def test_at_zero_set_by_another_writer_there_is_no_fallback() -> None:
    story = _story(FLOOR, 0)
    story.scaler = autoscaler([QUEUE], Settings(scale_to_zero=True), behavior=BEHAVIOR, minReplicas=0)
    story.absence = Absence(NOW - 100 * SECOND, None, active=True)
    made = story.at(0, GONE)
    assert (made.replicas, made.absent) == (0, None)
    assert story.told == ["Normal FallbackEnded: metrics are not in use now"]
    assert story.absence == NOTHING_ABSENT


def test_from_a_zero_of_our_own_it_raises() -> None:
    story = _story(FLOOR, 0)
    story.scaler = autoscaler([QUEUE], Settings(scale_to_zero=True), behavior=BEHAVIOR, minReplicas=0)
    status = HorizontalPodAutoscalerStatus(conditions=(Condition("ScaledToZero", "True"),))
    assert story.at(0, GONE, status=status).replicas == 0
    made = story.at(60, GONE, status=status)
    assert made.reason == "fallback while metrics are absent"
    assert made.replicas == 4, "of 6, as the policy allows"


def test_a_correction_to_the_limits_says_nothing_about_metrics() -> None:
    story = _story(FLOOR, 20, maxReplicas=10)
    story.absence = absence = Absence(NOW - 100 * SECOND, 4, active=True)
    assert story.at(0, GONE).replicas == 10
    assert story.absence == absence


def test_clocks_that_jump() -> None:
    story = _story(FLOOR, 3)
    story.at(100, GONE)
    story.at(0, GONE)  # back: the wait is never longer than it is set to
    assert story.absence.since == NOW
    assert fallback.shifted(story.absence, 5).since == NOW + 5
    assert fallback.shifted(NOTHING_ABSENT, 5) == NOTHING_ABSENT


def test_holding_asks_for_nothing() -> None:
    assert fallback.replicas(HOLD, Absence(NOW - 100 * SECOND, 9), NOW) == 0


_RULES = st.sampled_from([HOLD, FLOOR, LAST_GOOD, msgspec.structs.replace(FLOOR, replicas=50)])
_READINGS = st.just(GONE) | st.integers(0, 30).map(_wants)


@given(
    _RULES,
    st.integers(1, 20),
    st.lists(st.tuples(st.integers(1, 100), st.lists(_READINGS, min_size=2, max_size=2)), max_size=12),
)
def test_never_shrinks_and_never_leaves_the_limits(
    rules: Fallback, replicas: int, ticks: list[tuple[int, list[Reading]]]
) -> None:
    """At every step what comes out is at least what comes out without, and within maximum and policies."""
    story = _story(rules, replicas, metrics=2, maxReplicas=20)
    now = 0
    for pause, readings in ticks:
        now += pause
        before, history = story.replicas, story.history
        made = story.at(now, *readings)
        seen = Observation(before, before, "app=web", pods(before), readings)
        without = decide(story.scaler, seen, history, NOW + now * SECOND)
        assert made.replicas >= without.replicas
        if GONE in readings:
            assert made.replicas >= before
        allowed = max(2 * before, before + 4)
        assert made.replicas <= max(before, min(20, allowed))
