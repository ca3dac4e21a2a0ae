"""Arithmetic that takes every float: the cases where Python's own operators raise, and that nothing does."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.scrape import evaluation

ANY = st.floats() | st.sampled_from(
    [0.0, -0.0, 1.7976931348623157e308, -1.7976931348623157e308, 5e-324, 1e291, 3.0]
)
INF, NAN = math.inf, math.nan


@pytest.mark.parametrize(
    ("left", "sign", "right", "expected"),
    [
        (1, "/", 0.0, INF),
        (1, "/", -0.0, -INF),
        (-1, "/", 0.0, -INF),
        (0.0, "/", 0.0, NAN),
        (NAN, "/", 0.0, NAN),
        (INF, "/", 0.0, INF),
        (5, "%", 3, 2),
        (-5, "%", 3, -2),
        (5, "%", -3, 2),
        (5, "%", INF, 5),
        (INF, "%", 5, NAN),
        (5, "%", 0, NAN),
        (2, "^", 10, 1024),
        (-8, "^", 1 / 3, NAN),
        (0.0, "^", -1, INF),
        (-0.0, "^", -1, -INF),
        (-0.0, "^", -2, INF),
        (10, "^", 400, INF),
        (-10, "^", 401, -INF),
        (-10, "^", 400, INF),
        (INF, "-", INF, NAN),
        (1e308, "*", 10, INF),
        (1e308, "+", 1e308, INF),
    ],
)
def test_arithmetic(left: float, sign: str, right: float, expected: float) -> None:
    assert evaluation.ARITHMETIC[sign](left, right) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("sum", [0.1] * 10, 1.0),
        ("sum", [1e308, 1e308, -1e308], INF),
        ("sum", [INF, -INF], NAN),
        ("sum", [1.7976931348623157e308, *[9e291] * 3], 1.7976931348623157e308),
        ("avg", [1e308, 1e308], 1e308),
        ("avg", [INF, 1], INF),
        ("avg", [1, 2], 1.5),
        ("max", [NAN, 3, NAN], 3),
        ("min", [NAN], NAN),
        ("count", [NAN, 1], 2),
    ],
)
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
