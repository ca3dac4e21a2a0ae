"""A scale-down that waits for idle pods: how far it goes, how long it waits, and where it does not wait."""

from typing import Any

import pytest

from adapter.autoscaler.decide.sync import Decision
from adapter.model.autoscaling import status
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE
from adapter.model.timestamps import SECOND
from tests.autoscaler.decide.synced import AT_ONCE, SyncedScaler, condition
from tests.support.scaling import NOW

DRAIN = {"prefer": "Idle", "metric": "connections", "drain": {"timeout": "60s"}}


def draining(**spec: Any) -> SyncedScaler:
    given: dict[str, Any] = {"behavior": AT_ONCE, "scaleDown": DRAIN}
    return SyncedScaler(10, **given | spec)


def limited(made: Decision) -> tuple[str, str | None, str | None] | None:
    return condition(made, status.SCALING_LIMITED)


def test_only_idle_pods_go_until_the_time_is_over() -> None:
    story = draining()
    made = story.decide(4, idle=0)
    assert (made.replicas, made.rescale, made.desired) == (10, False, 10)
    assert limited(made) == ("True", "Draining", "6 of the pods that go are not idle yet")
    assert "6 pods are not idle yet: 10 replicas until then" in [step.text() for step in made.trace]
    made = story.decide(4, idle=2)
    assert (made.replicas, made.rescale) == (8, True)
    assert limited(made) == ("True", "Draining", "4 of the pods that go are not idle yet")
    assert story.memory.conflicts.ours is not None
    assert story.decide(4, idle=0, after=58.9).replicas == 8
    made = story.decide(4, idle=0, after=1)
    assert (made.replicas, made.rescale) == (4, True)
    assert limited(made) == (
        "False",
        "DesiredWithinRange",
        "the desired count is within the acceptable range",
    )
    assert story.memory.draining is None


def test_the_next_scale_down_waits_again() -> None:
    story = draining()
    story.decide(4, idle=0)
    assert story.decide(4, idle=6).replicas == 4
    assert story.memory.draining is None
    made = story.decide(2, idle=0, after=100)
    assert made.replicas == 4
    assert story.memory.draining == story.now


def test_a_wish_that_ends_ends_the_wait() -> None:
    story = draining()
    story.decide(4, idle=0)
    assert story.decide(10, idle=0, after=50).replicas == 10
    assert story.memory.draining is None
    assert story.decide(4, idle=0, after=50).replicas == 10


@pytest.mark.parametrize(
    ("spec", "wanted", "idle", "count"),
    [
        pytest.param({}, 15, 0, 15, id="a raise"),
        pytest.param({"maxReplicas": 6}, 4, 0, 6, id="a maximum that was lowered"),
        pytest.param({"minReplicas": 7}, 4, 9, 7, id="a minimum"),
        pytest.param({"scaleDown": None}, 4, None, 4, id="without the option"),
        pytest.param({"scaleDown": {"prefer": "Idle", "metric": "connections"}}, 4, None, 4, id="no drain"),
    ],
)
def test_what_does_not_wait(spec: dict[str, Any], wanted: int, idle: int | None, count: int) -> None:
    made = draining(**spec).decide(wanted, idle=idle)
    assert (made.replicas, made.rescale, made.draining) == (count, True, None)


def test_policies_apply_to_what_goes() -> None:
    policy = {"type": "Pods", "value": 1, "periodSeconds": 60}
    story = draining(behavior={"scaleDown": {"stabilizationWindowSeconds": 0, "policies": [policy]}})
    assert story.decide(4, idle=5).replicas == 9
    assert story.decide(4, idle=5).replicas == 9


def test_advice_is_what_would_be_written() -> None:
    made = draining(mode=ADVISE).decide(4, idle=2)
    able = condition(made, status.ABLE_TO_SCALE)
    assert able is not None
    assert able[2] == "would scale to 8, but spec.mode is Advise"


def test_a_failed_write_says_what_was_tried_and_waits_on() -> None:
    story = draining()
    story.decide(4, idle=0)
    since = story.memory.draining
    failed = story.decide(4, idle=3, write_error="conflict")
    assert [event.message.partition(";")[0] for event in failed.events] == ["New size: 7"]
    assert failed.draining == since


def test_the_wait_does_not_change_with_the_clock() -> None:
    story = draining()
    story.decide(4, idle=0)
    assert story.decide(4, idle=0, set_by=7200 * SECOND).draining == NOW + SECOND
