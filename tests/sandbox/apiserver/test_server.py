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
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
JSON = dict[str, Any]


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


async def ask(http: aiohttp.ClientSession, method: str, path: str, **options: Any) -> tuple[int, Any]:
    async with http.request(method, path, **options) as response:
        assert response.content_type == "application/json", await response.text()
        return response.status, await response.json()


async def names(http: aiohttp.ClientSession, path: str, **query: str) -> list[str]:
    status, body = await ask(http, "GET", path, params=query)
    assert status == 200, body
    return [item["metadata"]["name"] for item in body["items"]]


async def test_what_an_object_owns_goes_with_it(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    first, second, third = (
        cluster.create(deployment(name))["metadata"]["uid"] for name in ("one", "two", "x")
    )
    for name, owners in (("owned", [first]), ("shared", [first, second]), ("alone", []), ("orphan", [third])):
        owned = pod(name)
        owned["metadata"]["ownerReferences"] = [{"uid": uid, "name": "some"} for uid in owners]
        cluster.create(owned)
    cluster.delete("deployments", "one")
    assert [each["uid"] for each in cluster.get("pods", "shared")["metadata"]["ownerReferences"]] == [second]
    assert await names(http, PODS) == ["alone", "orphan", "shared"]
    cluster.delete("deployments", "two")
    await ask(http, "DELETE", f"{DEPLOYMENTS}/x", params={"propagationPolicy": "Orphan"})
    assert await names(http, PODS) == ["alone", "orphan"]
    assert "ownerReferences" not in cluster.get("pods", "orphan")["metadata"]


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
