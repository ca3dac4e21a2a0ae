import copy
from typing import Any

import msgspec
import pytest

from adapter.errors import InputError
from adapter.model.autoscaling import boost as model
from adapter.model.autoscaling.fastpath_autoscaler import Metadata
from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, decode_scalar
from fastpath_sandbox.apiserver import patches
from fastpath_tools.boost import boost_patch
from fastpath_tools.boost.boost_patch import ADD, END, REMOVE, REPLACE, TEST, PatchOperation, Wish, apply


class HPA(HorizontalPodAutoscaler, frozen=True):
    metadata: Metadata = Metadata()


BOOST, ADVISE, PLAIN = Wish("boost"), Wish("advise"), Wish("")
ANNOTATION = {"fastpath.io/mode": "boost"}
CPU_50 = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
}
CPU_80 = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
QUEUE = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "0.5k"}},
}
EXTERNAL = {
    "type": "External",
    "external": {
        "metric": {"name": "fastpath_replicas", "selector": {"matchLabels": {"autoscaler": "web"}}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}
OBJECT = {
    "type": "Object",
    "object": {
        "metric": {"name": "fastpath_replicas"},
        "describedObject": {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "name": "web"},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}
OF_ANOTHER = {
    "type": "External",
    "external": {
        "metric": {"name": "fastpath_replicas", "selector": {"matchLabels": {"autoscaler": "api"}}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}
OF_PODS = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "fastpath_replicas"},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}


def _hpa(metrics: Any = None, annotations: Any = None, name: str = "web", **spec: Any) -> dict[str, Any]:
    meta = {"name": name} | ({} if annotations is None else {"annotations": annotations})
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    own = (
        {"scaleTargetRef": target, "maxReplicas": 9}
        | spec
        | ({} if metrics is None else {"metrics": metrics})
    )
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": meta, "spec": own}


def _old(annotations: Any = None, status: Any = None, **spec: Any) -> dict[str, Any]:
    own = _hpa(annotations=annotations, **spec)
    return own | {"apiVersion": "autoscaling/v1"} | ({"status": status} if status else {})


def _made(tree: dict[str, Any], wish: Wish) -> Any:
    """Return a document after its plan, applied by another reader of JSON patches.

    After a second plan it is the same.
    """
    operations = boost_patch.plan(tree, wish).operations
    made = patches.json_patch(tree, [each.plain() for each in operations])
    assert made == boost_patch.apply(tree, operations)
    assert boost_patch.plan(made, wish).operations == ()
    return made


MADE: dict[str, tuple[dict[str, Any], Wish, dict[str, Any]]] = {
    "metrics of its own": (_hpa([CPU_50, QUEUE]), BOOST, _hpa([CPU_50, QUEUE, EXTERNAL], ANNOTATION)),
    "no metrics": (_hpa(), BOOST, _hpa([CPU_80, EXTERNAL], ANNOTATION)),
    "empty metrics": (_hpa([], {}), BOOST, _hpa([CPU_80, EXTERNAL], ANNOTATION)),
    "other annotations": (_hpa([QUEUE], {"a": "b"}), BOOST, _hpa([QUEUE, EXTERNAL], {"a": "b"} | ANNOTATION)),
    "advised before": (
        _hpa([QUEUE], {"fastpath.io/mode": "advise"}),
        BOOST,
        _hpa([QUEUE, EXTERNAL], ANNOTATION),
    ),
    "an annotation of null": (
        _hpa([QUEUE], {"fastpath.io/mode": None}),
        BOOST,
        _hpa([QUEUE, EXTERNAL], ANNOTATION),
    ),
    "the handshake is there": (_hpa([EXTERNAL, QUEUE]), BOOST, _hpa([EXTERNAL, QUEUE], ANNOTATION)),
    "as an object": (_hpa([QUEUE]), Wish("boost", "object"), _hpa([QUEUE, OBJECT], ANNOTATION)),
    "an object stays": (_hpa([OBJECT, QUEUE]), BOOST, _hpa([OBJECT, QUEUE], ANNOTATION)),
    "an object becomes external": (
        _hpa([OBJECT, QUEUE]),
        Wish("boost", "external"),
        _hpa([EXTERNAL, QUEUE], ANNOTATION),
    ),
    "external becomes an object": (
        _hpa([QUEUE, EXTERNAL]),
        Wish("boost", "object"),
        _hpa([QUEUE, OBJECT], ANNOTATION),
    ),
    "the handshake of another": (_hpa([OF_ANOTHER, QUEUE]), BOOST, _hpa([EXTERNAL, QUEUE], ANNOTATION)),
    "a handshake of pods": (_hpa([QUEUE, OF_PODS]), BOOST, _hpa([QUEUE, EXTERNAL], ANNOTATION)),
    "several handshakes": (
        _hpa([OF_ANOTHER, QUEUE, OF_PODS, EXTERNAL, OBJECT]),
        BOOST,
        _hpa([QUEUE, EXTERNAL], ANNOTATION),
    ),
    "several, all wrong": (
        _hpa([OF_ANOTHER, QUEUE, OF_PODS, OF_ANOTHER]),
        BOOST,
        _hpa([EXTERNAL, QUEUE], ANNOTATION),
    ),
    "nothing but the handshake": (_hpa([EXTERNAL]), BOOST, _hpa([CPU_80, EXTERNAL], ANNOTATION)),
    "nothing but wrong ones": (_hpa([OF_PODS, OF_ANOTHER]), BOOST, _hpa([CPU_80, EXTERNAL], ANNOTATION)),
    "advise": (_hpa([QUEUE]), ADVISE, _hpa([QUEUE], {"fastpath.io/mode": "advise"})),
    "advise without metrics": (_hpa(), ADVISE, _hpa(None, {"fastpath.io/mode": "advise"})),
    "advise what was boosted": (
        _hpa([QUEUE, EXTERNAL], ANNOTATION),
        ADVISE,
        _hpa([QUEUE], {"fastpath.io/mode": "advise"}),
    ),
    "remove": (_hpa([QUEUE, EXTERNAL], ANNOTATION), PLAIN, _hpa([QUEUE])),
    "remove among others": (
        _hpa([OBJECT, QUEUE, OF_PODS], ANNOTATION | {"fastpath.io/hold": "1m"}),
        PLAIN,
        _hpa([QUEUE], {"fastpath.io/hold": "1m"}),
    ),
    "remove an invalid mode": (_hpa([QUEUE], {"fastpath.io/mode": "fast"}), PLAIN, _hpa([QUEUE])),
    "remove the only metric": (_hpa([EXTERNAL, OBJECT], ANNOTATION), PLAIN, _hpa()),
    "remove where nothing is": (_hpa([QUEUE], {"a": "b"}), PLAIN, _hpa([QUEUE], {"a": "b"})),
    "remove where nothing at all is": (_hpa(), PLAIN, _hpa()),
    "v1": (_old(targetCPUUtilizationPercentage=50), BOOST, _hpa([CPU_50, EXTERNAL], ANNOTATION)),
    "v1 without target": (_old(), BOOST, _hpa([CPU_80, EXTERNAL], ANNOTATION)),
    "v1 with null": (_old(targetCPUUtilizationPercentage=None), BOOST, _hpa([CPU_80, EXTERNAL], ANNOTATION)),
    "v1 as an object": (
        _old(targetCPUUtilizationPercentage=50),
        Wish("boost", "object"),
        _hpa([CPU_50, OBJECT], ANNOTATION),
    ),
    "v1 with a status": (
        _old(None, {"currentReplicas": 2, "currentCPUUtilizationPercentage": 7}),
        BOOST,
        _hpa([CPU_80, EXTERNAL], ANNOTATION) | {"status": {"currentReplicas": 2}},
    ),
    "v1 with nothing else in the status": (
        _old(None, {"currentCPUUtilizationPercentage": 7}),
        BOOST,
        _hpa([CPU_80, EXTERNAL], ANNOTATION),
    ),
    "v1, plain again": (
        _old(ANNOTATION, targetCPUUtilizationPercentage=50),
        PLAIN,
        _old(targetCPUUtilizationPercentage=50),
    ),
    "v1, advised": (
        _old(targetCPUUtilizationPercentage=50),
        ADVISE,
        _old({"fastpath.io/mode": "advise"}, targetCPUUtilizationPercentage=50),
    ),
}


@pytest.mark.parametrize("case", MADE)
def test_what_is_made(case: str) -> None:
    given, wish, made = MADE[case]
    assert _made(given, wish) == made


@pytest.mark.parametrize("way", ["", "external", "object"])
@pytest.mark.parametrize(("length", "type_"), [(63, "External"), (64, "Object")])
def test_a_name_that_is_no_label(way: str, length: int, type_: str) -> None:
    plan = boost_patch.plan(_hpa([QUEUE], name="w" * length), Wish("boost", way))
    assert plan.operations[-1].value["type"] == ("Object" if way == "object" else type_)
    assert bool(plan.notes) == (length == 64)


def test_the_handshake_is_the_one_that_counts() -> None:
    for way in ("", model.EXTERNAL, model.OBJECT):
        made = _made(_hpa([QUEUE]), Wish("boost", way))
        boosted = model.read_boosted(msgspec.convert(made, HPA, dec_hook=decode_scalar))
        assert boosted is not None
        assert (boosted.annotations.mode, boosted.handshake.holds) == ("Boost", True)
        assert len(boosted.autoscaler.spec.metrics or ()) == 1


def test_an_index_is_only_touched_where_it_is_the_handshake() -> None:
    plan = boost_patch.plan(_hpa([OF_ANOTHER, QUEUE, OF_PODS, OBJECT]), Wish("boost", "external"))
    shown = [(each.op, "/".join(each.path[2:])) for each in plan.operations[1:]]
    assert shown == [
        ("test", "0/external/metric/name"),
        ("replace", "0"),
        ("test", "3/object/metric/name"),
        ("remove", "3"),
        ("test", "2/pods/metric/name"),
        ("remove", "2"),
    ]


OWNER = {"apiVersion": "shop.io/v1", "kind": "Shop", "name": "web", "uid": "1", "controller": True}
NOTES = {
    "nothing to say": (_hpa([QUEUE]), BOOST, []),
    "no metrics": (
        _hpa(),
        BOOST,
        ["it has no metrics, so the API's default is written out: cpu at 80 %"],
    ),
    "v1": (
        _old(targetCPUUtilizationPercentage=50),
        BOOST,
        ["converted from autoscaling/v1 to autoscaling/v2: autoscaling/v1 has only one metric"],
    ),
    "v1, advised": (_old(), ADVISE, []),
    "an invalid hold": (
        _hpa([QUEUE], {"fastpath.io/hold": "1h"}),
        ADVISE,
        ['annotation fastpath.io/hold: "1h": expected a duration from 1s to 10m0s, such as 45s'],
    ),
    "pending capacity of no metric": (
        _hpa([QUEUE], {"fastpath.io/pending-capacity": "jobs=2"}),
        ADVISE,
        ['annotation fastpath.io/pending-capacity: "jobs": spec.metrics has no metric of this name'],
    ),
    "an owner": (
        _hpa([QUEUE]) | {"metadata": {"name": "web", "ownerReferences": [OWNER]}},
        BOOST,
        ["it belongs to the Shop web, whose controller may put its spec back, without fastpath_replicas"],
    ),
    "a hold, plain again": (_hpa([QUEUE], {"fastpath.io/hold": "1h"}), PLAIN, []),
    "zero replicas": (
        _hpa([CPU_50, EXTERNAL], minReplicas=0),
        PLAIN,
        ["minReplicas 0 needs an Object or External metric, and it has no other; the API server refuses it"],
    ),
    "zero replicas with a queue": (_hpa([QUEUE, EXTERNAL], minReplicas=0), PLAIN, []),
    "nothing is left": (
        _hpa([EXTERNAL]),
        PLAIN,
        ["it has no metric but fastpath_replicas; without it the API's default applies: cpu at 80 %"],
    ),
}


@pytest.mark.parametrize("case", NOTES)
def test_what_is_said(case: str) -> None:
    given, wish, said = NOTES[case]
    assert list(boost_patch.plan(given, wish).notes) == said


V2_GIVES = "; kubectl get hpa.v2.autoscaling NAME -o yaml gives it"
FAULTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "v2beta2": (
        _hpa() | {"apiVersion": "autoscaling/v2beta2"},
        [f'apiVersion: "autoscaling/v2beta2": expected autoscaling/v2 or autoscaling/v1{V2_GIVES}'],
    ),
    "no version": (
        {"kind": "HorizontalPodAutoscaler"},
        [f"apiVersion: absent: expected autoscaling/v2 or autoscaling/v1{V2_GIVES}"],
    ),
    "an odd version": (
        _hpa() | {"apiVersion": [2]},
        [f"apiVersion: [2]: expected autoscaling/v2 or autoscaling/v1{V2_GIVES}"],
    ),
    "v1 with what only v2 has": (
        _old(metrics=[], behavior={}),
        [
            "spec.metrics: []: only autoscaling/v2 has it",
            "spec.behavior: {}: only autoscaling/v2 has it",
        ],
    ),
    "v1 with an invalid target": (
        _old(targetCPUUtilizationPercentage=0),
        ["spec.targetCPUUtilizationPercentage: 0: expected a whole number greater than 0"],
    ),
    "v1 with a target that is no number": (
        _old(targetCPUUtilizationPercentage=True),
        ["spec.targetCPUUtilizationPercentage: true: expected a whole number greater than 0"],
    ),
    "v1 with metrics elsewhere": (
        _old({"autoscaling.alpha.kubernetes.io/metrics": "[]"}),
        [
            (
                "metadata.annotations: autoscaling.alpha.kubernetes.io/metrics: autoscaling/v1 hides a part "
                "of the autoscaler here"
            )
        ],
    ),
    "v1 without spec": (
        {"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"}},
        ["spec.maxReplicas: Invalid value: 0"],
    ),
    "no name": (_hpa([QUEUE], name=""), ["metadata.name: Required value: name or generateName is required"]),
    "a field that is not known": (
        _hpa([QUEUE], minreplicas=2),
        ["spec.minreplicas: 2: unknown field, did you mean minReplicas?"],
    ),
    "annotations that are no object": (_hpa([QUEUE], "a"), ['metadata.annotations: "a": expected an object']),
    "an annotation that is no text": (_hpa([QUEUE], {"fastpath.io/mode": 1}), ["metadata.annotations"]),
    "metrics that are no objects": (_hpa([None]), ["spec.metrics[0]: null: expected an object"]),
}


@pytest.mark.parametrize("case", FAULTS)
@pytest.mark.parametrize("wish", [BOOST, ADVISE, PLAIN])
def test_what_is_refused(case: str, wish: Wish) -> None:
    given, said = FAULTS[case]
    with pytest.raises(InputError) as caught:
        boost_patch.plan(given, wish)
    shown = [str(fault) for fault in caught.value.faults]
    assert len(shown) >= len(said)
    assert all(text.startswith(start) for text, start in zip(shown, said, strict=False)), shown


@pytest.mark.parametrize(
    ("tree", "meant"),
    [
        (_hpa(), True),
        (_old(), True),
        ({"kind": "HorizontalPodAutoscaler"}, True),
        ({"kind": "HorizontalPodAutoscaler", "apiVersion": "v2"}, True),
        ({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling.example.com/v1"}, False),
        ({"kind": "FastPathAutoscaler", "apiVersion": "fastpath.io/v1alpha1"}, False),
        ([], False),
    ],
)
def test_which_documents_are_meant(tree: object, meant: object) -> None:
    assert boost_patch.is_autoscaler(tree) is meant


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
