import msgspec
import pytest

from adapter import errors
from adapter.model.objects import api_selectors, label_selectors
from tests.support.answers import answers


@pytest.mark.parametrize(("selector", "text"), answers("model/api_selectors", "compiled"))
def test_compiles(selector: object, text: str) -> None:
    compiled = api_selectors.compile_selector(msgspec.convert(selector, api_selectors.APISelector | None))

    assert str(compiled) == text
    assert compiled == label_selectors.parse_selector(text.replace("q=jobs", "q = jobs"))


@pytest.mark.parametrize(("selector", "sentence"), answers("model/api_selectors", "wrong"))
def test_says_what_is_wrong(selector: object, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared below
        api_selectors.compile_selector(msgspec.convert(selector, api_selectors.APISelector))

    assert str(raised.value).startswith(sentence)


def test_prints_as_go() -> None:
    selector = api_selectors.APISelector(
        {"b": "2", "a": "1"},
        (
            api_selectors.MatchExpression("queue", "NotIn", ("mail", "x")),
            api_selectors.MatchExpression("c", "Exists"),
        ),
    )

    assert api_selectors.go_text(None) == "nil"
    assert api_selectors.go_text(api_selectors.APISelector()) == (
        "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}"
    )
    assert api_selectors.go_text(selector) == (
        "&LabelSelector{MatchLabels:map[string]string{a: 1,b: "
        "2,},MatchExpressions:[]LabelSelectorRequirement{"
        "LabelSelectorRequirement{Key:queue,Operator:NotIn,Values:[mail x],},"
        "LabelSelectorRequirement{Key:c,Operator:Exists,Values:[],},},}"
    )


def _written(selector: api_selectors.APISelector | None) -> object:
    return msgspec.json.decode(msgspec.json.encode(selector))


def test_is_written_without_empty_parts() -> None:
    assert api_selectors.APISelector({}, ()) == api_selectors.APISelector()
    assert _written(api_selectors.APISelector({}, ())) == {}
    assert _written(
        api_selectors.APISelector({"a": "b"}, (api_selectors.MatchExpression("c", "Exists", ()),))
    ) == {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "Exists"}],
    }
    assert _written(api_selectors.APISelector(None, (api_selectors.MatchExpression("c", "In", ("d",)),))) == {
        "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]
    }


@pytest.mark.parametrize(("text", "document"), answers("model/label_selectors", "json"))
def test_to_api(text: str, document: dict[str, object] | None) -> None:
    assert _written(api_selectors.to_api(label_selectors.parse_selector(text))) == document


@pytest.mark.parametrize(("text", "sentence"), answers("model/api_selectors", "what_the_api_form_cannot_say"))
def test_what_the_api_form_cannot_say(text: str, sentence: str) -> None:
    with pytest.raises(errors.PlainError) as caught:
        api_selectors.to_api(label_selectors.parse_selector(text))
    assert caught.value.message == sentence
