"""A request as the server works on it: its parsed head, its connection, and what became known of it."""

from typing import Protocol

from aiohttp.http import HttpVersion, RawRequestMessage
from aiohttp.streams import StreamReader
from multidict import CIMultiDictProxy

from adapter.model.identity import User
from adapter.server.auth.client_cert import Peer
from adapter.server.http.budgets import BoundedConnection


class RequestConnection(BoundedConnection, Protocol):
    """The connection of a request."""

    peer: Peer | None
    """None where there was no TLS handshake."""
    remote: str
    """The address of the client, which belongs to the group `address`."""


class HTTPRequest:
    """One request. Its body is parsed to find the end of it, and never read."""

    __slots__ = (
        "body",
        "caller",
        "connection",
        "headers",
        "is_chunked",
        "keep_alive",
        "method",
        "raw_headers",
        "target",
        "version",
    )

    def __init__(self, message: RawRequestMessage, body: StreamReader, connection: RequestConnection) -> None:
        self.connection = connection
        self.method = message.method
        self.target = message.path
        self.version: HttpVersion = message.version
        self.headers: CIMultiDictProxy[str] = message.headers
        self.raw_headers = message.raw_headers
        self.keep_alive = not message.should_close
        self.is_chunked = message.chunked
        self.caller: User | None = None
        """Set once the caller is identified, admitted or not."""
        self.body = body
        """At its end once all of it has arrived; empty for a request without one."""

    @property
    def announced(self) -> int:
        """The bytes of the body that the head announces."""
        return int(self.headers.get("Content-Length", 0))

    @property
    def missing(self) -> int:
        """The announced bytes that have not arrived yet."""
        return self.announced - self.body.total_bytes
