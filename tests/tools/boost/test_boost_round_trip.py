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
from fastpath_tools.boost.boost_patch import ADD, END, REMOVE, REPLACE, TEST, PatchOperation
from fastpath_tools.yaml_documents import YAMLDocument


def _edit(text: str, *operations: PatchOperation) -> boost_round_trip.Edited:
    document = yaml_documents.read_part(0, text, "a.yaml")
    assert isinstance(document, YAMLDocument)
    edited = boost_round_trip.edit(text, document, operations)
    again = yaml_documents.read_part(0, edited.text, "a.yaml")
    assert isinstance(again, YAMLDocument)
    assert again.value == boost_patch.apply(document.value, operations)
    return edited


def _add(path: str, value: Any) -> PatchOperation:
    return PatchOperation(ADD, tuple(path.split(".")), value)


def _replace(path: str, value: Any) -> PatchOperation:
    return PatchOperation(REPLACE, tuple(path.split(".")), value)


def _remove(path: str) -> PatchOperation:
    return PatchOperation(REMOVE, tuple(path.split(".")))


IN_PLACE: dict[str, tuple[str, list[PatchOperation], str]] = {
    "a key at the end of the text": ("a:\n   b: 1", [_add("a.d", "x")], "a:\n   b: 1\n   d: x"),
    "a key after a block scalar": (
        "a:\n  b: |\n    text\n    more\n\nc: 2\n",
        [_add("a.d", "x")],
        "a:\n  b: |\n    text\n    more\n\n  d: x\nc: 2\n",
    ),
    "a key after nothing": ("a:\n  b:\nc: 2\n", [_add("a.d", "x")], "a:\n  b:\n  d: x\nc: 2\n"),
    "a key after deep nesting": (
        "a:\n  b:\n  - c:\n    - {d: 1}\n    - [2, 3] # x\ne:\n",
        [_add("a.f", "x")],
        "a:\n  b:\n  - c:\n    - {d: 1}\n    - [2, 3] # x\n  f: x\ne:\n",
    ),
    "a key in flow style": ("a: {b: 1} # x\n", [_add("a.c", {"d": "1"})], 'a: {b: 1, c: {d: "1"}} # x\n'),
    "a key in an empty mapping": ("a: {}\n", [_add("a.c", "y")], 'a:\n  c: "y"\n'),
    "a key in JSON": ('{"a": {"b": "1"}}', [_add("a.c", ["é"])], '{"a": {"b": "1", "c": ["é"]}}'),
    "a key over nothing": (
        "a:\n  b: # none\nc: 1\n",
        [_add("a.b", {"d": "x"})],
        "a:\n  b: # none\n    d: x\nc: 1\n",
    ),
    "a key over null": ("a:\n  b: null\n", [_add("a.b", [{"d": "x"}])], "a:\n  b:\n  - d: x\n"),
    "a key over an empty list": (
        "a:\n  b: []  # none\n",
        [_add("a.b", ["x"])],
        "a:\n  b:     # none\n  - x\n",
    ),
    "a key over null in flow style": ("a: {b: null}\n", [_add("a.b", ["x"])], "a: {b: [x]}\n"),
    "a key over nothing in flow style": ("a: {b: , c: 1}\n", [_add("a.b", ["x"])], "a: {b: [x], c: 1}\n"),
    "text over nothing": ("a:\n  b:\n", [_replace("a.b", "x")], "a:\n  b: x\n"),
    "text over text": ("a:\n  b: y # why\n", [_replace("a.b", "x")], "a:\n  b: x # why\n"),
    "text between double quotes": ('a:\n  b: "y"\n', [_replace("a.b", "x")], 'a:\n  b: "x"\n'),
    "text over a block scalar": (
        "a:\n  b: |-\n    y\n  c: 1\n",
        [_replace("a.b", "x")],
        "a:\n  b: |-\n    x\n  c: 1\n",
    ),
    "a key goes": ("a:\n  b: 1\n  c: 2 # two\n  d: 3\n", [_remove("a.c")], "a:\n  b: 1\n  d: 3\n"),
    "the last key goes, another comes": (
        "a:\n  b: 1\n  c: 2",
        [_remove("a.c"), _add("a.d", ["x"])],
        "a:\n  b: 1\n  d:\n  - x",
    ),
    "a deep key goes": ("a:\n  b:\n    c:\n    - 1\n\n  d: 3\n", [_remove("a.b")], "a:\n  d: 3\n"),
    "the first key of a flow mapping goes": ("a: {b: 1, c: 2}\n", [_remove("a.b")], "a: {c: 2}\n"),
    "a further key of a flow mapping goes": (
        "a: {b: 1, c: [2], d: 3}\n",
        [_remove("a.c")],
        "a: {b: 1, d: 3}\n",
    ),
    "the only key of a flow mapping goes": ("a: {b: 1}\n", [_remove("a.b")], "a: {}\n"),
    "an item at the start": ("a:\n# one\n-   1\n- 2\n", [_add("a.0", "x")], "a:\n# one\n- x\n- 1\n- 2\n"),
    "an item at the end in flow style": (
        "a: [b, {c: 1}]\n",
        [_add("a.-", {"d": "x"})],
        "a: [b, {c: 1}, {d: x}]\n",
    ),
    "an item at the start in flow style": ("a: [b]\n", [_add("a.0", {"d": "x"})], "a: [{d: x}, b]\n"),
    "another item": (
        "a:\n- 1\n- b: 1\n  c: 2\n- 3\n",
        [_replace("a.1", {"d": ["x"]})],
        "a:\n- 1\n- d:\n  - x\n- 3\n",
    ),
    "another item in flow style": ("a: [1, {b: 2}]\n", [_replace("a.1", {"d": "x"})], "a: [1, {d: x}]\n"),
    "items go": ("a:\n- b: 1\n- 2\n- 3 # three\n", [_remove("a.2"), _remove("a.0")], "a:\n- 2\n"),
    "items of flow style go": ("a: [1, 2, 3, 4]\n", [_remove("a.2"), _remove("a.0")], "a: [2, 4]\n"),
    "lines that end as in Windows": (
        "a:\r\n- b: 1\r\nc:\r\n  d: 2\r\n  e: 3\r\n",
        [_add("a.-", {"x": ["z"]}), _remove("c.e")],
        "a:\r\n- b: 1\r\n- x:\r\n  - z\r\nc:\r\n  d: 2\r\n",
    ),
    "comments and blank lines that end as in Windows": (
        "a: # one\r\n    b: 1 # two\r\n\r\n    # three\r\nc: {d: 2} # four\r\n",
        [_add("a.e", ["x"]), _add("c.e", "y2")],
        "a: # one\r\n    b: 1 # two\r\n    e:\r\n    - x\r\n\r\n    # three\r\nc: {d: 2, e: y2} # four\r\n",
    ),
    "in a list of documents": (
        "items:\n- a: {}\n  b:\n    c: 1\n- a: 2\n",
        [_add("items.0.b.d", "x"), _replace("items.1.a", "y2"), _add("items.0.a.e", "z")],
        "items:\n- a:\n    e: z\n  b:\n    c: 1\n    d: x\n- a: y2\n",
    ),
    "what is only tested": ("a: 1\n", [PatchOperation(TEST, ("a",), 1)], "a: 1\n"),
    "an alias elsewhere": (
        "a: &x {b: 1}\nc: *x\nd:\n  e: 1\n",
        [_add("d.f", "x")],
        "a: &x {b: 1}\nc: *x\nd:\n  e: 1\n  f: x\n",
    ),
    "the item is an alias": (
        "a:\n- &x {b: 1}\n- *x\n",
        [_replace("a.1", {"c": "x"})],
        "a:\n- {b: 1}\n- c: x\n",
    ),
    "the last item is an alias": ("a: &x [1]\nb:\n- *x\n", [_add("b.-", "x")], "a: &x [1]\nb:\n- *x\n- x\n"),
    "the last line is an alias": (
        "a: &x 1\nb: *x # same\n",
        [_add("c", "x")],
        "a: &x 1\nb: *x\nc: x\n      # same\n",
    ),
    "the first key of an item": ("- a: 1\n  b: 2\n", [_remove("0.a")], "- b: 2\n"),
    "a dash on a line of its own": ("a:\n-\n  b: 1\n", [_add("a.-", "x")], "a:\n- b: 1\n- x\n"),
    "a dash before a removed item": ("a:\n-\n  b: 1\n- 2\n", [_remove("a.0")], "a:\n- 2\n"),
    "something is there": ("a:\n  b: [1]\n", [_add("a.b", [2])], "a:\n  b:\n  - 2\n"),
    "a comma after the last": ("{a: {b: 1,}} # end\n", [_remove("a.b")], "{a: {}}      # end\n"),
    "blank lines that count": (
        "a:\n  b: |+\n    x\n\nc: 1\n",
        [_add("a.d", "x")],
        "a:\n  b: |+\n    x\n\n  d: x\nc: 1\n",
    ),
    "two neighbours in flow style": ("a: [1, 2, 3]\n", [_remove("a.1"), _remove("a.0")], "a: [3]\n"),
    "the first line": ("a: 1\nb: 2", [_remove("a")], "b: 2"),
    "an alias between lines that end as in Windows": (
        "a: &x 1\r\nb: *x\r\n",
        [_add("c", "x")],
        "a: &x 1\r\nb: *x\r\nc: x\r\n",
    ),
    "a key at the end of a mapping": (
        "a:\n  b: 1 # one\n\n  # end\nc: 2\n",
        [_add("a.d", {"e": ["f"]})],
        "a:\n  b: 1 # one\n  d:\n    e:\n    - f\n\n  # end\nc: 2\n",
    ),
    "an item at the end": (
        "a:\n  - b: 1\n    c: 2 # two\n  # end\nd: 3\n",
        [_add("a.-", {"e": "x", "f": "y"})],
        'a:\n  - b: 1\n    c: 2 # two\n  - e: x\n    f: "y"\n  # end\nd: 3\n',
    ),
}


@pytest.mark.parametrize("case", IN_PLACE)
@pytest.mark.parametrize("before", ["", "---\n", "# first\n--- # of two\n\n# begins\n"])
def test_in_place(case: str, before: str) -> None:
    text, operations, made = IN_PLACE[case]
    assert _edit(before + text, *operations) == (before + made, False)


def test_content_behind_the_marker() -> None:
    made = _edit("--- {a: {b: 1,}}", _remove("a.b"))
    assert made == ("--- {a: {}}", False)


REWRITTEN: dict[str, tuple[str, list[PatchOperation], str]] = {
    "the mapping is an alias": (
        "a: &x # one\n  b: 1\nc: *x\n",
        [_add("c.d", "x")],
        "a:\n  b: 1\nc:\n  b: 1\n  d: x\n",
    ),
    "the mapping has an alias": (
        "a: &x {b: 1}\nc: *x\n",
        [_add("a.d", "x")],
        "a:\n  b: 1\n  d: x\nc:\n  b: 1\n",
    ),
    "the key was merged in": (
        "a: &x {b: {c: 1}}\nd: # two\n  <<: *x\n",
        [_add("d.b.e", "x")],
        "a:\n  b:\n    c: 1\nd:\n  b:\n    c: 1\n    e: x\n",
    ),
    "the only key of a block": ("a: # one\n  b: 1\n", [_remove("a.b")], "a: {}\n"),
    "comments at the end": (
        "a: &x # one\n  b: 1\n  # two\nc: *x\n  # three\n\n# end\n",
        [_add("c.d", "x")],
        "a:\n  b: 1\nc:\n  b: 1\n  d: x\n",
    ),
    "what looks like comments at the end": (
        "a: &x\n  b: 1\nc: *x\ne: |\n  x\n  # y\n",
        [_add("c.d", "x")],
        "a:\n  b: 1\nc:\n  b: 1\n  d: x\ne: 'x\n\n  # y\n\n  '\n",
    ),
}


@pytest.mark.parametrize("case", REWRITTEN)
def test_rewritten(case: str) -> None:
    text, operations, made = REWRITTEN[case]
    assert _edit(text, *operations) == (made, True)


@pytest.mark.parametrize(
    "text",
    ["y", "N", "1e3", "0o7", "1_0", "", "on", "null", "1", "-.inf", "a\nb\n", "2026-11-20", "#", "~", "é"],
)
def test_text_is_text_for_every_reader(text: str) -> None:
    for before in ("a:\n  b: 1\n", "a: {b: 1}\n", '{"a": {"b": 1}}'):
        made = _edit(before, _add("a.c", text))
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
