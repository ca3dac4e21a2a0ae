"""The discovery documents of the sandbox cluster."""

from typing import Any

import aiohttp
import pytest

from fastpath_sandbox.apiserver.kinds import BUILTIN, Kind
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.answers import answers

JSON = dict[str, Any]
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"


async def get(http: aiohttp.ClientSession, path: str, accept: str = "application/json") -> JSON:
    async with http.get(path, headers={"Accept": accept}) as response:
        assert response.status == 200
        document: JSON = await response.json()
        if document["kind"] == "APIGroupDiscoveryList":
            assert response.headers["Content-Type"] in accept
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
    items = [item for path in ("/api", "/apis") for item in (await get(http, path, AGGREGATED))["items"]]
    rows = set()
    for item in items:
        for version in item["versions"]:
            start = (item["metadata"].get("name", ""), version["version"])
            for entry in version["resources"]:
                namespaced = str(entry["scope"] == "Namespaced")
                subresources = [
                    {**sub, "resource": f"{entry['resource']}/{sub['subresource']}"}
                    for sub in entry.get("subresources", ())
                ]
                for each in (entry, *subresources):
                    kind = each["responseKind"]["kind"]
                    rows.add((*start, each["resource"], kind, namespaced, *each["verbs"]))
    return rows


async def test_both_forms_say_the_same(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.add_kind(Kind("example.com", "v1", "widgets", "Widget", False, subresources=("status",)))
    rows = await legacy(http)
    assert rows == await aggregated(http)
    named = {row[:3] for row in rows}
    assert {(kind.group, kind.version, kind.plural) for kind in BUILTIN} <= named
    assert ("example.com", "v1", "widgets/status") in named
    assert ("apps", "v1", "deployments/scale", "Scale", "True", "get", "patch", "update") in rows


@pytest.mark.parametrize(("on", "accept", "kind"), answers("sandbox/discovery", "forms"))
async def test_which_form_is_sent(on: bool, accept: str, kind: str) -> None:  # noqa: FBT001  # a table's column
    async with Cluster(aggregated_discovery=on) as cluster, aiohttp.ClientSession(cluster.url) as http:
        assert (await get(http, "/apis", accept))["kind"] == kind


async def test_custom_kinds_name_their_group_in_the_aggregated_form(
    cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    cluster.add_kind(Kind("example.com", "v1", "widgets", "Widget", True, ("wd",), ("all",)))
    document = await get(http, "/apis", AGGREGATED)
    items = {item["metadata"]["name"]: item["versions"][0]["resources"] for item in document["items"]}
    (widgets,) = items["example.com"]
    assert widgets["responseKind"] == {"group": "example.com", "version": "v1", "kind": "Widget"}
    assert (widgets["shortNames"], widgets["categories"]) == (["wd"], ["all"])
    assert items["apps"][0]["responseKind"]["group"] == ""
