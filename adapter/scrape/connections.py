"""Connections to pods, kept between scrapes within a share of the process's files.

A pod chooses the bytes that it sends and how much work they are: 4 KiB can be a hundred responses or seven
hundred chunks, and aiohttp's parser processes all that it is given in one step. So what arrives waits for the
turn of its namespace and is parsed in pieces. Until then the socket is not read, the bytes are charged to the
body's budget, and the time counts for the pod.

A request has one answer, after at most four informational ones. Each byte more ends the connection, also
while it is kept for the next scrape.
"""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http import RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from adapter.errors import ScrapeError
from adapter.model.clock import Clock
from adapter.model.fairness import Ledger
from adapter.model.steps import Steps
from adapter.prometheus import endpoint
from adapter.rules import matchers
from adapter.scrape.bodies import BodyBuffer
from adapter.scrape.schedule import FairTurns
from adapter.telemetry.problems import SourceProblems

HEADERS_TAKEN, HEADER_BYTES = 64, 4096
"""Bounds on the headers of an answer, and on the bytes of each: heads are not charged to the budget."""

MOST_HINTS = 4
"""Informational responses that may precede an answer."""

FRAMING_BYTES = 64 * 1024
"""What an answer may take on the wire beside twice the bytes of its largest body."""

KEPT_SHARE = 0.75
"""The part of the files for scrapes that connections between two scrapes may have."""

PIECE = 2048  # bytes that are parsed in one step, in two milliseconds at most
_BODY_BYTES = 16 * 1024  # of a body in a connection before the rest is not parsed yet
_KEEP_ALIVE_SECONDS = 150.0  # longer than the longest interval


class PodConnection(ResponseHandler):
    """One connection. It answers one request at a time, begun with `ask`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: FairTurns, clock: Clock) -> None:
        super().__init__(loop)
        self._turns = turns
        self._clock = clock
        self._body: BodyBuffer | None = None
        self._answer: StreamReader | None = EMPTY_PAYLOAD  # nothing is requested yet
        self._hints = 0
        self._left = 0  # bytes that the answer may still take
        self._unparsed = b""
        self._offset = 0
        self._is_parsing = False
        self._loss: tuple[BaseException | None] | None = None
        self.expiry: asyncio.TimerHandle | None = None
        """Closes it if it is kept for too long."""

    @property
    def is_answered(self) -> bool:
        """Whether all of the answer has arrived, so that each byte more is one too many."""
        return self._answer is not None and self._answer.is_eof()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if transport.get_extra_info("ssl_object") is not None:
            transport.set_read_buffer_limits(high=_BODY_BYTES)  # type: ignore[attr-defined]  # of TLS transports
        super().connection_made(transport)

    async def ask(
        self, request: bytes, body: BodyBuffer, most: int
    ) -> tuple[RawResponseMessage, StreamReader]:
        """Send a request; return the head and the unread body of its answer of up to `most` bytes."""
        self._body, self._answer, self._hints, self._left = body, None, 0, most
        self.set_response_params(
            read_until_eof=True,
            auto_decompress=False,
            read_bufsize=_BODY_BYTES,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
            max_headers=HEADERS_TAKEN,
        )
        if self.transport is not None:  # else it is lost already, as `read` says
            self.transport.write(request)
        while True:
            message, payload = await self.read()
            if not _is_hint(message):
                return message, payload

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's own signature
        """Go on reading. Each read of a body calls this; only after a pause something is left to parse."""
        super().resume_reading(resume_parser and self._reading_paused)

    def data_received(self, data: bytes) -> None:
        """Parse it in the turn of the namespace; without data, go on with what is not parsed yet."""
        if self.transport is None:
            return
        if self._body is None or self.is_answered:
            self._fail(_invalid("more bytes than the answer"))
            return
        self._unparsed += data
        self._body.hold(len(self._unparsed))
        self._pause_reading_for_buffer()
        if not self._is_parsing:
            self._is_parsing = True
            self._turns.start(self._body.namespace, self._parse(self._body))

    def _parse(self, body: BodyBuffer) -> Steps[None]:
        while self.transport is not None:
            started = self._clock.monotonic()
            piece = self._unparsed[self._offset : self._offset + PIECE]
            self._offset += len(piece)
            self._left -= len(piece)
            try:
                super().data_received(piece)
                self._check()
            except ScrapeError as error:
                self._fail(error)
            body.seconds += self._clock.monotonic() - started
            if self._offset == len(self._unparsed) or self._reading_paused:
                break
            yield
        self._is_parsing = False
        if self._offset == len(self._unparsed):
            self._unparsed, self._offset = b"", 0
            body.hold(0)
            self._resume_reading_for_buffer()
            if self._loss is not None and not self._reading_paused:
                super().connection_lost(*self._loss)

    def connection_lost(self, exc: BaseException | None) -> None:
        """End once all that has arrived is parsed: with TLS the end comes although reading is paused."""
        if self.transport is not None and (self._is_parsing or self._reading_paused):
            self._loss = (exc,)
        else:
            super().connection_lost(exc)

    def _check(self) -> None:
        """Raise ScrapeError if the pod sends more than it may."""
        if self._exception is not None and self._answer is not None:
            self._answer.set_exception(self._exception)  # what the parser refuses within a body
        if self._left < 0:
            raise ScrapeError("size", "the answer has too many bytes that are not of its body")
        if self.is_answered and self._offset < len(self._unparsed):
            raise _invalid("more bytes than the answer")

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Take a response from the parser. Raises ScrapeError for one too many."""
        message, payload = data
        if self._answer is not None:
            raise _invalid("more than one response")
        if not _is_hint(message):
            self._answer = payload
        elif self._hints == MOST_HINTS:
            raise _invalid(f"more than {MOST_HINTS} informational responses")
        self._hints += 1
        super().feed_data(data, size)

    def _fail(self, error: ScrapeError) -> None:
        """Close the connection; the scrape fails if it has not ended."""
        self.abort()
        self._unparsed, self._offset = b"", 0
        self.set_exception(error)
        if self._answer is not None:
            self._answer.set_exception(error)


def _is_hint(message: RawResponseMessage) -> bool:
    return message.code < 200 and message.code != 101


def _invalid(what: str) -> ScrapeError:
    return ScrapeError("status", f"invalid HTTP response: {what}")


class PodPlace(NamedTuple):
    """Where to connect, and with which TLS; None for plain HTTP."""

    address: str
    port: int
    tls: ssl.SSLContext | None
    server_name: str | None


class PodConnections:
    """All connections. They have at most `files` files, and the pods of one namespace half of these."""

    def __init__(self, clock: Clock, problems: SourceProblems, files: int) -> None:
        self.turns = FairTurns(clock)
        self._clock = clock
        self._problems = problems
        self._files = files
        self._busy: Ledger[BodyBuffer] = Ledger("connections", files, files // 2, "files")
        self._kept: dict[PodPlace, PodConnection] = {}  # the one that is kept longest comes first

    def close(self) -> None:
        while self._kept:
            self._drop(next(iter(self._kept)))

    @asynccontextmanager
    async def exchange(
        self, place: PodPlace, request: bytes, body: BodyBuffer, most: int
    ) -> AsyncIterator[tuple[RawResponseMessage, StreamReader]]:
        """Send a request and yield its answer, with the body unread. Raises ScrapeError.

        It is sent again if the pod had closed the connection that was kept.
        """
        is_over = self._busy.put(body.namespace, body, 1)
        while is_over and (loss := self._busy.loss(body.namespace)) is not None:
            self._busy.put(loss.holder.namespace, loss.holder, 0)
            loss.holder.lose(loss.reason)
        connection: PodConnection | None = None
        try:
            while True:
                connection = self._take(place)
                was_kept = connection is not None
                if connection is None:
                    connection = await self._connect(place)
                try:
                    answer = await connection.ask(request, body, most)
                    break
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                    connection.abort()
                    if not was_kept:
                        raise
            yield answer
        finally:
            self._busy.put(body.namespace, body, 0)
            if connection is not None:
                self._keep(place, connection)

    def _take(self, place: PodPlace) -> PodConnection | None:
        connection = self._kept.pop(place, None)
        if connection is None:
            return None
        if connection.expiry is not None:
            connection.expiry.cancel()
        return connection if connection.is_connected() else None

    async def _connect(self, place: PodPlace) -> PodConnection:
        while self._kept and self._busy.total + len(self._kept) > self._files:
            self._drop(next(iter(self._kept)))
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: PodConnection(loop, self.turns, self._clock),
                place.address,
                place.port,
                ssl=place.tls,
                server_hostname=place.server_name,
            )
        except ssl.SSLError as error:
            raise ScrapeError("unreachable", matchers.shorten(endpoint.explain_tls(error))) from error
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ScrapeError("unreachable", reason) from error
        return connection

    def _keep(self, place: PodPlace, connection: PodConnection) -> None:
        """Keep a connection for the next scrape, if it can be used for it and there are files for it."""
        if not connection.is_answered or connection.should_close or place in self._kept:
            connection.abort()
        elif len(self._kept) >= self._files * KEPT_SHARE:
            text = f"half of the {2 * self._files} files it may open are in use for pods: raise ulimit -Hn"
            self._problems.report("scrape-files", "connections to pods are not kept between scrapes", text)
            connection.abort()
        else:
            self._kept[place] = connection
            connection.expiry = asyncio.get_running_loop().call_later(_KEEP_ALIVE_SECONDS, self._drop, place)

    def _drop(self, place: PodPlace) -> None:
        connection = self._kept.pop(place)
        if connection.expiry is not None:
            connection.expiry.cancel()
        connection.abort()
