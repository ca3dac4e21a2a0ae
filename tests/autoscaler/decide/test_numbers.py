import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide import numbers
from adapter.autoscaler.decide.numbers import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    ceil32,
    ceil64,
    quot,
    ratio,
    trunc32,
)
from tests.support.answers import answers

_ANY_FLOAT = st.floats() | st.sampled_from(
    [2.0**31, -(2.0**31), 2.0**31 - 0.5, -(2.0**31) - 0.5, 2.0**63, -(2.0**63)]
)


@pytest.mark.parametrize(("function", "arguments", "result"), answers("decide/numbers", "as in go"))
def test_as_in_go_on_amd64(function: str, arguments: list[float], result: float) -> None:
    assert getattr(numbers, function)(*arguments) == result


@pytest.mark.parametrize(("dividend", "divisor"), [(0, 0), (0, -0.0), (math.nan, 0), (math.nan, 5)])
def test_no_ratio(dividend: float, divisor: float) -> None:
    assert math.isnan(ratio(dividend, divisor))


@pytest.mark.parametrize(("number", "ceiling", "truncated"), answers("decide/numbers", "doubles"))
def test_doubles_to_32_bits(number: float, ceiling: int, truncated: int) -> None:
    assert (ceil32(number), trunc32(number)) == (ceiling, truncated)


@given(_ANY_FLOAT)
def test_any_double_becomes_an_integer(number: float) -> None:
    assert INT32_MIN <= ceil32(number) <= INT32_MAX
    assert INT32_MIN <= trunc32(number) <= INT32_MAX
    assert INT64_MIN <= ceil64(number) <= INT64_MAX


@given(st.integers(INT64_MIN, INT64_MAX), st.integers(INT64_MIN, INT64_MAX).filter(bool))
def test_quotient_and_rest_make_the_dividend(dividend: int, divisor: int) -> None:
    rest = dividend - quot(dividend, divisor) * divisor

    if (dividend, divisor) != (INT64_MIN, -1):
        assert abs(rest) < abs(divisor)
        assert rest == 0 or (rest < 0) is (dividend < 0)
