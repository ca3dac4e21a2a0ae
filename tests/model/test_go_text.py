"""Numbers as `strconv.ParseFloat` reads them; most cases are of Go's own table (strconv/atof_test.go)."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.model.go_text import parse_float, quote
from tests.support.answers import answers

REFUSED = [
    "", "1x", "1.1.", "1e", "1e-", ".e-1", "1\x00.2", ".", "+", "-", "e5",
    "0x", "0x.", "0x1", "0x.1", "0x1e2", "1p2", "0x1p", "0x1p+", "-0x.p1",
    "nan(1)", "+nan", "-NaN", "infinit", "Infin", "++inf", "in", "i", "n", "na",
    "1.8e308", "1e309", "-1e400", "0x1p1024", "-0x1p1024",
    "-_123.5e+12", "+_123.5e+12", "_123.5e+12", "1__23.5e+12", "123_.5e+12", "123._5e+12",
    "123.5_e+12", "123.5__0e+12",
    "123.5e_+12", "123.5e+_12", "123.5e_-12", "123.5e-_12", "123.5e+1__2", "123.5e+12_",
    "_0x12.345p+12", "0x__12.345p+12", "0x1__2.345p+12", "0x12_.345p+12", "0x12._345p+12",
    "0x12.3__45p+12", "0x12.345_p+12",
    "0x12.345p_+12", "0x12.345p+_12", "0x12.345p+1__2", "0x12.345p+12_", "0x_.8p1",
    # not in Go's table
    " 1", "1 ", "1\n", "\t1", "\u00a01", "\u0661", "\uff11", "0b1", "0o7", "1,5", "1e\u096b",
    "\u0131nf",
]  # fmt: skip


@pytest.mark.parametrize(("text", "value"), answers("model/go_text", "read"))
def test_read(text: str, value: float) -> None:
    read = parse_float(text)
    assert read == value
    assert math.copysign(1, read) == math.copysign(1, value)


@pytest.mark.parametrize("text", ["nan", "NaN", "NAN"])
def test_not_a_number(text: str) -> None:
    assert math.isnan(parse_float(text))


@pytest.mark.parametrize("text", REFUSED, ids=ascii)
def test_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(not a number|out of range)$"):
        parse_float(text)


def _underscores_are_between_digits(text: str) -> bool:
    """Mirror `underscoreOK` of Go's strconv: underscores are between digits, or after the base prefix."""
    saw, at, hexadecimal = "^", 0, False
    text = text[1:] if text[:1] in {"+", "-"} else text
    if text[:2].lower() == "0x":
        saw, at, hexadecimal = "0", 2, True
    for character in text[at:]:
        if character in "0123456789" or (hexadecimal and character in "abcdefABCDEF"):
            saw = "0"
        elif character == "_":
            if saw != "0":
                return False
            saw = "_"
        elif saw == "_":
            return False
        else:
            saw = "!"
    return saw != "_"


def _is_special(text: str) -> bool:
    unsigned = text[1:] if text[:1] in {"+", "-"} else text
    return text.isascii() and (text.lower() == "nan" or unsigned.lower() in {"inf", "infinity"})


def _skip(text: str, at: int, known: str) -> int:
    while at < len(text) and text[at] in known:
        at += 1
    return at


def is_number_in_go(text: str) -> bool:
    """Mirror `special` and `readFloat` of Go's strconv, which go over the text character by character."""
    if _is_special(text):
        return True
    digits, mark, start = "0123456789", "eE", int(text[:1] in {"+", "-"})
    if len(text) > start + 2 and text[start : start + 2].lower() == "0x":
        digits, mark, start = "0123456789abcdefABCDEF", "pP", start + 2
    at = _skip(text, start, digits + "_")
    if text[at : at + 1] == ".":
        at = _skip(text, at + 1, digits + "_")
    if not set(text[start:at]) & set(digits):
        return False
    if at < len(text) and text[at] in mark:
        at += 1 + (text[at + 1 : at + 2] in {"+", "-"})
        if text[at : at + 1] not in set("0123456789"):
            return False
        at = _skip(text, at, "0123456789_")
    elif mark == "pP":
        return False
    return at == len(text) and ("_" not in text or _underscores_are_between_digits(text))


def is_number(text: str) -> bool:
    try:
        parse_float(text)
    except ValueError as error:
        return str(error) == "out of range"
    return True


@given(st.text("0123456789abcdefpxinyt+-._ EXPN", max_size=12) | st.text(max_size=6))
@example("0x_1p1")
@example("0x1_p1")
@example("1_.5")
def test_numbers_are_those_of_go(text: str) -> None:
    assert is_number(text) == is_number_in_go(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_written_text_is_read_again(value: float) -> None:
    assert parse_float(repr(value)) == value
    assert parse_float(value.hex()) == value


@pytest.mark.parametrize(("text", "literal"), answers("model/go_text", "quoted"))
def test_quote_writes_go_string_literals(text: str, literal: str) -> None:
    assert quote(text) == literal
