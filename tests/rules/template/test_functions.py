"""What literals, functions and ``printf`` of templates give: Go's output for the same template and variables.

What is refused Go refuses, with sentences of our own.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model.go_text import quote
from adapter.rules.template import functions, template
from tests.support.answers import answers

VARIABLES: dict[str, template.Value] = {
    "Series": "größe_total",
    "LabelMatchers": 'a="b"',
    "LabelValuesByName": {"pod": "p", "empty": ""},
    "GroupBy": "pod",
    "GroupBySlice": ["pod", "container", "x"],
}
PRINTED_VARIABLES: dict[str, template.Value] = {
    "Series": "abc",
    "LabelMatchers": 'a="é`"',
    "LabelValuesByName": {"pod": "p", "a": ""},
    "GroupBy": "",
    "GroupBySlice": ["x", 'y"'],
}


@pytest.mark.parametrize(
    ("text", "output", "variables"),
    [
        *((*row, VARIABLES) for row in answers("template/template_functions", "rendered")),
        *((*row, PRINTED_VARIABLES) for row in answers("template/template_functions", "printed")),
    ],
)
def test_what_is_printed(text: str, output: str, variables: dict[str, template.Value]) -> None:
    assert template.parse(text).render(variables) == output


_NUMBERS = "007 08 1_000 1__0 0x1F 0b101 0o17 1. .5 -.5 1e3 1E+3 0x1p-2 1.5 089.5 2i 1+2i - + 1x 1.x 1-2"
NUMBERS = [*_NUMBERS.split(), "9223372036854775808", "-9223372036854775809", "9" * 5000]


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


@pytest.mark.parametrize(("action", "sentence"), answers("template/template_functions", "refused"))
def test_a_failing_function_says_where_and_why(action: str, sentence: str) -> None:
    with pytest.raises(errors.TemplateError) as caught:
        template.parse(f"<<{action}>>").render(VARIABLES)
    assert str(caught.value) == f"1:3: {sentence}"


def test_every_function_has_a_name_of_go() -> None:
    assert " ".join(functions.FUNCTIONS) == "and eq ge gt index le len lt ne not or print printf"


_DIRECTIVES = "%x %t %T %c %U %f %g %b %p %z %! %é %5s %-5s %05d %+v %#v %.2s %[1]s %*d %.*d %9999999d %5%"
DIRECTIVES = [*_DIRECTIVES.split(), "% d", "%", "%5", "%[", "%\n"]


@pytest.mark.parametrize("directive", DIRECTIVES)
def test_other_directives_are_refused(directive: str) -> None:
    with pytest.raises(errors.TemplateError) as caught:
        template.parse(f"<<printf `%s {directive}` .Series .Series>>")
    expected = f"1:3: printf: {quote(directive)} is not supported, expected %s, %d, %q, %v or %%"
    assert str(caught.value) == expected


@pytest.mark.parametrize(("action", "sentence"), answers("template/template_functions", "formats"))
def test_a_format_is_checked_before_it_is_used(action: str, sentence: str) -> None:
    at = action.index("printf") + 3
    with pytest.raises(errors.TemplateError) as caught:
        template.parse(f"<<{action}>>")
    assert str(caught.value) == f"1:{at}: printf: {sentence}"
