"""Literals. What is read is read as Go reads it; what is refused Go refuses, with sentences of our own."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model.go_text import quote
from adapter.rules.template import template

RENDERED = [
    ("<<0>> <<5>> <<+5>> <<-5>> <<-0>>", "0 5 5 -5 0"),
    ("<<9223372036854775807>> <<-9223372036854775808>>", "9223372036854775807 -9223372036854775808"),
    ('<<"a\\tb\\"c\\\\">>|<<"\\a\\b\\f\\n\\r\\t\\v">>', 'a\tb"c\\|\a\b\f\n\r\t\v'),
    ('<<"\\u00e9\\U0001F600">>|<<"\'">>|<<"">>', "é😀|'|"),
    ("<<`a\\n\"'b`>>|<<`two\r\nlines`>>|<<``>>", "a\\n\"'b|two\nlines|"),
]


@pytest.mark.parametrize(("text", "output"), RENDERED, ids=[text for text, _ in RENDERED])
def test_literals(text: str, output: str) -> None:
    assert template.parse(text).render({}) == output


NUMBERS = [
    "007",
    "08",
    "1_000",
    "1__0",
    "0x1F",
    "0b101",
    "0o17",
    "1.",
    ".5",
    "-.5",
    "1e3",
    "1E+3",
    "0x1p-2",
    "1.5",
    "089.5",
    "2i",
    "1+2i",
]
NUMBERS += ["9223372036854775808", "-9223372036854775809", "9" * 5000, "-", "+", "1x", "1.x", "1-2"]


@pytest.mark.parametrize("number", NUMBERS, ids=[number[:30] for number in NUMBERS])
def test_numbers_other_than_integers_in_digits_are_refused(number: str) -> None:
    with pytest.raises(errors.TemplateError) as caught:
        template.parse(f"<<{number}>>")
    assert str(caught.value) == f'1:3: "{number}" is not supported, expected a 64-bit integer in digits'


@pytest.mark.parametrize("character", ["'a'", "''", "'ab'", "'\\n'", "'"])
def test_characters_are_refused(character: str) -> None:
    with pytest.raises(errors.TemplateError) as caught:
        template.parse(f"<<{character}>>")
    sentence = "a character in single quotes is not supported, expected text in double quotes or back quotes"
    assert str(caught.value) == f"1:3: {sentence}"


@pytest.mark.parametrize(
    "text",
    [r"\'", r"\z", r"\x41", r"\xff", r"\101", r"\ud800", r"\U0000dfff", r"\U00110000", r"\u12", r"\z\\n"],
)
def test_other_escapes_are_refused(text: str) -> None:
    with pytest.raises(errors.TemplateError) as caught:
        template.parse(f'<<"{text}">>')
    assert str(caught.value) == f'1:3: an escape in "{text}" is not supported, expected the character itself'


@given(st.text())
def test_a_quoted_text_reads_back(text: str) -> None:
    # the others are quoted with escapes that a template does not read
    readable = "".join(character for character in text if not re.search(r"\\[xU]", quote(character)))
    assert template.parse(f"<<{quote(readable)}>>").render({}) == readable


@given(st.integers(min_value=-(2**63), max_value=2**63 - 1))
def test_an_integer_reads_back(number: int) -> None:
    assert template.parse(f"<<{number}>>").render({}) == str(number)
