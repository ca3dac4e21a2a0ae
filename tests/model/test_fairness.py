"""Max-min fairness."""

import collections
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import fairness
from adapter.model.fairness import LEAST_SHARE, Ledger, Precedence, Turns

DEMANDS = st.lists(st.floats(0, 100), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("demands", "room", "level"),
    [
        ([], 1, math.inf),
        ([1, 2], 3, math.inf),
        ([10], 4, 4),
        ([1, 10], 4, 3),
        ([1, 10, 10], 5, 2),
        ([5, 5], 4, 2),
    ],
)
def test_the_level(demands: list[float], room: float, level: float) -> None:
    assert fairness.level(demands, room) == level


@given(DEMANDS, st.floats(0.1, 100))
def test_cut_to_the_level_the_demands_fit_and_none_could_have_more(demands: list[float], room: float) -> None:
    level = fairness.level(demands, room)
    total = sum(min(demand, level) for demand in demands)

    assert total <= room * (1 + 1e-9)
    if not math.isinf(level):
        assert total == pytest.approx(room)
        assert max(demands) >= level


Demand = dict[str, dict[str, int]]
"""How many items the owners of each namespace have waiting."""


def spend(turns: Turns[tuple[str, str, int]], count: int) -> list[tuple[str, str]]:
    """Take items in turn; return whose turns they were."""
    taken = []
    for _ in range(count):
        if not turns:
            break
        namespace, owner, _ = turns.take()
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
    """Return the max-min shares of whole items: one at a time to each demand that is not met."""
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
    assert (turns.take(lambda item: item), len(turns)) == (9, 2)


def test_an_item_of_two_owners_waits_for_both() -> None:
    turns: Turns[int] = Turns()
    turns.add("a", "x", 1)
    turns.add("b", "y", 1)
    assert [*turns] == [("a", "x", 1), ("b", "y", 1)]
    turns.discard("a", "x", 1)
    turns.discard("a", "x", 1)
    turns.discard("b", "z", 1)
    assert turns.take() == 1


def test_nothing_waits() -> None:
    with pytest.raises(LookupError, match="nothing waits"):
        Turns[int]().take()


CHANGES = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 60)), max_size=60)


def test_within_the_budget_nothing_is_lost() -> None:
    ledger: Ledger[str] = Ledger("bytes", 100, 60)
    ledger.put("a", "x", 60)
    ledger.put("b", "y", 40)

    assert ledger.loss("a") is None
    assert ledger.total == 100


def test_a_namespace_that_exceeds_its_part_loses_its_largest_holder() -> None:
    ledger: Ledger[str] = Ledger("series", 100, 60)
    ledger.put("a", "small", 25)
    ledger.put("a", "large", 36)
    loss = ledger.loss("a")

    assert loss is not None
    assert loss.holder == "large"
    assert loss.reason == "the series of the scraped pods of namespace a take more than 60 bytes"
    assert ledger.loss("b") is None


def test_the_namespace_that_holds_most_loses_first_whichever_exceeds_the_budget() -> None:
    ledger: Ledger[str] = Ledger("series", 100, 60)
    ledger.put("hostile", "p", 59)
    ledger.put("b", "y", 30)
    ledger.put("c", "z", 12)
    loss = ledger.loss("c")

    assert loss is not None
    assert loss.holder == "p"
    assert loss.reason == (
        "the series of the scraped pods of all namespaces take more than 100 bytes, and namespace hostile "
        "has most of them"
    )


@given(CHANGES)
def test_the_budget_is_kept_by_dropping_losers(changes: list[tuple[str, str, int]]) -> None:
    ledger: Ledger[tuple[str, str]] = Ledger("bytes", 100, 60)
    held: dict[tuple[str, str], int] = {}
    for namespace, name, size in changes:
        ledger.put(namespace, (namespace, name), size)
        held[namespace, name] = size
        while (loss := ledger.loss(namespace)) is not None:
            ledger.put(loss.holder[0], loss.holder, 0)
            assert held[loss.holder] == max(
                size for (where, _), size in held.items() if where == loss.holder[0]
            )
            held[loss.holder] = 0

        assert ledger.total == sum(held.values()) <= 100
        assert all(sum(size for (where, _), size in held.items() if where == each) <= 60 for each in "abc")


@given(st.lists(st.tuples(st.tuples(*[st.booleans()] * 4), st.integers(1, 50)), min_size=1, max_size=10))
def test_a_queue_of_any_place_waits_for_few_turns_of_others(
    spells: list[tuple[tuple[bool, ...], int]],
) -> None:
    precedence, passed = Precedence(4), [0] * 4
    for waiting in (waiting for waiting, turns in spells for _ in range(turns)):
        chosen = precedence.choose(waiting)
        assert (chosen is None) is not any(waiting)
        if chosen is None:
            continue
        assert waiting[chosen]
        if max(passed) == 0:
            assert chosen == waiting.index(True), "the first goes first"
        passed = [passed[place] + 1 if waiting[place] and place != chosen else 0 for place in range(4)]
        assert max(passed) < LEAST_SHARE + 4
