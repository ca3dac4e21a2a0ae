"""What an autoscaler asks for that its target and its pods can never give: each cause, and its neighbors."""

from typing import Any

import msgspec
import pytest

from adapter.model.autoscaling.hpa import HorizontalPodAutoscaler, decode_scalar
from adapter.model.quantity import Quantity, parse_quantity
from fastpath_tools.live import impossible
from fastpath_tools.live.facts import ContainerFacts, TargetFacts, Unread


def container(name: str, *, limits: str = "", **requests: str) -> ContainerFacts:
    read: dict[str, Quantity] = {resource: parse_quantity(text) for resource, text in requests.items()}
    return ContainerFacts(name, read, {"cpu": parse_quantity(limits)} if limits else {})


APP, SIDE = container("app", cpu="100m", memory="64Mi"), container("proxy")
TARGET = TargetFacts(4, "app=web", ("a", "b"), containers=(APP,))


def resource(name: str = "cpu", container: str = "", **target: Any) -> dict[str, Any]:
    target = target or {"type": "Utilization", "averageUtilization": 80}
    if container:
        source = {"name": name, "container": container, "target": target}
        return {"type": "ContainerResource", "containerResource": source}
    return {"type": "Resource", "resource": {"name": name, "target": target}}


def hpa(*metrics: dict[str, Any], kind: str = "Deployment", **spec: Any) -> HorizontalPodAutoscaler:
    target = {"apiVersion": "apps/v1", "kind": kind, "name": "web"}
    document = {"metrics": list(metrics), "maxReplicas": 8, "scaleTargetRef": target} | spec
    return msgspec.convert({"spec": document}, HorizontalPodAutoscaler, dec_hook=decode_scalar)


LOAD = {
    "type": "Pods",
    "pods": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
AVERAGE = {"type": "AverageValue", "averageValue": "100m"}


@pytest.mark.parametrize(
    ("autoscaler", "changes", "text", "change"),
    [
        pytest.param(
            hpa(LOAD, kind="ReplicaSet"),
            {"owner": "Deployment web"},
            "ReplicaSet web belongs to Deployment web, which sets its count",
            "name Deployment web in spec.scaleTargetRef",
            id="a set of a Deployment",
        ),
        pytest.param(
            hpa(LOAD, kind="Database"),
            {"selector": ""},
            "the Scale of Database web has no selector, so its pods are not known",
            "have the kind Database set status.selector of its Scale",
            id="no selector",
        ),
    ],
)
def test_a_cause_that_a_cluster_seldom_shows(
    autoscaler: HorizontalPodAutoscaler, changes: dict[str, Any], text: str, change: str
) -> None:
    """All others: tests/golden/doctor/impossible."""
    assert impossible.find(autoscaler, TARGET._replace(**changes)) == (text, change)


def test_a_target_that_is_not_there() -> None:
    gone = Unread("Deployment web does not exist", "correct spec.scaleTargetRef, or create Deployment web")
    assert impossible.find(hpa(LOAD), gone) == tuple(gone)
    assert impossible.find(hpa(LOAD), Unread("forbidden")) is None


@pytest.mark.parametrize(
    ("autoscaler", "changes"),
    [
        (hpa(LOAD), {"containers": (SIDE,)}),
        (hpa(resource(container="app")), {"containers": (APP, SIDE)}),
        (hpa(resource(container="wep")), {"containers": ()}),
        (hpa(resource("memory", **AVERAGE)), {"containers": (SIDE,)}),
        (hpa(resource()), {"containers": (container("app", cpu="500m", limits="500m"),)}),
        (hpa(resource(averageUtilization=95, type="Utilization")), {"containers": (APP,)}),
        (hpa(LOAD, kind="StatefulSet"), {"owner": "Database web"}),
        (hpa(LOAD, minReplicas=8), {}),
    ],
    ids=[
        "pods",
        "a container with a request",
        "no pod is known",
        "an average without limits",
        "a target below the limits",
        "no limits",
        "an operator's set",
        "equal bounds",
    ],
)
def test_what_is_possible(autoscaler: HorizontalPodAutoscaler, changes: dict[str, Any]) -> None:
    assert impossible.find(autoscaler, TARGET._replace(**changes)) is None
