"""Callers on the wire, each with a connection of its own: many at once, and callers that go away."""

import asyncio
import json
from collections.abc import Mapping
from typing import NamedTuple, Self

from tests.support.adapter import Answer, RunningAdapter


class Caller(NamedTuple):
    """A connection, good for one question."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    headers: Mapping[str, str]

    @classmethod
    async def connect(cls, adapter: RunningAdapter) -> Self:
        port = int(adapter.url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=adapter.context)
        return cls(reader, writer, adapter.headers)

    def certificate(self) -> bytes:
        """Return the certificate that the adapter has shown, in DER."""
        shown: bytes = self.writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return shown

    def ask(self, path: str) -> None:
        lines = [f"GET {path} HTTP/1.1", "Host: x", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())

    async def answer(self) -> Answer:
        head, _, body = (await self.reader.read()).partition(b"\r\n\r\n")
        is_json = b"application/json" in head
        return Answer(int(head.split()[1]), json.loads(body) if is_json else body.decode())

    def leave(self) -> None:
        self.writer.transport.abort()
