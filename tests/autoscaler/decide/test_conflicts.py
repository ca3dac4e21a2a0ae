"""Detection of other writers, step by step."""

from typing import Any

import pytest

from adapter.autoscaler.decide.guards import conflicts as writing
from adapter.autoscaler.decide.guards.conflicts import ConflictState, ForeignChange, OwnWrite
from adapter.model.timestamps import SECOND
from tests.support.answers import answers

MINUTE = 60 * SECOND


def look(
    state: ConflictState, replicas: int, manager: str = "kubectl", now: int = 0
) -> tuple[ConflictState, ForeignChange | None]:
    return writing.observe(state, replicas, manager, now)


def reverse_twice(state: ConflictState, now: int) -> tuple[ConflictState, ForeignChange | None]:
    change = None
    for step in range(2):
        state = writing.commit(state, 4, 8)
        state, change = look(state, 4, "argocd", now + step)
    return state, change


@pytest.mark.parametrize(
    ("counts", "replicas", "manager", "change", "ours"), answers("decide/conflicts", "looks")
)
def test_what_a_look_shows(
    counts: list[int], replicas: int, manager: str, change: list[Any] | None, ours: list[int] | None
) -> None:
    """After a count that was there, one that we wrote, and one of another writer."""
    state = ConflictState(known=counts[0]) if counts else ConflictState()
    if len(counts) > 1:
        state = writing.commit(state, *counts[:2])
    if len(counts) > 2:
        state, _ = look(state, counts[2])
    after, shown = look(state, replicas, manager)

    own = None if ours is None else OwnWrite(*ours)
    assert (after.known, after.ours) == (replicas, own)
    assert shown == (None if change is None else ForeignChange(*change))


@pytest.mark.parametrize(("before", "after", "then", "reverses"), answers("decide/conflicts", "reversals"))
def test_reversals(before: int, after: int, then: int, *, reverses: bool) -> None:
    state = writing.commit(ConflictState(known=before), before, after)

    _, change = look(state, then)

    assert change is not None
    assert change.reverses is reverses


def test_two_reversals_begin_a_pause_that_names_the_writer() -> None:
    state, change = reverse_twice(ConflictState(known=4), now=MINUTE)

    assert change == ForeignChange(-4, "argocd", reverses=True, starts_pause=True)
    assert state.is_paused(MINUTE + 1 + 5 * MINUTE - 1)
    assert not state.is_paused(MINUTE + 1 + 5 * MINUTE)
    assert (state.paused_by, state.pause) == ("argocd", 5 * MINUTE)


def test_reversals_more_than_five_minutes_apart_do_not_count_together() -> None:
    state = writing.commit(ConflictState(known=4), 4, 8)
    state, _ = look(state, 4, now=0)
    state = writing.commit(state, 4, 8)

    state, change = look(state, 4, now=5 * MINUTE)

    assert change == ForeignChange(-4, "kubectl", reverses=True)
    assert state.reversals == (5 * MINUTE,)


def test_pauses_double_up_to_an_hour_and_a_new_spec_ends_them() -> None:
    state, now, pauses = ConflictState(known=4), 0, []
    for _ in range(6):
        state, _ = reverse_twice(state, now)
        pauses.append(state.pause // MINUTE)
        now = state.paused_until

    assert pauses == [5, 10, 20, 40, 60, 60]
    assert not writing.spec_changed(state).is_paused(now - 1)
    assert reverse_twice(writing.spec_changed(state), now)[0].pause == 5 * MINUTE


@pytest.mark.parametrize(("state", "replicas", "manager", "own"), answers("decide/conflicts", "zeros"))
def test_whose_zero(state: dict[str, Any], replicas: int, manager: str, *, own: bool) -> None:
    after, change = look(ConflictState(**state), replicas, manager)

    assert after.own_zero is own
    assert (change is None) == (state.get("known") in {None, replicas})


def test_our_own_zero() -> None:
    assert writing.commit(ConflictState(known=3), 3, 0).own_zero
    assert not writing.commit(ConflictState(known=0, own_zero=True), 0, 2).own_zero
