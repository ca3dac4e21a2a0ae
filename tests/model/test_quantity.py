import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.model import quantity
from adapter.model.quantity import Format, Quantity, from_milli, parse_quantity, read
from tests.support.answers import answers

_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIXES = {suffix: Fraction(10) ** power for suffix, power in _POWERS.items()}
_SUFFIXES |= {f"{letter}i": Fraction(1024) ** (place + 1) for place, letter in enumerate("KMGTPE")}
_MAX = 2**63 - 1


@pytest.mark.parametrize(("text", "milli", "canonical"), answers("model/quantity", "reads"))
def test_reads(text: str, milli: int, canonical: str) -> None:
    found = parse_quantity(text)

    assert (found.milli, str(found)) == (milli, canonical)


@pytest.mark.parametrize("text", [".", "+", "-", "k", "-k", "000", "0Ki", "+.", "0e-99999", "-0.0"])
def test_odd_spellings_of_nothing(text: str) -> None:
    assert parse_quantity(text).milli == 0
    assert parse_quantity(text).sign == 0
    assert str(parse_quantity(text)) == "0"


@pytest.mark.parametrize(("text", "milli"), answers("model/quantity", "overflows"))
def test_overflows_as_upstream(text: str, milli: int) -> None:
    assert parse_quantity(text).milli == milli


@pytest.mark.parametrize(("text", "milli", "canonical"), answers("model/quantity", "big form"))
def test_big_form(text: str, milli: int, canonical: str) -> None:
    found = parse_quantity(text)

    assert found.big
    assert (found.milli, str(found)) == (milli, canonical)


def test_powers_without_a_suffix_are_left_out() -> None:
    assert (str(parse_quantity("1000E")), str(parse_quantity("1e21"))) == ("1", "1e21")


@pytest.mark.parametrize(("text", "sentence"), answers("model/quantity", "refuses"))
def test_refuses(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence.replace("'", ".")):
        parse_quantity(text)


_NUMBERS = st.from_regex(r"\A[+-]?([0-9]{1,25}(\.[0-9]{0,12})?|\.[0-9]{1,12})\Z")


def _exact(number: str, suffix: str) -> Fraction:
    return Fraction(number if number[-1] != "." else number[:-1]) * _SUFFIXES[suffix]


@given(number=_NUMBERS, suffix=st.sampled_from(sorted(_SUFFIXES)))
def test_is_the_number_or_the_next_nano(number: str, suffix: str) -> None:
    exact = _exact(number, suffix)
    assume(abs(exact) <= _MAX)

    found = parse_quantity(number + suffix)

    value = Fraction(found.unscaled) * Fraction(10) ** found.scale
    assert abs(value) >= abs(exact)
    assert abs(value - exact) < Fraction(1, 10**9)


@given(number=_NUMBERS, suffix=st.sampled_from(sorted(_SUFFIXES)))
def test_canonical_text_is_the_same_number(number: str, suffix: str) -> None:
    found = parse_quantity(number + suffix)
    text = str(found)
    assume(abs(_exact(number, suffix)) < 10**21)  # there is no suffix for more

    again = parse_quantity(text)

    assert again == found
    assert str(again) == text
    assert "." not in text


@given(st.integers(-(2**63), _MAX), st.sampled_from(Format))
def test_thousandths_are_kept(milli: int, form: Format) -> None:
    made = from_milli(milli, form)

    assert made.milli == milli
    assert parse_quantity(str(made)) == made


@given(st.integers(-(2**63) + 1, _MAX))
def test_agrees_with_what_we_serve(milli: int) -> None:
    assert str(from_milli(milli)) == quantity.format_milli(milli)


@given(number=_NUMBERS, suffix=st.sampled_from(sorted(_SUFFIXES)))
def test_thousandths_round_up_while_they_fit(number: str, suffix: str) -> None:
    exact = _exact(number, suffix) * 1000
    assume(0 <= exact < 2**53)

    assert parse_quantity(number + suffix).milli == math.ceil(exact)


@given(st.text(max_size=12) | st.from_regex(r"[-+.0-9eEinumkKMGTP]{0,12}"))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        found = parse_quantity(text)
    except ValueError:
        return
    assert -(2**63) <= found.milli <= _MAX
    assert found.approximate() == found.approximate()
    assert hash(found) == hash(parse_quantity(text))
    assert not found < parse_quantity(text)


@given(
    a=_NUMBERS, b=_NUMBERS, one=st.sampled_from(sorted(_SUFFIXES)), other=st.sampled_from(sorted(_SUFFIXES))
)
def test_orders_and_adds_numbers(a: str, b: str, one: str, other: str) -> None:
    left, right = parse_quantity(a + one), parse_quantity(b + other)
    mine = Fraction(left.unscaled) * Fraction(10) ** left.scale
    its = Fraction(right.unscaled) * Fraction(10) ** right.scale

    total = left + right

    assert (left == right) is (mine == its)
    assert (left < right) is (mine < its)
    assert Fraction(total.unscaled) * Fraction(10) ** total.scale == mine + its
    assert total.form is (left.form if left.unscaled else right.form)


@pytest.mark.parametrize(("left", "right", "milli", "big"), answers("model/quantity", "sums"))
def test_sums(left: str, right: str, milli: int, big: bool) -> None:  # noqa: FBT001 - a column
    total = parse_quantity(left) + parse_quantity(right)

    assert (total.milli, total.big) == (milli, big)


@pytest.mark.parametrize(("text", "double"), answers("model/quantity", "doubles"))
def test_approximates_the_canonical_text(text: str, double: float) -> None:
    assert parse_quantity(text).approximate() == double


def test_reading_ignores_blanks_and_remembers() -> None:
    assert read(" 500m ") is read(" 500m ")
    assert read("500m").milli == 500


def test_is_equal_by_number_alone() -> None:
    assert parse_quantity("1") == parse_quantity("1000m")
    assert parse_quantity("1Ki") == parse_quantity("1024")
    assert hash(parse_quantity("1Ki")) == hash(parse_quantity("1024"))
    assert parse_quantity("1") != parse_quantity("1001m")
    assert parse_quantity("1e1000") != parse_quantity("1e999")
    assert parse_quantity("5e4294967296") == parse_quantity("5")  # 32 bits of an exponent are kept
    assert parse_quantity("1" + "0" * 499) == parse_quantity("1e499")
    assert parse_quantity("1") != "1"
    assert repr(parse_quantity("1.5")) == "Quantity('1500m')"
    assert Quantity(5, 0).sign == 1
    assert Quantity(-5).sign == -1


@given(number=st.integers(0, 10**40), suffix=st.sampled_from(sorted(_SUFFIXES)), negative=st.booleans())
def test_thousandths_that_64_bits_hold_are_the_number(number: int, suffix: str, *, negative: bool) -> None:
    read_number = parse_quantity(f"{'-' if negative else ''}{number}{suffix}")
    exact = (Fraction(read_number.unscaled) * Fraction(10) ** read_number.scale) * 1000
    assert read_number.has_milli is (-(2**63) <= exact <= _MAX)
    if read_number.has_milli and not negative:
        assert read_number.milli == math.ceil(exact)


@pytest.mark.parametrize(("text", "has"), answers("model/quantity", "thousandths"))
def test_numbers_of_which_64_bits_hold_the_thousandths(text: str, *, has: bool) -> None:
    assert parse_quantity(text).has_milli is has
