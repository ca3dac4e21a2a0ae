"""A scripted Prometheus over real HTTP, and the options of a connection to it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.config.options import PrometheusOptions
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from tests.support.clock import FakeClock

EMPTY_VECTOR = {"status": "success", "data": {"resultType": "vector", "result": []}}

Respond = Callable[[web.Request], Awaitable[web.StreamResponse]]


def connection_options(url: str, **options: Any) -> PrometheusOptions:
    """Return the options of a connection; their names are those of the fields without `prometheus_`."""
    named = {f"prometheus_{name}": value for name, value in options.items()}
    return PrometheusOptions(prometheus_url=url, **named)


def hang(begun: asyncio.Event | None = None, gone: asyncio.Event | None = None) -> Respond:
    """Return what never answers; the events are set when a request arrives, and when its client is gone."""

    async def respond(_: web.Request) -> web.StreamResponse:
        with contextlib.ExitStack() as stack:
            if begun is not None:
                begun.set()
            if gone is not None:
                stack.callback(gone.set)
            await asyncio.sleep(60)
        raise AssertionError

    return respond


def stream(parts: Iterable[bytes], *, pause: float = 0.0, **headers: str) -> Respond:
    """Return what answers in parts."""

    async def respond(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        for part in parts:
            await response.write(part)
            await asyncio.sleep(pause)
        return response

    return respond


async def redirect(_: web.Request) -> web.StreamResponse:
    raise web.HTTPFound("/again")


class Seen(NamedTuple):
    """A request as it arrived."""

    method: str
    target: str
    body: str
    headers: dict[str, str]

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body or self.target.partition("?")[2], keep_blank_values=True))


class Scripted:
    """Answers every path with `respond`, an empty vector unless a test sets another."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.respond: Respond = self._respond_empty
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = (await request.read()).decode()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(Seen(request.method, request.raw_path, body, headers))
        return await self.respond(request)

    @staticmethod
    async def _respond_empty(_: web.Request) -> web.StreamResponse:
        return web.json_response(EMPTY_VECTOR)

    def answer(self, status: int, text: str | bytes, **headers: str) -> None:
        body = text.encode() if isinstance(text, str) else text

        async def respond(_: web.Request) -> web.StreamResponse:
            return web.Response(status=status, body=body, headers=headers)

        self.respond = respond


Start = Callable[..., Awaitable[Scripted]]


@pytest.fixture
async def start_scripted() -> AsyncIterator[Start]:
    """Return a function that starts a scripted server, with TLS when it is given a context."""
    servers: list[TestServer] = []

    async def start(tls: ssl.SSLContext | None = None) -> Scripted:
        scripted = Scripted()
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", scripted.handle)
        server = TestServer(app, host="127.0.0.1", scheme="https" if tls else "http")
        await server.start_server(ssl=tls, shutdown_timeout=0.1)
        servers.append(server)
        scripted.url = str(server.make_url("")).rstrip("/")
        return scripted

    yield start
    for server in servers:
        await server.close()


@pytest.fixture
async def scripted(start_scripted: Start) -> Scripted:
    return await start_scripted()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def monitoring() -> Monitoring:
    return Monitoring()


@pytest.fixture
def faults(monitoring: Monitoring, clock: FakeClock) -> ProblemLog:
    return ProblemLog(monitoring, clock)
