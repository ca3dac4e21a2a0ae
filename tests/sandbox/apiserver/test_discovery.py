"""The discovery documents of the sandbox cluster."""

from typing import Any

import aiohttp
import pytest

from fastpath_sandbox.apiserver.kinds import BUILTIN, Kind
from fastpath_sandbox.apiserver.server import Cluster

JSON = dict[str, Any]
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def get(http: aiohttp.ClientSession, path: str, accept: str = "application/json") -> JSON:
    async with http.get(path, headers={"Accept": accept}) as response:
        assert response.status == 200
        document: JSON = await response.json()
        return document


async def legacy(http: aiohttp.ClientSession) -> set[tuple[str, ...]]:
    """Return what the legacy documents say, one row for each resource."""
    group_versions = [("", "v1", "/api/v1")]
    for group in (await get(http, "/apis"))["groups"]:
        versions = [entry["version"] for entry in group["versions"]]
        assert group["preferredVersion"]["version"] == versions[0]
        group_versions += [
            (group["name"], version, f"/apis/{group['name']}/{version}") for version in versions
        ]
    rows = set()
    for group, version, path in group_versions:
        for entry in (await get(http, path))["resources"]:
            rows.add(
                (group, version, entry["name"], entry["kind"], str(entry["namespaced"]), *entry["verbs"])
            )
    return rows


async def aggregated(http: aiohttp.ClientSession) -> set[tuple[str, ...]]:
    """Return what the aggregated documents say, in the same form."""
    rows = set()
    for path in ("/api", "/apis"):
        for item in (await get(http, path, AGGREGATED))["items"]:
            group = item["metadata"].get("name", "")
            for version in item["versions"]:
                for entry in version["resources"]:
                    namespaced = str(entry["scope"] == "Namespaced")
                    start = (group, version["version"])
                    rows.add(
                        (
                            *start,
                            entry["resource"],
                            entry["responseKind"]["kind"],
                            namespaced,
                            *entry["verbs"],
                        )
                    )
                    for sub in entry.get("subresources", ()):
                        name = f"{entry['resource']}/{sub['subresource']}"
                        rows.add((*start, name, sub["responseKind"]["kind"], namespaced, *sub["verbs"]))
    return rows


async def test_both_forms_say_the_same(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.add_kind(Kind("example.com", "v1", "widgets", "Widget", False, subresources=("status",)))
    rows = await legacy(http)
    assert rows == await aggregated(http)
    named = {row[:3] for row in rows}
    assert {(kind.group, kind.version, kind.plural) for kind in BUILTIN} <= named
    assert ("example.com", "v1", "widgets/status") in named
    assert ("apps", "v1", "deployments/scale", "Scale", "True", "get", "patch", "update") in rows


async def test_content_type_of_the_aggregated_form(http: aiohttp.ClientSession) -> None:
    async with http.get("/apis", headers={"Accept": AGGREGATED}) as response:
        expected = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
        assert response.headers["Content-Type"] == expected
        document = await response.json()
    assert (document["kind"], document["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")


@pytest.mark.parametrize(
    ("on", "accept", "kind"),
    [
        (True, AGGREGATED, "APIGroupDiscoveryList"),
        (True, AGGREGATED.replace("v=v2;", "v=v2beta1;"), "APIGroupDiscoveryList"),
        (True, AGGREGATED.replace("v=v2;", "v=v9;"), "APIGroupList"),
        (True, "application/json", "APIGroupList"),
        (True, "text/html", "APIGroupList"),
        (False, AGGREGATED, "APIGroupList"),
    ],
)
async def test_which_form_is_sent(on: bool, accept: str, kind: str) -> None:  # noqa: FBT001  # a table's column
    async with Cluster(aggregated_discovery=on) as cluster, aiohttp.ClientSession(cluster.url) as http:
        assert (await get(http, "/apis", accept))["kind"] == kind


async def test_custom_kinds_name_their_group_in_the_aggregated_form(
    cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    cluster.add_kind(Kind("example.com", "v1", "widgets", "Widget", True, ("wd",), ("all",)))
    document = await get(http, "/apis", AGGREGATED)
    items = {item["metadata"]["name"]: item["versions"][0]["resources"] for item in document["items"]}
    assert items["example.com"][0]["responseKind"] == {
        "group": "example.com",
        "version": "v1",
        "kind": "Widget",
    }
    assert (items["example.com"][0]["shortNames"], items["example.com"][0]["categories"]) == (["wd"], ["all"])
    assert items["apps"][0]["responseKind"]["group"] == ""


async def test_core_documents(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    assert (await get(http, "/api"))["versions"] == ["v1"]
    pods = next(entry for entry in (await get(http, "/api/v1"))["resources"] if entry["name"] == "pods")
    assert (pods["singularName"], pods["shortNames"], pods["namespaced"]) == ("pod", ["po"], True)
    assert (await get(http, "/version"))["gitVersion"].startswith("v1.")
    async with http.get("/apis/none.io") as response:
        assert response.status == 404
