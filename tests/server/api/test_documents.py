"""Discovery and the other documents."""

import asyncio
import json
from typing import Any

import pytest

from adapter.model.metrics import CustomMetricInfo, GroupResource
from adapter.server.api.documents import Documents, ServedDocument
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP, PREVIEW_VERSIONS, RESOURCE_GROUP
from adapter.server.http import negotiation
from tests.support.serving import Provider
from tests.support.waiting import other_work

BOTH = (EXTERNAL_GROUP, CUSTOM_GROUP)
PODS, NODES = GroupResource("", "pods"), GroupResource("", "nodes")
INGRESSES = GroupResource("networking.k8s.io", "ingresses")


def info(resource: GroupResource, metric: str, *, namespaced: bool = True) -> CustomMetricInfo:
    return CustomMetricInfo(resource, namespaced, metric)


@pytest.fixture
def provider() -> Provider:
    provider = Provider()
    provider.metrics = [
        info(PODS, "http_requests"),
        info(NODES, "temperature", namespaced=False),
        info(INGRESSES, "hits"),
        info(PODS, "errors"),
    ]
    provider.external_names = ["queue_b", "queue_a"]
    return provider


@pytest.fixture
def documents(provider: Provider) -> Documents:
    return Documents(provider, BOTH, "1.2.3")


async def find(documents: Documents, path: str, *, aggregated: bool = False) -> ServedDocument:
    document = await documents.find(path, aggregated=aggregated)
    assert document is not None
    return document


async def read(documents: Documents, path: str, *, aggregated: bool = False) -> Any:
    return json.loads((await find(documents, path, aggregated=aggregated)).body)


async def test_groups(documents: Documents) -> None:
    body = (await find(documents, "/apis")).body.decode()
    assert body == (
        '{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"custom.metrics.k8s.io","versions":['
        '{"groupVersion":"custom.metrics.k8s.io/v1beta2","version":"v1beta2"},'
        '{"groupVersion":"custom.metrics.k8s.io/v1beta1","version":"v1beta1"}],'
        '"preferredVersion":{"groupVersion":"custom.metrics.k8s.io/v1beta2","version":"v1beta2"}},'
        '{"name":"external.metrics.k8s.io","versions":['
        '{"groupVersion":"external.metrics.k8s.io/v1beta1","version":"v1beta1"}],'
        '"preferredVersion":{"groupVersion":"external.metrics.k8s.io/v1beta1","version":"v1beta1"}}]}\n'
    )


async def test_group(documents: Documents) -> None:
    body = (await find(documents, "/apis/external.metrics.k8s.io")).body.decode()
    assert body == (
        '{"kind":"APIGroup","apiVersion":"v1","name":"external.metrics.k8s.io","versions":['
        '{"groupVersion":"external.metrics.k8s.io/v1beta1","version":"v1beta1"}],'
        '"preferredVersion":{"groupVersion":"external.metrics.k8s.io/v1beta1","version":"v1beta1"}}\n'
    )


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_custom_resources(documents: Documents, version: str) -> None:
    document = await read(documents, f"/apis/{CUSTOM_GROUP}/{version}")
    assert document["groupVersion"] == f"custom.metrics.k8s.io/{version}"
    assert [(entry["name"], entry["namespaced"]) for entry in document["resources"]] == [
        ("ingresses.networking.k8s.io/hits", True),
        ("nodes/temperature", False),
        ("pods/errors", True),
        ("pods/http_requests", True),
    ]
    assert all(
        (entry["singularName"], entry["kind"], entry["verbs"]) == ("", "MetricValueList", ["get"])
        for entry in document["resources"]
    )


async def test_external_resources(documents: Documents) -> None:
    body = (await find(documents, f"/apis/{EXTERNAL_GROUP}/v1beta1")).body.decode()
    assert body == (
        '{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"external.metrics.k8s.io/'
        'v1beta1","resources":['
        '{"name":"queue_a","singularName":"","namespaced":true,'
        '"kind":"ExternalMetricValueList","verbs":["get"]},'
        '{"name":"queue_b","singularName":"","namespaced":true,'
        '"kind":"ExternalMetricValueList","verbs":["get"]}]}\n'
    )


async def test_placeholders_where_there_is_nothing() -> None:
    empty = Documents(Provider(), BOTH, "1.2.3")
    [custom] = (await read(empty, f"/apis/{CUSTOM_GROUP}/v1beta1"))["resources"]
    assert custom == {
        "name": "/custommetrics",
        "singularName": "",
        "namespaced": False,
        "kind": "MetricValueList",
        "verbs": ["get"],
    }
    [external] = (await read(empty, f"/apis/{EXTERNAL_GROUP}/v1beta1"))["resources"]
    assert external == {
        "name": "externalmetrics",
        "singularName": "",
        "namespaced": True,
        "kind": "ExternalMetricValueList",
        "verbs": ["get"],
    }


async def test_aggregated(documents: Documents) -> None:
    document = await find(documents, "/apis", aggregated=True)
    assert document.content_type == negotiation.AGGREGATED
    assert document.etag.startswith('"')
    content = json.loads(document.body)
    assert (content["kind"], content["apiVersion"], content["metadata"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
        {},
    )
    served = {
        (group["metadata"]["name"], version["version"], version["freshness"])
        for group in content["items"]
        for version in group["versions"]
    }
    assert served == {
        (CUSTOM_GROUP, "v1beta1", "Current"),
        (CUSTOM_GROUP, "v1beta2", "Current"),
        (EXTERNAL_GROUP, "v1beta1", "Current"),
    }, "a group-version missing here is published with no resources"
    custom, external = content["items"]
    kind = {"group": CUSTOM_GROUP, "version": "v1beta2", "kind": "MetricValueList"}
    [ingresses, nodes, pods] = custom["versions"][0]["resources"]
    assert pods == {
        "resource": "pods",
        "responseKind": {"group": "", "version": "", "kind": ""},
        "scope": "Namespaced",
        "singularResource": "",
        "verbs": [],
        "subresources": [
            {"subresource": "errors", "responseKind": kind, "verbs": ["get"]},
            {"subresource": "http_requests", "responseKind": kind, "verbs": ["get"]},
        ],
    }
    assert (ingresses["resource"], nodes["resource"], nodes["scope"]) == (
        "ingresses.networking.k8s.io",
        "nodes",
        "Cluster",
    )
    assert external["versions"][0]["resources"][0] == {
        "resource": "queue_a",
        "responseKind": {"group": EXTERNAL_GROUP, "version": "v1beta1", "kind": "ExternalMetricValueList"},
        "scope": "Namespaced",
        "singularResource": "",
        "verbs": ["get"],
    }


async def test_names_are_escaped_as_go_does(provider: Provider, documents: Documents) -> None:
    provider.metrics, provider.external_names = [info(PODS, 'a<b>&"')], ["x<y"]
    for path, aggregated in ((f"/apis/{CUSTOM_GROUP}/v1beta1", False), ("/apis", True)):
        body = (await find(documents, path, aggregated=aggregated)).body
        assert b'a\\u003cb\\u003e\\u0026\\"' in body
        assert not {b"<", b">", b"&"} & {body[at : at + 1] for at in range(len(body))}


@pytest.mark.parametrize(
    ("groups", "path", "is_there"),
    [
        ((), "/apis", True),
        ((), f"/apis/{CUSTOM_GROUP}", False),
        ((CUSTOM_GROUP,), f"/apis/{CUSTOM_GROUP}/v1beta2", True),
        ((CUSTOM_GROUP,), f"/apis/{EXTERNAL_GROUP}/v1beta1", False),
        ((EXTERNAL_GROUP,), f"/apis/{EXTERNAL_GROUP}/v1beta2", False),
        ((RESOURCE_GROUP,), f"/apis/{RESOURCE_GROUP}/v1", True),
        (BOTH, f"/apis/{CUSTOM_GROUP}/v1", False),
        (BOTH, f"/openapi/v3/apis/{EXTERNAL_GROUP}/v1", False),
        (BOTH, "/api", False),
        (BOTH, "/apis/apps", False),
    ],
)
async def test_what_is_served(provider: Provider, groups: tuple[str, ...], path: str, is_there: bool) -> None:  # noqa: FBT001 - a column of a table
    assert (await Documents(provider, groups, "1.2.3").find(path) is not None) is is_there


def test_an_unknown_group_is_a_mistake(provider: Provider) -> None:
    with pytest.raises(ValueError, match="apps"):
        Documents(provider, ["apps"], "1.2.3")


async def test_rebuilt_only_for_a_new_generation(provider: Provider, documents: Documents) -> None:
    path = f"/apis/{EXTERNAL_GROUP}/v1beta1"
    first, etag = await find(documents, path), (await find(documents, "/apis", aggregated=True)).etag
    provider.external_names = []
    assert await find(documents, path) is first
    provider.generation += 1
    assert (await read(documents, path))["resources"][0]["name"] == "externalmetrics", (
        "an emptied group stays served"
    )
    assert (await find(documents, "/apis", aggregated=True)).etag != etag


async def test_openapi(provider: Provider) -> None:
    served = Documents(provider, (RESOURCE_GROUP, CUSTOM_GROUP), "1.2.3")
    v2 = await read(served, "/openapi/v2")
    assert (v2["swagger"], v2["info"]["version"]) == ("2.0", "1.2.3")
    assert f"/apis/{RESOURCE_GROUP}/v1beta1/namespaces/{{namespace}}/pods" in v2["paths"]
    root = await read(served, "/openapi/v3")
    assert sorted(root["paths"]) == [
        f"apis/{CUSTOM_GROUP}/v1beta1",
        f"apis/{CUSTOM_GROUP}/v1beta2",
        f"apis/{RESOURCE_GROUP}/v1",
        f"apis/{RESOURCE_GROUP}/v1beta1",
    ]
    for path, entry in root["paths"].items():
        target, _, query = entry["serverRelativeURL"].partition("?")
        assert target == f"/openapi/v3/{path}"
        document = await find(served, target)
        assert document.etag == f'"{query.removeprefix("hash=")}"', "the hash tells one content from another"
    assert await served.find(f"/openapi/v3/apis/{EXTERNAL_GROUP}/v1beta1") is None


async def test_openapi_does_not_change_with_the_metrics(provider: Provider, documents: Documents) -> None:
    paths = ("/openapi/v2", "/openapi/v3", f"/openapi/v3/apis/{CUSTOM_GROUP}/v1beta1")
    before = [(await find(documents, path)).etag for path in paths]
    provider.generation += 1
    provider.metrics = []
    assert all(before)
    assert [(await find(documents, path)).etag for path in paths] == before


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_resource_metrics_are_listed(provider: Provider, version: str) -> None:
    served = Documents(provider, [RESOURCE_GROUP], "1.2.3")
    assert (await find(served, f"/apis/{RESOURCE_GROUP}/{version}")).body.decode() == (
        f'{{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"metrics.k8s.io/{version}","resources":['
        '{"name":"nodes","singularName":"","namespaced":false,"kind":"NodeMetrics","verbs":["get","list"]},'
        '{"name":"pods","singularName":"","namespaced":true,"kind":"PodMetrics","verbs":["get","list"]}]}\n'
    )
    [group] = (await read(served, "/apis", aggregated=True))["items"]
    (resources,) = [each["resources"] for each in group["versions"] if each["version"] == version]
    assert resources == [
        {
            "resource": name,
            "responseKind": {"group": RESOURCE_GROUP, "version": version, "kind": kind},
            "scope": scope,
            "singularResource": "",
            "verbs": ["get", "list"],
        }
        for name, kind, scope in (("nodes", "NodeMetrics", "Cluster"), ("pods", "PodMetrics", "Namespaced"))
    ]


@pytest.mark.parametrize(
    ("version", "major", "minor"), [("1.2.3", "1", "2"), ("0.10.0rc1", "0", "10"), ("dev", "", "")]
)
async def test_version(provider: Provider, version: str, major: str, minor: str) -> None:
    document = await read(Documents(provider, BOTH, version), "/version")
    assert (document["major"], document["minor"], document["gitVersion"]) == (major, minor, f"v{version}")
    keys = "major minor gitVersion gitCommit gitTreeState buildDate goVersion compiler platform"
    assert list(document) == keys.split()


@pytest.mark.parametrize("path", ["/", "/index.html"])
async def test_paths(provider: Provider, path: str) -> None:
    paths = (await read(Documents(provider, (CUSTOM_GROUP,), "1.2.3"), path))["paths"]
    assert paths == sorted(paths)
    assert {"/apis", f"/apis/{CUSTOM_GROUP}/v1beta2", "/readyz", "/metrics", "/openapi/v2"} <= set(paths)
    assert not [name for name in paths if EXTERNAL_GROUP in name]


async def test_built_once_for_all_who_wait(documents: Documents) -> None:
    first, second = await asyncio.gather(*(documents.find(f"/apis/{CUSTOM_GROUP}/v1beta1") for _ in range(2)))
    assert first is second


@pytest.mark.parametrize("is_seen", [False, True], ids=["alone", "another caller sees the new registry"])
async def test_a_document_older_than_the_registry_is_not_kept(
    provider: Provider, documents: Documents, *, is_seen: bool
) -> None:
    path = f"/apis/{EXTERNAL_GROUP}/v1beta1"

    def reload() -> None:
        provider.while_listing = None
        provider.generation += 1
        provider.external_names = ["new"]
        if is_seen:  # while the old document is built
            documents._find_built(path, aggregated=False)

    provider.external_names, provider.while_listing = ["old"], reload
    names = [(await read(documents, path))["resources"][0]["name"] for _ in range(2)]
    assert names == ["old", "new"]


async def test_the_documents_are_bounded_whatever_there_is(
    provider: Provider, documents: Documents, caplog: pytest.LogCaptureFixture
) -> None:
    """Tenants choose the names of their series; what is not listed is said once, with how many there are."""
    provider.metrics = [info(PODS, f"metric_{number:05}") for number in range(30_000)]
    provider.external_names = [f"metric_{number:05}" for number in range(25_000)]
    for path in (
        f"/apis/{CUSTOM_GROUP}/v1beta1",
        f"/apis/{CUSTOM_GROUP}/v1beta2",
        f"/apis/{EXTERNAL_GROUP}/v1beta1",
    ):
        assert len((await read(documents, path))["resources"]) == 20_000
    for group in (await read(documents, "/apis", aggregated=True))["items"]:
        for version in group["versions"]:
            assert sum(len(each.get("subresources", [1])) for each in version["resources"]) == 20_000
    warnings = [record.facts for record in caplog.records]  # type: ignore[attr-defined]
    assert warnings == [{"limit": 20_000, "left_out": 15_000}]
    provider.generation += 1
    provider.metrics = provider.metrics[:25_000]
    await read(documents, f"/apis/{CUSTOM_GROUP}/v1beta1")
    assert len(caplog.records) == 1
    provider.generation += 1
    provider.metrics, provider.external_names = provider.metrics[:10], []
    assert len((await read(documents, f"/apis/{CUSTOM_GROUP}/v1beta1"))["resources"]) == 10
    provider.generation += 1
    provider.external_names = [f"metric_{number:05}" for number in range(20_001)]
    await read(documents, f"/apis/{EXTERNAL_GROUP}/v1beta1")
    assert [record.facts["left_out"] for record in caplog.records] == [15_000, 1]  # type: ignore[attr-defined]


async def test_many_metrics_leave_the_loop_alone(provider: Provider, documents: Documents) -> None:
    """Work beside the build of a document waits for a few hundred metrics at most."""
    provider.metrics = [info(PODS, f"metric_{number:05}") for number in range(10_000)]
    provider.external_names = [f"metric_{number:05}" for number in range(10_000)]
    for path, aggregated in ((f"/apis/{CUSTOM_GROUP}/v1beta1", False), ("/apis", True)):
        async with other_work() as turns:
            document = await read(documents, path, aggregated=aggregated)
        assert turns.count >= 20
        assert len(document.get("resources", ())) in {0, 10_000}


async def test_the_stable_version_of_resource_metrics_is_preferred(provider: Provider) -> None:
    """Clients such as kubectl take the first version that they know."""
    served = Documents(provider, [RESOURCE_GROUP], "1.2.3")
    group = await read(served, f"/apis/{RESOURCE_GROUP}")
    assert [each["version"] for each in group["versions"]] == ["v1", "v1beta1"]
    assert group["preferredVersion"] == {"groupVersion": "metrics.k8s.io/v1", "version": "v1"}
    (item,) = (await read(served, "/apis", aggregated=True))["items"]
    assert [each["version"] for each in item["versions"]] == ["v1", "v1beta1"]
    kinds = {each["responseKind"]["version"] for each in item["versions"][0]["resources"]}
    assert kinds == {"v1"}


async def test_previews_are_served_beside_the_others_and_never_preferred(provider: Provider) -> None:
    served = Documents(provider, BOTH, "1.2.3", PREVIEW_VERSIONS)
    for group, preferred in ((CUSTOM_GROUP, "v1beta2"), (EXTERNAL_GROUP, "v1beta1")):
        entry = await read(served, f"/apis/{group}")
        assert entry["preferredVersion"]["version"] == preferred
        assert entry["versions"][-1]["version"] == "v1"
        listed = await read(served, f"/apis/{group}/v1")
        older = await read(served, f"/apis/{group}/{preferred}")
        assert listed["resources"] == older["resources"]
    assert {f"apis/{group}/v1" for group in BOTH} < set((await read(served, "/openapi/v3"))["paths"])
    custom = await read(served, f"/openapi/v3/apis/{CUSTOM_GROUP}/v1")
    value = custom["components"]["schemas"]["io.k8s.metrics.pkg.apis.custom_metrics.v1.MetricValue"]
    assert "metric" in value["required"], "a metric identifier, as in v1beta2"
