"""What templates may look like. All that is refused here Go refuses too; where, what and what was expected is said in our words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.rules import template, template_lex

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
    ("<</* a */ .Series>>", '1:8: the comment ends before the action does, expected ">>" right after "*/"'),
    ("<<-  /* a */>>", '1:6: unexpected "/", expected a value or a function in an action'),
    ('<<"a>>', '1:3: quoted text without its end, expected "'),
    ('<<"a\nb">>', '1:3: quoted text without its end, expected "'),
    ("<<`a>>", "1:3: raw quoted text without its end, expected `"),
    ("<<'a>>", "1:3: character without its end, expected '"),
    ("<<(.Series>>", '1:11: parenthesis without its end, expected ")"'),
    ("<<.Series)>>", '1:10: unexpected ")", no "(" stands before it'),
    # characters
    ("<<.Series % 2>>", '1:11: unexpected "%", expected a blank between operands'),
    ("<<é.x>>", '1:3: unknown function "é", expected one of and, call, eq, '),
    ("<<\x01>>", '1:3: unexpected character "\\x01"'),
    ("<<€>>", '1:3: unexpected character "€"'),
    ("<<.Series:x>>", '1:10: unexpected ":", expected ":="'),
    ("<<.Series-1>>", '1:10: unexpected "-" right after ".Series", expected a blank'),
    ("<<$x=1>>", '1:5: unexpected "=" right after "$x", expected a blank'),
    ("<<.=>>", '1:4: unexpected "=" right after ".", expected a blank'),
    ("<<.Series,>>", '1:10: unexpected ",", expected a blank between operands'),
    ("<<.Series = 1>>", '1:11: unexpected "=", expected a blank between operands'),
    ("<<=>>", '1:3: unexpected "=", expected a value or a function in an action'),
    ("<<1x>>", '1:3: "1x" does not begin a number'),
    ("<<1+2i>>", '1:3: complex numbers are not supported, found "1"'),
    ("<<2i>>", '1:3: complex numbers are not supported, found "2i"'),
    # operands
    (
        "<<foo>>",
        '1:3: unknown function "foo", expected one of and, call, eq, ge, gt, html, index, js, le, len, lt, ne, ',
    ),
    ("<<Series>>", '1:3: unknown function "Series", expected one of '),
    ("<<$x>>", "1:3: undefined variable $x, expected $x := before it is used"),
    ("<<if true>><<$x := 1>><<end>><<$x>>", "1:32: undefined variable $x"),
    ("<<1.x>>", '1:3: "1.x" does not begin a number'),
    ("<<true.x>>", "1:3: a literal has no field .x"),
    ("<<nil.x>>", "1:3: a literal has no field .x"),
    ("<<`a`.x>>", "1:3: a literal has no field .x"),
    ("<<..x>>", "1:3: a literal has no field .x"),
    ("<<.Series`a`>>", '1:10: unexpected "`" right after ".Series", expected a blank'),
    ("<<`a``b`>>", '1:6: unexpected "`b`", expected a blank between operands'),
    ("<<(1)(2)>>", '1:6: unexpected "(", expected a blank between operands'),
    ("<<print (>>", '1:10: parenthesis without its end, expected ")"'),
    ("<<print ()>>", "1:10: missing value in parentheses"),
    # pipelines
    ("<<|>>", '1:3: unexpected "|", expected a value or a function in an action'),
    ("<<1||print>>", '1:5: unexpected "|", expected a value or a function in an action'),
    ("<<1 | 2>>", "1:7: a value cannot be given an argument, expected a function after |"),
    ("<<1 | .>>", "1:7: a value cannot be given an argument, expected a function after |"),
    ("<<1 | nil>>", "1:7: a value cannot be given an argument, expected a function after |"),
    ("<<1 | if>>", '1:7: unexpected "if", expected a value or a function in an action'),
    ("<<$x := >>", "1:9: missing value in an action"),
    ("<<$x, $y := 1>>", "1:5: too many variables in an action"),
    ("<<range $a, $b, $c := .>><<end>>", "1:15: too many variables in range"),
    ("<<range $a, 1 := .>><<end>>", '1:13: unexpected "1", expected a second variable'),
    ("<<range $a, >><<end>>", "1:13: missing value in range"),
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
    ("<<break>>", '1:3: "break" outside of a "range"'),
    ("<<range .>><<else>><<break>><<end>>", '1:22: "break" outside of a "range"'),
    ("<<range .>><<block `b` .>><<continue>><<end>><<end>>", '1:29: "continue" outside of a "range"'),
    ("<<range .>><<break 1>><<end>>", '1:20: unexpected "1", expected >> after "break"'),
    # define, block, template
    ("<<define>><<end>>", '1:9: unexpected ">>", expected quoted text as the name after "define"'),
    ("<<define 1>><<end>>", '1:10: unexpected "1", expected quoted text as the name after "define"'),
    ("<<define `a` .>><<end>>", '1:14: unexpected ".", expected >> after "the name of the template"'),
    ("<<define `a`>>", '1:3: "define" without its "end"'),
    ("<<define `a`>><<else>><<end>>", '1:17: unexpected "else", expected the "end" of template "a"'),
    ("<<if true>><<define `a`>><<end>><<end>>", '1:14: "define" is allowed only outside of other actions'),
    ("<<define `a`>>1<<end>>\n<<define `a`>>2<<end>>", '2:3: template "a" is defined twice'),
    ("<<$x := 1>><<define `a`>><<$x>><<end>>", "1:28: undefined variable $x"),
    ("<<block `a`>><<end>>", "1:12: missing value in the value of the block"),
    ("<<template>>", '1:11: unexpected ">>", expected quoted text as the name after "template"'),
    ("<<template .>>", '1:12: unexpected ".", expected quoted text as the name after "template"'),
    ("<<template `a` `b` |>>x<<", '1:26: the template ends within an action, expected ">>"'),
]


@pytest.mark.parametrize(("text", "sentence"), REFUSED, ids=[text for text, _ in REFUSED])
def test_bad_syntax_is_refused_with_place_and_expectation(text: str, sentence: str) -> None:
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
    ("text", "offset", "place"),
    [("", 0, "1:1"), ("ab", 1, "1:2"), ("a\nb", 2, "2:1"), ("a\n\nbc", 4, "3:2"), ("a\n", 2, "2:1")],
)
def test_place_counts_from_one(text: str, offset: int, place: str) -> None:
    assert template_lex.place(text, offset) == place


fragments = st.sampled_from(
    [
        "<<",
        ">>",
        "<<-",
        "->>",
        "<</*",
        "*/>>",
        "|",
        ":=",
        "=",
        ",",
        "(",
        ")",
        ".",
        "$",
        "$x",
        ".Series",
        ".GroupBySlice.x",
        "`r`",
        '"q"',
        "'c'",
        "1",
        "-2.5",
        "0x",
        "true",
        "nil",
        "if",
        "else",
        "end",
        "range",
        "with",
        "define",
        "template",
        "block",
        "break",
        "continue",
        "print",
        "len",
        "index",
        "and",
        "eq",
        "foo",
        "\n",
        "é",
        "_",
        "%",
        ":",
        "\\",
        "text",
        "<<end>>",
        "<<else>>",
        "<<.Series>>",
    ]
)


@given(st.lists(st.one_of(fragments, st.just(" ")), max_size=25).map("".join) | st.text())
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
