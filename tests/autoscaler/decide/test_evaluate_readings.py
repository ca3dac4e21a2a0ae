import json
from typing import Any

import pytest

from adapter.autoscaler.decide import evaluate_document
from adapter.autoscaler.decide import evaluate_document as readings
from adapter.autoscaler.decide.observation import (
    NO_STATUS,
    ExternalReading,
    ObjectReading,
    Observation,
    PodsReading,
    Reading,
    Unavailable,
)
from adapter.model.timestamps import NEVER, SECOND, read_instant
from tests.support.scaling import cpu_metric, external_metric, object_metric, pods_metric

_BOX = {
    "type": "ContainerResource",
    "containerResource": {
        "name": "cpu",
        "container": "app",
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}
_NO_RESOURCE = Unavailable("NoMetrics", "no metrics returned from resource metrics API")
_NO_CUSTOM = Unavailable("NoMetrics", "no metrics returned from custom metrics API")
_NO_EXTERNAL = Unavailable("NoMetrics", "no metrics returned from external metrics API")


def _pod(name: str, app: str = "web", **meta: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"app": app}, **meta}, "status": {"phase": "Running"}}


def _used(pod: str, *containers: tuple[str, dict[str, str]], **fields: Any) -> dict[str, Any]:
    listed = [{"name": name, "usage": usage} for name, usage in containers]
    return {
        "metadata": {"name": pod},
        "containers": listed,
        "timestamp": "2026-11-20T12:00:00Z",
        "window": "30s",
        **fields,
    }


def _custom(name: str, metric: str, value: str, kind: str = "Pod") -> dict[str, Any]:
    return {"describedObject": {"kind": kind, "name": name}, "metric": {"name": metric}, "value": value}


def _observe(
    metric: dict[str, Any], selector: str = "app=web", namespace: str = "team", **lists: Any
) -> Observation:
    pods = lists.pop("pods", [_pod("a"), _pod("b"), _pod("x", "other")])
    text = json.dumps(
        {
            "now": "2026-11-20T12:00:00Z",
            "hpa": {
                "metadata": {"name": "web", "namespace": namespace},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                    "maxReplicas": 5,
                    "metrics": [metric],
                },
            },
            "scale": {"spec": {"replicas": 3}, "status": {"replicas": 4, "selector": selector}},
            "pods": pods,
            "metrics": lists,
        }
    )
    return readings.observe(evaluate_document.read_json(text.encode()))


def _reading(metric: dict[str, Any], **lists: Any) -> Reading:
    (found,) = _observe(metric, **lists).readings
    return found


def test_sees_the_scale_and_the_pods_of_its_selector() -> None:
    seen = _observe(cpu_metric())

    assert (seen.replicas, seen.status_replicas, seen.selector, seen.status) == (3, 4, "app=web", NO_STATUS)
    assert [pod.name for pod in seen.pods] == ["a", "b"]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("app=web", ["a", "b"]),
        ("app==other", ["x"]),
        ("app in (web,other)", ["a", "b", "x"]),
        ("app=web,app=other", []),
        ("!app", []),
        ("", []),
        ("a b", []),
    ],
)
def test_selects_pods(selector: str, names: list[str]) -> None:
    assert [pod.name for pod in _observe(cpu_metric(), selector).pods] == names


def test_pods_of_other_namespaces_are_not_seen() -> None:
    listed = [_pod("a"), _pod("b", namespace="team"), _pod("c", namespace="other")]

    assert [pod.name for pod in _observe(cpu_metric(), pods=listed).pods] == ["a", "b"]


def test_samples_of_pods_of_other_namespaces_are_not_theirs() -> None:
    used = [
        _used("a", ("app", {"cpu": "1"})),
        _used("b", ("app", {"cpu": "2"}), metadata={"name": "b", "namespace": "team"}),
        _used("a", ("app", {"cpu": "9"}), metadata={"name": "a", "namespace": "other"}),
    ]
    custom = [_custom("a", "load", "1"), _custom("b", "load", "2"), _custom("a", "load", "9")]
    for item, namespace in zip(custom, ("", "team", "other"), strict=True):
        item["describedObject"]["namespace"] = namespace

    resource, pods = _reading(cpu_metric(), resource=used), _reading(pods_metric(), custom=custom)

    assert isinstance(resource, PodsReading)
    assert isinstance(pods, PodsReading)
    assert resource.values == pods.values == {"a": 1000, "b": 2000}


# --- resources ---------------------------------------------------------------------------------------------


_TAKEN = (read_instant("2026-11-20T12:00:00Z"), 30 * SECOND)


@pytest.mark.parametrize(
    ("items", "values"),
    [
        pytest.param(
            [_used("a", ("app", {"cpu": "100m"}), ("log", {"cpu": "1500u"}))],
            {"a": 102},
            id="containers add up",
        ),
        pytest.param([_used("a", ("app", {"cpu": "1"}), ("log", {}))], {}, id="one lacks the resource"),
        pytest.param([_used("a", ("app", {"cpu": "1"}), ("log", {"memory": "1"}))], {}, id="and has another"),
        pytest.param([_used("a")], {}, id="no containers"),
        pytest.param(
            [_used("a", ("app", {"cpu": "1"})), _used("b", ("app", {"cpu": "2"}))],
            {"a": 1000, "b": 2000},
            id="both pods",
        ),
        pytest.param(
            [_used("a", ("app", {"cpu": "1"})), _used("x", ("app", {"cpu": "2"}))],
            {"a": 1000},
            id="of another app",
        ),
        pytest.param(
            [_used("a", ("app", {"cpu": "1"})), _used("a", ("app", {"cpu": "2"})), _used("a")],
            {"a": 2000},
            id="the last counts",
        ),
    ],
)
def test_resources(items: list[dict[str, Any]], values: dict[str, int]) -> None:
    assert _reading(cpu_metric(), resource=items) == PodsReading(values, dict.fromkeys(values, _TAKEN))


@pytest.mark.parametrize(
    ("items", "values"),
    [
        pytest.param(
            [_used("a", ("log", {"cpu": "5"}), ("app", {"cpu": "1"}))], {"a": 1000}, id="the named one"
        ),
        pytest.param(
            [_used("a", ("app", {"cpu": "1"}), ("app", {"cpu": "2"}))],
            {"a": 1000},
            id="the first of that name",
        ),
        pytest.param([_used("a", ("app", {}), ("app", {"cpu": "2"}))], {}, id="which lacks the resource"),
        pytest.param([_used("a", ("log", {"cpu": "1"}))], {}, id="not there"),
    ],
)
def test_containers(items: list[dict[str, Any]], values: dict[str, int]) -> None:
    found = _reading(_BOX, resource=items)

    assert isinstance(found, PodsReading)
    assert found.values == values


@pytest.mark.parametrize(
    "items", [[], [_used("x", ("app", {"cpu": "1"}))], [_used("unknown", ("app", {"cpu": "1"}))]]
)
@pytest.mark.parametrize("metric", [cpu_metric(), _BOX], ids=["Resource", "ContainerResource"])
def test_no_resources(metric: dict[str, Any], items: list[dict[str, Any]]) -> None:
    assert _reading(metric, resource=items) == _NO_RESOURCE


def test_a_sample_without_time_or_window() -> None:
    bare = {
        "metadata": {"name": "a"},
        "containers": [{"name": "app", "usage": {"cpu": "1"}}, {"name": "log"}],
    }
    timed = {
        "metadata": {"name": "a"},
        "containers": [{"name": "app", "usage": {"cpu": "1"}}],
        "timestamp": None,
    }

    assert _reading(cpu_metric(), resource=[bare]) == PodsReading({}, {})
    assert _reading(cpu_metric(), resource=[timed]) == PodsReading({"a": 1000}, {"a": (NEVER, 0)})


# --- custom and external -----------------------------------------------------------------------------------


def test_pods_metrics() -> None:
    items = [
        _custom("a", "load", "1"),
        _custom("b", "other", "2"),
        _custom("x", "load", "3"),
        _custom("unknown", "load", "4"),
        _custom("b", "load", "5", kind="Ingress"),
    ]

    assert _reading(pods_metric(), custom=items) == PodsReading({"a": 1000})
    assert _reading(pods_metric(), custom=[*items, _custom("a", "load", "7")]) == PodsReading({"a": 7000})
    assert _reading(pods_metric(), custom=items[1:]) == _NO_CUSTOM
    assert _reading(pods_metric()) == _NO_CUSTOM


def test_object_metrics() -> None:
    items = [
        _custom("other", "hits", "1", kind="Ingress"),
        _custom("main", "misses", "2", kind="Ingress"),
        _custom("main", "hits", "3", kind="Pod"),
        _custom("main", "hits", "4", kind="Service"),
        _custom("main", "hits", "5", kind="Ingress"),
    ]

    assert _reading(object_metric("Value", value="1"), custom=items) == ObjectReading(4000)


@pytest.mark.parametrize(
    ("kind", "version", "resource"),
    [
        ("Ingress", "networking.k8s.io/v1", "ingresses.networking.k8s.io"),
        ("Service", "v1", "services"),
        ("Service", "", "services"),
        ("Deployment", "apps/v1", "deployments.apps"),
        ("Gateway", "gateway.example.com/v1", "gateways.gateway.example.com"),
        ("Proxy", "example.com/v1", "proxies.example.com"),
        ("Bus", "example.com/v1", "buses.example.com"),
    ],
)
def test_an_object_without_value(kind: str, version: str, resource: str) -> None:
    metric = object_metric("Value", value="1")
    metric["object"]["describedObject"] = {"kind": kind, "name": "main", "apiVersion": version}

    assert _reading(metric) == Unavailable(
        "NotFound",
        "unable to fetch metrics from custom metrics API: "
        f"the server could not find the metric hits for {resource} main",
    )


@pytest.mark.parametrize(
    ("version", "name"),
    [("v1", "team"), ("", "team"), ("example.com/v1", "elsewhere")],
    ids=["core", "none", "other group"],
)
def test_a_core_namespace_is_the_autoscalers_own(version: str, name: str) -> None:
    metric = object_metric("Value", value="1")
    metric["object"]["describedObject"] = {"kind": "Namespace", "name": "elsewhere", "apiVersion": version}
    items = [
        _custom("elsewhere", "hits", "1", kind="Namespace"),
        _custom("team", "hits", "2", kind="Namespace"),
    ]

    assert _reading(metric, custom=items) == ObjectReading(2000 if name == "team" else 1000)
    missing = _reading(metric)
    assert isinstance(missing, Unavailable)
    assert missing.message.endswith(f" {name}")


def test_external_metrics() -> None:
    items = [
        {"metricName": "Queue", "metricLabels": {"q": "jobs"}, "value": "1"},
        {"metricName": "queue", "metricLabels": {"q": "mail"}, "value": "2"},
        {"metricName": "queue", "value": "3"},
        {"metricName": "other", "value": "4"},
    ]
    metric = external_metric("QUEUE", value="1")

    assert _reading(metric, external=items) == ExternalReading([1000, 2000, 3000])
    metric["external"]["metric"]["selector"] = {"matchLabels": {"q": "jobs"}}
    assert _reading(metric, external=items) == ExternalReading([1000])
    metric["external"]["metric"]["selector"] = {
        "matchExpressions": [{"key": "q", "operator": "NotIn", "values": ["mail"]}]
    }
    assert _reading(metric, external=items) == ExternalReading([1000, 3000])
    metric["external"]["metric"]["selector"] = {"matchLabels": {"q": "none"}}
    assert _reading(metric, external=items) == _NO_EXTERNAL
    metric["external"]["metric"]["selector"] = {"matchExpressions": [{"key": "q", "operator": "Like"}]}
    assert _reading(metric, external=items) == Unavailable(
        "InvalidSelector", '"Like" is not a valid label selector operator'
    )
