import math
from collections.abc import Callable
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import quantity
from tests.support.answers import answers

_FACTORS = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    **{s: Decimal(1000) ** (i + 1) for i, s in enumerate("kMGTPE")},
    **{f"{s}i": Decimal(1024) ** (i + 1) for i, s in enumerate("KMGTPE")},
}


@pytest.mark.parametrize(("milli", "text"), answers("model/quantity_milli", "decimal"))
def test_canonical_text(milli: int, text: str) -> None:
    assert quantity.format_milli(milli) == text


@pytest.mark.parametrize(("milli", "text"), answers("model/quantity_milli", "binary"))
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


@pytest.mark.parametrize(("value", "milli"), answers("model/quantity_milli", "truncated"))
def test_milli_truncates_toward_zero(value: float, milli: int) -> None:
    assert quantity.milli_from_float(value) == milli


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 9.3e15, -9.3e15])
def test_a_value_without_a_quantity_is_refused(value: float) -> None:
    with pytest.raises(OverflowError, match="has no quantity"):
        quantity.milli_from_float(value)
