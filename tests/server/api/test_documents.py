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


async def find(documents: Documents, path: str, *, aggregated: bool = False) -> ServedDocument:
    found = await documents.find(path, aggregated=aggregated)
    assert found is not None
    return found


async def read(documents: Documents, path: str, *, aggregated: bool = False) -> Any:
    return json.loads((await find(documents, path, aggregated=aggregated)).body)


async def test_groups(provider: Provider) -> None:
    body = (await find(Documents(provider, BOTH, "1.2.3"), "/apis")).body.decode()
    assert body == (
        '{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"custom.metrics.k8s.io","versions":['
        '{"groupVersion":"custom.metrics.k8s.io/v1beta2","version":"v1beta2"},'
        '{"groupVersion":"custom.metrics.k8s.io/v1beta1","version":"v1beta1"}],'
        '"preferredVersion":{"groupVersion":"custom.metrics.k8s.io/v1beta2","version":"v1beta2"}},'
        '{"name":"external.metrics.k8s.io","versions":['
        '{"groupVersion":"external.metrics.k8s.io/v1beta1","version":"v1beta1"}],'
        '"preferredVersion":{"groupVersion":"external.metrics.k8s.io/v1beta1","version":"v1beta1"}}]}\n'
    )


async def test_group(provider: Provider) -> None:
    body = (await find(Documents(provider, BOTH, "1.2.3"), "/apis/external.metrics.k8s.io")).body.decode()
    assert body == (
        '{"kind":"APIGroup","apiVersion":"v1","name":"external.metrics.k8s.io","versions":['
        '{"groupVersion":"external.metrics.k8s.io/v1beta1","version":"v1beta1"}],'
        '"preferredVersion":{"groupVersion":"external.metrics.k8s.io/v1beta1","version":"v1beta1"}}\n'
    )


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_custom_resources(provider: Provider, version: str) -> None:
    document = await read(Documents(provider, BOTH, "1.2.3"), f"/apis/{CUSTOM_GROUP}/{version}")
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


async def test_external_resources(provider: Provider) -> None:
    body = (await find(Documents(provider, BOTH, "1.2.3"), f"/apis/{EXTERNAL_GROUP}/v1beta1")).body.decode()
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


async def test_aggregated(provider: Provider) -> None:
    document = await find(Documents(provider, BOTH, "1.2.3"), "/apis", aggregated=True)
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


async def test_names_are_escaped_as_go_does(provider: Provider) -> None:
    provider.metrics, provider.external_names = [info(PODS, 'a<b>&"')], ["x<y"]
    served = Documents(provider, BOTH, "1.2.3")
    for path, aggregated in ((f"/apis/{CUSTOM_GROUP}/v1beta1", False), ("/apis", True)):
        body = (await find(served, path, aggregated=aggregated)).body
        assert b'a\\u003cb\\u003e\\u0026\\"' in body
        assert not {b"<", b">", b"&"} & {body[at : at + 1] for at in range(len(body))}


@pytest.mark.parametrize(
    ("groups", "path", "is_there"),
    [
        pytest.param((), "/apis", True, id="none_served"),
        pytest.param((), f"/apis/{CUSTOM_GROUP}", False, id="no_custom_group"),
        pytest.param((CUSTOM_GROUP,), f"/apis/{CUSTOM_GROUP}/v1beta2", True, id="custom"),
        pytest.param((CUSTOM_GROUP,), f"/apis/{EXTERNAL_GROUP}/v1beta1", False, id="external_not_served"),
        pytest.param((EXTERNAL_GROUP,), f"/apis/{EXTERNAL_GROUP}/v1beta2", False, id="no_such_version"),
        pytest.param((RESOURCE_GROUP,), f"/apis/{RESOURCE_GROUP}/v1", True, id="stable_resource_metrics"),
        pytest.param(BOTH, f"/apis/{CUSTOM_GROUP}/v1", False, id="preview_of_custom"),
        pytest.param(BOTH, f"/openapi/v3/apis/{EXTERNAL_GROUP}/v1", False, id="preview_of_external"),
        pytest.param(BOTH, "/api", False, id="core"),
        pytest.param(BOTH, "/apis/apps", False, id="foreign_group"),
    ],
)
async def test_what_is_served(provider: Provider, groups: tuple[str, ...], path: str, is_there: bool) -> None:  # noqa: FBT001 - a column of a table
    assert (await Documents(provider, groups, "1.2.3").find(path) is not None) is is_there


def test_an_unknown_group_is_a_mistake(provider: Provider) -> None:
    with pytest.raises(ValueError, match="apps"):
        Documents(provider, ["apps"], "1.2.3")


async def test_rebuilt_only_for_a_new_generation(provider: Provider) -> None:
    served = Documents(provider, BOTH, "1.2.3")
    path = f"/apis/{EXTERNAL_GROUP}/v1beta1"
    first, etag = await find(served, path), (await find(served, "/apis", aggregated=True)).etag
    provider.external_names = []
    assert await find(served, path) is first
    provider.generation += 1
    assert (await read(served, path))["resources"][0]["name"] == "externalmetrics", (
        "an emptied group stays served"
    )
    assert (await find(served, "/apis", aggregated=True)).etag != etag


@pytest.mark.parametrize(
    ("path", "aggregated", "has_etag"),
    [
        ("/apis", False, False),
        ("/apis", True, True),
        (f"/apis/{CUSTOM_GROUP}/v1beta1", False, False),
        ("/openapi/v2", False, True),
    ],
)
async def test_where_a_304_may_be_answered(
    provider: Provider,
    path: str,
    aggregated: bool,  # noqa: FBT001 - columns of a table
    has_etag: bool,  # noqa: FBT001 - columns of a table
) -> None:
    assert (
        bool((await find(Documents(provider, BOTH, "1.2.3"), path, aggregated=aggregated)).etag) is has_etag
    )


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


async def test_openapi_does_not_change_with_the_metrics(provider: Provider) -> None:
    served = Documents(provider, BOTH, "1.2.3")
    paths = ("/openapi/v2", "/openapi/v3", f"/openapi/v3/apis/{CUSTOM_GROUP}/v1beta1")
    before = [(await find(served, path)).etag for path in paths]
    provider.generation += 1
    provider.metrics = []
    assert [(await find(served, path)).etag for path in paths] == before


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


async def test_built_once_for_all_who_wait(provider: Provider) -> None:
    served = Documents(provider, BOTH, "1.2.3")
    first, second = await asyncio.gather(*(served.find(f"/apis/{CUSTOM_GROUP}/v1beta1") for _ in range(2)))
    assert first is second


async def test_a_document_older_than_the_registry_is_not_kept(provider: Provider) -> None:
    def reload() -> None:
        provider.generation += 1
        provider.external_names = ["new"]

    served = Documents(provider, BOTH, "1.2.3")
    provider.external_names, provider.while_listing = ["old"], reload
    path = f"/apis/{EXTERNAL_GROUP}/v1beta1"
    names = [(await read(served, path))["resources"][0]["name"] for _ in range(2)]
    assert names == ["old", "new"]


async def test_what_was_built_for_an_older_registry_replaces_nothing(provider: Provider) -> None:
    served = Documents(provider, BOTH, "1.2.3")
    path = f"/apis/{EXTERNAL_GROUP}/v1beta1"

    def reload() -> None:
        provider.while_listing = None
        provider.generation += 1
        provider.external_names = ["new"]
        served._find_built(
            path, aggregated=False
        )  # another caller sees the new generation while the old is built

    provider.external_names, provider.while_listing = ["old"], reload
    names = [(await read(served, path))["resources"][0]["name"] for _ in range(2)]
    assert names == ["old", "new"]


async def test_the_documents_are_bounded_whatever_there_is(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    """Tenants choose the names of their series; what is not listed is said once, with how many there are."""
    provider.metrics = [info(PODS, f"metric_{number:05}") for number in range(30_000)]
    provider.external_names = [f"metric_{number:05}" for number in range(25_000)]
    served = Documents(provider, BOTH, "1.2.3")
    for path in (
        f"/apis/{CUSTOM_GROUP}/v1beta1",
        f"/apis/{CUSTOM_GROUP}/v1beta2",
        f"/apis/{EXTERNAL_GROUP}/v1beta1",
    ):
        assert len((await read(served, path))["resources"]) == 20_000
    for group in (await read(served, "/apis", aggregated=True))["items"]:
        for version in group["versions"]:
            assert sum(len(each.get("subresources", [1])) for each in version["resources"]) == 20_000
    warnings = [record.facts for record in caplog.records]  # type: ignore[attr-defined]
    assert warnings == [{"limit": 20_000, "left_out": 15_000}]
    provider.generation += 1
    provider.metrics = provider.metrics[:25_000]
    await read(served, f"/apis/{CUSTOM_GROUP}/v1beta1")
    assert len(caplog.records) == 1
    provider.generation += 1
    provider.metrics, provider.external_names = provider.metrics[:10], []
    assert len((await read(served, f"/apis/{CUSTOM_GROUP}/v1beta1"))["resources"]) == 10
    provider.generation += 1
    provider.external_names = [f"metric_{number:05}" for number in range(20_001)]
    await read(served, f"/apis/{EXTERNAL_GROUP}/v1beta1")
    assert [record.facts["left_out"] for record in caplog.records] == [15_000, 1]  # type: ignore[attr-defined]


async def test_many_metrics_leave_the_loop_alone(provider: Provider) -> None:
    """Work beside the build of a document waits for a few hundred metrics at most."""
    provider.metrics = [info(PODS, f"metric_{number:05}") for number in range(10_000)]
    provider.external_names = [f"metric_{number:05}" for number in range(10_000)]
    served = Documents(provider, BOTH, "1.2.3")
    for path, aggregated in ((f"/apis/{CUSTOM_GROUP}/v1beta1", False), ("/apis", True)):
        steps = 0

        async def count() -> None:
            nonlocal steps
            while True:
                await asyncio.sleep(0)
                steps += 1

        counting = asyncio.create_task(count())
        document = await read(served, path, aggregated=aggregated)
        counting.cancel()
        assert steps >= 20
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
