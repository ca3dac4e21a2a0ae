import json
from typing import Any

import pytest

from adapter.autoscaler.decide import observation
from fastpath_tools import evaluate_document
from fastpath_tools import evaluate_document as readings
from tests.support.answers import answers
from tests.support.scaling import cpu_metric, external_metric, object_metric, pods_metric

_NO_EXTERNAL = observation.Unavailable("NoMetrics", "no metrics returned from external metrics API")


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
) -> observation.Observation:
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


def _reading(metric: dict[str, Any], **lists: Any) -> observation.Reading:
    (found,) = _observe(metric, **lists).readings
    return found


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

    assert isinstance(resource, observation.PodsReading)
    assert isinstance(pods, observation.PodsReading)
    assert resource.values == pods.values == {"a": 1000, "b": 2000}


# --- custom and external -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "version", "resource"), answers("tools/evaluate_readings", "objects"))
def test_an_object_without_value(kind: str, version: str, resource: str) -> None:
    metric = object_metric("Value", value="1")
    metric["object"]["describedObject"] = {"kind": kind, "name": "main", "apiVersion": version}

    assert _reading(metric) == observation.Unavailable(
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

    assert _reading(metric, custom=items) == observation.ObjectReading(2000 if name == "team" else 1000)
    missing = _reading(metric)
    assert isinstance(missing, observation.Unavailable)
    assert missing.message.endswith(f" {name}")


def test_external_metrics() -> None:
    items = [
        {"metricName": "Queue", "metricLabels": {"q": "jobs"}, "value": "1"},
        {"metricName": "queue", "metricLabels": {"q": "mail"}, "value": "2"},
        {"metricName": "queue", "value": "3"},
        {"metricName": "other", "value": "4"},
    ]
    metric = external_metric("QUEUE", value="1")

    assert _reading(metric, external=items) == observation.ExternalReading([1000, 2000, 3000])
    metric["external"]["metric"]["selector"] = {"matchLabels": {"q": "jobs"}}
    assert _reading(metric, external=items) == observation.ExternalReading([1000])
    metric["external"]["metric"]["selector"] = {
        "matchExpressions": [{"key": "q", "operator": "NotIn", "values": ["mail"]}]
    }
    assert _reading(metric, external=items) == observation.ExternalReading([1000, 3000])
    metric["external"]["metric"]["selector"] = {"matchLabels": {"q": "none"}}
    assert _reading(metric, external=items) == _NO_EXTERNAL
    metric["external"]["metric"]["selector"] = {"matchExpressions": [{"key": "q", "operator": "Like"}]}
    assert _reading(metric, external=items) == observation.Unavailable(
        "InvalidSelector", '"Like" is not a valid label selector operator'
    )
