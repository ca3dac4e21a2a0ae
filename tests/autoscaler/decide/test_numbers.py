import math
from collections.abc import Callable

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
from tests.support.answers import answers

_ANY_FLOAT = st.floats() | st.sampled_from(
    [2.0**31, -(2.0**31), 2.0**31 - 0.5, -(2.0**31) - 0.5, 2.0**63, -(2.0**63)]
)


CASES: list[tuple[Callable[..., float], tuple[float, ...], float]] = [
    (w32, (0,), 0),
    (w32, (INT32_MAX,), INT32_MAX),
    (w32, (INT32_MAX + 1,), INT32_MIN),
    (w32, (INT32_MIN,), INT32_MIN),
    (w32, (INT32_MIN - 1,), INT32_MAX),
    (w32, (2**32,), 0),
    (w32, (-(2**33) + 5,), 5),
    (w64, (INT64_MAX,), INT64_MAX),
    (w64, (INT64_MAX + 1,), INT64_MIN),
    (w64, (INT64_MIN,), INT64_MIN),
    (w64, (INT64_MIN - 1,), INT64_MAX),
    (w64, (2**64,), 0),
    (quot, (7, 2), 3),
    (quot, (-7, 2), -3),
    (quot, (7, -2), -3),
    (quot, (-7, -2), 3),
    (quot, (0, -5), 0),
    (quot, (INT64_MIN, -1), INT64_MIN),
    (quot, (INT64_MIN, 1), INT64_MIN),
    (ratio, (1, 2), 0.5),
    (ratio, (1, 0), math.inf),
    (ratio, (-1, 0), -math.inf),
    (ratio, (1, -0.0), -math.inf),
    (ratio, (-1, -0.0), math.inf),
    (ratio, (2**62 + 1, 1), float(2**62)),
    (ratio, (math.inf, 0), math.inf),
    (ceil64, (0.1,), 1),
    (ceil64, (-0.9,), 0),
    (ceil64, (2.0**62,), 2**62),
    (ceil64, (2.0**63,), INT64_MIN),
    (ceil64, (-(2.0**63),), INT64_MIN),
    (ceil64, (-(2.0**63) - 2048,), INT64_MIN),
    (ceil64, (math.nan,), INT64_MIN),
    (ceil64, (math.inf,), INT64_MIN),
]


@pytest.mark.parametrize(("function", "arguments", "result"), CASES)
def test_as_in_go_on_amd64(
    function: Callable[..., float], arguments: tuple[float, ...], result: float
) -> None:
    assert function(*arguments) == result


@pytest.mark.parametrize(("dividend", "divisor"), [(0, 0), (0, -0.0), (math.nan, 0), (math.nan, 5)])
def test_no_ratio(dividend: float, divisor: float) -> None:
    assert math.isnan(ratio(dividend, divisor))


@pytest.mark.parametrize(("number", "ceiling", "truncated"), answers("numbers", "doubles"))
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
