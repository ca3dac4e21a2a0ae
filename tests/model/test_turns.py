"""Whose turn it is: the law of max-min fairness, checked against what each owner asked for."""

import collections

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.turns import Turns

Demand = dict[str, dict[str, int]]
"""How many items the owners of each namespace have waiting."""


def spend(turns: Turns[tuple[str, str, int]], count: int) -> list[tuple[str, str]]:
    """Take items in turn; return whose turns they were."""
    taken = []
    for _ in range(count):
        if not turns:
            break
        namespace, owner, item = turns.next()
        assert isinstance(owner, str)
        turns.discard(namespace, owner, item)
        taken.append((namespace, owner))
    return taken


def waiting(demand: Demand) -> Turns[tuple[str, str, int]]:
    turns: Turns[tuple[str, str, int]] = Turns()
    for namespace, owners in demand.items():
        for owner, count in owners.items():
            for number in range(count):
                turns.add(namespace, owner, (namespace, owner, number))
    return turns


def max_min(wanted: dict[str, int], room: int) -> dict[str, int]:
    """Return the max-min shares of whole items, by giving one to each that still wants one, as often as there are some left."""
    got = dict.fromkeys(wanted, 0)
    while room and any(got[each] < wanted[each] for each in wanted):
        for each, most in wanted.items():
            if room and got[each] < most:
                got[each] += 1
                room -= 1
    return got


_DEMAND = st.dictionaries(
    st.sampled_from("abcdef"),
    st.dictionaries(st.sampled_from("uvwxyz"), st.integers(1, 12), min_size=1),
    min_size=1,
)


@given(_DEMAND, st.integers(0, 150))
def test_shares_are_max_min_fair_between_namespaces_and_between_owners(demand: Demand, room: int) -> None:
    taken = spend(waiting(demand), room)
    by_namespace = collections.Counter(namespace for namespace, _ in taken)
    fair = max_min({name: sum(owners.values()) for name, owners in demand.items()}, room)
    assert {name: by_namespace[name] for name in demand} == fair
    for name, owners in demand.items():
        by_owner = collections.Counter(owner for namespace, owner in taken if namespace == name)
        assert {owner: by_owner[owner] for owner in owners} == max_min(owners, fair[name])


@given(_DEMAND)
def test_all_that_waits_is_taken_once(demand: Demand) -> None:
    turns = waiting(demand)
    assert len(list(turns)) == sum(sum(owners.values()) for owners in demand.values())
    spend(turns, 1000)
    assert (list(turns), bool(turns)) == ([], False)


@given(st.integers(1, 50), st.integers(1, 50))
def test_a_namespace_that_always_comes_back_has_every_second_turn(many: int, rounds: int) -> None:
    """The one that comes back waits for one turn of the other, however much waits there."""
    turns = waiting({"greedy": {str(owner): 50 for owner in range(many)}})
    for number in range(rounds):
        turns.add("small", "web", ("small", "web", number))
        taken = spend(turns, 2)
        assert sorted(namespace for namespace, _ in taken) == (
            ["greedy", "small"] if len(taken) == 2 else ["small"]
        )


def test_the_most_urgent_item_of_an_owner_is_taken_first() -> None:
    turns: Turns[int] = Turns()
    for item in (3, 9, 5):
        turns.add("a", "x", item)
    assert turns.next(lambda item: item) == ("a", "x", 9)


def test_an_item_of_two_owners_waits_for_both() -> None:
    turns: Turns[int] = Turns()
    turns.add("a", "x", 1)
    turns.add("b", "y", 1)
    assert [*turns] == [("a", "x", 1), ("b", "y", 1)]
    turns.discard("a", "x", 1)
    turns.discard("a", "x", 1)
    turns.discard("b", "z", 1)
    assert turns.next() == ("b", "y", 1)


def test_nothing_waits() -> None:
    with pytest.raises(LookupError, match="nothing waits"):
        Turns[int]().next()
