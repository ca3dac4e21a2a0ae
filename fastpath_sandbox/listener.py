"""The base of the sandbox's HTTP servers, which can go down and come back at the same address.

While a server is down, connections are refused and open ones are cut.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


MAX_BODY = 16 * 1024 * 1024
"""Bytes of a request's body that are read: more than an API server or Prometheus takes."""


def _make_request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=MAX_BODY)


class Listener:
    """One HTTP server on `host`, which listens inside the ``async with`` block.

    Port 0 lets the system choose; the port is known once the server listens.
    """

    def __init__(self, handler: Handler, host: str, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._host = host
        self._port = port
        self._tls = tls
        self._server: web.Server | None = None
        self._runner: web.ServerRunner | None = None
        self._site: web.TCPSite | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def address(self) -> str:
        """Host and port, as in the targets of a scrape configuration."""
        return f"{self._host}:{self._port}"

    @property
    def url(self) -> str:
        """The base URL, without a trailing slash."""
        return f"{'https' if self._tls else 'http'}://{self.address}"

    async def start(self) -> None:
        self._server = web.Server(
            self._handler, request_factory=_make_request, handler_cancellation=True, access_log=None
        )
        self._runner = web.ServerRunner(self._server, shutdown_timeout=1.0)
        await self._runner.setup()
        await self.up()

    async def stop(self) -> None:
        """Stop the server: cut open connections and cancel handlers."""
        await self.down()
        assert self._runner is not None
        await self._runner.cleanup()

    async def down(self) -> None:
        """Refuse new connections and cut open ones."""
        if self._site is not None:
            await self._site.stop()
            self._site = None
        assert self._server is not None
        for connection in list(self._server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def up(self) -> None:
        """Listen again at the same address; no effect if the server listens already."""
        if self._site is not None:
            return
        assert self._runner is not None
        self._site = web.TCPSite(self._runner, self._host, self._port, ssl_context=self._tls)
        await self._site.start()
        if not self._port:
            self._port = self._runner.addresses[0][1]
