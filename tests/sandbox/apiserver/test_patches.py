from typing import Any

import pytest

from fastpath_sandbox.apiserver import patches
from fastpath_sandbox.apiserver.status import StatusFailure


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        # the examples of RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge(target: Any, patch: Any, result: Any) -> None:
    assert patches.merge(target, patch) == result


def containers(*pairs: tuple[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "image": image} for name, image in pairs]


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        pytest.param({"a": {"b": 1}}, {"a": {"c": 2}}, {"a": {"b": 1, "c": 2}}, id="objects merge"),
        pytest.param({"a": 1}, {"a": None}, {}, id="null deletes"),
        pytest.param(
            {"containers": containers(("a", "1"), ("b", "1"))},
            {"containers": [{"name": "b", "image": "2"}]},
            {"containers": containers(("a", "1"), ("b", "2"))},
            id="lists with a merge key merge by it",
        ),
        pytest.param(
            {"containers": containers(("a", "1"))},
            {"containers": containers(("c", "1"))},
            {"containers": containers(("a", "1"), ("c", "1"))},
            id="an unknown key is added",
        ),
        pytest.param(
            {"containers": containers(("a", "1"), ("b", "1"))},
            {"containers": [{"name": "a", "$patch": "delete"}]},
            {"containers": containers(("b", "1"))},
            id="delete of an entry",
        ),
        pytest.param(
            {"containers": containers(("a", "1"))},
            {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b"}]},
            {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]},
            id="an order is left out",
        ),
        pytest.param(
            {"ports": [{"containerPort": 1, "name": "x"}]},
            {"ports": [{"containerPort": 1, "name": "y"}, {"containerPort": 2}]},
            {"ports": [{"containerPort": 1, "name": "y"}, {"containerPort": 2}]},
            id="ports of a container",
        ),
        pytest.param(
            {"ports": [{"port": 80, "name": "x"}]},
            {"ports": [{"port": 80, "name": "y"}]},
            {"ports": [{"port": 80, "name": "y"}]},
            id="ports of a service",
        ),
        pytest.param(
            {"metrics": [{"type": "a"}]},
            {"metrics": [{"type": "b"}]},
            {"metrics": [{"type": "b"}]},
            id="atomic",
        ),
        pytest.param(
            {"finalizers": ["a"]}, {"finalizers": ["a", "b"]}, {"finalizers": ["a", "b"]}, id="a set"
        ),
        pytest.param({"a": {"b": 1}}, {"a": {"$patch": "delete"}}, {}, id="delete of an object"),
    ],
)
def test_strategic(target: Any, patch: Any, result: Any) -> None:
    before = repr(target)
    assert patches.strategic(target, patch) == result
    assert repr(target) == before


def test_strategic_entry_without_its_merge_key() -> None:
    with pytest.raises(StatusFailure, match="does not contain declared merge key: name"):
        patches.strategic({"containers": []}, {"containers": [{"image": "x"}]})


@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [
        pytest.param({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}, id="add"),
        pytest.param(
            {"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}, id="insert"
        ),
        pytest.param({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}, id="append"),
        pytest.param({"a": 1}, [{"op": "replace", "path": "/a", "value": 2}], {"a": 2}, id="replace"),
        pytest.param(
            {"a": [1]}, [{"op": "replace", "path": "/a/0", "value": 2}], {"a": [2]}, id="replace in a list"
        ),
        pytest.param({"a": 1}, [{"op": "remove", "path": "/a"}], {}, id="remove"),
        pytest.param({"a/b": 1}, [{"op": "remove", "path": "/a~1b"}], {}, id="escaped"),
        pytest.param({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}, id="move"),
        pytest.param({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}, id="copy"),
        pytest.param({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}, id="test"),
        pytest.param({"a": 1}, [{"op": "replace", "path": "", "value": {}}], {}, id="the whole document"),
    ],
)
def test_json_patch(target: Any, operations: list[dict[str, Any]], result: Any) -> None:
    before = repr(target)
    assert patches.json_patch(target, operations) == result
    assert repr(target) == before


@pytest.mark.parametrize(
    ("operation", "cause"),
    [
        ({"op": "test", "path": "/a", "value": 2}, "testing value /a failed: test failed"),
        ({"op": "replace", "path": "/b", "value": 2}, "doc is missing path: /b: missing value"),
        ({"op": "remove", "path": "/b"}, "doc is missing path: /b: missing value"),
        ({"op": "remove", "path": "/a/b"}, "doc is missing path: /a/b: missing value"),
        ({"op": "add", "path": "/c/9", "value": 2}, "add operation does not apply: /c/9: "),
        ({"op": "add", "path": "/a"}, "add operation does not apply: /a: "),
        ({"op": "add", "path": "a", "value": 1}, "doc is missing path: a: missing value"),
        ({"op": "add", "path": "/a/x", "value": 1}, "doc is missing path: /a/x: missing value"),
        ({"op": "swap", "path": "/a"}, "swap operation does not apply: /a: "),
        ({"op": "remove", "path": 3}, "remove operation does not apply: 3: "),
        ({}, "None operation does not apply: None: "),
    ],
)
def test_json_patch_that_does_not_fit(operation: dict[str, Any], cause: str) -> None:
    with pytest.raises(StatusFailure) as refused:
        patches.json_patch({"a": 1, "c": []}, [operation])
    assert refused.value.code == 422
    assert cause in str(refused.value)
