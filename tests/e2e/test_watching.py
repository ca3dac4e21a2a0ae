"""A watch that the API server ends is followed by another, and nothing is missed or seen twice."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.support.waiting import until
from tests.world import watching

TOO_LARGE = {
    "type": "ERROR",
    "object": {
        "kind": "Status",
        "metadata": {},
        "status": "Failure",
        "message": "Timeout: Too large resource version: 224, current: 31",
        "reason": "Timeout",
        "code": 504,
    },
}
GONE = {"type": "ERROR", "object": {"kind": "Status", "metadata": {}, "reason": "Expired", "code": 410}}


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}


def event(kind: str, name: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": pod(name, version)}


class Server:
    """Answers lists and watches as scripted; the last watch stays open."""

    def __init__(self, lists: list[list[dict[str, Any]]], watches: list[list[dict[str, Any]] | int]) -> None:
        self._lists: Iterator[list[dict[str, Any]]] = iter(lists)
        self._watches = iter(watches)
        self.versions: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.json_response(
                {
                    "apiVersion": "v1",
                    "kind": "PodList",
                    "metadata": {"resourceVersion": "10"},
                    "items": next(self._lists),
                }
            )
        self.versions.append(request.query["resourceVersion"])
        script = next(self._watches, None)
        if isinstance(script, int):
            return web.Response(status=script)
        response = web.StreamResponse()
        await response.prepare(request)
        for each in script or ():
            text = json.dumps(each).encode() + b"\n"
            await response.write(text[:7])  # a line may come in pieces
            await response.write(text[7:])
        if script is None:
            await asyncio.Event().wait()
        return response


async def followed(server: Server, expected: list[tuple[str, str]], watches: int) -> None:
    seen: list[tuple[str, str]] = []

    def see(kind: str, document: dict[str, Any]) -> None:
        seen.append((kind, document["metadata"]["name"]))

    application = web.Application()
    application.router.add_get("/pods", server.answer)
    async with TestServer(application) as running, aiohttp.ClientSession(running.make_url("/")) as session:
        task = asyncio.create_task(watching.follow(session, "/pods", see))
        try:
            await until(lambda: task.done() or (seen == expected and len(server.versions) == watches))
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_that_ends_goes_on_where_it_was() -> None:
    server = Server([[pod("a", 3)]], [[event("ADDED", "b", 11), event("BOOKMARK", "", 15)], []])
    await followed(server, [("ADDED", "a"), ("ADDED", "b")], watches=3)
    assert server.versions == ["10", "15", "15"]


@pytest.mark.parametrize("failure", [[TOO_LARGE], [GONE], 410, 500])
async def test_a_watch_that_fails_is_followed_by_a_list(failure: list[dict[str, Any]] | int) -> None:
    server = Server([[pod("a", 3), pod("b", 4)], [pod("b", 4), pod("c", 12)]], [failure])
    expected = [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a"), ("MODIFIED", "b"), ("ADDED", "c")]
    await followed(server, expected, watches=2)
