"""Syncs as a whole: branches, several metrics, zero, conditions, events, the memory and the writes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide import decision as decisions
from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.decision import decide, read_selector, without_scale
from adapter.autoscaler.decide.history import History, ScaleEvent
from adapter.autoscaler.decide.observation import ExternalReading, Observation, Reading, Settings, Unavailable
from adapter.autoscaler.decide.prepared_spec import PreparedSpec
from adapter.autoscaler.decide.sync import Decision, Event
from adapter.model.autoscaling.hpa import Condition, HorizontalPodAutoscalerStatus, MetricStatus
from adapter.model.timestamps import SECOND, Instant
from tests.autoscaler.decide.synced import SyncedScaler
from tests.support.answers import answers
from tests.support.scaling import (
    NOW,
    autoscaler,
    conditions_of,
    cpu_metric,
    external_metric,
    pods,
    pods_metric,
    reading,
    remembered,
)

BEFORE = Instant(NOW - 100 * SECOND)
GONE = Unavailable("NoMetrics", "nothing")
QUEUE = [external_metric(averageValue="1")]


def _seen(replicas: int, wanted: int | Reading = 0, **seen: Any) -> Observation:
    answered = ExternalReading([wanted * 1000]) if isinstance(wanted, int) else wanted
    return Observation(
        **{
            "replicas": replicas,
            "status_replicas": replicas,
            "selector": "app=web",
            "pods": pods(replicas),
            "readings": [answered],
            **seen,
        }
    )


def _decide(scaler: PreparedSpec, seen: Observation, history: History | None = None) -> Decision:
    return decide(scaler, seen, History() if history is None else history, NOW)


def _entries(decision: Decision) -> set[tuple[int, int]]:
    """Return the counts that are remembered, and how many seconds ago they were recommended."""
    recommendations = decision.history.recommendations
    return {(count, (NOW - at) // SECOND) for count, at in (*recommendations.high, *recommendations.low)}


def _active(decision: Decision) -> Condition:
    return next(known for known in decision.status.conditions or () if known.type == "ScalingActive")


@pytest.mark.parametrize(
    ("selector", "selected_by", "event", "reason", "error", "message"),
    answers("decide/decision", "selectors"),
)
def test_a_selector_that_cannot_be_used(
    selector: str, selected_by: list[str], event: str, reason: str, error: str, message: str
) -> None:
    before = HorizontalPodAutoscalerStatus(desired_replicas=9, current_metrics=(MetricStatus("Pods"),))
    seen = _seen(4, 7, selector=selector, selected_by=selected_by, status=before)

    decision = _decide(autoscaler(QUEUE), seen)

    whole = "failed to compute desired number of replicas based on listed metrics for Deployment/default/web"
    assert (decision.replicas, decision.rescale, decision.error) == (4, False, f"{whole}: {error}")
    assert decision.events == (
        Event("Warning", event, error),
        Event("Warning", "FailedComputeMetricsReplicas", error),
    )
    active = _active(decision)
    assert (active.status, active.reason, active.message) == ("False", reason, message)
    assert (decision.status.desired_replicas, decision.status.current_metrics) == (9, None)
    assert _entries(decision) == {(4, 0)}


@pytest.mark.parametrize("selector", ["a=b," * 300 + "a=b", f"a in ({'x,' * 300}x)", "a=" + "x" * 17_000])
def test_a_very_large_selector_is_refused_without_being_read(selector: str) -> None:
    decision = _decide(autoscaler(QUEUE), _seen(3, 7, selector=selector))
    why = "it has more than 16384 characters or 256 commas"

    assert not decision.rescale
    assert decision.events[0] == Event(
        "Warning",
        "InvalidSelector",
        f"couldn't convert selector into a corresponding internal selector object: {why}",
    )


def test_parsed_selectors_stay_within_their_room() -> None:
    kept = decisions._parse.kept  # type: ignore[attr-defined]  # the cache of a remembered function
    for number in range(100):
        assert read_selector(",".join(f"l{number}-{label}={'b' * 50}" for label in range(250))) is not None
    assert kept.currsize <= kept.maxsize == decisions.SELECTORS_BYTES
    assert len(kept) < 100


def test_selectors_as_decisions_read_them() -> None:
    assert str(read_selector("a=b")) == "a=b"
    assert read_selector("") is None
    assert read_selector("a b") is None
    assert str(read_selector("a in (,,)")) == "a in ()"  # 1.36 reads what the adapter's own API refuses


@pytest.mark.parametrize(("selector", "words"), answers("decide/decision", "refused selectors"))
def test_refuses_a_selector_in_the_words_of_1_36(selector: str, words: str) -> None:
    decision = _decide(autoscaler(QUEUE), _seen(4, 7, selector=selector))

    assert f": {words}" in _active(decision).message


def _several(current: int, *proposals: int | None) -> Decision:
    metrics = [external_metric(f"m{number}", averageValue="1") for number in range(len(proposals))]
    readings = [GONE if wanted is None else ExternalReading([wanted * 1000]) for wanted in proposals]
    seen = _seen(current, readings=readings)
    return _decide(autoscaler(metrics), seen, remembered((0, 1000)))


def test_readings_answer_the_metrics_one_by_one() -> None:
    with pytest.raises(ValueError, match="zip"):
        _decide(autoscaler(QUEUE), _seen(4, readings=[]))


@pytest.mark.parametrize(
    ("gate", "lowest", "metrics", "current", "wanted", "condition"), answers("decide/decision", "zeros")
)
def test_a_rescale_remembers_whether_it_went_to_zero(
    lowest: int, metrics: str, current: int, wanted: int, condition: list[str] | None, *, gate: bool
) -> None:
    answer: Reading = ExternalReading([wanted * 1000])
    settings = Settings(scale_to_zero=gate)
    scaler = autoscaler(QUEUE, settings, minReplicas=lowest)
    if metrics == "cpu":
        answer = reading(*[wanted * 1000] * 3)
        scaler = autoscaler([pods_metric()], settings, minReplicas=lowest)
    before = HorizontalPodAutoscalerStatus(
        conditions=(Condition("ScaledToZero", "False", "Old", "x", BEFORE),)
    )
    seen = _seen(current, answer, status=before)

    decision = _decide(scaler, seen, remembered((0, 10)))

    assert decision.rescale
    assert conditions_of(decision).get("ScaledToZero") == (condition and tuple(condition))
    assert memories.remember(decision.status).conflicts.own_zero is (condition == ["True", "ScaledToZero"])


def test_the_first_sync_remembers_the_current_count() -> None:
    seen = _seen(4, 4)

    assert _entries(_decide(autoscaler(QUEUE), seen)) == {(4, 0)}
    assert _entries(_decide(autoscaler(QUEUE), seen, remembered((7, 400)))) == {(7, 400), (4, 0)}


def test_events_are_stored_with_behavior_alone() -> None:
    modern, legacy = autoscaler(QUEUE, behavior={}), autoscaler(QUEUE)

    up = _decide(modern, _seen(4, 7)).history
    down = _decide(modern, _seen(4, 3), remembered((3, 10))).history
    without = _decide(legacy, _seen(4, 7), remembered((4, 10), ups=[(2, 5)])).history

    assert (up.ups, up.downs) == ((ScaleEvent(3, NOW),), ())
    assert (down.ups, down.downs) == ((), (ScaleEvent(1, NOW),))
    assert without.ups == remembered(ups=[(2, 5)]).ups


def test_each_direction_forgets_by_its_own_periods() -> None:
    rules = {
        "scaleUp": {"policies": [{"type": "Pods", "value": 9, "periodSeconds": 30}]},
        "scaleDown": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 9, "periodSeconds": 300}],
        },
    }
    past = remembered((4, 1000), ups=[(1, 60)], downs=[(1, 60)])

    up = _decide(autoscaler(QUEUE, behavior=rules), _seen(4, 7), past).history
    down = _decide(autoscaler(QUEUE, behavior=rules), _seen(4, 3), past).history

    assert (len(up.ups), len(up.downs)) == (1, 1)
    assert (len(down.ups), len(down.downs)) == (1, 2)


@pytest.mark.parametrize("by", [-3600 * SECOND, 3600 * SECOND])
def test_after_the_clock_was_set_a_status_has_times_of_day_and_a_pod_its_age(by: int) -> None:
    """The usage of a pod that has just started does not count yet."""
    scaler, before = SyncedScaler(4, [cpu_metric(100)]), -by / SECOND
    old, young = (pods(4, started=before + age, ready_for=before + age - 5) for age in (7200, 10))
    scaler.pods = [*old[:2], *young[2:]]

    made = scaler.decide(reading(1000, 1000, 0, 0, ago=before + 1), after=0, set_by=by)
    raised = scaler.decide(reading(9000, 9000, 0, 0, ago=before + 1), set_by=by)

    assert made.wanted == 4
    assert {each.last_transition_time for each in made.status.conditions or ()} == {NOW + by}
    assert raised.status.last_scale_time == NOW + SECOND + by


def test_a_scale_that_cannot_be_written() -> None:
    before = HorizontalPodAutoscalerStatus(last_scale_time=BEFORE, desired_replicas=9)
    scaler = autoscaler(QUEUE, Settings(scale_to_zero=True), behavior={})

    decision = _decide(scaler, _seen(4, 7, status=before, write_error="no"))

    reason = "external metric queue(nil) above target"
    assert (decision.desired, decision.replicas, decision.rescale) == (7, 4, False)
    assert decision.events == (
        Event("Warning", "FailedRescale", f"New size: 7; reason: {reason}; error: no"),
    )
    assert decision.error == "failed to rescale Deployment/default/web: no"
    assert conditions_of(decision)["AbleToScale"] == ("False", "FailedUpdateScale")
    assert "ScaledToZero" not in conditions_of(decision)
    assert (decision.status.desired_replicas, decision.status.last_scale_time) == (9, BEFORE)
    assert len(decision.status.current_metrics or ()) == 1
    assert (decision.history.ups, _entries(decision)) == ((), {(4, 0), (7, 0)})
    assert "the scale could not be written: no" in [step.text() for step in decision.trace]


def test_a_scale_that_cannot_be_read() -> None:
    before = HorizontalPodAutoscalerStatus(
        observed_generation=3, current_replicas=4, desired_replicas=9, current_metrics=(MetricStatus("Pods"),)
    )
    history = remembered((4, 10))

    decision = without_scale(autoscaler(QUEUE), before, "not found", history, NOW)
    again = without_scale(autoscaler(QUEUE), decision.status, "not found", history, NOW + SECOND)

    assert (decision.replicas, decision.rescale, decision.history) == (4, False, history)
    assert decision.events == (Event("Warning", "FailedGetScale", "not found"),)
    assert decision.error == "failed to query scale subresource for Deployment/default/web: not found"
    assert conditions_of(decision) == {"AbleToScale": ("False", "FailedGetScale")}
    assert decision.status.conditions is not None
    assert decision.status.conditions[0].message == (
        "the HPA controller was unable to get the target's current scale: not found"
    )
    assert (decision.status.desired_replicas, decision.status.current_metrics) == (9, before.current_metrics)
    assert (decision.status_changed, again.status_changed) == (True, False)
    assert [step.text() for step in decision.trace] == ["the scale could not be read: not found"]


LONG_AGO = remembered((0, 1000))


def test_the_status_shows_a_value_of_unknown_age() -> None:
    """It may not scale down, but it is known: only a metric without a value is <unknown>."""
    late = ExternalReading([2000], None, "the age of its samples is not known")
    spec = autoscaler(QUEUE)
    made = _decide(spec, _seen(4, late), LONG_AGO)
    assert (made.desired, made.replicas) == (None, 4)
    (shown,) = made.status.current_metrics or ()
    assert shown.external is not None
    assert str(shown.external.current.average_value) == "500m"
    words = [step.text() for step in made.trace]
    assert "no metric has a value that may scale down" in words
    assert any(
        "the value is not used: unable to get" in each and "may scale up, not down" in each for each in words
    )
    assert not any("no value:" in each for each in words)


def test_a_decision_without_a_count_is_not_one_to_zero() -> None:
    """The status repeats the previous count, 0 at first; what was decided is not that."""
    blocked, below, pods = (
        _several(4, None),
        _several(4, None, 3),
        _decide(autoscaler(QUEUE), _seen(4, 4, selector=""), LONG_AGO),
    )
    for made, why in (
        (blocked, "no metric has a value"),
        (below, "1 of 2 metrics have no value and the others propose 3, fewer than 4: no scale-down"),
        (pods, "the pods cannot be found: selector is required"),
    ):
        assert (made.desired, made.replicas, made.status.desired_replicas) == (None, 4, 0)
        assert made.obstacle is not None
        assert made.obstacle.text() == why
    made = _several(4, 5)
    assert (made.desired, made.obstacle) == (5, None)


@given(
    syncs=st.lists(st.tuples(st.integers(0, 400), st.none() | st.integers(0, 40)), min_size=1, max_size=12),
    with_behavior=st.booleans(),
    gate=st.booleans(),
    lowest=st.integers(0, 3),
)
def test_any_story_stays_within_its_limits(
    syncs: list[tuple[int, int | None]], *, with_behavior: bool, gate: bool, lowest: int
) -> None:
    spec: dict[str, Any] = {"behavior": {}} if with_behavior else {}
    scaler = SyncedScaler(5)
    settings = Settings(scale_to_zero=gate)
    scaler.spec = autoscaler(QUEUE, settings, minReplicas=lowest, maxReplicas=20, **spec)
    for pause, wanted in syncs:
        before = scaler.replicas
        decision = scaler.decide(wanted, after=pause)

        assert decision.rescale is (decision.replicas != before)
        assert 0 <= decision.replicas <= 20
        assert decision.replicas >= lowest or decision.replicas == before == 0
        assert decision.replicas >= before or wanted is not None
        assert decision.status.current_replicas == before
        assert decision.status.desired_replicas == decision.replicas or wanted is None
        kinds = [each.type for each in decision.status.conditions or ()]
        assert len(kinds) == len(set(kinds))


def test_a_step_that_blocks_names_no_metric_as_chosen() -> None:
    made = SyncedScaler(4).decide(None)
    (blocked,) = [step.facts for step in made.trace if step.name == "blocked"]
    assert blocked == {"failed": 1, "overdue": 0, "metrics": 1, "replicas": 0, "current": 4}
