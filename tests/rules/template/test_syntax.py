"""What templates may look like. All that is refused here Go refuses too.

Where, what and what was expected is said in our words.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.rules.template import syntax, template

VARIABLES: dict[str, template.Value] = {
    "Series": "s",
    "LabelMatchers": "",
    "LabelValuesByName": {},
    "GroupBy": "",
    "GroupBySlice": [],
}

REFUSED = [
    # delimiters, comments, quotes
    ("<<", '1:3: the template ends within an action, expected ">>"'),
    ("a\nb <<.Series", '2:12: the template ends within an action, expected ">>"'),
    ("<<>>", "1:3: missing value in an action"),
    ("<< ->>", "1:5: missing value in an action"),
    ("<</* a", '1:3: comment without its end, expected "*/>>"'),
    ("<<-  /* a */>>", '1:6: unexpected "/", expected a value or a function in an action'),
    ('<<"a>>', '1:3: quoted text without its end, expected "'),
    ('<<"a\nb">>', '1:3: quoted text without its end, expected "'),
    ("<<`a>>", "1:3: raw quoted text without its end, expected `"),
    # characters
    ("<<\x01>>", '1:3: unexpected character "\\x01"'),
    ("<<€>>", '1:3: unexpected character "€"'),
    ("<<.Series:x>>", '1:10: unexpected ":", expected ":="'),
    ("<<.Series-1>>", '1:10: unexpected "-" right after ".Series", expected a space'),
    ("<<$x=1>>", '1:5: unexpected "=" right after "$x", expected a space'),
    ("<<.=>>", '1:4: unexpected "=" right after ".", expected a space'),
    ("<<.Series,>>", '1:10: unexpected ",", expected a space between operands'),
    ("<<=>>", '1:3: unexpected "=", expected a value or a function in an action'),
    # operands
    ("<<Series>>", '1:3: unknown function "Series", expected one of '),
    ("<<$x>>", "1:3: undefined variable $x, expected $x := before it is used"),
    ("<<.Series`a`>>", '1:10: unexpected "`" right after ".Series", expected a space'),
    ("<<`a``b`>>", '1:6: unexpected "`b`", expected a space between operands'),
    ("<<(1)(2)>>", '1:6: unexpected "(", expected a space between operands'),
    ("<<print ()>>", "1:10: missing value in parentheses"),
    # pipelines
    ("<<|>>", '1:3: unexpected "|", expected a value or a function in an action'),
    ("<<1||print>>", '1:5: unexpected "|", expected a value or a function in an action'),
    ("<<1 | if>>", '1:7: unexpected "if", expected a value or a function in an action'),
    # keywords
    ("<<end>>", '1:3: unexpected "end", nothing is open that it could close'),
    ("<<else>>", '1:3: unexpected "else", nothing is open that it could close'),
    ("<<if>>x<<end>>", "1:5: missing value in if"),
    ("<<if true>>x", '1:3: "if" without its "end"'),
    ("<<if true>>x<<else>>y", '1:3: "if" without its "end"'),
    ("<<if true>><<else>><<else>><<end>>", '1:22: a second "else" in one "if", expected "end"'),
    ("<<if true>><<else 1>><<end>>", '1:19: unexpected "1", expected >> after "else"'),
    ("<<if true>><<else if>><<end>>", "1:21: missing value in if"),
    ("<<with true>><<else with true>><<end>>", '1:21: unexpected "with", expected >> after "else"'),
    ("<<with true>><<else if true>><<end>>", '1:21: unexpected "if", expected >> after "else"'),
    ("<<range .>>x", '1:3: "range" without its "end"'),
    ("<<end 1>>", '1:7: unexpected "1", expected >> after "end"'),
    # what can be known without values
    ("<</* a */ .Series>>", '1:3: comment without its end, expected "*/>>"'),
    ("<<(.Series>>", '1:11: unexpected ">>", expected ")"'),
    ("<<.Series)>>", '1:10: unexpected ")", expected ">>"'),
    ("<<print (>>", '1:10: unexpected ">>", expected ")"'),
    ("<<.Series % 2>>", '1:11: unexpected "%", expected a value or a function in an action'),
    ("<<.Series = 1>>", '1:11: unexpected "=", expected a value or a function in an action'),
    ("<<é.x>>", '1:3: unexpected character "é"'),
    ("<<.a²>>", '1:5: unexpected "²" right after ".a", expected a space'),
    ("<<foo>>", '1:3: unknown function "foo", expected one of and, eq, ge, gt, index, le, len, lt, ne, '),
    ("<<true.x>>", '1:7: unexpected ".x", expected a space between operands'),
    ("<<nil.x>>", '1:6: unexpected ".x", expected a space between operands'),
    ("<<`a`.x>>", '1:6: unexpected ".x", expected a space between operands'),
    ("<<..x>>", '1:4: unexpected ".x", expected a space between operands'),
    ("<<print.F>>", '1:8: unexpected ".F", expected a space between operands'),
    ("<<with $x := 1>><<end>><<$x>>", "1:26: undefined variable $x, expected $x := before it is used"),
    ("<<with $x := $x>><<end>>", "1:14: undefined variable $x, expected $x := before it is used"),
    ("<<with $x := >><<end>>", "1:14: missing value in with"),
    ("<<with $x, $y := 1>><<end>>", "1:8: too many variables in with"),
    ("<<range $a, $b, $c := .>><<end>>", "1:9: too many variables in range"),
    ("<<range $a, 1 := .>><<end>>", "1:9: undefined variable $a, expected $a := before it is used"),
    ("<<range $a, >><<end>>", "1:9: undefined variable $a, expected $a := before it is used"),
    ("<<nil>>", "1:3: nil alone is not a command"),
    ("<<.Series `x`>>", "1:3: a value cannot be given an argument, only a function can"),
    ("<<`x` `y`>>", "1:3: a value cannot be given an argument, only a function can"),
    ("<<1 | 2>>", "1:7: a value cannot be given an argument, only a function can"),
    ("<<1 | .>>", "1:7: a value cannot be given an argument, only a function can"),
    ("<<1 | nil>>", "1:7: a value cannot be given an argument, only a function can"),
    ("<<1 | (.Series)>>", "1:7: a value cannot be given an argument, only a function can"),
    ("<<1 | $>>", "1:7: a value cannot be given an argument, only a function can"),
    ("<<1 | .LabelValuesByName.pod>>", "1:7: a value cannot be given an argument, only a function can"),
    ("<<len>>", "1:3: len takes 1 argument, not 0"),
    ("<<eq>>", "1:3: eq takes at least 2 arguments, not 0"),
    ("<<eq 1>>", "1:3: eq takes at least 2 arguments, not 1"),
    ("<<1 | len 2>>", "1:7: len takes 1 argument, not 2"),
    ("<<lt 1>>", "1:3: lt takes 2 arguments, not 1"),
    ("<<and>>", "1:3: and takes at least 1 argument, not 0"),
    ("<<print len>>", "1:9: len takes 1 argument, not 0"),
]
DECLARATION = "is not supported, expected := in range or with"
UNSUPPORTED = [
    # variables other than those of range and with
    ("<<$x := .Series>><<$x>>", f"1:3: $x := in an action {DECLARATION}"),
    ("<<$x:=1>>", f"1:3: $x := in an action {DECLARATION}"),
    ("<<$x := >>", f"1:3: $x := in an action {DECLARATION}"),
    ("<<$x, $y := 1>>", f"1:3: $y := in an action {DECLARATION}"),
    ("<<($x := 1)>><<$x>>", f"1:4: $x := in parentheses {DECLARATION}"),
    ("<<if $x := .Series>><<$x>><<end>>", f"1:6: $x := in if {DECLARATION}"),
    ("<<$x = 1>>", f"1:3: $x = in an action {DECLARATION}"),
    ("<<with $x := 1>><<$x = 2>><<end>>", f"1:19: $x = in an action {DECLARATION}"),
    ("<<range $i, $x = .GroupBySlice>><<end>>", f"1:9: $x = in range {DECLARATION}"),
    ("<<with $x = .>><<end>>", f"1:8: $x = in with {DECLARATION}"),
    # keywords
    ('<<define "m">><<.>>!<<end>><<template "m" .Series>>', '1:3: "define" is not supported, expected '),
    ("<<if true>><<define `a`>><<end>><<end>>", '1:14: "define" is not supported, expected '),
    ('<<template "m" .>>', '1:3: "template" is not supported, expected '),
    ("<<template>>", '1:3: "template" is not supported, expected '),
    ('<<block "m" .GroupBySlice>><<len .>><<end>>', '1:3: "block" is not supported, expected '),
    ("<<range .GroupBySlice>><<break>><<end>>", '1:26: "break" is not supported, expected '),
    (
        "<<range .GroupBySlice>><<if .>><<continue>><<end>><<end>>",
        '1:34: "continue" is not supported, expected ',
    ),
    # functions
    ("<<call .Series>>", '1:3: "call" is not supported, expected one of and, eq, ge, gt, index, le, len, '),
    ("<<html .Series>>", '1:3: "html" is not supported, expected one of and, eq, '),
    ("<<.Series | html>>", '1:13: "html" is not supported, expected one of and, eq, '),
    ("<<js .Series>>", '1:3: "js" is not supported, expected one of and, eq, '),
    ("<<println .Series>>", '1:3: "println" is not supported, expected one of and, eq, '),
    ("<<range slice .GroupBySlice 2>><<end>>", '1:9: "slice" is not supported, expected one of and, eq, '),
    ("<<print (urlquery .Series)>>", '1:10: "urlquery" is not supported, expected one of and, eq, '),
]


@pytest.mark.parametrize(
    ("text", "sentence"), [*REFUSED, *UNSUPPORTED], ids=[text for text, _ in [*REFUSED, *UNSUPPORTED]]
)
def test_bad_syntax_and_other_parts_of_gos_language_are_refused_with_place_and_expectation(
    text: str, sentence: str
) -> None:
    with pytest.raises(errors.TemplateError) as caught:
        template.parse(text)
    assert str(caught.value).startswith(sentence)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"<<{'(' * 5000}1{')' * 5000}>>", id="parentheses"),
        pytest.param("<<if true>>" * 5000 + "<<end>>" * 5000, id="actions"),
    ],
)
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(errors.TemplateError, match="nested too deeply"):
        template.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"<<{'(' * 50}.Series{')' * 50}>>", id="parentheses"),
        pytest.param("<<if true>>" * 50 + "s" + "<<end>>" * 50, id="actions"),
        pytest.param("<<if true>><<(.Series)>><<end>>" * 60, id="one after the other"),
    ],
)
def test_nesting_of_fifty_levels_is_rendered(text: str) -> None:
    assert set(template.parse(text).render(VARIABLES)) == {"s"}


@pytest.mark.parametrize(
    ("text", "offset", "place"),
    [("", 0, "1:1"), ("ab", 1, "1:2"), ("a\nb", 2, "2:1"), ("a\n\nbc", 4, "3:2"), ("a\n", 2, "2:1")],
)
def test_place_counts_from_one(text: str, offset: int, place: str) -> None:
    assert str(syntax.fault(text, offset, "wrong")) == f"{place}: wrong"


FRAGMENTS = r"""
<< >> <<- ->> <</* */>> | := = , ( ) . $ $x .Series .GroupBySlice.x `r` "q" 'c' 1 -2.5 0x true nil if
else end range with define template block break continue print len index and eq foo é _ % : \ text
<<end>> <<else>> <<.Series>>
"""


@given(st.lists(st.sampled_from([*FRAGMENTS.split(), " ", "\n"]), max_size=25).map("".join) | st.text())
def test_any_text_is_a_template_or_refused(text: str) -> None:
    try:
        parsed = template.parse(text)
    except errors.TemplateError as error:
        assert str(error)  # noqa: PT017 - either outcome is right, any other exception is not
        return
    try:
        assert isinstance(parsed.render(VARIABLES), str)
    except errors.TemplateError as error:
        assert str(error)  # noqa: PT017 - rendering too may refuse


@given(st.text(alphabet=st.characters(exclude_characters="<", exclude_categories=["Cs"])))
def test_text_without_delimiters_is_copied(text: str) -> None:
    assert template.parse(text).render({}) == text
