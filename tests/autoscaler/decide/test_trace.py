from typing import Any

import pytest

from adapter.autoscaler.decide import trace
from adapter.autoscaler.decide.trace import Step
from tests.support.answers import answers


@pytest.mark.parametrize(("value", "text"), answers("decide/trace", "numbers"))
def test_numbers(value: float, text: str) -> None:
    assert trace.number(value) == text


@pytest.mark.parametrize(("milli", "text"), answers("decide/trace", "thousandths"))
def test_thousandths(milli: int, text: str) -> None:
    assert trace.milli(milli) == text


@pytest.mark.parametrize(("milli", "text"), answers("decide/trace", "bytes"))
def test_bytes(milli: int, text: str) -> None:
    assert trace.binary(milli) == text


@pytest.mark.parametrize(("name", "facts", "words"), answers("decide/trace", "steps"))
def test_what_the_scaler_adds_in_words(name: str, facts: dict[str, Any], words: str) -> None:
    assert Step(name, tuple(facts.values())).text() == words
