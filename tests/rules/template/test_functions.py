"""What the functions of templates return. Every output is Go's for the same template and variables."""

import pytest

from adapter import errors
from adapter.rules.template import functions, template

VARIABLES: dict[str, template.Value] = {
    "Series": "größe_total",
    "LabelMatchers": 'a="b"',
    "LabelValuesByName": {"pod": "p", "empty": ""},
    "GroupBy": "pod",
    "GroupBySlice": ["pod", "container", "x"],
}

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


@pytest.mark.parametrize(("text", "output"), RENDERED, ids=[text for text, _ in RENDERED])
def test_function(text: str, output: str) -> None:
    assert template.parse(text).render(VARIABLES) == output


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
