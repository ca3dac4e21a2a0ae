import math
from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.model import quantity
from adapter.model.quantity import Format, Quantity, from_milli, parse_quantity, read

_POWERS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIXES = {suffix: Fraction(10) ** power for suffix, power in _POWERS.items()}
_SUFFIXES |= {f"{letter}i": Fraction(1024) ** (place + 1) for place, letter in enumerate("KMGTPE")}
_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "milli", "canonical"),
    [
        ("0", 0, "0"),
        ("1", 1000, "1"),
        ("1500m", 1500, "1500m"),
        ("1.5", 1500, "1500m"),
        ("0.0001", 1, "100u"),
        ("1500u", 2, "1500u"),
        ("1n", 1, "1n"),
        ("-1500u", -2, "-1500u"),
        ("-1n", -1, "-1n"),
        ("-2500m", -2500, "-2500m"),
        (".5", 500, "500m"),
        ("5.", 5000, "5"),
        ("+5", 5000, "5"),
        ("007", 7000, "7"),
        ("1e3", 10**6, "1e3"),
        ("1E2", 10**5, "100"),
        ("12e-1", 1200, "1200e-3"),
        ("1e+3", 10**6, "1e3"),
        ("1e18", 0, "1e18"),
        ("100k", 10**8, "100k"),
        ("1000k", 10**9, "1M"),
        ("1Ki", 1_024_000, "1Ki"),
        ("0.5Ki", 512_000, "512"),
        ("1.5Gi", 1_610_612_736_000, "1536Mi"),
        ("-1.5Gi", -1_610_612_736_000, "-1536Mi"),
        ("1023", 1_023_000, "1023"),
        ("1Pi", 1_125_899_906_842_624_000, "1Pi"),
        ("84Ti", 92_358_976_733_184_000, "84Ti"),
        ("9P", 9 * 10**18, "9P"),
        ("9223372036854775", 9223372036854775000, "9223372036854775"),
    ],
)
def test_reads(text: str, milli: int, canonical: str) -> None:
    found = parse_quantity(text)

    assert (found.milli, str(found)) == (milli, canonical)


@pytest.mark.parametrize("text", [".", "+", "-", "k", "-k", "000", "0Ki", "+.", "0e-99999", "-0.0"])
def test_odd_spellings_of_nothing(text: str) -> None:
    assert parse_quantity(text).milli == 0
    assert parse_quantity(text).sign == 0
    assert str(parse_quantity(text)) == "0"


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        pytest.param("10P", 0, id="int form beyond 64 bits"),
        pytest.param("1E", 0, id="more so"),
        pytest.param("-10P", 0, id="below"),
        pytest.param("10000T", 0, id="in small steps"),
        pytest.param("10000000000000000", -8446744073709551616, id="in one step of a thousand it wraps"),
        pytest.param("12345678901234567", -6101065172474984616, id="so does this"),
        pytest.param("8463594436693.M", -3461093139684191744, id="and in one step of a thousand millions"),
        pytest.param("10Ei", -1000, id="binary numbers end at 2^63-1, whose thousandths wrap"),
        pytest.param("-10Ei", 1000, id="on both sides"),
        pytest.param("100000000000000000000.0", 200376420520689664, id="big form wraps"),
        pytest.param("-100000000000000000000.0", -7886392056513, id="a negative one before it is divided"),
        pytest.param("1.0000000000000000001e2000", 0, id="nothing is left of it"),
        pytest.param("1.0000000000000000001e18", 3875820019684212836, id="the low bits"),
    ],
)
def test_overflows_as_upstream(text: str, milli: int) -> None:
    assert parse_quantity(text).milli == milli


@pytest.mark.parametrize(
    ("text", "milli", "canonical"),
    [
        pytest.param("0.0000000001", 1, "1n", id="finer than a nano rounds away from zero"),
        pytest.param("-0.0000000001", 1, "-1n", id="and the big form adds one to what it truncated"),
        pytest.param("1e-99999", 1, "1e-9", id="far finer"),
        pytest.param("-0.0015000000000000000000", 0, "-1500u", id="where the int form gives -2"),
        pytest.param("0.0015000000000000000000", 2, "1500u", id="upwards both agree"),
        pytest.param("0.5000000000000000000Ki", 512_000, "512", id="a big binary fraction"),
        pytest.param("0.0001Ki", 103, "102400u", id="a binary number below one becomes decimal"),
        pytest.param("0.00000000000001Ki", 1, "1n", id="also when it is rounded"),
    ],
)
def test_big_form(text: str, milli: int, canonical: str) -> None:
    found = parse_quantity(text)

    assert found.big
    assert (found.milli, str(found)) == (milli, canonical)


def test_powers_without_a_suffix_are_left_out() -> None:
    assert (str(parse_quantity("1000E")), str(parse_quantity("1e21"))) == ("1", "1e21")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "quantities must match"),
        ("abc", "quantities must match"),
        ("1 ", "quantities must match"),
        ("1x", "quantities must match"),
        ("1.2.3", "quantities must match"),
        ("--1", "unable to parse quantity's suffix"),
        ("1e", "unable to parse quantity's suffix"),
        ("1mm", "unable to parse quantity's suffix"),
        ("1K", "unable to parse quantity's suffix"),
        ("1e99999999999999999999", "unable to parse quantity's suffix"),
        (".e-10", "unable to parse numeric part of quantity"),
        ("1" * 501, "at most 500 characters"),
        ("1٣", "quantities must match"),
    ],
)
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


@pytest.mark.parametrize(
    ("left", "right", "milli", "big"),
    [
        ("100500u", "100500u", 201, False),
        ("0", "5Ki", 5_120_000, False),
        ("5Ki", "0", 5_120_000, False),
        ("9E", "9E", 0, False),
        ("9E", "1", -2011107970261187608, False),
        ("10E", "1", 1864712049423025128, True),
        ("1.5Gi", "1", 1_610_612_737_000, True),
        ("0.0000000000000000000", "1500m", 1500, True),
    ],
)
def test_sums(left: str, right: str, milli: int, big: bool) -> None:  # noqa: FBT001 - a column
    total = parse_quantity(left) + parse_quantity(right)

    assert (total.milli, total.big) == (milli, big)


@pytest.mark.parametrize(
    ("text", "double"),
    [
        ("0.35", 0.35000000000000003),
        ("350m", 0.35000000000000003),
        ("700m", 0.7000000000000001),
        ("9m", 0.009000000000000001),
        ("100m", 0.1),
        ("50m", 0.05),
        ("15e-2", 0.15),
        ("1", 1.0),
        ("2k", 2000.0),
        ("1Ki", 1024.0),
        ("1e400", math.inf),
        ("-1e400", -math.inf),
        ("9" * 400, math.inf),
        ("-" + "9" * 400, -math.inf),
        ("0", 0.0),
    ],
)
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


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("9223372036854775807m", True),
        ("9223372036854775.808", False),
        ("18446744073709551616", False),
        ("100E", False),
        ("8Ei", False),
        ("-9223372036854775808m", True),
        ("1e2000000000", False),
        ("0e2000000000", True),
    ],
)
def test_numbers_of_which_64_bits_hold_the_thousandths(text: str, *, has: bool) -> None:
    assert parse_quantity(text).has_milli is has
