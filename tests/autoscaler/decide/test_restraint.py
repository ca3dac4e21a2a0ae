"""What kept a count where it is: each restraint, and which one counts where several apply."""

from collections.abc import Mapping
from typing import Any

import pytest

from adapter.autoscaler.decide.guards.conflicts import ConflictState
from adapter.autoscaler.decide.restraint import Restraint
from adapter.bounds.timeline import Bounds
from adapter.model.autoscaling.fastpath_autoscaler import ADVISE
from adapter.model.timestamps import SECOND
from tests.autoscaler.decide.synced import SyncedScaler
from tests.support.answers import answers
from tests.support.scaling import NOTHING, NOW


def restrained(
    replicas: int,
    wish: int | None,
    *,
    before: int | None = None,
    bounds: dict[str, int] | None = None,
    paused_for: int = 0,
    seen: Mapping[str, Any] = NOTHING,
    **spec: Any,
) -> tuple[Restraint, Restraint]:
    """Return what keeps the count of a decision, and which limit applies.

    `before` is what the metrics asked for a second earlier.
    """
    scaler = SyncedScaler(replicas, **spec)
    scaler.manager = "kubectl"
    given: dict[str, Any] = dict(bounds or {})
    within = Bounds(**given) if given else None
    if before is not None:
        scaler.decide(before, bounds=within, after=-1)
    scaler.now, scaler.replicas = NOW, replicas
    scaler.change(conflicts=ConflictState(known=replicas, paused_until=NOW + paused_for * SECOND))
    decision = scaler.decide(wish, bounds=within, after=0, **seen)
    return decision.restraint, decision.limit


@pytest.mark.parametrize(("arguments", "expected"), answers("decide/restraint", "restraints"))
def test_each_restraint(arguments: dict[str, Any], expected: str) -> None:
    assert restrained(**arguments)[0].value == expected


def test_without_behavior_a_past_recommendation_may_be_limited() -> None:
    assert restrained(2, 1, before=5, legacy=True) == (Restraint.HELD, Restraint.HELD)


def test_a_ratio_within_tolerance_is_no_limit() -> None:
    assert restrained(4, 4, maxReplicas=4) == (Restraint.TOLERATED, Restraint.FOLLOWS)


def test_a_limit_applies_to_a_count_that_is_not_written_too() -> None:
    assert restrained(4, 9, maxReplicas=5, mode=ADVISE) == (Restraint.WITHHELD, Restraint.HIGHEST)
