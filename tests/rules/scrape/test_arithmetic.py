"""Arithmetic that takes every float: the cases where Python's own operators raise, and that nothing does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.scrape import evaluation
from tests.support.answers import answers

ANY = st.floats() | st.sampled_from(
    [0.0, -0.0, 1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 1e291, 3.0]
)


@pytest.mark.parametrize(("left", "sign", "right", "expected"), answers("scrape/arithmetic", "values"))
def test_arithmetic(left: float, sign: str, right: float, expected: float) -> None:
    assert evaluation.ARITHMETIC[sign](left, right) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(("name", "values", "expected"), answers("scrape/arithmetic", "aggregations"))
def test_aggregations(name: str, values: list[float], expected: float) -> None:
    assert evaluation.AGGREGATIONS[name](values) == pytest.approx(expected, rel=1e-15, nan_ok=True)


@given(ANY, ANY, st.lists(ANY, min_size=1, max_size=8))
def test_none_raises_and_all_give_floats(left: float, right: float, values: list[float]) -> None:
    for operation in evaluation.ARITHMETIC.values():
        assert isinstance(operation(left, right), float)
    for function in evaluation.PER_VALUE.values():
        assert isinstance(function(left), float)
    for aggregation in evaluation.AGGREGATIONS.values():
        assert isinstance(aggregation(values), float)
