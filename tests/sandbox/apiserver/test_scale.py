"""Scale, managedFields, Leases, Events and custom kinds with status and scale, as an autoscaler uses them."""

from typing import Any

import aiohttp

from fastpath_sandbox.apiserver.kinds import FASTPATH_AUTOSCALERS
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment

JSON = dict[str, Any]
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"
AUTOSCALERS = "/apis/fastpath.io/v1alpha1/namespaces/default/fastpathautoscalers"
MERGE = {"Content-Type": "application/merge-patch+json"}


async def ask(http: aiohttp.ClientSession, method: str, path: str, **options: Any) -> tuple[int, Any]:
    async with http.request(method, path, **options) as response:
        return response.status, await response.json()


def autoscaler(name: str) -> JSON:
    return {
        "kind": "FastPathAutoscaler",
        "apiVersion": "fastpath.io/v1alpha1",
        "metadata": {"name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": 9,
        },
    }


def replicas_owner(document: JSON) -> JSON:
    (entry,) = document["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    assert (entry["fieldsType"], entry["apiVersion"]) == ("FieldsV1", "apps/v1")
    return {field: entry.get(field) for field in ("manager", "operation", "subresource")}


async def test_who_wrote_the_replicas(http: aiohttp.ClientSession, cluster: Cluster) -> None:
    made = cluster.create(deployment("web", replicas=2), manager="helm")
    assert replicas_owner(made) == {"manager": "helm", "operation": "Update", "subresource": None}
    assert made["metadata"]["managedFields"][0]["time"] == "2026-01-01T00:00:00Z"
    await ask(http, "PUT", f"{DEPLOYMENT}/scale?fieldManager=fastpath", json={"spec": {"replicas": 5}})
    ours = {"manager": "fastpath", "operation": "Update", "subresource": "scale"}
    assert replicas_owner(cluster.get("deployments", "web")) == ours
    cluster.patch(
        "deployments", "web", {"spec": {"paused": True}, "status": {"replicas": 5}}, manager="other"
    )
    assert replicas_owner(cluster.get("deployments", "web")) == ours, (
        "a writer that keeps the replicas does not own them"
    )
    headers = MERGE | {"User-Agent": "kubectl/v1.36.0 (linux/amd64)"}
    await ask(http, "PATCH", DEPLOYMENT, data='{"spec":{"replicas":7}}', headers=headers)
    assert replicas_owner(cluster.get("deployments", "web"))["manager"] == "kubectl"
    applied = {"Content-Type": "application/apply-patch+yaml"}
    await ask(http, "PATCH", f"{DEPLOYMENT}?fieldManager=argocd", data="spec: {replicas: 2}", headers=applied)
    owner = replicas_owner(cluster.get("deployments", "web"))
    assert owner == {"manager": "argocd", "operation": "Apply", "subresource": None}
    _, scale = await ask(http, "GET", f"{DEPLOYMENT}/scale")
    assert "managedFields" not in scale["metadata"]


async def test_a_client_does_not_set_managed_fields(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    made = cluster.create(deployment("web"), manager="helm")
    made["metadata"]["managedFields"] = []
    await ask(http, "PUT", DEPLOYMENT, json=made)
    assert replicas_owner(cluster.get("deployments", "web"))["manager"] == "helm"


async def test_the_controllers_sign_their_writes(cluster: Cluster) -> None:
    cluster.create(deployment("web", replicas=2), manager="helm")
    workloads = Workloads(cluster, startup=0.0, address=lambda number: f"127.1.0.{number}")
    workloads.step(EPOCH)
    (replica_set,) = cluster.list("replicasets")
    assert replicas_owner(replica_set)["manager"] == "kube-controller-manager"
    assert replicas_owner(cluster.get("deployments", "web"))["manager"] == "helm"
    addresses = {pod["status"]["podIP"] for pod in cluster.list("pods")}
    assert len(addresses) == 2
    assert all(address.startswith("127.1.0.") for address in addresses)


async def test_a_changed_definition_keeps_the_objects(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    made = cluster.create(FASTPATH_AUTOSCALERS)
    cluster.create(autoscaler("web"))
    made["spec"]["names"]["shortNames"] = ["fp"]
    cluster.update(made)
    assert [each["metadata"]["name"] for each in cluster.list("fp")] == ["web"]
    assert (await ask(http, "GET", f"{AUTOSCALERS}/web"))[0] == 200
