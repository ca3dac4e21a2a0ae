"""Who writes beside us, step by step."""

import pytest

from adapter.autoscaler.decide import conflicts as writing
from adapter.autoscaler.decide.conflicts import OWN, Change, Writers, Written
from adapter.model.timestamps import SECOND

MINUTE = 60 * SECOND


def look(
    state: Writers, replicas: int, manager: str = "kubectl", now: int = 0
) -> tuple[Writers, Change | None]:
    return writing.seen(state, replicas, manager, now)


def reverse_twice(state: Writers, now: int) -> tuple[Writers, Change | None]:
    change = None
    for step in range(2):
        state = writing.wrote(state, 4, 8)
        state, change = look(state, 4, "argocd", now + step)
    return state, change


def test_the_first_look_is_no_change() -> None:
    state, change = look(Writers(), 4)

    assert (state.known, change) == (4, None)


def test_the_same_count_is_no_change() -> None:
    state = Writers(known=4)

    assert look(state, 4) == (state, None)


def test_another_writer_is_a_change_and_ends_ours() -> None:
    state = writing.wrote(Writers(known=4), 4, 8)

    state, change = look(state, 9)

    assert change == Change(1, "kubectl")
    assert (state.known, state.ours) == (9, None)


@pytest.mark.parametrize(
    ("before", "after", "then", "reverses"),
    [
        pytest.param(4, 8, 4, True, id="a raise taken back"),
        pytest.param(4, 8, 6, True, id="in part"),
        pytest.param(4, 8, 2, True, id="and more"),
        pytest.param(4, 8, 10, False, id="a further raise"),
        pytest.param(8, 4, 8, False, id="a raise after our shrink is none"),
        pytest.param(8, 4, 2, False, id="a further shrink"),
    ],
)
def test_reversals(before: int, after: int, then: int, *, reverses: bool) -> None:
    state = writing.wrote(Writers(known=before), before, after)

    _, change = look(state, then)

    assert change is not None
    assert change.reverses is reverses


def test_only_what_we_wrote_last_is_reversed() -> None:
    state = writing.wrote(Writers(known=4), 4, 8)
    state, _ = look(state, 6)

    _, change = look(state, 5)

    assert change == Change(-1, "kubectl")


def test_a_lost_answer_is_still_our_write() -> None:
    state, change = look(Writers(known=4), 8, OWN)

    assert change == Change(4, OWN)
    assert state.ours == Written(4, 8)


def test_two_reversals_begin_a_pause_that_names_the_writer() -> None:
    state, change = reverse_twice(Writers(known=4), now=MINUTE)

    assert change == Change(-4, "argocd", reverses=True, starts_pause=True)
    assert state.is_paused(MINUTE + 1 + 5 * MINUTE - 1)
    assert not state.is_paused(MINUTE + 1 + 5 * MINUTE)
    assert (state.paused_by, state.pause) == ("argocd", 5 * MINUTE)


def test_an_unnamed_writer_is_named_so() -> None:
    _, change = look(Writers(known=4), 8, "")

    assert change is not None
    assert change.by == "an unnamed writer"


def test_reversals_more_than_five_minutes_apart_do_not_count_together() -> None:
    state = writing.wrote(Writers(known=4), 4, 8)
    state, _ = look(state, 4, now=0)
    state = writing.wrote(state, 4, 8)

    state, change = look(state, 4, now=5 * MINUTE)

    assert change == Change(-4, "kubectl", reverses=True)
    assert state.reversals == (5 * MINUTE,)


def test_pauses_double_up_to_an_hour_and_a_new_spec_ends_them() -> None:
    state, now, pauses = Writers(known=4), 0, []
    for _ in range(6):
        state, _ = reverse_twice(state, now)
        pauses.append(state.pause // MINUTE)
        now = state.paused_until

    assert pauses == [5, 10, 20, 40, 60, 60]
    assert not writing.spec_changed(state).is_paused(now - 1)
    assert reverse_twice(writing.spec_changed(state), now)[0].pause == 5 * MINUTE


@pytest.mark.parametrize(
    ("state", "replicas", "manager", "own"),
    [
        pytest.param(Writers(own_zero=True), 0, "", True, id="the status says so"),
        pytest.param(Writers(), 0, "", False, id="nobody says so"),
        pytest.param(Writers(), 0, OWN, True, id="the field is ours, though the status was lost"),
        pytest.param(Writers(own_zero=True), 0, "kubectl", False, id="somebody else's since"),
        pytest.param(Writers(own_zero=True), 3, "kubectl", False, id="raised since"),
        pytest.param(Writers(known=3), 0, "kubectl", False, id="somebody else's"),
        pytest.param(Writers(known=3), 0, OWN, True, id="ours by name"),
        pytest.param(Writers(known=0, own_zero=True), 2, "kubectl", False, id="raised by somebody else"),
    ],
)
def test_whose_zero(state: Writers, replicas: int, manager: str, *, own: bool) -> None:
    assert look(state, replicas, manager)[0].own_zero is own


def test_our_own_zero() -> None:
    assert writing.wrote(Writers(known=3), 3, 0).own_zero
    assert not writing.wrote(Writers(known=0, own_zero=True), 0, 2).own_zero


def test_a_clock_that_is_set_moves_all_instants() -> None:
    state = Writers(reversals=(5,), paused_until=100)

    assert writing.shifted(state, -3) == Writers(reversals=(2,), paused_until=97)


@pytest.mark.parametrize(
    ("own", "manager", "then"),
    [
        pytest.param(True, "kubectl", False, id="gone and set to zero again by somebody else"),
        pytest.param(True, OWN, True, id="still ours"),
        pytest.param(True, "", True, id="nobody is named"),
        pytest.param(False, OWN, True, id="ours, though nobody told us"),
        pytest.param(False, "kubectl", False, id="still theirs"),
    ],
)
def test_a_zero_is_whose_name_it_carries(own: bool, manager: str, then: bool) -> None:  # noqa: FBT001 - a table
    state, change = look(Writers(known=0, own_zero=own), 0, manager)

    assert (state.own_zero, change) == (then, None)
