"""Scale, managedFields, Leases, Events and custom kinds with status and scale, as an autoscaler uses them."""

from typing import Any

import aiohttp
import pytest

from fastpath_sandbox.apiserver.kinds import FASTPATH_AUTOSCALERS, ScalePaths, definition
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.status import StatusFailure
from fastpath_sandbox.apiserver.workloads import Workloads, deployment

JSON = dict[str, Any]
DEPLOYMENT = "/apis/apps/v1/namespaces/default/deployments/web"
AUTOSCALERS = "/apis/fastpath.io/v1alpha1/namespaces/default/fastpathautoscalers"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
EVENTS = "/api/v1/namespaces/default/events"
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


# Scale


# ManagedFields


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


# Custom kinds


async def test_fastpath_autoscalers(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    async with http.get(AUTOSCALERS) as response:
        assert response.status == 404
    cluster.create(FASTPATH_AUTOSCALERS)
    status, made = await ask(
        http, "POST", AUTOSCALERS, json=autoscaler("web") | {"status": {"currentReplicas": 1}}
    )
    assert status == 201
    assert "status" not in made
    patch = '{"status":{"currentReplicas":3},"spec":{"maxReplicas":1}}'
    status, patched = await ask(http, "PATCH", f"{AUTOSCALERS}/web/status", data=patch, headers=MERGE)
    assert (status, patched["status"], patched["spec"]) == (200, {"currentReplicas": 3}, made["spec"])
    assert patched["metadata"]["generation"] == 1
    status, put = await ask(
        http, "PUT", f"{AUTOSCALERS}/web/status", json=patched | {"status": {"currentReplicas": 4}}
    )
    assert (status, put["status"]) == (200, {"currentReplicas": 4})
    assert (await ask(http, "PUT", f"{AUTOSCALERS}/web/status", json=patched))[0] == 409
    status, changed = await ask(
        http, "PUT", f"{AUTOSCALERS}/web", json=put | {"spec": put["spec"] | {"maxReplicas": 5}}
    )
    assert (changed["metadata"]["generation"], changed["status"]) == (2, {"currentReplicas": 4})
    del changed["metadata"]["resourceVersion"]
    assert (await ask(http, "PUT", f"{AUTOSCALERS}/web", json=changed))[0] == 422


async def test_a_definition_over_http(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    paths = ScalePaths(".spec.size.wanted", ".status.size", ".status.labels")
    widgets = definition("example.com", "v1", "widgets", "Widget", scale=paths)
    status, made = await ask(http, "POST", DEFINITIONS, json=widgets)
    assert status == 201
    assert [condition["type"] for condition in made["status"]["conditions"]] == [
        "NamesAccepted",
        "Established",
    ]
    _, resources = await ask(http, "GET", "/apis/example.com/v1")
    assert [each["name"] for each in resources["resources"]] == ["widgets", "widgets/scale", "widgets/status"]
    widget: JSON = {"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w"}}
    cluster.create(widget | {"spec": {"size": {"wanted": 2}}, "status": {"size": 1, "labels": "app=w"}})
    path = "/apis/example.com/v1/namespaces/default/widgets/w"
    _, scale = await ask(http, "GET", f"{path}/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "app=w"})
    assert (await ask(http, "PUT", f"{path}/scale?fieldManager=me", json=scale | {"spec": {"replicas": 6}}))[
        0
    ] == 200
    written = cluster.get("widgets", "w")
    assert (written["spec"], written["metadata"]["generation"]) == ({"size": {"wanted": 6}}, 2)
    (entry,) = written["metadata"]["managedFields"]
    assert (entry["manager"], entry["fieldsV1"]) == ("me", {"f:spec": {"f:size": {"f:wanted": {}}}})
    assert (await ask(http, "DELETE", f"{DEFINITIONS}/widgets.example.com"))[0] == 200
    async with http.get(path) as response:
        assert response.status == 404
    assert list(cluster.store.records(("example.com", "widgets"))) == []


async def test_a_custom_scale_without_its_field(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(definition("example.com", "v1", "widgets", "Widget", scale=ScalePaths()))
    cluster.create({"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w"}})
    status, answer = await ask(http, "GET", "/apis/example.com/v1/namespaces/default/widgets/w/scale")
    assert status == 500
    assert answer["message"].endswith('the spec replicas field ".spec.replicas" does not exist')


async def test_a_changed_definition_keeps_the_objects(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    made = cluster.create(FASTPATH_AUTOSCALERS)
    cluster.create(autoscaler("web"))
    made["spec"]["names"]["shortNames"] = ["fp"]
    cluster.update(made)
    assert [each["metadata"]["name"] for each in cluster.list("fp")] == ["web"]
    assert (await ask(http, "GET", f"{AUTOSCALERS}/web"))[0] == 200


@pytest.mark.parametrize(
    ("change", "code", "part"),
    [
        ({"spec": {"group": ""}}, 422, "spec.group: Required value"),
        ({"spec": {"versions": []}}, 422, "spec.versions: Required value"),
        ({"metadata": {"name": "other.example.com"}}, 422, 'must be spec.names.plural+"."+spec.group'),
        (
            {"spec": {"versions": [{"name": "v1", "served": True}, {"name": "v2", "served": True}]}},
            501,
            "sandbox: serving a custom kind in several versions is not implemented",
        ),
    ],
)
async def test_definitions_that_are_refused(cluster: Cluster, change: JSON, code: int, part: str) -> None:
    refused = definition("example.com", "v1", "widgets", "Widget")
    for field, values in change.items():
        refused[field] = refused[field] | values
    with pytest.raises(StatusFailure) as failure:
        cluster.create(refused)
    assert failure.value.code == code
    assert part in failure.value.message


# Events and Leases


def event(name: str, namespace: str) -> JSON:
    involved = {
        "kind": "FastPathAutoscaler",
        "namespace": namespace,
        "name": "web",
        "apiVersion": "fastpath.io/v1alpha1",
    }
    return {"metadata": {"name": name}, "involvedObject": involved, "reason": "SuccessfulRescale", "count": 1}


async def test_events_are_counted_up_by_patch(http: aiohttp.ClientSession) -> None:
    assert (await ask(http, "POST", EVENTS, json=event("web.1", "default")))[0] == 201
    strategic = {"Content-Type": "application/strategic-merge-patch+json"}
    status, counted = await ask(http, "PATCH", f"{EVENTS}/web.1", data='{"count":2}', headers=strategic)
    assert (status, counted["count"], counted["reason"]) == (200, 2, "SuccessfulRescale")
    assert (await ask(http, "PATCH", f"{EVENTS}/web.2", data='{"count":2}', headers=strategic))[0] == 404
    status, answer = await ask(http, "POST", EVENTS, json=event("web.3", "other"))
    assert status == 422
    assert (
        'involvedObject.namespace: Invalid value: "other": does not match event.namespace'
        in answer["message"]
    )


# What goes wrong
