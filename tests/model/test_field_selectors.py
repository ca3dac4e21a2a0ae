"""Field selectors: what is read, what is refused and with which sentence."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter import errors
from adapter.model.objects import field_selectors
from adapter.model.objects.field_selectors import FieldSelector, FieldTerm
from tests.support.answers import answers

POD = {"metadata.name": "web-1", "metadata.namespace": "shop"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", (), id="nothing"),
        pytest.param(",,", (), id="empty_terms"),
        pytest.param("=", (), id="nothing_equals_nothing"),
        pytest.param("metadata.name=a", (FieldTerm("metadata.name", "a", negated=False),), id="equals"),
        pytest.param(
            "metadata.name==a", (FieldTerm("metadata.name", "a", negated=False),), id="double_equals"
        ),
        pytest.param("metadata.name!=a", (FieldTerm("metadata.name", "a", negated=True),), id="not_equals"),
        pytest.param("metadata.name=", (FieldTerm("metadata.name", "", negated=False),), id="empty_value"),
        pytest.param(
            "b=1,a=2", (FieldTerm("a", "2", negated=False), FieldTerm("b", "1", negated=False)), id="sorted"
        ),
        pytest.param("a=b\\,c\\=d\\\\e", (FieldTerm("a", "b,c=d\\e", negated=False),), id="escapes"),
        pytest.param("a\\,b=c", (FieldTerm("a\\,b", "c", negated=False),), id="no_escapes_in_a_field"),
    ],
)
def test_parse(text: str, expected: tuple[FieldTerm, ...]) -> None:
    assert field_selectors.parse_selector(text) == expected


@pytest.mark.parametrize(("text", "sentence"), answers("model/field_selectors", "refused"))
def test_refused(text: str, sentence: str) -> None:
    with pytest.raises(errors.BadRequestError) as caught:
        field_selectors.parse_selector(text)
    assert caught.value.message == sentence


def test_an_unknown_field() -> None:
    field_selectors.check_fields(field_selectors.parse_selector("metadata.name=a,metadata.namespace!=b"))
    with pytest.raises(errors.BadRequestError) as caught:
        field_selectors.check_fields(field_selectors.parse_selector("status.phase=Running"))
    assert caught.value.message == (
        '"status.phase" is not a known field selector: only "metadata.name", "metadata.namespace"'
    )


@pytest.mark.parametrize("text", ["", "metadata.name=a", "metadata.name=a,metadata.namespace=x"])
def test_the_name_of_the_path(text: str) -> None:
    field_selectors.check_name(field_selectors.parse_selector(text), "a")


@pytest.mark.parametrize("text", ["metadata.name=b", "metadata.name!=b", "metadata.namespace=x"])
def test_another_name(text: str) -> None:
    with pytest.raises(errors.BadRequestError) as caught:
        field_selectors.check_name(field_selectors.parse_selector(text), "a")
    assert caught.value.message == "fieldSelector metadata.name doesn't match requested name"


@given(st.text(alphabet="ab\\,=! é"))
def test_any_text_is_read_or_a_bad_request(text: str) -> None:
    try:
        terms = field_selectors.parse_selector(text)
    except errors.BadRequestError:
        return
    assert all(term.field or term.value for term in terms)


@pytest.mark.parametrize(("text", "matches"), answers("model/field_selectors", "matches"))
def test_matches(text: str, matches: bool) -> None:  # noqa: FBT001 - a column of a table
    assert field_selectors.parse_metadata(text).matches(POD) is matches


def test_a_field_that_is_not_there_is_empty() -> None:
    node = {"metadata.name": "n1"}
    assert field_selectors.parse_metadata("metadata.namespace=").matches(node)
    assert not field_selectors.parse_metadata("metadata.namespace=shop").matches(node)
    assert field_selectors.EVERYTHING.matches({})


def test_demands_of_a_selector() -> None:
    selector = field_selectors.parse_metadata("metadata.namespace!=a,metadata.name=b")
    assert isinstance(selector, FieldSelector)
    assert selector.required("metadata.name") == "b"
    assert selector.required("metadata.namespace") is None


def test_other_fields_select_nothing() -> None:
    with pytest.raises(errors.BadRequestError, match=r"status\.phase"):
        field_selectors.parse_metadata("metadata.name=a,status.phase=Running")


@given(st.text(alphabet="ab=!,\\.", max_size=12))
def test_a_selector_written_anew_means_the_same(text: str) -> None:
    try:
        terms = field_selectors.parse_selector(text)
    except errors.BadRequestError:
        return
    written = ",".join(
        f"{term.field}{'!=' if term.negated else '='}"
        + term.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        for term in terms
    )
    assert set(field_selectors.parse_selector(written)) == set(terms)
