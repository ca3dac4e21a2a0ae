"""When documents are built, and how large they become. What they say is in tests/server/transcripts."""

import asyncio
import json
from typing import Any

import pytest

from adapter.model.metrics import CustomMetricInfo, GroupResource
from adapter.server.api.documents import Documents, ServedDocument
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP, RESOURCE_GROUP
from tests.support.serving import Provider
from tests.support.waiting import other_work

BOTH = (EXTERNAL_GROUP, CUSTOM_GROUP)


def info(metric: str) -> CustomMetricInfo:
    return CustomMetricInfo(GroupResource("", "pods"), namespaced=True, metric=metric)


@pytest.fixture
def provider() -> Provider:
    provider = Provider()
    provider.metrics = [info("http_requests"), info("errors")]
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


def test_an_unknown_group_is_a_mistake(provider: Provider) -> None:
    with pytest.raises(ValueError, match="apps"):
        Documents(provider, ["apps"], "1.2.3")


async def test_rebuilt_only_for_a_new_generation(provider: Provider, documents: Documents) -> None:
    path = f"/apis/{EXTERNAL_GROUP}/v1beta1"
    first, etag = await find(documents, path), (await find(documents, "/apis", aggregated=True)).etag
    provider.external_names = []
    documents.serve(BOTH)
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


@pytest.mark.parametrize(
    ("version", "major", "minor"), [("1.2.3", "1", "2"), ("0.10.0rc1", "0", "10"), ("dev", "", "")]
)
async def test_version(provider: Provider, version: str, major: str, minor: str) -> None:
    document = await read(Documents(provider, BOTH, version), "/version")
    assert (document["major"], document["minor"], document["gitVersion"]) == (major, minor, f"v{version}")
    keys = "major minor gitVersion gitCommit gitTreeState buildDate goVersion compiler platform"
    assert list(document) == keys.split()


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
    provider.metrics = [info(f"metric_{number:05}") for number in range(30_000)]
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
    provider.metrics = [info(f"metric_{number:05}") for number in range(10_000)]
    provider.external_names = [f"metric_{number:05}" for number in range(10_000)]
    for path, aggregated in ((f"/apis/{CUSTOM_GROUP}/v1beta1", False), ("/apis", True)):
        async with other_work() as turns:
            document = await read(documents, path, aggregated=aggregated)
        assert turns.count >= 20
        assert len(document.get("resources", ())) in {0, 10_000}
