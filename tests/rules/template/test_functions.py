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

LITERALS = [
    ("<<0>> <<5>> <<+5>> <<-5>> <<-0>>", "0 5 5 -5 0"),
    ("<<9223372036854775807>> <<-9223372036854775808>>", "9223372036854775807 -9223372036854775808"),
    ('<<"a\\tb\\"c\\\\">>|<<"\\a\\b\\f\\n\\r\\t\\v">>', 'a\tb"c\\|\a\b\f\n\r\t\v'),
    ('<<"\\u00e9\\U0001F600">>|<<"\'">>|<<"">>', "é😀|'|"),
    ("<<`a\\n\"'b`>>|<<`two\r\nlines`>>|<<``>>", "a\\n\"'b|two\nlines|"),
]
RENDERED = [
    # and, or, not
    ("<<and 1 2>> <<and 0 2>> <<and `` nil>>", "2 0 "),
    ("<<or 0 2>> <<or 1 2>> <<or 0 ``>>|", "2 1 |"),
    ("<<2 | and 1>> <<0 | or 0>> <<1 | or>>", "2 0 1"),
    (
        "<<not 0>> <<not .Series>> <<not nil>> <<not .LabelValuesByName.gone>> <<not .>>",
        "true false true true false",
    ),
    # comparison
    ("<<eq 1 1>> <<eq 1 2>> <<eq 1 2 1>> <<eq `a` `a`>> <<eq true true>>", "true false true true true"),
    ("<<eq .GroupBy `pod` `x`>> <<`pod` | eq .GroupBy>>", "true true"),
    (
        "<<eq .LabelValuesByName.gone `x`>> <<eq `x` nil>> <<eq nil nil>> <<eq .LabelValuesByName nil>>",
        "false false true false",
    ),
    ("<<eq (index .GroupBy 0) 112>>", "true"),
    ("<<ne 1 1>> <<ne `a` `b`>> <<ne .LabelValuesByName.gone `x`>>", "false true true"),
    ("<<lt 1 2>> <<lt 2 1>> <<lt `a` `b`>>", "true false true"),
    ("<<le 1 1>> <<le 2 1>> <<le 1 2>>", "true false true"),
    ("<<gt 1 1>> <<gt 2 1>>", "false true"),
    ("<<ge 1 1>> <<ge 1 2>>", "true false"),
    # index
    ("<<index .LabelValuesByName `pod`>>|<<index .LabelValuesByName `gone`>>|", "p||"),
    (
        "<<index .GroupBySlice 1>> <<index .GroupBySlice 0 0>> <<index .Series 2>> <<index .Series>>",
        "container 112 195 größe_total",
    ),
    # len
    ("<<len .Series>> <<len .GroupBySlice>> <<len .LabelValuesByName>> <<len ``>>", "13 3 2 0"),
    # print
    (
        "<<print>>|<<print 1 2>>|<<print 1 `a` 2>>|<<print `a` `b`>>|<<print nil true 1>>",
        "|1 2|1a2|ab|<nil> true 1",
    ),
    ("<<print .GroupBySlice .LabelValuesByName>>", "[pod container x] map[empty: pod:p]"),
    # printf
    ("<<printf `%s=%q %d%%` .GroupBy .LabelMatchers 5>>", 'pod="a=\\"b\\"" 5%'),
]
PRINTED = [
    ("<<printf `%s|%v|%q` .Series .Series .LabelMatchers>>", 'abc|abc|"a=\\"é`\\""'),
    ("<<printf `%d|%v` 42 -42>>", "42|-42"),
    ("<<printf `%q|%q|%q|%q|%q` 65 233 39 34 10>>", "'A'|'é'|'\\''|'\"'|'\\n'"),
    ("<<printf `%q|%q|%q|%q` 1114112 -1 55296 1114111>>", "'\ufffd'|'\ufffd'|'\ufffd'|'\\U0010ffff'"),
    ("<<printf `%v|%v` true false>>", "true|false"),
    (
        "<<printf `%v|%s|%d|%q` nil nil .LabelValuesByName.gone nil>>",
        "<nil>|%!s(<nil>)|%!d(<nil>)|%!q(<nil>)",
    ),
    ("<<printf `%v|%s|%q` .GroupBySlice .GroupBySlice .GroupBySlice>>", '[x y"]|[x y"]|["x" "y\\""]'),
    ("<<printf `%v|%q` .LabelValuesByName .LabelValuesByName>>", 'map[a: pod:p]|map["a":"" "pod":"p"]'),
    ("<<printf `%v` .>>", '{abc a="é`" map[a: pod:p]  [x y"]}'),
    ("<<printf `100%% %s%%` .Series>>|<<printf `x`>>", "100% abc%|x"),
    ("<<`x` | printf `%s-%s` .Series>>", "abc-x"),
    # complaints
    ("<<printf `%d|%s|%s` .Series 42 true>>", "%!d(string=abc)|%!s(int=42)|%!s(bool=true)"),
    ("<<printf `%d|%q` false true>>", "%!d(bool=false)|%!q(bool=true)"),
    ("<<printf `%d` .GroupBySlice>>", '[%!d(string=x) %!d(string=y")]'),
    ("<<printf `%d` .LabelValuesByName>>", "map[%!d(string=a):%!d(string=) %!d(string=pod):%!d(string=p)]"),
]


@pytest.mark.parametrize(
    ("text", "output", "variables"),
    [(*row, VARIABLES) for row in (*LITERALS, *RENDERED)] + [(*row, PRINTED_VARIABLES) for row in PRINTED],
    ids=[text for text, _ in (*LITERALS, *RENDERED, *PRINTED)],
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


REFUSED = [
    ("eq 1 `1`", "eq: cannot compare an integer with text"),
    ("eq true 1", "eq: cannot compare a truth value with an integer"),
    ("eq .LabelValuesByName .LabelValuesByName", "eq: cannot compare a map with a map"),
    ("eq .GroupBySlice .GroupBy", "eq: cannot compare a list with text"),
    ("eq . .", "eq: cannot compare the template's variables with the template's variables"),
    ("ne 1 true", "ne: cannot compare an integer with a truth value"),
    ("lt true false", "lt: cannot order a truth value and a truth value"),
    ("lt nil 1", "lt: cannot order nil and an integer"),
    ("le `a` 1", "le: cannot order text and an integer"),
    ("gt .GroupBySlice .GroupBySlice", "gt: cannot order a list and a list"),
    ("ge 1 `a`", "ge: cannot order an integer and text"),
    ("index nil", "index: cannot index nil"),
    ("index . `Series`", "index: cannot index the template's variables"),
    ("index 1 1", "index: cannot index an integer"),
    ("index .GroupBySlice `0`", "index: an index is an integer, not text"),
    ("index .GroupBySlice true", "index: an index is an integer, not a truth value"),
    ("index .GroupBySlice -1", "index: index -1 is out of range"),
    ("index .GroupBySlice 3", "index: index 3 is out of range"),
    ("index .GroupBy 3", "index: index 3 is out of range"),
    ("index .LabelValuesByName 1", "index: the key of a map is text, not an integer"),
    ("index .LabelValuesByName nil", "index: the key of a map is text, not nil"),
    ("len nil", "len: nil has no length"),
    ("len 1", "len: an integer has no length"),
    ("len .", "len: the template's variables has no length"),
]


@pytest.mark.parametrize(("action", "sentence"), REFUSED, ids=[action for action, _ in REFUSED])
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


@pytest.mark.parametrize(
    ("action", "sentence"),
    [
        ("printf `%s`", 'values for "%s": expected 1, not 0'),
        ("printf `%s %s` 1", 'values for "%s %s": expected 2, not 1'),
        ("1 | printf `x%%`", 'values for "x%%": expected 0, not 1'),
        ("printf `x` 1 `a` nil true", 'values for "x": expected 0, not 4'),
        ("printf .Series", "only quoted text is supported as the format, right after printf"),
        ("printf 1", "only quoted text is supported as the format, right after printf"),
        ("printf nil", "only quoted text is supported as the format, right after printf"),
        ("printf (`x`)", "only quoted text is supported as the format, right after printf"),
        ("`x` | printf", "only quoted text is supported as the format, right after printf"),
    ],
)
def test_a_format_is_checked_before_it_is_used(action: str, sentence: str) -> None:
    at = action.index("printf") + 3
    with pytest.raises(errors.TemplateError) as caught:
        template.parse(f"<<{action}>>")
    assert str(caught.value) == f"1:{at}: printf: {sentence}"
