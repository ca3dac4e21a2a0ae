import copy
from typing import Any

import pytest

from adapter.cli.boost.json_patch import ADD, END, REMOVE, REPLACE, TEST, Operation, apply
from adapter.sandbox.apiserver.storage import patches

DOCUMENT: dict[str, Any] = {"a": {"b/c~d": 1, "e": None}, "list": [{"x": 1}, {"x": 2}, 3]}

CASES: dict[str, tuple[list[Operation], dict[str, Any]]] = {
    "add a key": (
        [Operation(ADD, ("a", "new"), {"y": []})],
        {"a": {"b/c~d": 1, "e": None, "new": {"y": []}}},
    ),
    "add over null": ([Operation(ADD, ("a", "e"), 5)], {"a": {"b/c~d": 1, "e": 5}}),
    "replace a key with signs": (
        [Operation(REPLACE, ("a", "b/c~d"), "two")],
        {"a": {"b/c~d": "two", "e": None}},
    ),
    "remove keys": ([Operation(REMOVE, ("a", "b/c~d")), Operation(REMOVE, ("a", "e"))], {"a": {}}),
    "add at the end": ([Operation(ADD, ("list", END), 4)], {"list": [{"x": 1}, {"x": 2}, 3, 4]}),
    "add at the start": ([Operation(ADD, ("list", "0"), 0)], {"list": [0, {"x": 1}, {"x": 2}, 3]}),
    "replace and remove items": (
        [
            Operation(REPLACE, ("list", "2"), "z"),
            Operation(TEST, ("list", "1", "x"), 2),
            Operation(REMOVE, ("list", "1")),
        ],
        {"list": [{"x": 1}, "z"]},
    ),
    "below an item": ([Operation(REMOVE, ("list", "1", "x"))], {"list": [{"x": 1}, {}, 3]}),
}


@pytest.mark.parametrize("case", CASES)
def test_operations_do_what_an_api_server_does_with_them(case: str) -> None:
    operations, changed = CASES[case]
    given = copy.deepcopy(DOCUMENT)
    made = apply(given, operations)
    assert made == DOCUMENT | changed == patches.json_patch(DOCUMENT, [each.plain() for each in operations])
    assert given == DOCUMENT


def test_what_is_put_in_is_not_shared() -> None:
    value: list[Any] = []
    made = apply({}, [Operation(ADD, ("a",), value), Operation(ADD, ("a", END), 1)])
    assert (made, value) == ({"a": [1]}, [])
    assert apply({"a": value, "b": value}, [Operation(ADD, ("a", END), 1)]) == {"a": [1], "b": []}


def test_as_json() -> None:
    assert Operation(REMOVE, ("b/c~d",)).plain() == {"op": "remove", "path": "/b~1c~0d"}
    assert Operation(ADD, ("a", END)).below("items", "0").plain() == {
        "op": "add",
        "path": "/items/0/a/-",
        "value": None,
    }
