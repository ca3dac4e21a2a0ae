"""What templates may look like. All that is refused here Go refuses too.

Where, what and what was expected is said in our words.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.rules.template import syntax, template
from tests.support.answers import answers

VARIABLES: dict[str, template.Value] = {
    "Series": "s",
    "LabelMatchers": "",
    "LabelValuesByName": {},
    "GroupBy": "",
    "GroupBySlice": [],
}


@pytest.mark.parametrize(
    ("text", "sentence"),
    [*answers("template/template_syntax", "refused"), *answers("template/template_syntax", "not supported")],
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
        pytest.param(f"<<{'(' * 51}1{')' * 51}>>", id="one too many"),
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
