"""What kept a count where it is: each restraint, and which one counts where several apply."""

from collections.abc import Mapping
from typing import Any

import pytest

from adapter.autoscaler.decide.behavior import ReplicaLimits
from adapter.autoscaler.decide.conflicts import ConflictState
from adapter.autoscaler.decide.decision import Decision
from adapter.autoscaler.decide.history import History
from adapter.autoscaler.decide.observation import Settings
from adapter.autoscaler.decide.prepared_spec import prepare
from adapter.autoscaler.decide.restraint import Restraint, find_limit, restraint_of
from adapter.autoscaler.decide.trace import Step
from adapter.autoscaler.last_decision import LastDecision
from adapter.bounds.timeline import Bounds
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE, PAUSED
from adapter.model.autoscaling.hpa import HorizontalPodAutoscalerStatus
from adapter.model.timestamps import SECOND
from tests.autoscaler.decide.synced import AT_ONCE, SyncedScaler
from tests.support.controller import QUEUE, fpa
from tests.support.scaling import NOTHING, NOW

DRAIN = {"prefer": "Idle", "metric": "connections", "drain": {"timeout": "60s"}}


def restrained(
    replicas: int,
    wish: int | None,
    *,
    before: int | None = None,
    bounds: Bounds | None = None,
    paused_for: int = 0,
    legacy: bool = False,
    seen: Mapping[str, Any] = NOTHING,
    **spec: Any,
) -> tuple[Restraint, Restraint]:
    """Return what keeps the count of a decision, and which limit applies.

    `before` is what the metrics asked for a second earlier; a `legacy` spec has no `behavior`.
    """
    scaler = SyncedScaler(replicas, **spec)
    scaler.manager = "kubectl"
    if legacy:
        scaler.spec = prepare(fpa(QUEUE, **spec), Settings())
    if paused_for:
        scaler.change(conflicts=ConflictState(known=replicas, paused_until=NOW + paused_for * SECOND))
    if before is not None:
        scaler.decide(before, bounds=bounds, after=-1)
    scaler.now = NOW
    decision = scaler.decide(wish, bounds=bounds, after=0, **seen)
    return restraint_of(decision, scaler.spec.limits), find_limit(decision, scaler.spec.limits)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"replicas": 4, "wish": 6}, Restraint.FOLLOWS),
        ({"replicas": 4, "wish": 3, "before": 4}, Restraint.HELD),
        ({"replicas": 4, "wish": 9}, Restraint.LIMITED),
        ({"replicas": 4, "wish": 9, "maxReplicas": 5}, Restraint.HIGHEST),
        ({"replicas": 4, "wish": 1, "minReplicas": 2, "behavior": AT_ONCE}, Restraint.LOWEST),
        ({"replicas": 7, "wish": 1, "maxReplicas": 5}, Restraint.HIGHEST),
        ({"replicas": 2, "wish": 9, "minReplicas": 3}, Restraint.LOWEST),
        ({"replicas": 4, "wish": 1, "bounds": Bounds(min=3), "behavior": AT_ONCE}, Restraint.SCHEDULED),
        (
            {"replicas": 4, "wish": 1, "bounds": Bounds(min=3, forecast=2), "behavior": AT_ONCE},
            Restraint.SCHEDULED,
        ),
        ({"replicas": 4, "wish": 9, "bounds": Bounds(max=5)}, Restraint.SCHEDULED),
        ({"replicas": 4, "wish": 1, "bounds": Bounds(forecast=3), "behavior": AT_ONCE}, Restraint.FORECAST),
        ({"replicas": 4, "wish": None}, Restraint.ABSENT),
        (
            {"replicas": 4, "wish": 2, "behavior": AT_ONCE, "scaleDown": DRAIN, "seen": {"idle": 0}},
            Restraint.DRAINING,
        ),
        ({"replicas": 0, "wish": 2}, Restraint.DISABLED),
        ({"replicas": 4, "wish": 2, "seen": {"selector": ""}}, Restraint.FAILED),
        ({"replicas": 4, "wish": 6, "seen": {"write_error": "forbidden"}}, Restraint.FAILED),
        ({"replicas": 4, "wish": 6, "mode": ADVISE}, Restraint.WITHHELD),
        ({"replicas": 4, "wish": 6, "mode": PAUSED}, Restraint.WITHHELD),
        ({"replicas": 4, "wish": 9, "paused_for": 1}, Restraint.WITHHELD),
    ],
)
def test_each_restraint(arguments: dict[str, Any], expected: Restraint) -> None:
    assert restrained(**arguments)[0] is expected


def test_without_behavior_a_past_recommendation_may_be_limited() -> None:
    assert restrained(2, 1, before=5, legacy=True) == (Restraint.HELD, Restraint.HELD)


def test_a_ratio_within_tolerance_is_no_limit() -> None:
    assert restrained(4, 4, maxReplicas=4) == (Restraint.TOLERATED, Restraint.FOLLOWS)


def test_a_limit_applies_to_a_count_that_is_not_written_too() -> None:
    assert restrained(4, 9, maxReplicas=5, mode=ADVISE) == (Restraint.WITHHELD, Restraint.HIGHEST)


def test_a_decision_with_other_steps_has_a_restraint_of_its_own() -> None:
    last, status = None, HorizontalPodAutoscalerStatus()
    for step, expected in (("disabled", Restraint.DISABLED), ("withheld", Restraint.WITHHELD)):
        decision = Decision(
            replicas=4,
            status=status,
            status_changed=False,
            events=(),
            history=History(),
            trace=(Step(step, {}),),
        )
        last = LastDecision.after(last, decision, None, ReplicaLimits(1, 9), NOW)
        assert last.restraint is expected
