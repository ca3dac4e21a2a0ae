"""What tests of `fastpath doctor` put into a cluster, and the command as they run it."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from adapter.model.autoscaling import fastpath_autoscaler
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import deployment
from fastpath_tools.doctor.hops import BoostOffer, Facts
from fastpath_tools.live.facts import Leaders, Period, Unread
from tests.support.objects import api_service
from tests.support.verbs import Verb

REQUESTS: dict[str, Any] = {
    "type": "Pods",
    "pods": {
        "metric": {"name": "http_requests_per_second"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}
CPU: dict[str, Any] = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}
HANDSHAKE: dict[str, Any] = {
    "type": "External",
    "external": {
        "metric": {"name": "fastpath_replicas", "selector": {"matchLabels": {"autoscaler": "web"}}},
        "target": {"type": "AverageValue", "averageValue": "1"},
    },
}


def hpa(name: str, *metrics: dict[str, Any], mode: str = "", **metadata: Any) -> dict[str, Any]:
    """Return an HPA of Deployment web in namespace shop, with which all is well."""
    annotations = {"annotations": {"fastpath.io/mode": mode}} if mode else {}
    conditions = {"AbleToScale": "ReadyForNewScale", "ScalingActive": "ValidMetricFound"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop", **annotations, **metadata},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 8,
            "metrics": list(metrics),
        },
        "status": {
            "conditions": [
                {"type": kind, "status": "True", "reason": reason} for kind, reason in conditions.items()
            ]
        },
    }


def fast_facts(fpa: fastpath_autoscaler.FastPathAutoscaler, leaders: Leaders, **changes: Any) -> Facts:
    """Return the facts of a FastPathAutoscaler whose target is not read."""
    hpa = replace(
        fastpath_autoscaler.native(fpa),
        status=fastpath_autoscaler.plain_status(fpa.status or fastpath_autoscaler.FastPathAutoscalerStatus()),
    )
    known = Facts(hpa, Unread("it is not read"), (), Period(1.0, "Fastpath"), 0.0, 0)
    return known._replace(offer=BoostOffer(leaders, ()), **changes)


def web(replicas: int) -> dict[str, Any]:
    """Return Deployment shop/web, whose container has the requests that utilizations are shares of."""
    document = deployment("web", "shop", replicas)
    [container] = document["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"requests": {"cpu": "100m", "memory": "64Mi"}}
    return document


def register(cluster: Cluster, name: str, service: dict[str, Any], authority: bytes = b"") -> None:
    """Create an available APIService; `authority` is its caBundle."""
    status = {"conditions": [{"type": "Available", "status": "True", "reason": "Passed"}]}
    cluster.create(api_service(name, service, authority) | {"status": status})


class Doctor(Verb):
    """Runs `fastpath doctor`."""

    def __init__(self, kubeconfig: Path, capsys: pytest.CaptureFixture[str]) -> None:
        super().__init__("doctor", kubeconfig, capsys)

    async def hops(self, *arguments: str) -> dict[str, Any]:
        """Return the hops of shop/web by name; of several metrics the last one's."""
        found = (await self("shop/web", "-o", "json", *arguments)).document
        metrics = (hop for each in found["metrics"] for hop in each["hops"])
        return {each["hop"]: each for each in (*found["before"], *metrics, *found["after"])}
