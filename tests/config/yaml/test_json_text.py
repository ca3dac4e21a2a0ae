"""JSON documents are read as YAML reads them, with the same lines, but many times as fast."""

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.config.yaml import documents, json_text, reader
from adapter.config.yaml.documents import YAMLDocument
from adapter.errors import InputError

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


def read(text: str) -> YAMLDocument | InputError:
    (found,) = documents.read_documents(text, "a.json")
    return found


@given(VALUES.filter(lambda value: isinstance(value, dict | list) and value), st.sampled_from([None, 0, 2]))
def test_values_and_lines_are_those_of_yaml(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    fast, slow = read(text), documents.read_part(0, text, "a.json")
    assert isinstance(fast, YAMLDocument)
    assert isinstance(slow, YAMLDocument)
    assert isinstance(fast.places, json_text.JSONText)
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


def test_texts_of_yaml_are_not_json() -> None:
    assert json_text.read("a: 1") is None
    assert json_text.read("[a, b]") is None
    assert json_text.read("{a: NaN}") is None
    assert json_text.read('{"a": NaN}') is None
    assert json_text.read('{"a": "\ud83d"}') is None
    assert json_text.read('{"\ud83d": "a"}') is None


def test_escaped_pairs_of_surrogates_are_one_character() -> None:
    assert json_text.read(r'{"a": "\ud83d\ude00"}') == {"a": "😀"}
    assert json_text.read(f'{{"a": {"9" * 50}}}') == {"a": "9" * 50}


def test_long_yaml_is_refused_before_it_is_parsed() -> None:
    text = "a: [" + "1," * reader.LONGEST + "1]"
    began = time.thread_time()
    error = read(text)
    assert isinstance(error, InputError)
    assert (
        str(error) == "a.json: expected at most 2 MiB of YAML, it has 4 MiB; one JSON document may be larger"
    )
    assert time.thread_time() - began < 5  # reading it takes a minute


@pytest.mark.timeout(60)  # five seconds of work, three times that while coverage is measured
def test_many_nodes_are_refused() -> None:
    error = read("a:\n" + "- x\n" * 300_000)
    assert isinstance(error, InputError)
    assert str(error) == "a.json:199999: not YAML: more than 200,000 keys and values"


def test_many_documents_are_refused_before_they_are_read() -> None:
    error = read("---\na: 1\n" * 10_001)
    assert isinstance(error, InputError)
    assert str(error) == "a.json: expected at most 10,000 documents"


def test_lines_of_many_documents() -> None:
    found = list(documents.read_documents("---\na: 1\nb:\n  c: {\n" * 3000, "a.yaml"))
    faults = [fault.line for each in found if isinstance(each, InputError) for fault in each.faults]
    assert len(faults) == 3000
    good = list(documents.read_documents("a: 1\nb: 2\n---\n" * 3000, "a.yaml"))
    assert [each.line_of("b") for each in good if isinstance(each, YAMLDocument)] == [
        2 + 3 * number for number in range(3000)
    ]


def test_a_list_of_thousands_of_objects_is_read_as_json() -> None:
    item = {"metadata": {"name": "a" * 200}, "spec": {"list": [{"a": 1, "b": "c"}] * 20}}
    text = json.dumps({"items": [item] * 5_000}, indent=4)
    assert len(text) > 5 * reader.LONGEST
    began = time.thread_time()
    found = read(text)
    assert isinstance(found, YAMLDocument)
    assert found.line_of("items[4999].spec") == text[: text.rindex('"spec"')].count("\n") + 1
    assert time.thread_time() - began < 15  # as YAML it takes minutes
