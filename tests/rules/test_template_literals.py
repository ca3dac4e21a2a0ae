"""Literals. What is read is read as Go reads it; what is refused Go refuses, with sentences of our own."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model.go_text import quote
from adapter.rules import template, template_literals

VARIABLES: dict[str, template.Value] = {
    "Series": "",
    "LabelMatchers": "",
    "LabelValuesByName": {},
    "GroupBy": "",
    "GroupBySlice": [],
}

RENDERED = [
    # numbers
    (
        "<<0>> <<007>> <<+5>> <<-5>> <<1_000>> <<0x1F>> <<0X_1f>> <<0b101>> <<0o17>> <<017>> <<0_7>> <<-0x10>> <<-010>>",
        "0 7 5 -5 1000 31 31 5 15 15 7 -16 -8",
    ),
    ("<<9223372036854775807>> <<-9223372036854775808>>", "9223372036854775807 -9223372036854775808"),
    (
        "<<1.>> <<.5>> <<-.5>> <<1e3>> <<1E+3>> <<1_0.5_0>> <<0x1p-2>> <<0x1.8p1>> <<0x_1p0>> <<089.5>>",
        "1 0.5 -0.5 1000 1000 10.5 0.25 3 1 89.5",
    ),
    (
        "<<'a'>> <<'é'>> <<'\\n'>> <<'\\''>> <<'\\\\'>> <<'\\x41'>> <<'\\101'>> <<'\\u00e9'>> <<'\\U0001F600'>> <<'\"'>>",
        "97 233 10 39 92 65 65 233 128512 34",
    ),
    # text
    ('<<"a\\tb\\"c\\\\">>|<<"\\a\\b\\f\\n\\r\\t\\v">>', 'a\tb"c\\|\a\b\f\n\r\t\v'),
    ('<<"\\x41\\101\\u00e9\\U0001F600">>|<<"\\xc3\\xa9">>|<<"\'">>|<<"">>', "AAé😀|é|'|"),
    ("<<`a\\n\"'b`>>|<<`two\r\nlines`>>|<<``>>", "a\\n\"'b|two\nlines|"),
]


@pytest.mark.parametrize(("text", "output"), RENDERED, ids=[text for text, _ in RENDERED])
def test_literals(text: str, output: str) -> None:
    assert template.parse(text).render(VARIABLES) == output


REFUSED = [
    ("08", "08 does not fit into 64 bits"),
    ("9223372036854775808", "9223372036854775808 does not fit into 64 bits"),
    ("9" * 500, f"{'9' * 500} is not a number"),
    ("1__0", '"1__0" is not a number'),
    ("1_", '"1_" is not a number'),
    ("0x", '"0x" is not a number'),
    ("0x1.8", '"0x1.8" is not a number'),
    ("0x1__0p1", '"0x1__0p1" is not a number'),
    ("0x1p99999", '"0x1p99999" is not a number'),
    ("0b1.1", '"0b1.1" is not a number'),
    ("1e", '"1e" is not a number'),
    ("1e999", '"1e999" is not a number'),
    ("-", '"-" is not a number'),
    ("''", "'' is not a character, expected exactly one between the quotes"),
    ("'ab'", "'ab' is not a character, expected exactly one between the quotes"),
    ("'\\nb'", "'\\nb' is not a character, expected exactly one between the quotes"),
    ("'\\\"'", r'unknown escape in "\\\""'),
    ("'\\z'", r'unknown escape in "\\z"'),
    ('"\\\'"', r"""unknown escape in "\\'" """.strip()),
    ('"\\z"', r'unknown escape in "\\z"'),
    ('"\\x4"', r'unknown escape in "\\x4"'),
    ('"\\400"', r"\400 is no character"),
    ('"\\ud800"', r"\ud800 is no character"),
    ('"\\U00110000"', r"\U00110000 is no character"),
]


@pytest.mark.parametrize(("literal", "sentence"), REFUSED, ids=[literal[:30] for literal, _ in REFUSED])
def test_what_is_no_literal_says_where_and_why(literal: str, sentence: str) -> None:
    with pytest.raises(errors.TemplateError) as caught:
        template.parse(f"<<{literal}>>")
    assert str(caught.value).replace('"' + "9" * 500 + '"', "9" * 500) == f"1:3: {sentence}"


def test_bytes_that_are_no_text_survive() -> None:
    rendered = template.parse('<<"\\xff\\303">>').render({})
    assert rendered.encode("utf-8", "surrogateescape") == b"\xff\xc3"


@given(st.text())
def test_a_quoted_text_reads_back(text: str) -> None:
    assert template_literals.text_value(quote(text)) == text


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_an_integer_reads_back(number: int) -> None:
    assert template_literals.number_value(str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_prints_and_reads_back(number: float) -> None:
    printed = template.parse(f"<<{number!r}>>").render({})
    assert float(printed) == number
