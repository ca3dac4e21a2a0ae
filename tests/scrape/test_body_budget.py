"""BodyBudget within a budget."""

import pytest

from adapter.errors import ScrapeError
from adapter.scrape.bodies import BodyBudget


def test_parts_become_one_body() -> None:
    buffer = BodyBudget().open("a")
    buffer.add(b"one ")
    buffer.add(b"two")

    assert buffer.content() == b"one two"
    buffer.close()


def test_a_body_is_charged_until_it_is_closed() -> None:
    bodies = BodyBudget(100, 60)
    buffer = bodies.open("a")
    buffer.add(b"x" * 30)
    buffer.add(b"x" * 20)
    assert bodies.size == 50
    assert len(buffer.content()) == 50
    assert bodies.size == 50, "it is being processed"
    buffer.close()
    buffer.close()

    assert bodies.size == 0


def test_a_namespace_that_exceeds_its_part_loses_and_others_do_not() -> None:
    bodies = BodyBudget(100, 60)
    mine, large, small = bodies.open("mine"), bodies.open("hostile"), bodies.open("hostile")
    mine.add(b"x" * 40)
    large.add(b"x" * 40)
    said: list[str] = []
    large.lost = said.append
    small.add(b"x" * 21)

    assert said == ["the bodies of the scraped pods of namespace hostile take more than 60 bytes"]
    assert bodies.size == 61
    assert small.content()
    assert mine.content()
    for read in (lambda: large.add(b"x"), large.content):
        with pytest.raises(ScrapeError, match="namespace hostile") as raised:
            read()
        assert raised.value.kind == "budget"


def test_a_body_that_gives_way_for_another_reason_is_charged_until_it_is_closed() -> None:
    bodies = BodyBudget(100, 60)
    buffer = bodies.open("a")
    buffer.add(b"x" * 50)
    buffer.lose("its connection gave way")
    buffer.close()

    assert bodies.size == 0
