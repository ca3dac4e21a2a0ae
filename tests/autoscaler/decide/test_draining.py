"""A scale-down that waits for idle pods: how far it goes, how long it waits, and where it does not wait."""

from typing import Any

import pytest

from adapter.autoscaler.decide import memory as memories
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.memory import Memory
from adapter.model.autoscaling import status
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE
from adapter.model.timestamps import SECOND
from tests.support.guarded import GuardedScaler
from tests.support.scaling import NOW

NO_WINDOW = {"scaleDown": {"stabilizationWindowSeconds": 0}}
DRAIN = {"prefer": "Idle", "metric": "connections", "drain": {"timeout": "60s"}}


def draining(**spec: Any) -> GuardedScaler:
    """Return an autoscaler of 10 pods that may become fewer."""
    return GuardedScaler(10, **{"behavior": NO_WINDOW, "scaleDown": DRAIN} | spec)


def condition(made: Decision) -> tuple[str, str, str]:
    found = status.find(made.status.conditions, status.SCALING_LIMITED)
    assert found is not None
    return found.status, found.reason, found.message


def test_only_idle_pods_go_until_the_time_is_over() -> None:
    scaler = draining()
    made = scaler.decide(4, 0)
    assert (made.replicas, made.rescale, made.desired) == (10, False, 10)
    assert condition(made) == ("True", "Draining", "6 of the pods that go are not idle yet")
    assert "6 pods are not idle yet: 10 replicas until then" in [step.text() for step in made.trace]
    made = scaler.decide(4, 2)
    assert (made.replicas, made.rescale) == (8, True)
    assert condition(made)[1:] == ("Draining", "4 of the pods that go are not idle yet")
    assert scaler.memory.conflicts.ours is not None
    assert scaler.decide(4, 0, after=58.9).replicas == 8
    made = scaler.decide(4, 0, after=1)
    assert (made.replicas, made.rescale) == (4, True)
    assert condition(made) == (
        "False",
        "DesiredWithinRange",
        "the desired count is within the acceptable range",
    )
    assert scaler.memory.draining is None


def test_the_next_scale_down_waits_again() -> None:
    scaler = draining()
    scaler.decide(4, 0)
    assert scaler.decide(4, 6).replicas == 4
    assert scaler.memory.draining is None
    made = scaler.decide(2, 0, after=100)
    assert made.replicas == 4
    assert scaler.memory.draining == scaler.now


def test_a_wish_that_ends_ends_the_wait() -> None:
    scaler = draining()
    scaler.decide(4, 0)
    assert scaler.decide(10, 0, after=50).replicas == 10
    assert scaler.memory.draining is None
    assert scaler.decide(4, 0, after=50).replicas == 10


def test_a_raise_never_waits() -> None:
    assert draining().decide(15, 0).replicas == 15


def test_a_maximum_that_was_lowered_is_no_wait() -> None:
    made = draining(maxReplicas=6).decide(4, 0)
    assert (made.replicas, made.rescale, made.draining) == (6, True, None)


def test_the_minimum_holds() -> None:
    assert draining(minReplicas=7).decide(4, 9).replicas == 7


def test_policies_apply_to_what_goes() -> None:
    policy = {"type": "Pods", "value": 1, "periodSeconds": 60}
    scaler = draining(behavior={"scaleDown": {"stabilizationWindowSeconds": 0, "policies": [policy]}})
    assert scaler.decide(4, 5).replicas == 9
    assert scaler.decide(4, 5).replicas == 9


def test_advice_is_what_would_be_written() -> None:
    made = draining(mode=ADVISE).decide(4, 2)
    found = status.find(made.status.conditions, status.ABLE_TO_SCALE)
    assert found is not None
    assert found.message == "would scale to 8, but spec.mode is Advise"


def test_a_failed_write_says_what_was_tried_and_waits_on() -> None:
    scaler = draining()
    scaler.decide(4, 0)
    since = scaler.memory.draining
    failed = scaler.decide(4, 3, error="conflict")
    assert [event.message.partition(";")[0] for event in failed.events] == ["New size: 7"]
    assert failed.draining == since


@pytest.mark.parametrize("scale_down", [None, {"prefer": "Idle", "metric": "connections"}])
def test_without_the_option_nothing_waits(scale_down: Any) -> None:
    assert draining(scaleDown=scale_down).decide(4, None).replicas == 4


def test_the_wait_does_not_change_with_the_clock() -> None:
    scaler = draining()
    scaler.decide(4, 0)
    moved = memories.shifted(scaler.memory, SECOND)
    assert moved.draining == NOW + 2 * SECOND
    assert memories.shifted(Memory(), SECOND).draining is None
