import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import quantity

_FACTORS = {"m": Decimal("0.001"), "": Decimal(1), **{s: Decimal(1000) ** (i + 1) for i, s in enumerate("kMGTPE")}}


@pytest.mark.parametrize(
    ("milli", "text"),
    [
        (0, "0"),
        (500, "500m"),
        (10500, "10500m"),
        (10_000, "10"),
        (100_000, "100"),
        (1_000_000, "1k"),
        (1_500_000, "1500"),
        (12_000_000, "12k"),
        (16_384_000, "16384"),
        (1_000_000_000, "1M"),
        (1_234_567, "1234567m"),
        (-2000, "-2"),
        (-1500, "-1500m"),
        (9_223_372_036_854_775_807, "9223372036854775807m"),
        (9_000_000_000_000_000_000, "9P"),
    ],
)
def test_canonical_text(milli: int, text: str) -> None:
    assert quantity.format_milli(milli) == text


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_text_reads_back_as_the_same_number(milli: int) -> None:
    text = quantity.format_milli(milli)
    suffix = text.lstrip("-0123456789")
    assert Decimal(text.removesuffix(suffix) if suffix else text) * _FACTORS[suffix] == Decimal(milli) / 1000


@pytest.mark.parametrize(
    ("value", "milli"),
    [(64.1, 64099), (2.01, 2009), (1.005, 1004), (1.001, 1000), (0.0009, 0), (-0.5, -500), (33.333333333333336, 33333)],
)
def test_milli_truncates_toward_zero(value: float, milli: int) -> None:
    assert quantity.milli_from_float(value) == milli


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 9.3e15, -9.3e15])
def test_what_has_no_quantity_is_refused(value: float) -> None:
    with pytest.raises(OverflowError, match="has no quantity"):
        quantity.milli_from_float(value)
