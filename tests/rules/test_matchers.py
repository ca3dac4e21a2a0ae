import pytest
import re2
from hypothesis import given
from hypothesis import strategies as st

from adapter.errors import UnsupportedSelectorError
from adapter.model.objects.label_selectors import parse_selector
from adapter.rules import matchers
from adapter.rules.matchers import Matcher
from tests.support.answers import answers


@pytest.mark.parametrize(("selector", "expected"), answers("rules/matchers", "requirements"))
def test_from_selector(selector: str, expected: str) -> None:
    assert matchers.join(matchers.from_selector(parse_selector(selector))) == expected


@pytest.mark.parametrize("selector", ["k>5", "a=b,k<5"])
def test_comparisons_have_no_form(selector: str) -> None:
    with pytest.raises(UnsupportedSelectorError, match=r"k (gt|lt) has no form in PromQL"):
        matchers.from_selector(parse_selector(selector))


ANY_OF = {
    "one": (["a.b"], 'pod="a.b"'),
    "dots match only dots, hyphens stay": (["a.b-1", "c"], r'pod=~"a\\.b-1|c"'),
}


@pytest.mark.parametrize(("names", "expected"), ANY_OF.values(), ids=ANY_OF)
def test_any_of(names: list[str], expected: str) -> None:
    assert str(matchers.for_any_of("pod", names)) == expected


def _selects(matcher: Matcher, value: str) -> bool:
    """Do what Prometheus does with a matcher: a regular expression is anchored at both ends."""
    if matcher.operator == "=":
        return value == matcher.value
    assert matcher.operator == "=~"
    return re2.fullmatch(f"(?s:{matcher.value})", value) is not None


# Kubernetes' own names have letters, digits, dots and hyphens; a path may hold more.
object_names = st.text("ab.-0") | st.text("a|.*+?^$()[]{}\\-\"'# \n\té~&")


@pytest.mark.timeout(60)
@given(names=st.lists(object_names.filter(bool), min_size=1, max_size=5), other=object_names)
def test_any_of_selects_exactly_the_named(names: list[str], other: str) -> None:
    matcher = matchers.for_any_of("pod", names)
    assert all(_selects(matcher, name) for name in names)
    assert _selects(matcher, other) == (other in names)


def test_present() -> None:
    assert str(matchers.present("pod")) == 'pod!=""'


LABEL_NAMES = {
    "pod": True,
    "_a1": True,
    "1a": False,
    "a.b": False,
    "a-b": False,
    "": False,
    "a\n": False,
    "é": False,
}


@pytest.mark.parametrize(("text", "expected"), LABEL_NAMES.items(), ids=repr)
def test_label_names(text: str, expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert matchers.is_label_name(text) is expected


SHORTENED = {
    "one line": ("a\n  b\tc ", "a b c"),
    "cut": ("x" * 201, "x" * 200 + "..."),
    "just": ("x" * 200, "x" * 200),
}


@pytest.mark.parametrize(("text", "expected"), SHORTENED.values(), ids=SHORTENED)
def test_shorten(text: str, expected: str) -> None:
    assert matchers.shorten(text) == expected


def test_matchers_weigh_more_than_their_text() -> None:
    assert matchers.weigh([]) == 0
    assert matchers.weigh([Matcher("a", "=", "x" * 1000), Matcher("b", "=", "y")]) > 1300
