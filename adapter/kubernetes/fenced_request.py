"""The body of a write that may be stopped until its first byte leaves, and that leaves nothing behind when it is given up.

What lives here: what is done to the connection. Not here: why a write is stopped (`fence`). The law: nothing of a request is on the
wire before `check` has passed, however long a connection took and however long the process was kept from running; and a write that
was given up is not delivered later by the system: its connection is reset, so that what had not left yet is thrown away.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_writer import StreamWriter

_AT_ONCE = struct.pack("ii", 1, 0)


class GuardedBody(aiohttp.BytesPayload):
    """Bytes for one write. `refusal` is what `check` raised, `times` how often they were sent."""

    def __init__(self, content: bytes, content_type: str, check: Callable[[], object]) -> None:
        super().__init__(content, content_type=content_type)
        self._check = check
        self._transports: list[asyncio.Transport] = []
        self.refusal: Exception | None = None
        self.times = 0

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write, unless it may not be any more: aiohttp holds the head of the request back until here.

        It comes here again when it found the connection closed by the other side and has opened another.
        """
        try:
            self._check()
        except Exception as refusal:
            self.refusal = refusal
            raise
        if isinstance(writer, StreamWriter) and writer.transport is not None:
            self._transports.append(writer.transport)
            _throw_away_at_close(writer.transport)
        self.times += 1
        await super().write_with_length(writer, content_length)

    def answered(self) -> None:
        """Note that the server has answered: nothing of the request is left to be delivered."""
        self._transports.clear()

    def abandon(self) -> None:
        """Reset the connection of a write that was not answered; nothing to do for one that was."""
        for transport in self._transports:
            transport.abort()
        self._transports.clear()


def _throw_away_at_close(transport: asyncio.Transport) -> None:
    """Have the system forget at once what it holds of this connection when that is closed."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        with contextlib.suppress(OSError):  # the other side was quicker: there is nothing to forget
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
