"""Requests that `PrometheusClient` does not make of its own accord: after redirects, through proxies."""

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from adapter.errors import PrometheusError
from adapter.prometheus.endpoint import EndpointRequest
from adapter.prometheus.http_connections import WRONG_REDIRECT, HttpConnections, Origin
from tests.prometheus.scripted import Respond, Scripted, Start

CREDENTIALS = {"Authorization": "Bearer abc", "Cookie": "c=1", "X-Scope-OrgID": "team-1"}


async def answer_of(
    connections: HttpConnections, origin: Origin, path: str, *, method: str = "GET", body: bytes | None = None
) -> tuple[int, bytes]:
    request = EndpointRequest(method, f"{origin.url}{path}", body)  # type: ignore[arg-type]  # a table's column
    answer = await connections.send(request, origin)
    try:
        return answer.status, await answer.body.read()
    finally:
        answer.release()


@pytest.fixture
async def connections() -> AsyncIterator[HttpConnections]:
    opened = HttpConnections(2, lambda: None)
    yield opened
    await opened.close()


def origin_of(scripted: Scripted, *, proxy: str = "") -> Origin:
    return Origin(scripted.url, CREDENTIALS, ssl.create_default_context(), "", proxy)


def redirect_to(location: str, status: int) -> Respond:
    async def respond(request: web.Request) -> web.StreamResponse:
        headers = {} if request.path == "/end" else {"Location": location}
        return web.Response(status=status if headers else 200, headers=headers)

    return respond


@pytest.mark.parametrize(
    ("status", "method", "expected"),
    [
        (301, "POST", ("GET", "")),
        (302, "GET", ("GET", "")),
        (302, "POST", ("GET", "")),
        (303, "POST", ("GET", "")),
        (307, "POST", ("POST", "query=up")),
        (308, "POST", ("POST", "query=up")),
    ],
)
async def test_a_redirect_on_the_same_server(
    status: int, method: str, expected: tuple[str, str], scripted: Scripted, connections: HttpConnections
) -> None:
    scripted.respond = redirect_to("../end?a=b%20c#d", status)
    body = b"query=up" if method == "POST" else None
    origin = origin_of(scripted)
    assert await answer_of(connections, origin, "/api/query", method=method, body=body) == (200, b"")
    _, seen = scripted.seen
    assert (seen.method, seen.body) == expected
    assert seen.target == "/end?a=b%20c"
    assert seen.headers["authorization"] == "Bearer abc"
    assert seen.headers.get("content-length") == ("8" if expected[1] else None)


async def test_another_server_gets_no_credentials(
    start_scripted: Start, connections: HttpConnections
) -> None:
    first, other = await start_scripted(), await start_scripted()
    first.respond = redirect_to(f"{other.url}/end", 307)
    assert (await answer_of(connections, origin_of(first), "/api"))[0] == 200
    (seen,) = other.seen
    assert seen.headers["host"] == other.url.removeprefix("http://")
    assert seen.headers["x-scope-orgid"] == "team-1"
    assert not {"authorization", "cookie"} & seen.headers.keys()
    assert {"authorization", "cookie"} <= first.seen[0].headers.keys()


@pytest.mark.parametrize("location", ["ftp://elsewhere/", "http://", "http://[::1", "mailto:a@b"])
async def test_a_redirect_to_nowhere(location: str, scripted: Scripted, connections: HttpConnections) -> None:
    scripted.respond = redirect_to(location, 302)
    with pytest.raises(PrometheusError) as caught:
        await answer_of(connections, origin_of(scripted), "/api")
    assert (caught.value.kind, caught.value.message) == ("status", WRONG_REDIRECT)


async def test_a_redirect_without_a_location_is_the_answer(
    scripted: Scripted, connections: HttpConnections
) -> None:
    scripted.answer(304, "")
    assert await answer_of(connections, origin_of(scripted), "/api") == (304, b"")


async def test_a_proxy_gets_its_credentials_and_the_whole_url(
    scripted: Scripted, connections: HttpConnections
) -> None:
    proxy = scripted.url.replace("http://", "http://user:secret@")
    origin = origin_of(scripted, proxy=proxy)._replace(url="http://prometheus.example:9090")
    for _ in range(2):
        await answer_of(connections, origin, "/api?query=up")
    for seen in scripted.seen:
        assert seen.target == "http://prometheus.example:9090/api?query=up"
        assert seen.headers["host"] == "prometheus.example:9090"
        assert seen.headers["proxy-authorization"] == f"Basic {base64.b64encode(b'user:secret').decode()}"


@pytest.mark.parametrize("value", ["a\r\nX: b", "a\nb", "a\0"])
async def test_a_header_cannot_become_two(
    value: str, scripted: Scripted, connections: HttpConnections
) -> None:
    origin = origin_of(scripted)._replace(headers={"Authorization": value})
    with pytest.raises(PrometheusError, match="line end"):
        await answer_of(connections, origin, "/api")
    assert scripted.seen == []


async def test_a_hint_before_the_answer_is_passed_over(connections: HttpConnections) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        origin = Origin(url, {}, ssl.create_default_context(), "", "")
        assert await answer_of(connections, origin, "/api") == (200, b"ok")
