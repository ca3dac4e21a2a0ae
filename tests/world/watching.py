"""A continued list and watch: an API server may end any watch, with or without an ERROR event.

A watch begins at the version of a list, never without a version: the API server would first wait until its
cache is as new as etcd, and answers `Too large resource version` where nothing of that kind changes
meanwhile.
"""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import yaml

from adapter.model.autoscaling import floor as floors
from tests.support.waiting import running
from tests.world.clusters import ClusterUnderTest, Document
from tests.world.scalewrites import Audit

PAUSE = 0.2
"""Seconds before the next attempt."""


def connect(cluster: ClusterUnderTest) -> aiohttp.ClientSession:
    """Return a session of the administrator of a cluster."""
    config: Any = yaml.safe_load(cluster.admin_kubeconfig.read_text())
    server, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trust = None
    if "certificate-authority" in server:
        trust = ssl.create_default_context(cafile=server["certificate-authority"])
        if "client-key" in user:
            trust.load_cert_chain(user["client-certificate"], user["client-key"])
    return aiohttp.ClientSession(
        base_url=server["server"],
        headers={"Authorization": f"Bearer {user['token']}"} if "token" in user else {},
        connector=aiohttp.TCPConnector(ssl=trust or True, limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
    )


@contextlib.asynccontextmanager
async def auditing(
    session: aiohttp.ClientSession, namespace: str, home: str, audit: Audit
) -> AsyncIterator[None]:
    """Let an audit see the Deployments and HPAs of a namespace until the block ends, and floors in `home`."""

    def seen(see: Callable[[Document], None]) -> Callable[[str, Document], None]:
        return lambda event, found: None if event == "DELETED" else see(found)

    autoscalers = f"/apis/autoscaling/v2/namespaces/{namespace}/horizontalpodautoscalers"
    deployments = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    published, of_floors = f"/api/v1/namespaces/{home}/configmaps", {"labelSelector": f"{floors.LABEL}=true"}
    async with running(
        follow(session, deployments, seen(audit.saw_target)),
        follow(session, autoscalers, seen(audit.saw_autoscaler)),
        follow(session, published, seen(audit.saw_floors), **of_floors),
    ):
        yield


async def follow(
    session: aiohttp.ClientSession, path: str, see: Callable[[str, Document], None], **parameters: str
) -> None:
    """Call `see` with ADDED, MODIFIED or DELETED and the object, until cancelled.

    A new list that finds other objects than were known becomes the events that were missed: no object is
    added twice.
    """
    known: dict[str, Document] = {}
    while True:
        version = ""
        with contextlib.suppress(aiohttp.ClientConnectionError):
            version = await _list(session, path, known, see, parameters)
        while version:
            version = await _watch(session, path, known, see, parameters | {"resourceVersion": version})
        await asyncio.sleep(PAUSE)


async def _list(
    session: aiohttp.ClientSession,
    path: str,
    known: dict[str, Document],
    see: Callable[[str, Document], None],
    parameters: dict[str, str],
) -> str:
    async with session.get(path, params=parameters) as response:
        if response.status >= 500:  # it starts
            return ""
        assert response.status == 200, await response.text()
        found = await response.json()
    kind = {"apiVersion": found["apiVersion"], "kind": found["kind"].removesuffix("List")}
    items = {each["metadata"]["uid"]: kind | each for each in found["items"]}
    for uid in known.keys() - items.keys():
        see("DELETED", known.pop(uid))
    for uid, item in items.items():
        event = "MODIFIED" if uid in known else "ADDED"
        known[uid] = item
        see(event, item)
    version: str = found["metadata"]["resourceVersion"]
    return version


async def _watch(
    session: aiohttp.ClientSession,
    path: str,
    known: dict[str, Document],
    see: Callable[[str, Document], None],
    parameters: dict[str, str],
) -> str:
    """Follow one watch to its end; return the version for the next, "" if a new list is needed."""
    version = parameters["resourceVersion"]
    query = parameters | {"watch": "1", "allowWatchBookmarks": "true"}
    async with contextlib.AsyncExitStack() as stack:
        try:
            response = await stack.enter_async_context(session.get(path, params=query))
        except aiohttp.ClientError:
            return ""
        if response.status != 200:
            return ""
        async for line in _lines(response):
            event, found = line["type"], line["object"]
            if event == "ERROR":
                return ""
            version = found["metadata"]["resourceVersion"]
            if event == "BOOKMARK":
                continue
            if event == "DELETED":
                known.pop(found["metadata"]["uid"], None)
            else:
                known[found["metadata"]["uid"]] = found
            see(event, found)
    return version


async def _lines(response: aiohttp.ClientResponse) -> AsyncIterator[Document]:
    """Yield what comes until the watch ends, or is cut."""
    rest = b""
    with contextlib.suppress(aiohttp.ClientPayloadError, aiohttp.ClientConnectionError):
        async for piece in response.content.iter_any():
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                yield json.loads(line)
