import msgspec
import pytest

from adapter import errors
from adapter.model.objects import label_selectors
from adapter.model.objects.api_selectors import (
    APISelector,
    MatchExpression,
    compile_selector,
    go_text,
    to_api,
)
from tests.support.answers import answers


@pytest.mark.parametrize(("selector", "text"), answers("model/api_selectors", "compiled"))
def test_compiles(selector: object, text: str) -> None:
    compiled = compile_selector(msgspec.convert(selector, APISelector | None))

    assert str(compiled) == text
    assert compiled == label_selectors.parse_selector(text.replace("q=jobs", "q = jobs"))


@pytest.mark.parametrize(("selector", "sentence"), answers("model/api_selectors", "wrong"))
def test_says_what_is_wrong(selector: object, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared below
        compile_selector(msgspec.convert(selector, APISelector))

    assert str(raised.value).startswith(sentence)


def test_prints_as_go() -> None:
    selector = APISelector(
        {"b": "2", "a": "1"},
        (MatchExpression("queue", "NotIn", ("mail", "x")), MatchExpression("c", "Exists")),
    )

    assert go_text(None) == "nil"
    assert go_text(APISelector()) == (
        "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}"
    )
    assert go_text(selector) == (
        "&LabelSelector{MatchLabels:map[string]string{a: 1,b: "
        "2,},MatchExpressions:[]LabelSelectorRequirement{"
        "LabelSelectorRequirement{Key:queue,Operator:NotIn,Values:[mail x],},"
        "LabelSelectorRequirement{Key:c,Operator:Exists,Values:[],},},}"
    )


def _written(selector: APISelector | None) -> object:
    return msgspec.json.decode(msgspec.json.encode(selector))


def test_is_written_without_empty_parts() -> None:
    assert APISelector({}, ()) == APISelector()
    assert _written(APISelector({}, ())) == {}
    assert _written(APISelector({"a": "b"}, (MatchExpression("c", "Exists", ()),))) == {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "Exists"}],
    }
    assert _written(APISelector(None, (MatchExpression("c", "In", ("d",)),))) == {
        "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]
    }


@pytest.mark.parametrize(("text", "document"), answers("model/label_selectors", "json"))
def test_to_api(text: str, document: dict[str, object] | None) -> None:
    assert _written(to_api(label_selectors.parse_selector(text))) == document


@pytest.mark.parametrize(("text", "sentence"), answers("model/api_selectors", "what_the_api_form_cannot_say"))
def test_what_the_api_form_cannot_say(text: str, sentence: str) -> None:
    with pytest.raises(errors.PlainError) as caught:
        to_api(label_selectors.parse_selector(text))
    assert caught.value.message == sentence
