import copy
from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling.fastpath_autoscaler import Metadata
from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, decode_scalar
from fastpath_sandbox.apiserver import patches
from fastpath_tools.boost import boost_patch
from fastpath_tools.boost.boost_patch import ADD, END, REMOVE, REPLACE, TEST, PatchOperation, Wish, apply


class HPA(HorizontalPodAutoscaler, frozen=True):
    metadata: Metadata = Metadata()


QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "0.5k"}},
}


HPA_OF_QUEUE: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 9,
        "metrics": [QUEUE],
    },
}


def test_the_handshake_is_the_one_that_counts() -> None:
    for way in ("", model.EXTERNAL, model.OBJECT):
        made = apply(HPA_OF_QUEUE, boost_patch.plan(HPA_OF_QUEUE, Wish("boost", way)).operations)
        boosted = model.read_boosted(msgspec.convert(made, HPA, dec_hook=decode_scalar))
        assert boosted is not None
        assert (boosted.annotations.mode, boosted.handshake.holds) == ("Boost", True)
        assert len(boosted.autoscaler.spec.metrics or ()) == 1


DOCUMENT: dict[str, Any] = {"a": {"b/c~d": 1, "e": None}, "list": [{"x": 1}, {"x": 2}, 3]}

CASES: dict[str, tuple[list[PatchOperation], dict[str, Any]]] = {
    "add a key": (
        [PatchOperation(ADD, ("a", "new"), {"y": []})],
        {"a": {"b/c~d": 1, "e": None, "new": {"y": []}}},
    ),
    "add over null": ([PatchOperation(ADD, ("a", "e"), 5)], {"a": {"b/c~d": 1, "e": 5}}),
    "replace a key with signs": (
        [PatchOperation(REPLACE, ("a", "b/c~d"), "two")],
        {"a": {"b/c~d": "two", "e": None}},
    ),
    "remove keys": ([PatchOperation(REMOVE, ("a", "b/c~d")), PatchOperation(REMOVE, ("a", "e"))], {"a": {}}),
    "add at the end": ([PatchOperation(ADD, ("list", END), 4)], {"list": [{"x": 1}, {"x": 2}, 3, 4]}),
    "add at the start": ([PatchOperation(ADD, ("list", "0"), 0)], {"list": [0, {"x": 1}, {"x": 2}, 3]}),
    "replace and remove items": (
        [
            PatchOperation(REPLACE, ("list", "2"), "z"),
            PatchOperation(TEST, ("list", "1", "x"), 2),
            PatchOperation(REMOVE, ("list", "1")),
        ],
        {"list": [{"x": 1}, "z"]},
    ),
    "below an item": ([PatchOperation(REMOVE, ("list", "1", "x"))], {"list": [{"x": 1}, {}, 3]}),
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
    made = apply({}, [PatchOperation(ADD, ("a",), value), PatchOperation(ADD, ("a", END), 1)])
    assert (made, value) == ({"a": [1]}, [])
    assert apply({"a": value, "b": value}, [PatchOperation(ADD, ("a", END), 1)]) == {"a": [1], "b": []}


def test_as_json() -> None:
    assert PatchOperation(REMOVE, ("b/c~d",)).plain() == {"op": "remove", "path": "/b~1c~0d"}
    assert PatchOperation(ADD, ("a", END)).plain() == {"op": "add", "path": "/a/-", "value": None}
