"""Cases follow the tests of k8s.io/apimachinery/pkg/labels; every sentence is what version 0.30 says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model.objects import label_selectors
from adapter.model.objects.label_selectors import LabelSelector, Operator, Requirement
from tests.support.answers import answers


def test_empty_text_selects_everything() -> None:
    assert label_selectors.parse_selector("") == label_selectors.EVERYTHING
    assert label_selectors.parse_selector(" \t\r\n") == label_selectors.EVERYTHING
    assert label_selectors.EVERYTHING.matches({"any": "thing"})
    assert not str(label_selectors.EVERYTHING)


@pytest.mark.parametrize(("text", "requirements"), answers("model/label_selectors", "parsed"))
def test_parse(text: str, requirements: list[tuple[str, str, list[str]]] | None) -> None:
    if requirements is None:
        with pytest.raises(errors.BadRequestError):
            label_selectors.parse_selector(text)
        return
    expected = LabelSelector(
        tuple(Requirement(key, Operator(op), tuple(values)) for key, op, values in requirements)
    )
    assert label_selectors.parse_selector(text) == expected


@pytest.mark.parametrize(("text", "sentence"), answers("model/label_selectors", "refused"))
def test_parse_refuses_in_the_words_of_upstream(text: str, sentence: str) -> None:
    with pytest.raises(errors.BadRequestError) as caught:
        label_selectors.parse_selector(text)
    assert caught.value.message == sentence


@pytest.mark.parametrize(("text", "sentence"), answers("model/label_selectors", "refused requirements"))
def test_requirements_are_refused_in_the_words_of_upstream(text: str, sentence: str) -> None:
    test_parse_refuses_in_the_words_of_upstream(text, f"unable to parse requirement: {sentence}")


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("a in (,,)", "a in ()"), ("a in (b,,)", "a in (,b)"), ("a in (b,,,c)", "a in (,b,c)")],
    ids=["commas alone", "two at the end", "three"],
)
def test_later_versions_read_any_number_of_commas(text: str, canonical: str) -> None:
    assert str(label_selectors.parse_selector(text, later=True)) == canonical


@pytest.mark.parametrize(("text", "complaint"), answers("model/label_selectors", "refused later"))
def test_later_versions_refuse_in_other_words(text: str, complaint: str) -> None:
    with pytest.raises(errors.BadRequestError) as caught:
        label_selectors.parse_selector(text, later=True)
    assert caught.value.message.endswith(f": {complaint}")


def test_a_long_list_of_commas_is_refused_not_recursed_into() -> None:
    with pytest.raises(errors.BadRequestError):
        label_selectors.parse_selector(f"a in (b{',' * 20_000})")


@pytest.mark.parametrize(("text", "matching", "not_matching"), answers("model/label_selectors", "matches"))
def test_matches(text: str, matching: list[dict[str, str]], not_matching: list[dict[str, str]]) -> None:
    selector = label_selectors.parse_selector(text)
    assert [selector.matches(labels) for labels in matching] == [True] * len(matching)
    assert [selector.matches(labels) for labels in not_matching] == [False] * len(not_matching)


def test_a_limit_or_a_value_that_is_no_integer_matches_nothing() -> None:
    assert not Requirement("x", Operator.GREATER_THAN, ("five",)).matches({"x": "6"})
    assert not Requirement("x", Operator.GREATER_THAN, ("5",)).matches({"x": "6" * 5000})


def test_str_is_canonical() -> None:
    text = "z , ! y, x notin(b,a),w in (c),v!=1 ,u==2,t=3,s >4,r< 5,q in ()"
    canonical = "q in (),r<5,s>4,t=3,u==2,v!=1,w in (c),x notin (a,b),!y,z"
    assert str(label_selectors.parse_selector(text)) == canonical


def test_selectors_are_values() -> None:
    texts = ("a in (x,y),b", "b, a in (y,x)")
    assert len(set(map(label_selectors.parse_selector, texts))) == 1


# --- properties

names = st.text(alphabet="aZ0-_.", max_size=4).map(lambda middle: f"a{middle}9")
keys = st.one_of(names, names.map(lambda name: f"e-1.com/{name}"))
values = st.one_of(names, st.sampled_from(["", "in", "notin", "x"]))


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    operator = draw(st.sampled_from(Operator))
    match operator:
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            texts: tuple[str, ...] = ()
        case Operator.IN | Operator.NOT_IN:
            texts = tuple(sorted(draw(st.sets(values, min_size=1, max_size=4))))
        case Operator.GREATER_THAN | Operator.LESS_THAN:
            texts = (str(draw(st.integers(min_value=0, max_value=2**63 - 1))),)
        case _:
            texts = (draw(values),)
    return Requirement(draw(keys), operator, texts)


@given(st.lists(requirements(), max_size=5))
def test_canonical_text_reads_back(listed: list[Requirement]) -> None:
    selector = LabelSelector(tuple(sorted(listed, key=lambda requirement: requirement.key)))
    assert label_selectors.parse_selector(str(selector)) == selector


@given(st.lists(requirements(), max_size=3), st.dictionaries(keys, values, max_size=3))
def test_a_selector_matches_when_all_its_requirements_do(
    listed: list[Requirement], labels: dict[str, str]
) -> None:
    selector = LabelSelector(tuple(listed))
    assert selector.matches(labels) == all(requirement.matches(labels) for requirement in listed)


pieces = st.sampled_from(
    ["a", "b/c", "in", "notin", "=", "==", "!=", "!", "(", ")", ",", "<", ">", " ", "\0", "_", "5", "é"]
)


@given(st.lists(pieces, max_size=12).map("".join) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        selector = label_selectors.parse_selector(text)
    except errors.BadRequestError:
        return
    assert label_selectors.parse_selector(str(selector)) == selector


def test_a_selector_weighs_many_times_its_text() -> None:
    """By which caches are bounded: `in` makes a string of every value."""
    values = ",".join(f"v{number}" for number in range(1000))
    small, large = label_selectors.parse_selector("a"), label_selectors.parse_selector(f"a in ({values})")
    assert label_selectors.EVERYTHING.weight < small.weight < 1000
    assert 60_000 < large.weight < 100_000
