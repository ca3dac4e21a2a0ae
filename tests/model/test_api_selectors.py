import msgspec
import pytest

from adapter.model import label_selectors
from adapter.model.api_selectors import APISelector, MatchExpression, compile_selector, go_text


def _expression(key: str, operator: str, *values: str) -> MatchExpression:
    return MatchExpression(key, operator, values)


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        (None, ""),
        (APISelector(), ""),
        (APISelector({"b": "1", "a": "2"}), "a=2,b=1"),
        (
            APISelector(
                {"q": "jobs"}, (_expression("z", "In", "b", "a", "b"), _expression("c", "NotIn", "x"))
            ),
            "c notin (x),q=jobs,z in (a,b)",
        ),
        (APISelector(None, (_expression("a", "Exists"), _expression("b", "DoesNotExist"))), "a,!b"),
    ],
    ids=["none", "empty", "labels", "sets", "existence"],
)
def test_compiles(selector: APISelector | None, text: str) -> None:
    compiled = compile_selector(selector)

    assert str(compiled) == text
    assert compiled == label_selectors.parse_selector(text.replace("q=jobs", "q = jobs"))


@pytest.mark.parametrize(
    ("selector", "sentence"),
    [
        (
            APISelector(None, (_expression("a", "Like", "b"),)),
            '"Like" is not a valid label selector operator',
        ),
        (
            APISelector(None, (_expression("a", "In"),)),
            "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
        ),
        (
            APISelector(None, (_expression("a", "Exists", "x", "y"),)),
            'values: Invalid value: ["x","y"]: values set must be empty for exists and does not exist',
        ),
        (APISelector({"-a": "b"}), 'key: Invalid value: "-a": name part must consist of'),
        (APISelector({"a": "b c"}), 'values[0][a]: Invalid value: "b c": a valid label must be'),
        (APISelector({"-a": "b c"}), "[key: Invalid value"),
        (
            APISelector({"a" * 64: "b"}),
            f'key: Invalid value: "{"a" * 64}": name part must be no more than 63 bytes',
        ),
    ],
    ids=["operator", "no values", "needless values", "key", "value", "both", "long"],
)
def test_says_what_is_wrong(selector: APISelector, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared below
        compile_selector(selector)

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


def _written(selector: APISelector) -> object:
    return msgspec.json.decode(msgspec.json.encode(selector))


def test_is_written_without_empty_parts() -> None:
    assert APISelector({}, ()) == APISelector()
    assert _written(APISelector({}, ())) == {}
    assert _written(APISelector({"a": "b"}, (MatchExpression("c", "Exists", ()),))) == {
        "matchLabels": {"a": "b"},
        "matchExpressions": [{"key": "c", "operator": "Exists"}],
    }
    assert _written(APISelector(None, (_expression("c", "In", "d"),))) == {
        "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]
    }
