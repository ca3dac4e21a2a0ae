"""Slices: which namespaces belong to one, and which of them a member takes and gives up."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.model.autoscaling import slices
from adapter.model.autoscaling.slices import COUNT, SlicePlan
from tests.support.answers import answers

LEAVING = "?"
NAMES = [f"pod-{number}" for number in range(70)]


# -- namespaces ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "digest"), answers("autoscaling/slices", "the_hash_has_the_published_values")
)
def test_the_hash_has_the_published_values(text: str, digest: int) -> None:
    """From the test suite of FNV, http://www.isthe.com/chongo/tech/comp/fnv/."""
    assert slices.fnv1a(text) == digest


@pytest.mark.parametrize(
    ("namespace", "number"), [("default", 62), ("shop", 9), ("other", 21), ("team-a", 22)]
)
def test_the_slice_of_a_namespace_never_changes(namespace: str, number: int) -> None:
    """Scalers of two versions run at once during an update."""
    assert slices.slice_of(namespace) == number


@pytest.mark.parametrize(("names", "count", "most"), answers("autoscaling/slices", "spread"))
def test_numbered_namespaces_are_spread(names: str, count: int, most: int) -> None:
    """The expected number in a slice is `count` / 64; names chosen by chance would not do better."""
    sizes = Counter(slices.slice_of(names.format(number)) for number in range(count))
    assert max(sizes.values()) <= most
    assert len(sizes) >= min(count, COUNT) * 0.8


# -- names ---------------------------------------------------------------------------------------------------


@given(st.integers(0, COUNT - 1), st.sampled_from(["fastpath-floors", "scaler", "a-slice-01"]))
def test_the_number_is_in_the_name(number: int, prefix: str) -> None:
    name = slices.name_of(prefix, number)
    assert name == f"{prefix}-slice-{number:02d}"
    assert slices.parse_name(prefix, name) == number


@pytest.mark.parametrize("name", answers("autoscaling/slices", "no slice"))
def test_names_of_no_slice(name: str) -> None:
    assert slices.parse_name("scaler", name) is None


# -- plans ---------------------------------------------------------------------------------------------------


@st.composite
def views(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Return members, and the owners of the slices: members, none, or others that are leaving."""
    members = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    some = draw(st.lists(st.sampled_from([*members, "", LEAVING]), min_size=1, unique=True))
    return members, draw(st.lists(st.sampled_from(some), min_size=COUNT, max_size=COUNT))


def plans(members: list[str], owners: list[str]) -> dict[str, SlicePlan]:
    return {member: slices.plan(member, members, owners) for member in members}


def acted(members: list[str], owners: list[str]) -> list[str]:
    """Return the owners after all members did what their plans say."""
    after = list(owners)
    for member, todo in plans(members, owners).items():
        for number in todo.take:
            after[number] = member
        for number in todo.release:
            after[number] = ""
    return after


@given(views())
def test_free_slices_alone_are_taken_and_each_by_one_member(view: tuple[list[str], list[str]]) -> None:
    members, owners = view
    taken = [number for todo in plans(members, owners).values() for number in todo.take]
    assert len(taken) == len(set(taken))
    assert {owners[number] for number in taken} <= {""}


@given(views())
def test_own_slices_alone_are_released_and_a_share_is_kept(view: tuple[list[str], list[str]]) -> None:
    members, owners = view
    for member, todo in plans(members, owners).items():
        assert {owners[number] for number in todo.release} <= {member}
        assert len(set(todo.release)) == len(todo.release)
        if todo.release:
            assert not todo.take
            assert owners.count(member) - len(todo.release) >= COUNT // len(members)


@given(views())
def test_shares_are_even_once_all_have_released_and_taken(view: tuple[list[str], list[str]]) -> None:
    members, owners = view
    owners = ["" if owner == LEAVING else owner for owner in owners]
    after = acted(members, acted(members, owners))
    sizes = [after.count(member) for member in members]
    assert sum(sizes) == COUNT
    assert max(sizes) - min(sizes) <= 1
    assert acted(members, after) == after, "and then nothing moves"


def least_moves(members: list[str], owners: list[str]) -> int:
    """Return how many slices have to leave their owners for shares that differ by at most one."""
    share, more = divmod(COUNT, len(members))
    sizes = [owners.count(member) for member in members]
    above = sum(size > share for size in sizes)
    return sum(max(0, size - share - 1) for size in sizes) + max(0, above - more)


@given(views())
@example((["a", "b", "c"], ["a"] * 21 + ["b"] * 21 + ["c"] * 22))
@example((["a", "b", "c"], ["a"] * 22 + ["b"] * 22 + ["c"] * 20))
def test_no_more_slices_move_than_have_to(view: tuple[list[str], list[str]]) -> None:
    members, owners = view
    owners = ["" if owner == LEAVING else owner for owner in owners]
    after = acted(members, acted(members, owners))
    moved = sum(before not in {"", owner} for before, owner in zip(owners, after, strict=True))
    assert moved == least_moves(members, owners)


@given(views())
def test_what_is_expected_now_is_taken_once_it_is_free(view: tuple[list[str], list[str]]) -> None:
    """Whatever the others do first: so its objects are kept from now on."""
    members, owners = view
    deals = {member: {*todo.take, *todo.expect} for member, todo in plans(members, owners).items()}
    surplus = [number for todo in plans(members, owners).values() for number in todo.release]
    for number in [*surplus, *(number for number, owner in enumerate(owners) if owner == LEAVING)]:
        owners[number] = ""
        todo = plans(members, owners)
        assert {member: {*one.take, *one.expect} for member, one in todo.items()} == deals
        taker = next(member for member, one in todo.items() if number in one.take)
        owners[number] = taker
        deals[taker] -= {number}


@given(views())
def test_members_may_come_in_any_order(view: tuple[list[str], list[str]]) -> None:
    members, owners = view
    assert plans(members, owners) == plans(members[::-1], owners)


ALL = list(range(COUNT))


@pytest.mark.parametrize(
    ("me", "members", "owners", "take", "release"),
    [
        pytest.param("a", "a", [""] * 64, ALL, [], id="the first takes all"),
        pytest.param("a", "ab", ["a"] * 64, [], ALL[32:], id="to a second it gives half"),
        pytest.param("b", "ab", ["a"] * 64, [], [], id="which waits for it"),
        pytest.param("b", "ab", ["a"] * 32 + [""] * 32, ALL[32:], [], id="and takes what is free"),
        pytest.param("a", "a", ["a"] * 32 + ["b"] * 32, [], [], id="but not what a former member has"),
        pytest.param("a", "a", ["a"] * 32 + [LEAVING] * 32, [], [], id="nor what it gives up"),
        pytest.param("a", "abc", ["a"] * 64, [], ALL[22:], id="one more stays"),
        pytest.param("b", "abc", ["a"] * 22 + [""] * 42, ALL[22:43], [], id="the next takes the first"),
        pytest.param("c", "abc", ["a"] * 22 + [""] * 42, ALL[43:], [], id="and the last the rest"),
    ],
)
def test_a_plan(me: str, members: str, owners: list[str], take: list[int], release: list[int]) -> None:
    todo = slices.plan(me, list(members), owners)
    assert (todo.take, todo.release) == (take, release)


def test_of_more_members_than_slices_some_have_none() -> None:
    sizes = [len(todo.take) for todo in plans(NAMES, [""] * COUNT).values()]
    assert sorted(sizes) == [0] * (len(NAMES) - COUNT) + [1] * COUNT


def test_only_a_member_has_a_plan() -> None:
    with pytest.raises(ValueError, match="c is not among the members"):
        slices.plan("c", ["a", "b"], [""] * COUNT)
