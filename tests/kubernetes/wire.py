"""A network between one process and a server: a TCP proxy that a test cuts, or that holds everything back.

The sender's system keeps what the network holds back. A sender that resets its connection discards that data.
After a normal close the data is delivered once the network works again.
"""

import asyncio
import contextlib
import socket
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

_CLOSED = 7
"""TCP_CLOSE of Linux's TCP states: where a connection is after a reset."""


class Wire:
    """Listens while the ``async with`` block is open, and forwards to `url`."""

    def __init__(self, url: str) -> None:
        split = urlsplit(url)
        self._host, self._port = split.hostname or "", split.port or 0
        self._server: asyncio.Server | None = None
        self._whole = asyncio.Event()
        self._whole.set()
        self._cut = False
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.url = ""
        self.resets = 0
        """How many connections those who opened them have reset."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._end_all()
        if self._connections:
            await asyncio.wait(list(self._connections))

    def cut(self) -> None:
        """End every connection now and each further one at once."""
        self._cut = True
        self._end_all()

    def hold(self) -> None:
        """Let nothing through, in either direction; connections stay."""
        self._whole.clear()

    def release(self) -> None:
        """Let everything through again, first what was held back."""
        self._whole.set()

    def _end_all(self) -> None:
        for task in self._connections:
            task.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        there: asyncio.StreamWriter | None = None
        try:
            if self._cut:
                return
            answers, there = await asyncio.open_connection(self._host, self._port)
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._pump(reader, there, writer))
                pumps.create_task(self._pump(answers, writer, there))
        except* (OSError, _EndedError, asyncio.CancelledError):
            pass
        finally:
            del self._connections[task]
            self.resets += _was_reset(writer)
            for each in (writer, there):
                if each is not None:
                    each.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, to: asyncio.StreamWriter, sender: asyncio.StreamWriter
    ) -> None:
        while True:
            piece = await reader.read(65536)
            await self._whole.wait()
            if not piece or _was_reset(sender):
                raise _EndedError
            to.write(piece)
            await to.drain()


class _EndedError(Exception):
    """One side is gone."""


def _was_reset(sender: asyncio.StreamWriter) -> bool:
    connection: socket.socket | None = sender.get_extra_info("socket")
    with contextlib.suppress(OSError):
        if connection is not None:
            return bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSED)
    return True
