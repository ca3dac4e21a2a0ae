import copy
from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, decode_scalar
from adapter.model.objects.api_objects import Metadata
from fastpath_sandbox.apiserver import patches
from fastpath_tools.boost import boost_patch
from fastpath_tools.boost.boost_patch import ADD, END, REMOVE, PatchOperation, Wish, apply
from tests.support.answers import answers


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


FAST = [{"type": "Percent", "value": 900, "periodSeconds": 15}]
WAYS = ("keep", "fast")
WAITS = {"stabilizationWindowSeconds": 30}


@pytest.mark.parametrize(
    ("given", "fast"),
    [
        (None, {"scaleUp": {"policies": FAST}}),
        ({}, {"scaleUp": {"policies": FAST}}),
        ({"scaleDown": WAITS, "scaleUp": None}, {"scaleDown": WAITS, "scaleUp": {"policies": FAST}}),
        ({"scaleUp": WAITS}, {"scaleUp": {**WAITS, "policies": FAST}}),
        (
            {
                "scaleUp": {
                    "selectPolicy": "Min",
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}],
                }
            },
            {"scaleUp": {"selectPolicy": "Min", "policies": FAST}},
        ),
    ],
)
def test_fast_policies_take_the_place_of_others_and_nothing_else_changes(given: object, fast: object) -> None:
    hpa = HPA_OF_QUEUE | {"spec": HPA_OF_QUEUE["spec"] | {"behavior": given}}

    (kept, hastened) = (apply(hpa, boost_patch.plan(hpa, Wish("boost", "", way)).operations) for way in WAYS)
    again = boost_patch.plan(hastened, Wish("boost", "", "fast"))

    assert kept["spec"]["behavior"] == given
    assert hastened == kept | {"spec": kept["spec"] | {"behavior": fast}}
    assert again.operations == ()


DOCUMENT: dict[str, Any] = {"a": {"b/c~d": 1, "e": None}, "list": [{"x": 1}, {"x": 2}, 3]}


@pytest.mark.parametrize(("given", "changed"), answers("boost/patch", "operations"))
def test_operations_do_what_an_api_server_does_with_them(
    given: list[list[Any]], changed: dict[str, Any]
) -> None:
    operations = [PatchOperation(op, tuple(path), *value) for op, path, *value in given]
    document = copy.deepcopy(DOCUMENT)
    made = apply(document, operations)
    assert made == DOCUMENT | changed == patches.json_patch(DOCUMENT, [each.plain() for each in operations])
    assert document == DOCUMENT


def test_what_is_put_in_is_not_shared() -> None:
    value: list[Any] = []
    made = apply({}, [PatchOperation(ADD, ("a",), value), PatchOperation(ADD, ("a", END), 1)])
    assert (made, value) == ({"a": [1]}, [])
    assert apply({"a": value, "b": value}, [PatchOperation(ADD, ("a", END), 1)]) == {"a": [1], "b": []}


def test_as_json() -> None:
    assert PatchOperation(REMOVE, ("b/c~d",)).plain() == {"op": "remove", "path": "/b~1c~0d"}
    assert PatchOperation(ADD, ("a", END)).plain() == {"op": "add", "path": "/a/-", "value": None}
