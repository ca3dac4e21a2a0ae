import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    w32,
    w64,
)

_ANY_FLOAT = st.floats() | st.sampled_from(
    [2.0**31, -(2.0**31), 2.0**31 - 0.5, -(2.0**31) - 0.5, 2.0**63, -(2.0**63)]
)


@pytest.mark.parametrize(
    ("number", "wrapped"),
    [
        (0, 0),
        (INT32_MAX, INT32_MAX),
        (INT32_MAX + 1, INT32_MIN),
        (INT32_MIN, INT32_MIN),
        (INT32_MIN - 1, INT32_MAX),
        (2**32, 0),
        (-(2**33) + 5, 5),
    ],
)
def test_wraps_to_32_bits(number: int, wrapped: int) -> None:
    assert w32(number) == wrapped


@pytest.mark.parametrize(
    ("number", "wrapped"),
    [
        (INT64_MAX, INT64_MAX),
        (INT64_MAX + 1, INT64_MIN),
        (INT64_MIN, INT64_MIN),
        (INT64_MIN - 1, INT64_MAX),
        (2**64, 0),
    ],
)
def test_wraps_to_64_bits(number: int, wrapped: int) -> None:
    assert w64(number) == wrapped


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [
        (7, 2, 3),
        (-7, 2, -3),
        (7, -2, -3),
        (-7, -2, 3),
        (0, -5, 0),
        (INT64_MIN, -1, INT64_MIN),
        (INT64_MIN, 1, INT64_MIN),
    ],
)
def test_divides_toward_zero(dividend: int, divisor: int, quotient: int) -> None:
    assert quot(dividend, divisor) == quotient


@pytest.mark.parametrize(
    ("dividend", "divisor", "found"),
    [
        (1, 2, 0.5),
        (1, 0, math.inf),
        (-1, 0, -math.inf),
        (1, -0.0, -math.inf),
        (-1, -0.0, math.inf),
        (2**62 + 1, 1, float(2**62)),
        (math.inf, 0, math.inf),
    ],
)
def test_ratios(dividend: float, divisor: float, found: float) -> None:
    assert ratio(dividend, divisor) == found


@pytest.mark.parametrize(("dividend", "divisor"), [(0, 0), (0, -0.0), (math.nan, 0), (math.nan, 5)])
def test_no_ratio(dividend: float, divisor: float) -> None:
    assert math.isnan(ratio(dividend, divisor))


@pytest.mark.parametrize(
    ("number", "ceiling", "truncated"),
    [
        (2.1, 3, 2),
        (-2.9, -2, -2),
        (2147483647.0, INT32_MAX, INT32_MAX),
        (2147483646.5, INT32_MAX, INT32_MAX - 1),
        (2147483647.5, INT32_MIN, INT32_MAX),
        (2147483648.0, INT32_MIN, INT32_MIN),
        (-2147483648.0, INT32_MIN, INT32_MIN),
        (-2147483648.5, INT32_MIN, INT32_MIN),
        (-2147483649.0, INT32_MIN, INT32_MIN),
        (math.inf, INT32_MIN, INT32_MIN),
        (-math.inf, INT32_MIN, INT32_MIN),
        (math.nan, INT32_MIN, INT32_MIN),
    ],
)
def test_doubles_to_32_bits(number: float, ceiling: int, truncated: int) -> None:
    assert (ceil32(number), trunc32(number)) == (ceiling, truncated)


@pytest.mark.parametrize(
    ("number", "ceiling"),
    [
        (0.1, 1),
        (-0.9, 0),
        (2.0**62, 2**62),
        (2.0**63, INT64_MIN),
        (-(2.0**63), INT64_MIN),
        (-(2.0**63) - 2048, INT64_MIN),
        (math.nan, INT64_MIN),
        (math.inf, INT64_MIN),
    ],
)
def test_doubles_to_64_bits(number: float, ceiling: int) -> None:
    assert ceil64(number) == ceiling


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
