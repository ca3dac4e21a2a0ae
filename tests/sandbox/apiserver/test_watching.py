"""Watches of the sandbox cluster over real HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from fastpath_sandbox.apiserver.server import Cluster
from tests.support.processor import limited

JSON = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
PARTIAL = {"Accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}


def pod(name: str, namespace: str = "default", **labels: str) -> JSON:
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {},
        "status": {"phase": "Running"},
    }


class Stream:
    """The events of one watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response

    async def event(self) -> JSON | None:
        """Return the next event, or None when the stream ended in order."""
        line = await self.response.content.readline()
        found: JSON | None = json.loads(line) if line else None
        return found

    async def short(self) -> tuple[str, str] | None:
        """Return type and name of the next event."""
        event = await self.event()
        return (event["type"], event["object"]["metadata"].get("name", "")) if event else None

    async def quiet(self, seconds: float = 0.05) -> bool:
        """Say whether nothing comes for a while."""
        try:
            async with asyncio.timeout(seconds):
                await self.response.content.readline()
        except TimeoutError:
            return True
        return False


@asynccontextmanager
async def watching(
    http: aiohttp.ClientSession, path: str = PODS, headers: dict[str, str] | None = None, **query: str
) -> AsyncIterator[Stream]:
    async with http.get(path, params={"watch": "true"} | query, headers=headers) as response:
        assert response.status == 200, await response.text()
        yield Stream(response)


async def test_a_watch_without_version_begins_with_what_is(
    cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    for name in ("b", "a"):
        cluster.create(pod(name))
    for version in ("", "0"):
        async with watching(http, resourceVersion=version) as stream:
            assert [await stream.short(), await stream.short()] == [("ADDED", "a"), ("ADDED", "b")]
            assert await stream.quiet()


async def test_a_watch_from_a_version_sees_each_later_change_once(
    cluster: Cluster, http: aiohttp.ClientSession
) -> None:
    cluster.create(pod("before"))
    start = str(cluster.store.version)
    cluster.create(pod("a"))
    cluster.patch("pods", "a", {"status": {"phase": "Failed"}})
    async with watching(http, resourceVersion=start) as stream:
        assert [await stream.short(), await stream.short()] == [("ADDED", "a"), ("MODIFIED", "a")]
        cluster.delete("pods", "before")
        event = await stream.event()
        assert event is not None
        assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "before")
        assert event["object"]["metadata"]["resourceVersion"] == str(cluster.store.version)
        assert (event["object"]["kind"], event["object"]["apiVersion"]) == ("Pod", "v1")
        assert await stream.quiet()


async def test_objects_enter_and_leave_a_selector(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a", app="x"))
    cluster.create(pod("b", app="y"))
    async with watching(http, resourceVersion=str(cluster.store.version), labelSelector="app=x") as stream:
        cluster.patch("pods", "b", {"metadata": {"labels": {"app": "x"}}})
        assert await stream.short() == ("ADDED", "b")
        cluster.patch("pods", "a", {"metadata": {"labels": {"app": "z"}}})
        left = await stream.event()
        assert left is not None
        assert (left["type"], left["object"]["metadata"]["labels"]) == ("DELETED", {"app": "x"})
        assert left["object"]["metadata"]["resourceVersion"] == str(cluster.store.version)
        cluster.delete("pods", "a")  # never seen again: it had left
        cluster.delete("pods", "b")
        assert await stream.short() == ("DELETED", "b")


async def test_tables_carry_their_columns_once(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    cluster.create(pod("a"))
    cluster.create(pod("b"))
    async with watching(http, headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}) as stream:
        first, second = await stream.event(), await stream.event()
        assert first is not None
        assert second is not None
        assert first["object"]["columnDefinitions"][0]["name"] == "Name"
        assert second["object"]["columnDefinitions"] is None
        assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_timeout_ends_the_stream_in_order(http: aiohttp.ClientSession) -> None:
    async with watching(http, timeoutSeconds="1") as stream:
        assert await stream.event() is None


async def test_bookmarks_carry_the_present_version() -> None:
    async with Cluster(bookmark_interval=0.05) as cluster, aiohttp.ClientSession(cluster.url) as http:
        start = str(cluster.store.version)
        async with watching(http, resourceVersion=start, allowWatchBookmarks="true") as stream:
            cluster.create({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "s"}})
            event = await stream.event()
            metadata = {"resourceVersion": str(cluster.store.version), "creationTimestamp": None}
            assert event == {
                "type": "BOOKMARK",
                "object": {"kind": "Pod", "apiVersion": "v1", "metadata": metadata},
            }
        async with watching(
            http, headers=PARTIAL, resourceVersion=start, allowWatchBookmarks="true"
        ) as stream:
            event = await stream.event()
            assert event is not None
            assert event["object"]["kind"] == "PartialObjectMetadata"
        async with watching(http, resourceVersion=start) as stream:
            assert await stream.quiet(0.15)


@pytest.mark.parametrize("as_status", [False, True])
async def test_a_forgotten_version_is_gone(as_status: bool) -> None:  # noqa: FBT001  # a table's column
    async with Cluster(gone_as_status=as_status) as cluster, aiohttp.ClientSession(cluster.url) as http:
        cluster.create(pod("a"))
        cluster.compact()
        async with http.get(PODS, params={"watch": "1", "resourceVersion": "2"}) as response:
            assert response.status == (410 if as_status else 200)
            answer = await response.json()
        gone = answer if as_status else answer["object"]
        assert as_status or answer["type"] == "ERROR"
        assert (gone["code"], gone["reason"], gone["message"]) == (
            410,
            "Expired",
            "too old resource version: 2 (3)",
        )
        async with watching(http, resourceVersion="3") as stream:
            cluster.create(pod("b"))
            assert await stream.short() == ("ADDED", "b")


async def test_a_short_log_forgets_by_itself() -> None:
    async with Cluster(log_size=2) as cluster, aiohttp.ClientSession(cluster.url) as http:
        start = str(cluster.store.version)
        for name in "abc":
            cluster.create(pod(name))
        async with watching(http, resourceVersion=start) as stream:
            event = await stream.event()
            assert event is not None
            assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
            assert await stream.event() is None


async def test_cut_watches_break_in_the_middle(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    async with watching(http) as stream:
        cluster.create(pod("a"))
        assert await stream.short() == ("ADDED", "a")
        assert cluster.open_watches == 1
        assert cluster.cut_watches() == 1
        with pytest.raises(aiohttp.ClientError):
            await stream.event()
    async with watching(http) as again:
        assert await again.short() == ("ADDED", "a")


async def test_frozen_watches_are_silent_and_lose_nothing() -> None:
    async with Cluster(bookmark_interval=0.02) as cluster, aiohttp.ClientSession(cluster.url) as http:
        start = str(cluster.store.version)
        async with watching(http, resourceVersion=start, allowWatchBookmarks="true") as stream:
            bookmark = await stream.short()
            assert bookmark == ("BOOKMARK", "")
            cluster.freeze_watches()
            cluster.create(pod("a"))
            cluster.patch("pods", "a", {"status": {"phase": "Failed"}})
            while (event := await _next_within(stream, 0.15)) is not None:
                assert event == ("BOOKMARK", "")  # sent before the freeze
            cluster.thaw_watches()
            seen = [await stream.short() for _ in range(4)]
            assert [event for event in seen if event != ("BOOKMARK", "")][:2] == [
                ("ADDED", "a"),
                ("MODIFIED", "a"),
            ]


async def _next_within(stream: Stream, seconds: float) -> tuple[str, str] | None:
    try:
        async with asyncio.timeout(seconds):
            return await stream.short()
    except TimeoutError:
        return None


async def test_a_client_that_goes_is_forgotten(cluster: Cluster, http: aiohttp.ClientSession) -> None:
    async with watching(http) as stream:
        cluster.create(pod("a"))
        await stream.short()
        stream.response.close()
    async with limited(1):
        while cluster.open_watches:  # noqa: ASYNC110  # the count is a fact of sockets, nothing signals it
            await asyncio.sleep(0.005)


async def test_initial_events_are_refused(http: aiohttp.ClientSession) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    async with http.get(PODS, params={"watch": "1", "allowWatchBookmarks": "true"} | query) as response:
        assert response.status == 422
        assert (await response.json())["reason"] == "Invalid"
