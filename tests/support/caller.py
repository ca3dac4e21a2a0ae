"""Callers on the wire, each with a connection of its own: many at once, and callers that go away."""

import asyncio
import json
import ssl
from typing import NamedTuple, Self

from tests.support.adapter import Answer, RunningAdapter


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Caller(NamedTuple):
    """A connection, good for one question."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def connect(cls, adapter: RunningAdapter) -> Self:
        """Connect with a handshake of its own."""
        port = int(adapter.url.rpartition(":")[2])
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=_context()))

    def certificate(self) -> bytes:
        """Return the certificate that the adapter has shown, in DER."""
        shown: bytes = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return shown

    def ask(self, path: str) -> None:
        """Send a question."""
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())

    async def answer(self) -> Answer:
        """Wait for the answer."""
        head, _, body = (await self.reader.read()).partition(b"\r\n\r\n")
        is_json = b"application/json" in head
        return Answer(int(head.split()[1]), json.loads(body) if is_json else body.decode())

    def leave(self) -> None:
        """Cut the connection."""
        self.writer.transport.abort()
