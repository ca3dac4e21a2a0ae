import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fastpath_tools import yaml_documents
from fastpath_tools.boost import boost_patch, boost_round_trip
from fastpath_tools.boost.boost_patch import ADD, END, REMOVE, REPLACE, PatchOperation
from fastpath_tools.yaml_documents import YAMLDocument
from tests.support.answers import answers


def _edit(text: str, *operations: PatchOperation) -> boost_round_trip.Edited:
    document = yaml_documents.read_part(0, text, "a.yaml")
    assert isinstance(document, YAMLDocument)
    edited = boost_round_trip.edit(text, document, operations)
    again = yaml_documents.read_part(0, edited.text, "a.yaml")
    assert isinstance(again, YAMLDocument)
    assert again.value == boost_patch.apply(document.value, operations)
    return edited


def _operation(op: str, path: str, value: Any = None) -> PatchOperation:
    return PatchOperation(op, tuple(path.split(".")), value)


@pytest.mark.parametrize(("text", "operations", "made"), answers("boost/round_trip", "in place"))
@pytest.mark.parametrize("before", ["", "---\n", "# first\n--- # of two\n\n# begins\n"])
def test_in_place(text: str, operations: list[list[Any]], made: str, before: str) -> None:
    edited = _edit(before + text, *(_operation(*each) for each in operations))
    assert edited == (before + made, False)


def test_content_behind_the_marker() -> None:
    made = _edit("--- {a: {b: 1,}}", _operation(REMOVE, "a.b"))
    assert made == ("--- {a: {}}", False)


@pytest.mark.parametrize(("text", "operations", "made"), answers("boost/round_trip", "rewritten"))
def test_rewritten(text: str, operations: list[list[Any]], made: str) -> None:
    assert _edit(text, *(_operation(*each) for each in operations)) == (made, True)


@pytest.mark.parametrize(
    "text",
    ["y", "N", "1e3", "0o7", "1_0", "", "on", "null", "1", "-.inf", "a\nb\n", "2026-11-20", "#", "~", "é"],
)
def test_text_is_text_for_every_reader(text: str) -> None:
    for before in ("a:\n  b: 1\n", "a: {b: 1}\n", '{"a": {"b": 1}}'):
        made = _edit(before, _operation(ADD, "a.c", text))
        assert not made.is_rewritten
        assert yaml.safe_load(made.text)["a"]["c"] == text
        assert text == "é" or not re.search(r"c: [^'\"|]", made.text)


_SCALARS = st.none() | st.booleans() | st.integers(-99, 99) | st.text("abyn:#-\n '\"{}é0", max_size=6)
_KEYS = st.text("abyn/.-1é", min_size=1, max_size=4)
_VALUES = st.recursive(
    _SCALARS,
    lambda below: st.lists(below, max_size=3) | st.dictionaries(_KEYS, below, max_size=3),
    max_leaves=8,
)
_STYLES: dict[str, Callable[[Any], str]] = {
    "block": lambda tree: yaml.safe_dump(tree, sort_keys=False, allow_unicode=True),
    "indented": lambda tree: yaml.safe_dump(tree, sort_keys=False, indent=4),
    "flow": lambda tree: yaml.safe_dump(tree, sort_keys=False, default_flow_style=True),
    "mixed": lambda tree: yaml.safe_dump(tree, sort_keys=False, default_flow_style=None),
    "JSON": json.dumps,
    "long JSON": lambda tree: json.dumps(tree, indent=2, ensure_ascii=False),
    "marked": lambda tree: yaml.safe_dump(tree, sort_keys=False, explicit_start=True).replace("\n", " \n"),
}


@given(st.dictionaries(_KEYS, _VALUES, min_size=1, max_size=3), st.sampled_from(sorted(_STYLES)), st.data())
def test_any_document_says_afterwards_what_the_operations_say(
    tree: dict[str, Any], style: str, draws: st.DataObject
) -> None:
    text = _STYLES[style](tree)
    document = yaml_documents.read_part(3, text, "")
    if not isinstance(document, YAMLDocument):  # more text after the first blank line in quotes
        return
    places: list[tuple[str, ...]] = []
    _walk(document.value, (), places)
    path = draws.draw(st.sampled_from(places))
    place: Any = document.value
    for step in path:
        place = place[int(step)] if isinstance(place, list) else place[step]
    value = draws.draw(_VALUES.filter(bool))
    if isinstance(place, list):
        known = [str(index) for index in range(len(place))]
        choices = [_at(ADD, path, END, value)] + [
            _at(op, path, name, value) for name in known for op in (REMOVE, REPLACE)
        ]
        choices += [_at(ADD, path, "0", value)] if place else []
    else:
        choices = [_at(ADD, path, "zz", value)] + [_at(REMOVE, path, name, None) for name in place]
        choices += [
            _at(REPLACE, path, name, "text") for name in place if not isinstance(place[name], list | dict)
        ]
        choices += [
            _at(ADD, path, name, [value])
            for name in place
            if not place[name] and isinstance(place[name], list | None)
        ]
    _edit(text, draws.draw(st.sampled_from(choices)))


def _at(op: str, path: tuple[str, ...], name: str, value: Any) -> PatchOperation:
    return PatchOperation(op, (*path, name), value)


def _walk(tree: Any, path: tuple[str, ...], places: list[tuple[str, ...]]) -> None:
    if isinstance(tree, list | dict):
        places.append(path)
        for name, below in tree.items() if isinstance(tree, dict) else enumerate(tree):
            _walk(below, (*path, str(name)), places)
