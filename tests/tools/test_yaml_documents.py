"""Documents of YAML as values, and those of JSON: read as YAML reads them, but many times as fast."""

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.config.yaml import reader
from adapter.errors import InputError
from fastpath_tools import yaml_documents
from tests.support.answers import answers


def _values(text: str) -> list[object]:
    found = []
    for each in yaml_documents.read_documents(text, "a.yaml"):
        assert isinstance(each, yaml_documents.YAMLDocument)
        found.append(each.value)
    return found


def _faults(text: str) -> list[str]:
    return [
        str(each) for each in yaml_documents.read_documents(text, "a.yaml") if isinstance(each, InputError)
    ]


@pytest.mark.parametrize(("written", "value"), answers("tools/yaml_documents", "scalars"))
def test_scalars(written: str, value: object) -> None:
    assert _values(f"a: {written}\n") == [{"a": value}]


def test_no_number() -> None:
    assert _values("[.inf, -.Inf]") == [[math.inf, -math.inf]]
    assert str(_values("[.nan]")) == "[[nan]]"


def test_several_documents() -> None:
    text = "# first\n---\na: 1\n--- # second\nb: 2\n...\n---\n---\n# nothing\n---\nnull\n--- {c: 3}\n"

    assert _values(text) == [{"a": 1}, {"b": 2}, {"c": 3}]


def test_comments_may_follow() -> None:
    assert _values("{a: 1} # one\n# two\n...\n\n# three") == [{"a": 1}]
    assert _values("a: 1 # one\n\n# two\n...\n") == [{"a": 1}]
    assert _values("- a\n- b: |\n    c\n\n\n") == [["a", {"b": "c\n"}]]


def test_dashes_within_text_begin_nothing() -> None:
    assert _values("a: |\n  x\n  ---\n  y\nb: ---c\n") == [{"a": "x\n---\ny\n", "b": "---c"}]


def test_lines_count_from_the_top() -> None:
    text = "a: 1\n---\nb:\n  - c: 2\n  - d: 3\n"

    first, second = yaml_documents.read_documents(text, "a.yaml")

    assert isinstance(first, yaml_documents.YAMLDocument)
    assert isinstance(second, yaml_documents.YAMLDocument)
    assert first.line_of("a") == 1
    assert second.line_of("b[1].d") == 5
    assert second.line_of("b[1].nothing") == 5
    assert second.line_of("b[7]") == 4
    assert second.line_of("b[0].c.deeper") == 4
    assert second.line_of("") == 3


@pytest.mark.parametrize(("text", "values"), answers("tools/yaml_documents", "directives"))
def test_directives_belong_to_the_document_after_them(text: str, values: list[object]) -> None:
    assert _values(text) == values


@pytest.mark.parametrize(("text", "said"), answers("tools/yaml_documents", "wrong directives"))
def test_directives_that_are_wrong(text: str, said: str) -> None:
    (fault,) = _faults(text)
    assert fault.startswith(said)


_LINES = ["%YAML 1.1", "%YAML 1.2", "---", "--- a", "...", "# c", "", "  ", "a: 1", "  %b", "- c", '"']


@given(st.lists(st.sampled_from(_LINES), max_size=12), st.sampled_from(["\n", "\r\n"]), st.booleans())
# hypothesis calls it
def test_the_parts_are_the_text(lines: list[str], end: str, ends: bool) -> None:  # noqa: FBT001
    text = end.join(lines) + (end if ends else "")
    parts = list(yaml_documents.split_documents(text))
    assert "".join(part for _, part in parts) == text
    for before, part in parts:
        assert (
            text.splitlines(keepends=True)[before:][: part.count("\n")]
            == part.splitlines(keepends=True)[: part.count("\n")]
        )
    markers = sum(line.startswith("---") for line in lines)
    assert len(parts) == markers + 1


def test_anchors_and_merges() -> None:
    text = (
        "base: &base {a: 1, b: 2}\nother: &other {c: 3, a: 9}\nx:\n  <<: *base\n  b: 5\ny:\n  b: 7\n  "
        "<<: [*base, *other]\n"
    )

    (found,) = _values(text)

    assert isinstance(found, dict)
    assert found["x"] == {"a": 1, "b": 5}
    assert found["y"] == {"a": 1, "b": 7, "c": 3}


@pytest.mark.parametrize(("text", "said"), answers("tools/yaml_documents", "faults"))
def test_errors_name_the_fault(text: str, said: str) -> None:
    assert _faults(text)[0].startswith(said)


def test_one_bad_document_does_not_hide_the_others() -> None:
    found = list(yaml_documents.read_documents("a: 1\n---\nb: [\n---\nc: 3\n", "a.yaml"))

    assert [isinstance(each, yaml_documents.YAMLDocument) for each in found] == [True, False, True]


@given(st.text(max_size=40))
def test_any_text_ends_in_values_or_a_fault(text: str) -> None:
    for each in yaml_documents.read_documents(text, "a.yaml"):
        assert isinstance(each, yaml_documents.YAMLDocument | InputError)


def test_a_step_of_a_path_may_be_a_quoted_key() -> None:
    (document,) = yaml_documents.read_documents('a:\n  x: 1\n  b.c/d: 2\n  "q\\"]": [3,\n  4]\n', "file")
    assert isinstance(document, yaml_documents.YAMLDocument)
    lines = {'a["b.c/d"]': 3, 'a["q\\"]"][1]': 5, 'a["none"]': 2, "a.x": 2}
    assert {path: document.line_of(path) for path in lines} == lines


# --- one document of JSON

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**30), 10**30)
    | st.text(st.characters(codec="ascii"), max_size=8),
    lambda below: (
        st.lists(below, max_size=4) | st.dictionaries(st.from_regex(r"[a-z]{1,3}", fullmatch=True), below)
    ),
    max_leaves=20,
)


def read(text: str) -> yaml_documents.YAMLDocument | InputError:
    (found,) = yaml_documents.read_documents(text, "a.json")
    return found


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), min_size=1))
def test_texts_of_json_are_kept(texts: list[str]) -> None:
    assert _values(json.dumps(texts, ensure_ascii=False)) == [texts]


@given(VALUES.filter(lambda value: isinstance(value, dict | list) and value), st.sampled_from([None, 0, 2]))
def test_values_and_lines_are_those_of_yaml(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    fast, slow = read(text), yaml_documents.read_part(0, text, "a.json")
    assert isinstance(fast, yaml_documents.YAMLDocument)
    assert isinstance(slow, yaml_documents.YAMLDocument)
    assert isinstance(fast.places, yaml_documents.JSONText)
    assert fast.value == slow.value == value
    paths = list(_paths(value, ""))
    assert [fast.line_of(path) for path in paths] == [slow.line_of(path) for path in paths]


def _paths(value: Any, path: str) -> Any:
    yield path
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _paths(below, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, below in enumerate(value):
            yield from _paths(below, f"{path}[{index}]")
    yield f"{path}.nothing"
    yield f"{path}[999]"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "a": 2}', "the key is given twice"),
        (r'{"a": "\ud800"}', "an escape sequence names no Unicode character"),
        ('{"a": ' * 150 + "1" + "}" * 150, "nested more than 100 levels deep"),
        ("[" * 100_000, "nested more than 100 levels deep"),
        ('{"a": 1', "not YAML"),
    ],
)
def test_faults_are_those_of_yaml(text: str, expected: str) -> None:
    error = read(text)
    assert isinstance(error, InputError)
    assert expected in str(error)


@pytest.mark.parametrize(
    "text", ["a: 1", "[a, b]", "{a: NaN}", '{"a": NaN}', '{"a": "\ud83d"}', '{"\ud83d": "a"}'], ids=ascii
)
def test_texts_of_yaml_are_not_json(text: str) -> None:
    assert yaml_documents.read_json(text) is None


def test_escaped_pairs_of_surrogates_are_one_character() -> None:
    assert yaml_documents.read_json(r'{"a": "\ud83d\ude00"}') == {"a": "😀"}
    assert yaml_documents.read_json(f'{{"a": {"9" * 50}}}') == {"a": "9" * 50}


def test_long_yaml_is_refused_before_it_is_parsed() -> None:
    text = "a: [" + "1," * reader.LONGEST + "1]"
    began = time.thread_time()
    error = read(text)
    assert isinstance(error, InputError)
    assert (
        str(error) == "a.json: expected at most 2 MiB of YAML, it has 4 MiB; one JSON document may be larger"
    )
    assert time.thread_time() - began < 5  # reading it takes a minute


def test_many_nodes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "NODE_LIMIT", 2_000)
    error = read("a:\n" + "- x\n" * 3_000)
    assert isinstance(error, InputError)
    assert str(error) == "a.json:1999: not YAML: more than 2,000 keys and values"


def test_many_documents_are_refused_before_they_are_read() -> None:
    error = read("---\na: 1\n" * 10_001)
    assert isinstance(error, InputError)
    assert str(error) == "a.json: expected at most 10,000 documents"


def test_lines_of_many_documents() -> None:
    found = yaml_documents.read_documents("---\na: 1\nb:\n  c: {\n" * 1000, "a.yaml")
    assert sum(len(each.faults) for each in found if isinstance(each, InputError)) == 1000
    good = list(yaml_documents.read_documents("a: 1\nb: 2\n---\n" * 1000, "a.yaml"))
    assert [each.line_of("b") for each in good if isinstance(each, yaml_documents.YAMLDocument)] == [
        2 + 3 * number for number in range(1000)
    ]


def test_a_list_of_thousands_of_objects_is_read_as_json() -> None:
    item = {"metadata": {"name": "a" * 200}, "spec": {"list": [{"a": 1, "b": "c"}] * 20}}
    text = json.dumps({"items": [item] * 5_000}, indent=4)
    assert len(text) > 5 * reader.LONGEST
    began = time.thread_time()
    found = read(text)
    assert isinstance(found, yaml_documents.YAMLDocument)
    assert found.line_of("items[4999].spec") == text[: text.rindex('"spec"')].count("\n") + 1
    assert time.thread_time() - began < 15  # as YAML it takes minutes
