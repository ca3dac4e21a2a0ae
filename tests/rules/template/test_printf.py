"""Format strings of ``printf``. Every output is what Go's ``fmt.Sprintf`` gives for the same values."""

import pytest

from adapter import errors
from adapter.model.go_text import quote
from adapter.rules.template import template

VARIABLES: dict[str, template.Value] = {
    "Series": "abc",
    "LabelMatchers": 'a="é`"',
    "LabelValuesByName": {"pod": "p", "a": ""},
    "GroupBy": "",
    "GroupBySlice": ["x", 'y"'],
}

RENDERED = [
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


@pytest.mark.parametrize(("text", "output"), RENDERED, ids=[text for text, _ in RENDERED])
def test_printf(text: str, output: str) -> None:
    assert template.parse(text).render(VARIABLES) == output


DIRECTIVES = [
    "%x",
    "%t",
    "%T",
    "%c",
    "%U",
    "%f",
    "%g",
    "%b",
    "%p",
    "%z",
    "%!",
    "%é",
    "%5s",
    "%-5s",
    "%05d",
    "%+v",
    "%#v",
    "% d",
    "%.2s",
]
DIRECTIVES += ["%[1]s", "%*d", "%.*d", "%9999999d", "%5%", "%", "%5", "%[", "%\n"]


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
