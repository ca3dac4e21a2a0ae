"""The sandbox cluster over real HTTP: what a client meets."""

import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.reviews import AccessReviewVerdict, TokenVerdict
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.status import StatusFailure
from tests.support.tls import Authority

PARTIAL_LIST = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
JSON = dict[str, Any]
NO_METHOD = "the server does not allow this method on the requested resource"


def pod(name: str, namespace: str = "default", **labels: str) -> JSON:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
        "status": {"phase": "Running"},
    }


def deployment(name: str, replicas: int | None = None) -> JSON:
    spec: JSON = {"selector": {"matchLabels": {"app": name}}}
    if replicas is not None:
        spec["replicas"] = replicas
    return {"kind": "Deployment", "apiVersion": "apps/v1", "metadata": {"name": name}, "spec": spec}


def lease(name: str, **spec: Any) -> JSON:
    return {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": {"name": name}, "spec": spec}


async def ask(http: aiohttp.ClientSession, method: str, path: str, **options: Any) -> tuple[int, Any]:
    async with http.request(method, path, **options) as response:
        assert response.content_type == "application/json", await response.text()
        return response.status, await response.json()


async def names(http: aiohttp.ClientSession, path: str, **query: str) -> list[str]:
    status, body = await ask(http, "GET", path, params=query)
    assert status == 200, body
    return [item["metadata"]["name"] for item in body["items"]]


async def test_create_and_get(http: aiohttp.ClientSession) -> None:
    status, made = await ask(http, "POST", PODS, json=pod("a", app="x"))
    assert status == 201
    assert made["status"] == {"phase": "Pending"}  # a client does not set the status
    metadata = made["metadata"]
    assert metadata["namespace"] == "default"
    assert metadata["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert metadata["generation"] == 1
    assert metadata["resourceVersion"] == "3"  # behind the two namespaces
    assert len(metadata["uid"]) == 36
    assert await ask(http, "GET", f"{PODS}/a") == (200, made)


async def test_generated_names_differ(http: aiohttp.ClientSession) -> None:
    body = {"metadata": {"generateName": "web-"}, "spec": {}}
    made = [(await ask(http, "POST", PODS, json=body))[1]["metadata"]["name"] for _ in range(3)]
    assert len(set(made)) == 3
    assert all(name.startswith("web-") and len(name) == 9 for name in made)


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "reason", "message"),
    [
        ("GET", f"{PODS}/x", None, 404, "NotFound", 'pods "x" not found'),
        ("GET", f"{DEPLOYMENTS}/x", None, 404, "NotFound", 'deployments.apps "x" not found'),
        ("DELETE", f"{PODS}/x", None, 404, "NotFound", 'pods "x" not found'),
        ("PUT", f"{PODS}/x", pod("x"), 404, "NotFound", 'pods "x" not found'),
        ("POST", PODS, pod("taken"), 409, "AlreadyExists", 'pods "taken" already exists'),
        ("POST", "/api/v1/namespaces/no/pods", pod("x", "no"), 404, "NotFound", 'namespaces "no" not found'),
        (
            "PUT",
            f"{PODS}/taken",
            pod("taken") | {"metadata": {"name": "taken", "resourceVersion": "1"}},
            409,
            "Conflict",
            (
                'Operation cannot be fulfilled on pods "taken": the object has been modified; '
                "please apply your changes to the latest version and try again"
            ),
        ),
        (
            "PUT",
            f"{PODS}/taken",
            pod("other"),
            400,
            "BadRequest",
            "the name of the object (other) does not match the name on the URL (taken)",
        ),
        (
            "POST",
            PODS,
            pod("x", "kube-system"),
            400,
            "BadRequest",
            "the namespace of the provided object does not match the namespace sent on the request",
        ),
        (
            "POST",
            PODS,
            {"metadata": {}},
            422,
            "Invalid",
            'Pod "" is invalid: metadata.name: Required value: name or generateName is required',
        ),
        ("POST", "/api/v1/pods", pod("x"), 405, "MethodNotAllowed", NO_METHOD),
        ("DELETE", "/api/v1/pods", None, 405, "MethodNotAllowed", NO_METHOD),
        ("PUT", PODS, pod("x"), 405, "MethodNotAllowed", NO_METHOD),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews", None, 405, "MethodNotAllowed", NO_METHOD),
        (
            "GET",
            f"{PODS}?resourceVersion=x",
            None,
            400,
            "BadRequest",
            'resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax',
        ),
        (
            "GET",
            f"{PODS}?resourceVersion=999",
            None,
            504,
            "Timeout",
            "Timeout: Too large resource version: 999, current: 3",
        ),
        (
            "GET",
            f"{PODS}?continue=x",
            None,
            400,
            "BadRequest",
            "continue key is not valid: it is not one that a list of this server gave",
        ),
        (
            "PUT",
            f"{LEASES}/held",
            lease("held"),
            422,
            "Invalid",
            (
                'leases.coordination.k8s.io "held" is invalid: '
                'metadata.resourceVersion: Invalid value: "": must be specified for an update'
            ),
        ),
        (
            "GET",
            "/apis/autoscaling/v1/horizontalpodautoscalers",
            None,
            501,
            "NotImplemented",
            (
                "sandbox: conversion to autoscaling/v1 HorizontalPodAutoscaler is not implemented: "
                "ask for the preferred version of its group"
            ),
        ),
    ],
)
async def test_refusals(
    cluster: Cluster,
    http: aiohttp.ClientSession,
    method: str,
    path: str,
    body: JSON | None,
    code: int,
    reason: str,
    message: str,
) -> None:
    cluster.create(pod("taken"))
    if path.startswith(LEASES):
        cluster.create(lease("held"))
    status, answer = await ask(http, method, path, json=body)
    assert (status, answer["kind"], answer["status"], answer["code"]) == (code, "Status", "Failure", code)
    assert (answer["reason"], answer["message"]) == (reason, message)


@pytest.mark.parametrize(
    "path", ["/nothing", "/apis/none.io/v1/things", "/api/v1/things", f"{PODS}/a/log", "/api/v2"]
)
async def test_unknown_paths_are_plain_text(cluster: Cluster, http: aiohttp.ClientSession, path: str) -> None:
    cluster.create(pod("a"))
    async with http.get(path) as response:
        assert (response.status, await response.text()) == (404, "404 page not found\n")


async def test_put_replaces_all_but_the_status(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    old = cluster.create(pod("a", app="x"))
    changed = old | {"spec": {"containers": []}, "status": {"phase": "Failed"}}
    status, new = await ask(http, "PUT", f"{PODS}/a", json=changed)
    assert status == 200
    assert new["spec"] == {"containers": []}
    assert new["status"] == {"phase": "Running"}
    assert new["metadata"]["generation"] == 2
    assert int(new["metadata"]["resourceVersion"]) > int(old["metadata"]["resourceVersion"])
    assert new["metadata"]["uid"] == old["metadata"]["uid"]


async def test_put_of_a_status_leaves_the_spec(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    old = cluster.create(pod("a"))
    status, new = await ask(
        http, "PUT", f"{PODS}/a/status", json=old | {"spec": {}, "status": {"phase": "Failed"}}
    )
    assert status == 200
    assert (new["spec"], new["status"]) == (old["spec"], {"phase": "Failed"})
    assert new["metadata"]["generation"] == 1


async def test_a_write_that_changes_nothing_makes_no_version(
    cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    old = cluster.create(pod("a"))
    assert await ask(http, "PUT", f"{PODS}/a", json=old) == (200, old)
    assert cluster.store.version == int(old["metadata"]["resourceVersion"])


@pytest.mark.parametrize(
    ("media", "patch"),
    [
        ("application/merge-patch+json", '{"metadata":{"labels":{"b":"2"}}}'),
        ("application/strategic-merge-patch+json", '{"metadata":{"labels":{"b":"2"}}}'),
        ("application/json-patch+json", '[{"op":"add","path":"/metadata/labels/b","value":"2"}]'),
        ("application/apply-patch+yaml", "metadata:\n  labels:\n    b: '2'\n"),
    ],
)
async def test_patch(cluster: Cluster, http: aiohttp.ClientSession, media: str, patch: str) -> None:
    cluster.create(pod("a", a="1"))
    options: JSON = {"data": patch, "headers": {"Content-Type": media}, "params": {"fieldManager": "test"}}
    status, new = await ask(http, "PATCH", f"{PODS}/a", **options)
    assert status == 200
    assert new["metadata"]["labels"] == {"a": "1", "b": "2"}
    status, missing = await ask(http, "PATCH", f"{PODS}/b", **options)
    assert status == (201 if media == "application/apply-patch+yaml" else 404), missing


@pytest.mark.parametrize(
    ("method", "media", "accepted"),
    [
        (
            "PATCH",
            "application/json",
            (
                "application/json-patch+json, application/merge-patch+json, "
                "application/strategic-merge-patch+json, application/apply-patch+yaml"
            ),
        ),
        ("PUT", "text/plain", "application/json, application/yaml"),
    ],
)
async def test_media_types_that_are_not_read(
    cluster: Cluster, http: aiohttp.ClientSession, method: str, media: str, accepted: str
) -> None:
    cluster.create(pod("a"))
    status, answer = await ask(http, method, f"{PODS}/a", data="{}", headers={"Content-Type": media})
    assert (status, answer["reason"]) == (415, "UnsupportedMediaType")
    assert (
        answer["message"]
        == f"the body of the request was in an unknown format - accepted media types include: {accepted}"
    )


async def test_apply_needs_a_field_manager(http: aiohttp.ClientSession) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    status, answer = await ask(http, "PATCH", f"{PODS}/a", data="{}", headers=headers)
    assert status == 422
    assert (
        answer["message"]
        == 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
    )


@pytest.mark.parametrize("body", ["{", "[]", '"x"'])
async def test_bodies_that_are_no_object(http: aiohttp.ClientSession, body: str) -> None:
    status, answer = await ask(http, "POST", PODS, data=body, headers={"Content-Type": "application/json"})
    assert (status, answer["reason"]) == (400, "BadRequest")


async def test_dry_run_stores_nothing(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    status, made = await ask(http, "POST", PODS, json=pod("a"), params={"dryRun": "All"})
    assert (status, made["metadata"]["name"]) == (201, "a")
    cluster.create(pod("b"))
    version = cluster.store.version
    await ask(http, "DELETE", f"{PODS}/b", params={"dryRun": "All"})
    await ask(http, "PUT", f"{PODS}/b", json=pod("b", x="y"), params={"dryRun": "All"})
    assert await names(http, PODS) == ["b"]
    assert cluster.store.version == version


async def test_delete(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    made = cluster.create(deployment("web"))
    status, answer = await ask(http, "DELETE", f"{DEPLOYMENTS}/web")
    assert (status, answer["status"]) == (200, "Success")
    assert answer["details"] == {
        "name": "web",
        "group": "apps",
        "kind": "deployments",
        "uid": made["metadata"]["uid"],
    }
    assert await names(http, DEPLOYMENTS) == []


@pytest.mark.parametrize(
    ("preconditions", "status"),
    [({"uid": "other"}, 409), ({"resourceVersion": "1"}, 409), ({}, 200)],
    ids=["uid", "version", "none"],
)
async def test_preconditions_of_a_deletion(
    cluster: Cluster, http: aiohttp.ClientSession, preconditions: JSON, status: int
) -> None:
    cluster.create(pod("a"))
    answered, _ = await ask(http, "DELETE", f"{PODS}/a", json={"preconditions": preconditions})
    assert answered == status


async def test_finalizers_hold_a_deletion(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    body = deployment("web")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    cluster.create(body)
    _, marked = await ask(http, "DELETE", f"{DEPLOYMENTS}/web")
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    marked["metadata"]["finalizers"] = []
    status, _ = await ask(http, "PUT", f"{DEPLOYMENTS}/web", json=marked)
    assert status == 200
    assert await names(http, DEPLOYMENTS) == []


async def test_delete_of_a_collection_takes_selectors(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    for name, app in (("a", "x"), ("b", "y"), ("c", "x")):
        cluster.create(pod(name, app=app))
    status, gone = await ask(http, "DELETE", PODS, params={"labelSelector": "app=x"})
    assert (status, [item["metadata"]["name"] for item in gone["items"]]) == (200, ["a", "c"])
    assert await names(http, PODS) == ["b"]


async def test_what_an_object_owns_goes_with_it(cluster: Cluster) -> None:
    owner = cluster.create(deployment("web"))
    for name in ("owned", "orphan"):
        reference = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": "web",
            "uid": owner["metadata"]["uid"],
        }
        owned = pod(name)
        owned["metadata"]["ownerReferences"] = [reference] if name == "owned" else []
        cluster.create(owned)
    cluster.delete("deployments", "web")
    assert [item["metadata"]["name"] for item in cluster.list("pods")] == ["orphan"]


async def test_orphaned_objects_stay(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    owner = cluster.create(deployment("web"))
    owned = pod("owned")
    owned["metadata"]["ownerReferences"] = [{"uid": owner["metadata"]["uid"], "name": "web"}]
    cluster.create(owned)
    await ask(http, "DELETE", f"{DEPLOYMENTS}/web", params={"propagationPolicy": "Orphan"})
    assert "ownerReferences" not in cluster.get("pods", "owned")["metadata"]


async def test_a_namespace_takes_its_objects_along(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a", "shop"))
    cluster.create(pod("b"))
    await ask(http, "DELETE", "/api/v1/namespaces/shop")
    assert await names(http, "/api/v1/pods") == ["b"]
    assert await names(http, "/api/v1/namespaces") == ["default", "kube-system"]


async def test_selectors_of_lists(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a", app="x"))
    cluster.create(pod("b", "shop", app="x"))
    cluster.create(pod("c", app="y"))
    assert await names(http, "/api/v1/pods") == ["a", "c", "b"]
    assert await names(http, "/api/v1/pods", labelSelector="app in (x)") == ["a", "b"]
    assert await names(http, PODS, labelSelector="app=x") == ["a"]
    assert await names(http, "/api/v1/pods", fieldSelector="metadata.namespace=shop") == ["b"]
    status, answer = await ask(http, "GET", PODS, params={"labelSelector": "a b"})
    assert (status, answer["message"]) == (
        400,
        "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
    )


async def test_pages_show_one_version(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    for name in "abcde":
        cluster.create(pod(name))
    version = str(cluster.store.version)
    _, first = await ask(http, "GET", PODS, params={"limit": "2"})
    assert first["metadata"]["remainingItemCount"] == 3
    cluster.delete("pods", "d")
    cluster.create(pod("bb"))
    _, second = await ask(http, "GET", PODS, params={"limit": "2", "continue": first["metadata"]["continue"]})
    _, third = await ask(http, "GET", PODS, params={"limit": "2", "continue": second["metadata"]["continue"]})
    pages = [[item["metadata"]["name"] for item in page["items"]] for page in (first, second, third)]
    assert pages == [["a", "b"], ["c", "d"], ["e"]]
    assert {page["metadata"]["resourceVersion"] for page in (first, second, third)} == {version}
    assert "continue" not in third["metadata"]
    cluster.compact()
    status, answer = await ask(
        http, "GET", PODS, params={"limit": "2", "continue": first["metadata"]["continue"]}
    )
    assert (status, answer["reason"]) == (410, "Expired")


async def test_lists_at_a_version(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    version = cluster.create(pod("a"))["metadata"]["resourceVersion"]
    cluster.create(pod("b"))
    assert await names(http, PODS, resourceVersion=version, resourceVersionMatch="Exact") == ["a"]
    assert await names(http, PODS, resourceVersion=version, resourceVersionMatch="NotOlderThan") == ["a", "b"]
    assert await names(http, PODS, resourceVersion=version) == ["a", "b"]
    assert await names(http, PODS, resourceVersion="0", limit="1") == [
        "a",
        "b",
    ]  # the watch cache knows no limit
    cluster.compact()
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    status, answer = await ask(http, "GET", PODS, params=exact)
    assert (status, answer["message"]) == (410, "too old resource version: 3 (4)")


async def test_items_of_lists(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    made = cluster.create(pod("a"))
    _, plain = await ask(http, "GET", PODS)
    assert (plain["kind"], plain["apiVersion"]) == ("PodList", "v1")
    assert plain["items"] == [
        {field: value for field, value in made.items() if field not in {"kind", "apiVersion"}}
    ]


async def test_partial_object_metadata(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    made = cluster.create(pod("a", app="x"))
    shown = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]}
    assert await ask(http, "GET", f"{PODS}/a", headers=PARTIAL) == (200, shown)
    _, listed = await ask(http, "GET", PODS, headers=PARTIAL_LIST)
    assert (listed["kind"], listed["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
    assert listed["items"] == [shown]
    status, answer = await ask(http, "GET", PODS, headers=PARTIAL)
    assert (status, answer["message"]) == (
        406,
        "you requested PartialObjectMetadata, but the requested object is a list (*PodList)",
    )
    status, _ = await ask(http, "GET", f"{PODS}/a", headers=PARTIAL_LIST)
    assert status == 406


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/vnd.kubernetes.protobuf", "Status"),
        ("application/vnd.kubernetes.protobuf,application/json", "PodList"),
        ("application/json;as=Nonsense;g=meta.k8s.io;v=v1,application/json", "PodList"),
        ("application/json;q=0.5,application/json;as=Table;g=meta.k8s.io;v=v1", "Table"),
        ("*/*", "PodList"),
        ("text/html", "Status"),
    ],
)
async def test_negotiation(http: aiohttp.ClientSession, accept: str, kind: str) -> None:
    _, answer = await ask(http, "GET", PODS, headers={"Accept": accept})
    assert answer["kind"] == kind


async def test_tables(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    _, table = await ask(http, "GET", PODS, headers=TABLE)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Ready", "Status", "Age"]
    assert table["rows"][0]["cells"] == ["a", "0/1", "Running", "0s"]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    _, bare = await ask(http, "GET", PODS, headers=TABLE, params={"includeObject": "None"})
    assert bare["rows"][0]["object"] is None


async def test_scale(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    made = cluster.create(deployment("web", 2) | {"status": {"replicas": 1}})
    path = f"{DEPLOYMENTS}/web/scale"
    _, scale = await ask(http, "GET", path)
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "app=web"})
    assert scale["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    status, written = await ask(http, "PUT", path, json=scale | {"spec": {"replicas": 5}})
    assert (status, written["spec"]) == (200, {"replicas": 5})
    status, stale = await ask(http, "PUT", path, json=scale | {"spec": {"replicas": 6}})
    assert (status, stale["reason"]) == (409, "Conflict")
    headers = {"Content-Type": "application/merge-patch+json"}
    status, patched = await ask(http, "PATCH", path, data='{"spec":{"replicas":0}}', headers=headers)
    assert (status, patched["spec"]) == (200, {})
    web = cluster.get("deployments", "web")
    assert (web["spec"]["replicas"], web["metadata"]["generation"]) == (0, 3)
    status, negative = await ask(http, "PATCH", path, data='{"spec":{"replicas":-1}}', headers=headers)
    assert negative["message"] == (
        'Scale.autoscaling "web" is invalid: '
        "spec.replicas: Invalid value: -1: must be greater than or equal to 0"
    )
    async with http.get(f"{PODS}/web/scale") as response:
        assert response.status == 404


async def test_replicas_default_to_one(http: aiohttp.ClientSession) -> None:
    _, made = await ask(http, "POST", DEPLOYMENTS, json=deployment("web"))
    assert made["spec"]["replicas"] == 1


async def test_a_lease_is_taken_by_one_only(http: aiohttp.ClientSession) -> None:
    status, first = await ask(http, "PUT", f"{LEASES}/x", json=lease("x", holderIdentity="a"))
    assert status == 201
    first["spec"]["holderIdentity"] = "b"
    assert (await ask(http, "PUT", f"{LEASES}/x", json=first))[0] == 200
    first["spec"]["holderIdentity"] = "c"
    assert (await ask(http, "PUT", f"{LEASES}/x", json=first))[0] == 409


async def test_events_by_their_object(http: aiohttp.ClientSession) -> None:
    path = "/api/v1/namespaces/default/events"
    for name in ("web", "db"):
        body = {
            "metadata": {"generateName": f"{name}."},
            "involvedObject": {"kind": "Deployment", "name": name},
            "reason": "R",
        }
        assert (await ask(http, "POST", path, json=body))[0] == 201
    _, found = await ask(http, "GET", path, params={"fieldSelector": "involvedObject.name=web,reason=R"})
    assert [item["involvedObject"]["name"] for item in found["items"]] == ["web"]


async def test_reviews(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    spec = {"token": "secret", "audiences": ["metrics"]}
    status, answer = await ask(http, "POST", path, json={"spec": spec})
    assert status == 201
    assert not answer["status"].get("authenticated")
    cluster.reviews.token = lambda spec: TokenVerdict(spec["token"] == "secret", "alice", ("dev",))
    _, answer = await ask(http, "POST", path, json={"spec": spec})
    assert answer["status"] == {
        "authenticated": True,
        "user": {"username": "alice", "groups": ["dev"]},
        "audiences": ["metrics"],
    }
    cluster.reviews.access = lambda spec: AccessReviewVerdict(
        spec["user"] == "alice", "because", denied=spec["user"] == "eve"
    )
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    _, alice = await ask(http, "POST", path, json={"spec": {"user": "alice"}})
    _, eve = await ask(http, "POST", path, json={"spec": {"user": "eve"}})
    assert alice["status"] == {"allowed": True, "reason": "because"}
    assert eve["status"] == {"allowed": False, "denied": True, "reason": "because"}
    assert [review["kind"] for review in cluster.reviews.received] == [
        "TokenReview",
        "TokenReview",
        "SubjectAccessReview",
        "SubjectAccessReview",
    ]
    status, _ = await ask(http, "POST", path, json={})
    assert status == 400


async def test_forbidden(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.forbid("list", "pods")
    cluster.forbid("get", "deployments.apps", "default")
    status, answer = await ask(http, "GET", "/api/v1/pods")
    assert (status, answer["reason"]) == (403, "Forbidden")
    assert answer["message"] == (
        'pods is forbidden: User "system:anonymous" '
        'cannot list resource "pods" in API group "" at the cluster scope'
    )
    _, answer = await ask(http, "GET", f"{DEPLOYMENTS}/web")
    assert answer["message"] == (
        'deployments.apps "web" is forbidden: User "system:anonymous" '
        'cannot get resource "deployments" in API group "apps" in the namespace "default"'
    )
    assert (await ask(http, "GET", "/apis/apps/v1/namespaces/kube-system/deployments/web"))[0] == 404
    cluster.allow("list", "pods")
    assert (await ask(http, "GET", "/api/v1/pods"))[0] == 200


async def test_a_forbidden_subresource_leaves_the_resource(
    cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    cluster.create(deployment("web"))
    cluster.forbid("*", "deployments/scale")
    assert (await ask(http, "GET", f"{DEPLOYMENTS}/web/scale"))[0] == 403
    assert (await ask(http, "GET", f"{DEPLOYMENTS}/web"))[0] == 200


async def test_tokens(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.tokens = {"good": "alice"}
    assert (await ask(http, "GET", PODS))[0] == 401
    assert (await ask(http, "GET", PODS, headers={"Authorization": "Bearer bad"}))[0] == 401
    assert (await ask(http, "GET", PODS, headers={"Authorization": "Bearer good"}))[0] == 200
    assert [request.user for request in cluster.requests] == ["", "", "alice"]


async def test_delays_hold_what_they_name(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.delay(30, "list", "pods")
    with pytest.raises(TimeoutError):
        await ask(http, "GET", PODS, timeout=aiohttp.ClientTimeout(total=0.05))
    assert (await ask(http, "GET", DEPLOYMENTS))[0] == 200
    cluster.delay(0, "list", "pods")
    assert (await ask(http, "GET", PODS))[0] == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/healthz"])
async def test_health(http: aiohttp.ClientSession, path: str) -> None:
    async with http.get(path) as response:
        assert (response.status, await response.text()) == (200, "ok")


async def test_a_kind_added_at_run_time(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    path = "/apis/example.com/v1/namespaces/default/widgets"
    async with http.get(path) as response:
        assert response.status == 404
    widget = cluster.add_kind(Kind("example.com", "v1", "widgets", "Widget", True))
    made = cluster.create(
        {"kind": "Widget", "apiVersion": "example.com/v1", "metadata": {"name": "w"}, "spec": {}}
    )
    _, listed = await ask(http, "GET", path)
    assert listed["items"] == [made]  # custom resources carry kind and apiVersion in lists too
    patch = {"data": "{}", "headers": {"Content-Type": "application/strategic-merge-patch+json"}}
    assert (await ask(http, "PATCH", f"{path}/w", **patch))[0] == 415
    cluster.remove_kind(widget)
    async with http.get(path) as response:
        assert response.status == 404


async def test_the_python_side(cluster: Cluster) -> None:
    cluster.create(pod("a", "shop", app="x"))
    assert [item["metadata"]["name"] for item in cluster.list("Namespace")] == [
        "default",
        "kube-system",
        "shop",
    ]
    changed = cluster.patch(
        "po", "a", {"metadata": {"labels": {"b": "y"}}, "status": {"phase": "Failed"}}, "shop"
    )
    assert (changed["metadata"]["labels"], changed["status"]["phase"]) == ({"app": "x", "b": "y"}, "Failed")
    assert cluster.list("pods", "default") == []
    cluster.delete("pod", "a", "shop")
    with pytest.raises(StatusFailure, match='pods "a" not found'):
        cluster.get("pods", "a", "shop")
    with pytest.raises(
        LookupError, match='serves no kind "widgets": add it with add_kind, or use one of apiservices'
    ):
        cluster.list("widgets")
    with pytest.raises(
        LookupError, match="HorizontalPodAutoscaler is autoscaling/v2 here, not 'autoscaling/v1'"
    ):
        cluster.create(
            {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": {"name": "h"}}
        )


async def test_what_python_gets_is_a_copy(cluster: Cluster) -> None:
    given = pod("a")
    made = cluster.create(given)
    given["spec"]["containers"].clear()
    made["spec"]["containers"].clear()
    assert cluster.get("pods", "a")["spec"]["containers"]


async def test_the_clock_is_the_callers() -> None:
    async with Cluster(now=lambda: EPOCH + 90) as cluster:
        assert cluster.create(pod("a"))["metadata"]["creationTimestamp"] == "2026-01-01T00:01:30Z"


@pytest.mark.timeout(10)
async def test_tls_and_kubeconfig(authority: Authority, tmp_path: Path) -> None:
    context: ssl.SSLContext = authority.server_context()
    async with Cluster(tls=context, ca=authority.file.read_bytes(), tokens={"t": "alice"}) as cluster:
        config = yaml.safe_load(cluster.kubeconfig(tmp_path / "config", "t").read_text())
        assert config["clusters"][0]["cluster"]["server"] == cluster.url
        assert config["users"][0]["user"] == {"token": "t"}
        assert cluster.url.startswith("https://127.0.0.1:")
        async with aiohttp.ClientSession(cluster.url) as http:
            options: JSON = {"ssl": authority.client_context(), "headers": {"Authorization": "Bearer t"}}
            assert (await ask(http, "GET", "/version", **options))[0] == 200


@pytest.mark.parametrize(
    ("document", "kind", "cells"),
    [
        (
            deployment("web", 3)
            | {"status": {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2}},
            DEPLOYMENTS,
            ["web", "2/3", 3, 2, "0s"],
        ),
        (
            {
                "kind": "HorizontalPodAutoscaler",
                "apiVersion": "autoscaling/v2",
                "metadata": {"name": "web"},
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 9},
            },
            "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
            ["web", "Deployment/web", 1, 9, 0, "0s"],
        ),
        (
            {
                "kind": "Node",
                "apiVersion": "v1",
                "metadata": {"name": "n"},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            },
            "/api/v1/nodes",
            ["n", "Ready", "0s"],
        ),
        (
            {
                "kind": "Event",
                "apiVersion": "v1",
                "metadata": {"name": "e"},
                "involvedObject": {"kind": "Pod", "name": "a"},
                "reason": "Started",
                "type": "Normal",
                "message": "m",
            },
            "/api/v1/namespaces/default/events",
            ["e", "Normal", "Started", "pod/a", "m", "0s"],
        ),
        (
            {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"a": "b"}},
            "/api/v1/namespaces/default/configmaps",
            ["c", 1, "0s"],
        ),
        (lease("l", holderIdentity="me"), LEASES, ["l", "me", "0s"]),
        (
            {"kind": "Ingress", "apiVersion": "networking.k8s.io/v1", "metadata": {"name": "i"}},
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            ["i", "0s"],
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else None,
)
async def test_cells_of_tables(
    cluster: Cluster, http: aiohttp.ClientSession, document: JSON, kind: str, cells: list[Any]
) -> None:
    cluster.create(document)
    _, table = await ask(http, "GET", kind, headers=TABLE)
    assert table["rows"][0]["cells"] == cells
    assert len(table["columnDefinitions"]) == len(cells)


@pytest.mark.parametrize(
    ("seconds", "age"),
    [(119, "119s"), (120, "2m"), (7199, "119m"), (7200, "2h"), (172_799, "47h"), (172_800, "2d")],
)
async def test_ages(seconds: float, age: str) -> None:
    now = EPOCH
    async with Cluster(now=lambda: now) as cluster, aiohttp.ClientSession(cluster.url) as http:
        cluster.create(pod("a"))
        now += seconds
        _, table = await ask(http, "GET", PODS, headers=TABLE)
        assert table["rows"][0]["cells"][-1] == age


async def test_a_scale_shows_the_whole_selector(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    expressions = [
        {"key": "tier", "operator": "In", "values": ["b", "a"]},
        {"key": "x", "operator": "NotIn", "values": ["y"]},
        {"key": "on", "operator": "Exists"},
        {"key": "off", "operator": "DoesNotExist"},
    ]
    body = deployment("web")
    body["spec"]["selector"]["matchExpressions"] = expressions
    cluster.create(body)
    _, scale = await ask(http, "GET", f"{DEPLOYMENTS}/web/scale")
    assert scale["status"]["selector"] == "!off,app=web,on,tier in (a,b),x notin (y)"


async def test_an_object_with_another_owner_stays(cluster: Cluster) -> None:
    first, second = (cluster.create(deployment(name))["metadata"]["uid"] for name in ("one", "two"))
    owned = pod("owned")
    owned["metadata"]["ownerReferences"] = [{"uid": first, "name": "one"}, {"uid": second, "name": "two"}]
    cluster.create(owned)
    cluster.delete("deployments", "one")
    assert [owner["name"] for owner in cluster.get("pods", "owned")["metadata"]["ownerReferences"]] == ["two"]
    cluster.delete("deployments", "two")
    assert cluster.list("pods") == []


@pytest.mark.parametrize(
    ("path", "body", "code", "part"),
    [
        (PODS, {"metadata": {"name": "Web_1"}}, 422, "a lowercase RFC 1123 subdomain must consist of"),
        (
            PODS,
            {"metadata": {"name": "a", "resourceVersion": "1"}},
            400,
            "resourceVersion should not be set on objects to be created",
        ),
        (PODS, {"metadata": []}, 400, "cannot unmarshal metadata"),
        (
            PODS,
            {"kind": "Service", "metadata": {"name": "a"}},
            400,
            'Service in version "v1" cannot be handled as a Pod',
        ),
        (
            PODS,
            {"apiVersion": "v2", "metadata": {"name": "a"}},
            400,
            'Pod in version "v2" cannot be handled as a Pod',
        ),
    ],
)
async def test_objects_that_cannot_be_created(
    http: aiohttp.ClientSession, path: str, body: JSON, code: int, part: str
) -> None:
    status, answer = await ask(http, "POST", path, json=body)
    assert status == code
    assert part in answer["message"]


async def test_a_put_for_another_uid(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    made = cluster.create(pod("a"))
    made["metadata"]["uid"] = "other"
    status, answer = await ask(http, "PUT", f"{PODS}/a", json=made)
    assert (status, answer["reason"]) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: other" in answer["message"]


async def test_a_scale_of_something_else(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(deployment("web"))
    for scale in ({"metadata": {"name": "other"}}, {"spec": {"replicas": "three"}}):
        assert (await ask(http, "PUT", f"{DEPLOYMENTS}/web/scale", json=scale))[0] == 400


async def test_openapi_and_other_methods(http: aiohttp.ClientSession) -> None:
    assert (await ask(http, "GET", "/openapi/v2"))[1]["swagger"] == "2.0"
    assert (await ask(http, "GET", "/openapi/v3"))[1] == {"paths": {}}
    async with http.post("/version") as response:
        assert response.status == 404


async def test_a_kubeconfig_without_authority(tmp_path: Path, authority: Authority) -> None:
    async with Cluster(tls=authority.server_context()) as cluster:
        config = yaml.safe_load(cluster.kubeconfig(tmp_path / "config").read_text())
        assert config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] is True
        assert config["users"][0]["user"] == {}


async def test_a_read_back_of_all_kinds(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    """Every stored kind that needs no content can be created, listed in all forms, read and deleted."""
    for kind in [
        kind for kind in cluster.kinds if kind.stored and kind.plural != "customresourcedefinitions"
    ]:
        base = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        path = f"{base}/namespaces/default/{kind.plural}" if kind.namespaced else f"{base}/{kind.plural}"
        status, made = await ask(http, "POST", path, json={"metadata": {"name": "some"}})
        assert status == 201, made
        for headers in ({}, PARTIAL_LIST, TABLE):
            status, listed = await ask(
                http, "GET", path, headers=headers, params={"fieldSelector": "metadata.name=some"}
            )
            assert status == 200
            assert len(listed.get("items") or listed["rows"]) == 1
        assert (await ask(http, "GET", f"{path}/some"))[1] == made
        assert (await ask(http, "DELETE", f"{path}/some"))[0] == 200
        assert (await ask(http, "GET", f"{path}/some"))[0] == 404
