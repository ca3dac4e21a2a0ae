"""Go's arithmetic where Python's differs: wrapping integers, division toward zero, doubles to integers.

Results are those of amd64. The calculator uses these functions and never ``//``, `Decimal` or `Fraction`, and
adds no epsilon: most ports of the autoscaler differ from it exactly there.
"""

import math

INT32_MAX = 2**31 - 1
INT32_MIN = -(2**31)
INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)


def w32(number: int) -> int:
    """Return `number` wrapped to 32 bits, two's complement."""
    return number if INT32_MIN <= number <= INT32_MAX else (number - INT32_MIN) % 2**32 + INT32_MIN


def w64(number: int) -> int:
    """Return `number` wrapped to 64 bits, two's complement."""
    return number if INT64_MIN <= number <= INT64_MAX else (number - INT64_MIN) % 2**64 + INT64_MIN


def quot(dividend: int, divisor: int) -> int:
    """Return the 64-bit quotient truncated toward zero; `divisor` is not 0."""
    quotient = abs(dividend) // abs(divisor)
    return w64(quotient if (dividend < 0) == (divisor < 0) else -quotient)


def ratio(dividend: float, divisor: float) -> float:
    """Return the quotient of two doubles; a zero divisor gives an infinity or NaN, never an error."""
    if divisor:
        return float(dividend) / float(divisor)
    if not dividend or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def ceil32(number: float) -> int:
    """Return ``int32(math.Ceil(number))``; INT32_MIN for NaN and values outside int32."""
    return math.ceil(number) if INT32_MIN - 1 < number <= INT32_MAX else INT32_MIN


def trunc32(number: float) -> int:
    """Return ``int32(number)``: toward zero; INT32_MIN for values outside int32."""
    return math.trunc(number) if INT32_MIN - 1 < number < INT32_MAX + 1 else INT32_MIN


def ceil64(number: float) -> int:
    """Return ``int64(math.Ceil(number))``; INT64_MIN for values outside int64."""
    return math.ceil(number) if INT64_MIN <= number < 2.0**63 else INT64_MIN
