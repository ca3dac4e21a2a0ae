"""Which holder loses when bytes run out."""

from hypothesis import given
from hypothesis import strategies as st

from adapter.model.ledger import Ledger

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
        "the series of the scraped pods of all namespaces take more than 100 bytes, and namespace hostile has most of them"
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
