import math
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import quantity

_FACTORS = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{s: Decimal(1000) ** (i + 1) for i, s in enumerate("kMGTPE")},
    **{f"{s}i": Decimal(1024) ** (i + 1) for i, s in enumerate("KMGTPE")},
}


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


@pytest.mark.parametrize(
    ("milli", "text"),
    [
        (0, "0"),
        (1, "1m"),
        (1_000_000, "1k"),
        (1_023_000, "1023"),
        (1_024_000, "1Ki"),
        (1_025_000, "1025"),
        (2_000_000, "2000"),
        (1_500_500, "1500500m"),
        (104_857_600_000, "100Mi"),
        (128_974_848_000, "123Mi"),
        (8_589_934_592_000, "8Gi"),
        (1_024_001, "1024001m"),
        (-1_023_000, "-1023"),
        (-2_048_000, "-2Ki"),
        (7 * 1024**5 * 1000, "7Pi"),
        (9_223_372_036_854_775_000, "9223372036854775"),
    ],
)
def test_canonical_text_of_bytes(milli: int, text: str) -> None:
    assert quantity.format_binary(milli) == text


@pytest.mark.parametrize("form", [quantity.format_milli, quantity.format_binary])
@given(
    milli=st.integers(min_value=-(2**63), max_value=2**63 - 1)
    | st.integers(-(2**53), 2**53).map(lambda n: n * 1024)
)
def test_text_reads_back_as_the_same_number(form: Callable[[int], str], milli: int) -> None:
    text = form(milli)
    suffix = text.lstrip("-0123456789")
    assert Decimal(text.removesuffix(suffix) if suffix else text) * _FACTORS[suffix] == Decimal(milli) / 1000


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        (64.1, 64099),
        (2.01, 2009),
        (1.005, 1004),
        (1.001, 1000),
        (0.0009, 0),
        (-0.5, -500),
        (33.333333333333336, 33333),
    ],
)
def test_milli_truncates_toward_zero(value: float, milli: int) -> None:
    assert quantity.milli_from_float(value) == milli


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 9.3e15, -9.3e15])
def test_a_value_without_a_quantity_is_refused(value: float) -> None:
    with pytest.raises(OverflowError, match="has no quantity"):
        quantity.milli_from_float(value)
