"""A response in its bytes: the head, and a body that exists already.

Every response of the handler is written by this module, whether its request was answered at once or by a
task, so the two cannot differ. Head and body leave in one write. A body larger than the small share that
does not count is written in pieces, as the client reads them, so that the TLS layer and the transport hold
no copy of the whole.
"""

import asyncio
import http
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from aiohttp import HttpVersion10, HttpVersion11
from aiohttp.helpers import rfc822_formatted_time
from aiohttp.http import StreamWriter

from adapter.server.http import negotiation
from adapter.server.http.budgets import Charge
from adapter.server.http.requests import HTTPRequest

PIECE = 16 * 1024
"""Bytes of a body that are written to the connection at a time."""

_PIECES_AT_ONCE = 4  # after these other work may run

_PHRASES = {status.value: status.phrase for status in http.HTTPStatus}


class EncodedResponse(NamedTuple):
    """A response apart from its request. An empty content type goes with an empty body."""

    status: int
    body: bytes
    content_type: str = negotiation.JSON
    headers: tuple[tuple[str, str], ...] = ()


class Response:
    """A response to a request. `audit_id` may be any text that a header can hold.

    A `charge` is closed by who sends the response.
    """

    __slots__ = ("_encoded", "_request", "audit_id", "charge", "keep_alive", "sent_body")

    def __init__(
        self, request: HTTPRequest, encoded: EncodedResponse, audit_id: str, charge: Charge | None = None
    ) -> None:
        self.keep_alive = request.keep_alive
        """Whether the connection stays open behind it."""
        self._encoded = encoded
        self._request = request
        self.sent_body = b"" if request.method == "HEAD" else encoded.body
        self.audit_id = audit_id
        self.charge = charge

    @property
    def status(self) -> int:
        return self._encoded.status

    def render_head(self) -> bytes:
        request, (status, body, content_type, more) = self._request, self._encoded
        version = request.version
        headers = "".join([f"{name}: {value}\r\n" for name, value in more])
        kind = f"Content-Type: {content_type}\r\n" if content_type else ""
        has_length = body or (status != 304 and request.method != "HEAD")
        length = f"Content-Length: {len(body)}\r\n" if has_length else ""
        if self.keep_alive:
            connection = "Connection: keep-alive\r\n" if version == HttpVersion10 else ""
        else:
            connection = "Connection: close\r\n" if version == HttpVersion11 else ""
        head = (
            f"HTTP/{version[0]}.{version[1]} {status} {_PHRASES[status]}\r\n{headers}"
            f"Audit-Id: {self.audit_id}\r\nCache-Control: no-cache, private\r\nServer: fastpath\r\n"
            f"X-Content-Type-Options: nosniff\r\n{kind}{length}Date: {rfc822_formatted_time()}\r\n"
            f"{connection}\r\n"
        )
        return head.encode()

    async def send(self, writer: StreamWriter) -> None:
        """Send the response whole. Raises ConnectionError where the client has left."""
        body = memoryview(self.sent_body)
        await writer.write(self.render_head() + body[:PIECE])
        await writer.drain()
        for number, start in enumerate(range(PIECE, len(body), PIECE), 2):
            await writer.write(body[start : start + PIECE])
            await writer.drain()
            if number % _PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)


Later = Callable[[], Awaitable[Response]]
"""Makes a response that takes time."""


def render_refusal(status: int) -> bytes:
    """Return the bytes of a response to what is no request, in plain text."""
    text = f"{status} {_PHRASES[status]}"
    head = (
        f"HTTP/1.0 {text}\r\nConnection: close\r\nServer: fastpath\r\nX-Content-Type-Options: nosniff\r\n"
        f"Content-Type: text/plain; charset=utf-8\r\nContent-Length: {len(text) + 1}\r\n"
        f"Date: {rfc822_formatted_time()}\r\n\r\n"
    )
    return f"{head}{text}\n".encode()
