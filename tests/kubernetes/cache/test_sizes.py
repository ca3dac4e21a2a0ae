"""What the largest legal object of each kind becomes in memory: less than the bound on the page of limits."""

import sys
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from adapter.kubernetes.cache import autoscalers, pod_codec, scale_codec
from adapter.kubernetes.cache.autoscalers import AutoscalerCache, HPACache, keep_hpa
from adapter.model.autoscaling import fastpath_autoscaler
from adapter.model.autoscaling.boost import MODE_ANNOTATION
from adapter.model.autoscaling.fastpath_autoscaler import RefusedAutoscaler
from tests.kubernetes.apiclient import unconnected
from tests.kubernetes.cache.test_pods import alone, pod, put
from tests.support.scaling import document, external_metric

JSON = dict[str, Any]
ROOM = 1_400_000
"""The bytes of JSON that the API server takes."""

KEEP: dict[str, Any] = {
    "FastPathAutoscaler": autoscalers._keep_autoscaler,
    "HorizontalPodAutoscaler": keep_hpa,
}
"""What is kept of an object, by its kind."""

MOST_AUTOSCALER, MOST_POD = 4 * 1024 * 1024, 64 * 1024
"""The bounds on the page of limits; a target has that of a pod."""


def size_of(value: object, known: set[int] | None = None) -> int:
    """Return the bytes of a value and all that it refers to, each counted once."""
    known = set() if known is None else known
    if id(value) in known or isinstance(value, type):
        return 0
    known.add(id(value))
    below: list[object] = []
    if isinstance(value, msgspec.Struct):
        below = [getattr(value, name) for name in value.__struct_fields__]
    elif isinstance(value, Mapping):
        below = [*value.keys(), *value.values()]
    elif isinstance(value, tuple | list | set | frozenset):
        below = [*value]
    elif hasattr(value, "__slots__") and not isinstance(value, str | bytes | int | float):
        below = [getattr(value, name, None) for name in value.__slots__]
    return sys.getsizeof(value) + sum(size_of(one, known) for one in below)


def texts(length: int, room: int = ROOM) -> list[str]:
    """Return different texts of a length, as many as fit."""
    return [f"{number:x}".ljust(length, "x") for number in range(room // (length + 4))]


def selecting(selector: JSON) -> JSON:
    metric = external_metric(averageValue="1")
    metric["external"]["metric"]["selector"] = selector
    return {"spec": {"metrics": [metric]}}


FIELDS: dict[str, JSON] = {
    "values of a condition": selecting(
        {"matchExpressions": [{"key": "a", "operator": "In", "values": texts(5)}]}
    ),
    "conditions": selecting(
        {"matchExpressions": [{"key": key, "operator": "Exists"} for key in texts(5, ROOM // 3)]}
    ),
    "labels": selecting({"matchLabels": dict.fromkeys(texts(5, ROOM // 2), "a")}),
    "key": selecting({"matchExpressions": [{"key": "a" * ROOM, "operator": "Exists"}]}),
    "operator": selecting({"matchExpressions": [{"key": "a", "operator": "b" * ROOM}]}),
    "metrics": {"spec": {"metrics": [external_metric(name, value="1") for name in texts(5, ROOM // 8)]}},
    "name of a metric": {"spec": {"metrics": [external_metric("a" * ROOM, value="1")]}},
    "policies": {
        "spec": {
            "metrics": [external_metric(value="1")],
            "behavior": {
                "scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 1}] * (ROOM // 60)}
            },
        }
    },
    "labels of the object": {"metadata": {"labels": dict.fromkeys(texts(5, ROOM // 2), "a")}},
    "annotations": {"metadata": {"annotations": dict.fromkeys(texts(5, ROOM // 2), "a")}},
    "conditions of the status": {
        "status": {"conditions": [{"type": text, "message": text} for text in texts(5, ROOM // 3)]}
    },
    "metrics of the status": {
        "status": {"currentMetrics": [{"type": "External", "external": {"metric": {"name": "a"}}}] * 20_000}
    },
    "changes of the status": {
        "status": {"recentChanges": [{"change": 1, "time": "2026-01-01T00:00:00Z"}] * 25_000}
    },
}


def written(kind: str, name: str = "web", **parts: JSON) -> msgspec.Raw:
    tree = document([external_metric(value="1")], {"name": name}, kind=kind)
    for part, value in parts.items():
        tree[part] = tree.get(part, {}) | value
    if kind == "HorizontalPodAutoscaler":
        meta = tree["metadata"]
        meta["annotations"] = {MODE_ANNOTATION: "boost"} | meta.get("annotations", {})
    return msgspec.Raw(msgspec.json.encode(tree))


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("kind", ["FastPathAutoscaler", "HorizontalPodAutoscaler"])
def test_no_field_of_an_autoscaler_exceeds_the_bound(kind: str, name: str) -> None:
    assert size_of(KEEP[kind](written(kind, **FIELDS[name]))) < MOST_AUTOSCALER


SPEC, STATUS = autoscalers.LONGEST_SPEC - 1000, autoscalers.LONGEST_STATUS - 1000
LARGEST: dict[str, JSON] = {
    "values": selecting({"matchExpressions": [{"key": "a", "operator": "In", "values": texts(4, SPEC)}]}),
    "labels": selecting({"matchLabels": dict.fromkeys(texts(4, SPEC // 2), "a")}),
    "conditions of a selector": selecting({"matchExpressions": [{}] * (SPEC // 4)}),
    "metrics": {"spec": {"metrics": [{}] * (SPEC // 4)}},
    "conditions": {"status": {"conditions": [{}] * (STATUS // 4)}},
    "metrics of the status": {"status": {"currentMetrics": [{}] * (STATUS // 4)}},
    "changes": {"status": {"recentChanges": [{}] * (STATUS // 4)}},
}


@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("kind", ["FastPathAutoscaler", "HorizontalPodAutoscaler"])
def test_nor_does_the_largest_that_is_used(kind: str, name: str) -> None:
    kept = KEEP[kind](written(kind, **LARGEST[name]))
    assert kept.size > 0
    assert size_of(kept) < MOST_AUTOSCALER


@pytest.mark.parametrize(
    "name", ["values of a condition", "conditions", "labels", "key", "operator", "metrics", "policies"]
)
def test_one_that_is_too_long_has_a_condition_and_keeps_its_target(name: str) -> None:
    kept = KEEP["FastPathAutoscaler"](written("FastPathAutoscaler", **FIELDS[name])).autoscaler
    assert kept is not None
    assert kept.spec.scale_target_ref.name == "web"
    assert [str(one) for one in fastpath_autoscaler.validate(kept)] == [
        "spec: Too long: has more than 65,536 bytes"
    ]
    faults = keep_hpa(written("HorizontalPodAutoscaler", **FIELDS[name])).faults
    assert faults == ("spec with the annotations has more than 65,536 bytes",)


@pytest.fixture
def _small_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autoscalers, "NAMESPACE_BYTES", 20_000)
    monkeypatch.setattr(autoscalers, "STAYING_BYTES", 25_000)


@pytest.mark.usefixtures("_small_shares")
@pytest.mark.parametrize("kind", ["FastPathAutoscaler", "HorizontalPodAutoscaler"])
def test_the_autoscalers_of_a_namespace_have_a_share(kind: str) -> None:
    keep, context = KEEP[kind], unconnected()
    is_own = kind == "FastPathAutoscaler"
    cache: Any = AutoscalerCache(context, lambda *_: None) if is_own else HPACache(context)
    for number in range(500):
        cache.put(keep(written(kind, f"web-{number}")))
    used = [one for one in cache if one.size]
    assert 0 < len(used) < 200
    assert sum(one.size for one in used) <= 20_000
    last = cache.find("shop", "web-499")
    if is_own:
        assert isinstance(last.autoscaler, RefusedAutoscaler)
        (violation,) = fastpath_autoscaler.validate(last.autoscaler)
        assert "the autoscalers of the namespace have more than" in violation.detail
    else:
        assert (last.asked, len(last.faults)) == (None, 1)
    for one in used:
        cache.remove("shop", one.name)
    cache.put(keep(written(kind, "web-499")))
    assert cache.find("shop", "web-499").size > 0, "it counts again when there is room"


@pytest.mark.usefixtures("_small_shares")
def test_one_that_is_let_in_stays_when_statuses_grow() -> None:
    """A refused one has a short status, with which it fits again: it was let in and refused in turn."""
    cache = AutoscalerCache(unconnected(), lambda *_: None)

    def write(name: str, status: int) -> int:
        conditions = [{"type": "A", "status": "True", "message": "x" * status}]
        cache.put(
            KEEP["FastPathAutoscaler"](written("FastPathAutoscaler", name, status={"conditions": conditions}))
        )
        return sum(one.size > 0 for one in cache)

    names = [f"web-{number}" for number in range(100)]
    for name in names:
        write(name, 10)
    let_in = [one.name for one in cache if one.size]
    assert 10 < len(let_in) < 90
    share = 4000 // len(let_in)
    for turn in range(3):
        for name in names:
            assert write(name, 10 + share * (turn % 2 == 0) * (name in let_in)) == len(let_in)
    for name in let_in:
        write(name, 5000)
    assert sum(one.size for one in cache) <= 25_000
    assert sum(one.size > 0 for one in cache) < len(let_in), "memory has a bound all the same"


PODS: dict[str, JSON] = {
    "labels": {"metadata": {"labels": dict.fromkeys(texts(5, ROOM // 2), "a")}},
    "labels that are kept": {"metadata": {"labels": {f"{key:x<60}": "b" * 63 for key in texts(2, 384)}}},
    "annotations": {"metadata": {"annotations": dict.fromkeys(texts(5, ROOM // 2), "a")}},
    "containers": {"spec": {"containers": [{"name": name} for name in texts(5, ROOM // 3)]}},
    "init containers": {"spec": {"initContainers": [{"name": name} for name in texts(5, ROOM // 3)]}},
    "ports": {
        "spec": {
            "containers": [
                {"name": "a", "ports": [{"name": name, "containerPort": 1} for name in texts(5, ROOM // 5)]}
            ]
        }
    },
    "resources": {
        "spec": {
            "containers": [{"name": "a", "resources": {"requests": dict.fromkeys(texts(9, ROOM // 2), "1")}}]
        }
    },
    "conditions": {"status": {"conditions": [{"type": name} for name in texts(5, ROOM // 3)]}},
}


@pytest.mark.parametrize("name", PODS)
def test_no_field_of_a_pod_exceeds_the_bound(name: str) -> None:
    cache = alone()
    tree = pod("web-0", "shop", app="web")
    for part, value in PODS[name].items():
        tree[part] = tree[part] | value
    put(cache, tree)
    found = cache.find("shop", "web-0")
    assert found is not None
    assert size_of(found) < MOST_POD


TARGETS: dict[str, JSON] = {
    "labels of the selector": {
        "spec": {"selector": {"matchLabels": dict.fromkeys(texts(5, ROOM // 2), "a")}}
    },
    "values of the selector": {
        "spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": texts(5)}]}}
    },
    "labels": {"metadata": {"labels": dict.fromkeys(texts(5, ROOM // 2), "a")}},
    "managers": {
        "metadata": {
            "managedFields": [{"manager": name, "fieldsV1": {"f:spec": {}}} for name in texts(100, ROOM // 2)]
        }
    },
}


@pytest.mark.parametrize("name", TARGETS)
def test_no_field_of_a_target_exceeds_the_bound(name: str) -> None:
    tree: JSON = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"replicas": 3}}
    for part, value in TARGETS[name].items():
        tree[part] |= value
    found = scale_codec.built_in().decode(msgspec.json.encode(tree))
    assert found.replicas == 3
    assert size_of(found) < MOST_POD


def test_a_pod_with_too_many_labels_is_there_and_matches_no_selector() -> None:
    cache = alone()
    put(cache, pod("web-0", "shop", **{f"label-{number}": "a" for number in range(65)}))  # type: ignore[arg-type]
    put(cache, pod("web-1", "shop", **{f"label-{number}": "a" for number in range(64)}))  # type: ignore[arg-type]
    labels = [len(found.labels) for name in ("web-0", "web-1") if (found := cache.find("shop", name))]
    assert labels == [0, 64]


def test_a_pod_with_too_many_containers_requests_nothing_that_is_known() -> None:
    cache = alone()
    tree = pod("web-0", "shop", app="web")
    tree["spec"]["containers"] = [{"name": f"c{number}"} for number in range(pod_codec.MOST_CONTAINERS + 1)]
    put(cache, tree)
    found = cache.find("shop", "web-0")
    assert found is not None
    assert [container.name for container in found.containers] == ["too-many"]
