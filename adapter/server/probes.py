"""The listener for kubelet's probes: /livez and /readyz over plain HTTP, and nothing else.

Every pod of the cluster network can reach this port and callers are not authenticated, so it shares nothing
with the HTTPS server. It reports which checks fail and never why. A connection gets one response, lives for a
few seconds and sends a few KiB; beyond a number of connections the oldest is closed. kubelet sends its
request as soon as it is connected, so it is answered before others could displace it.
"""

import asyncio
import logging
from http import HTTPStatus
from typing import cast

from adapter.server.health import Health
from adapter.telemetry import logs

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
"""Connections at a time; one more closes the oldest."""

HEAD_BYTES = 8192
"""Bytes of a request's line and headers together."""

SECONDS = 5.0
"""How long a connection lives."""

_PATHS = frozenset({b"/livez", b"/readyz", b"/healthz"})
_END = b"\r\n\r\n"


class ProbeListener:
    """Answers probes with `health` between `start` and `stop`.

    The host "" means every address of the machine.
    """

    def __init__(self, host: str, port: int, health: Health) -> None:
        self._host = host
        self.port = port
        self._health = health
        self._server: asyncio.Server | None = None
        self._open: dict[_ProbeConnection, None] = {}

    async def start(self) -> None:
        """Listen. OSError where the address is not available."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _ProbeConnection(self._health, self._open), self._host or None, self.port
        )
        self.port = self._server.sockets[0].getsockname()[1]
        log.info("answering probes", extra=logs.facts(host=self._host, port=self.port))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for connection in list(self._open):
                connection.abort()
            await self._server.wait_closed()


class _ProbeConnection(asyncio.Protocol):
    """One connection: it reads a request to the end of its headers, answers it and closes."""

    def __init__(self, health: Health, connections: "dict[_ProbeConnection, None]") -> None:
        self._health = health
        self._open = connections
        self._head = b""
        self._answered = False
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass
        self._deadline = asyncio.get_running_loop().call_later(SECONDS, self.abort)
        self._open[self] = None
        if len(self._open) > MOST_CONNECTIONS:
            next(iter(self._open)).abort()

    def connection_lost(self, _: Exception | None) -> None:
        self._open.pop(self, None)
        if self._deadline is not None:
            self._deadline.cancel()

    def abort(self) -> None:
        self._open.pop(self, None)
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._answered:
            return
        self._head += data
        head, found, _ = self._head.partition(_END)
        if len(head) > HEAD_BYTES:
            self._send(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "")
        elif found:
            self._answer(head)

    def _answer(self, head: bytes) -> None:
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return self._send(HTTPStatus.BAD_REQUEST, "")
        method, target, _ = words
        path = target.partition(b"?")[0]
        if path not in _PATHS:
            return self._send(HTTPStatus.NOT_FOUND, "")
        if method not in {b"GET", b"HEAD"}:
            return self._send(HTTPStatus.METHOD_NOT_ALLOWED, "")
        answer = self._health.answer((path[1:].decode(),), "")
        assert answer is not None
        return self._send(HTTPStatus(answer.status), answer.text, bodiless=method == b"HEAD")

    def _send(self, status: HTTPStatus, text: str, *, bodiless: bool = False) -> None:
        assert self._transport is not None
        self._answered = True
        self._head = b""
        body = (text or f"{status.phrase}\n").encode()
        lines = [
            f"HTTP/1.1 {status} {status.phrase}",
            "Content-Type: text/plain; charset=utf-8",
            f"Content-Length: {len(body)}",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
        ]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        self._transport.write("\r\n".join(lines).encode() + _END + (b"" if bodiless else body))
        self._transport.close()
