"""Connections to pods, kept between scrapes within a share of the process's files.

A pod chooses the bytes that it sends and how much work they are: 4 KiB can be a hundred responses or seven
hundred chunks, and aiohttp's parser processes all that it is given in one step. So what arrives waits for the
turn of its namespace and is parsed in pieces. Until then the socket is not read, the bytes are charged to the
body's budget, and the time counts for the pod.

A request has one answer, after at most four informational ones. Each byte more ends the connection, also
while it is kept for the next scrape.
"""

import asyncio
import contextlib
import os
import ssl
from http import HTTPStatus
from typing import NamedTuple

import aiohttp
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpResponseParser, RawResponseMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from adapter.errors import ScrapeError
from adapter.model.clock import Clock
from adapter.model.fairness import Ledger
from adapter.model.steps import Steps
from adapter.prometheus import endpoint
from adapter.rules import matchers
from adapter.scrape.bodies import AnswerBody, BodyBuffer
from adapter.scrape.schedule import FairTurns, ScrapeJob
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
_READ_BUFFER = 16 * 1024  # bytes that the TLS layer reads ahead while the connection is not read
_KEEP_ALIVE_SECONDS = 150.0  # longer than the longest interval


class PodConnection(BaseProtocol):
    """One connection. It answers one request at a time, begun with `ask`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, turns: FairTurns, clock: Clock) -> None:
        super().__init__(loop)
        self._turns = turns
        self._clock = clock
        self._http: HttpResponseParser | None = None
        self._body: AnswerBody | None = None
        self._message: RawResponseMessage | None = None
        self._payload: StreamReader = EMPTY_PAYLOAD
        self._answer: asyncio.Future[RawResponseMessage] | None = None
        self._hints = 0
        self._left = 0  # bytes that the answer may still take
        self._unparsed = b""
        self._offset = 0
        self._job: ScrapeJob | None = None  # parses what has arrived
        self._loss: tuple[BaseException | None] | None = None
        self.should_close = False
        """Whether it cannot be used for another request."""
        self.expiry: asyncio.TimerHandle | None = None
        """Closes it if it is kept for too long."""

    @property
    def is_answered(self) -> bool:
        """Whether all of the answer has arrived, so that each byte more is one too many."""
        return self._message is not None and self._payload.is_eof()

    async def ask(self, request: bytes, body: AnswerBody, most: int) -> RawResponseMessage:
        """Send a request; return the head of its answer of up to `most` bytes once `body` is read.

        The body of an answer other than 200 is not read. Raises ScrapeError, and aiohttp.ClientError or
        OSError if the connection is lost.
        """
        if self.transport is None:
            raise aiohttp.ServerDisconnectedError
        loop = asyncio.get_running_loop()
        self._body, self._message, self._hints, self._left = body, None, 0, most
        self._http = HttpResponseParser(
            self,
            loop,
            PIECE,
            max_line_size=HEADER_BYTES,
            max_field_size=HEADER_BYTES,
            max_headers=HEADERS_TAKEN,
            read_until_eof=True,
            auto_decompress=False,
        )
        self._answer = loop.create_future()
        self.transport.write(request)
        return await self._answer

    # -- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if transport.get_extra_info("ssl_object") is not None:
            transport.set_read_buffer_limits(high=_READ_BUFFER)  # type: ignore[attr-defined]  # of TLS transports
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Have it parsed in the turn of the namespace, and read no more until then."""
        if self.transport is None:
            return
        if self._body is None or self.is_answered:
            self._fail(_invalid("more bytes than the answer"))
            return
        self._unparsed += data
        self._body.buffer.hold(len(self._unparsed))
        self.transport.pause_reading()
        if self._job is None:
            self._job = self._turns.start(self._body.buffer.namespace, self._parse(self._body))

    def connection_lost(self, exc: BaseException | None) -> None:
        """End once all that has arrived is parsed: with TLS the end comes although reading is paused."""
        if self.transport is not None and self._job is not None:
            self._loss = (exc,)
        else:
            self._end(exc)

    # -- what the parser calls about a body

    def pause_reading(self) -> None:
        """Do nothing: all of a piece is taken at once."""

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's own signature
        """Do nothing: reading goes on once all that has arrived is parsed."""

    # -- parsing

    def _parse(self, body: AnswerBody) -> Steps[None]:
        while self.transport is not None and self._offset < len(self._unparsed):
            started = self._clock.monotonic()
            piece = self._unparsed[self._offset : self._offset + PIECE]
            self._offset += len(piece)
            self._left -= len(piece)
            try:
                for _ in self._feed(piece, body):
                    body.buffer.seconds += self._clock.monotonic() - started
                    yield
                    started = self._clock.monotonic()
            except ScrapeError as error:
                self._fail(error)
            body.buffer.seconds += self._clock.monotonic() - started
            if self._offset < len(self._unparsed):
                yield
        self._job = None
        if self._offset == len(self._unparsed):
            self._unparsed, self._offset = b"", 0
            body.buffer.hold(0)
            if self._loss is not None:
                self._end(*self._loss)
            elif self.transport is not None and not self.transport.is_closing():
                self.transport.resume_reading()

    def _feed(self, piece: bytes, body: AnswerBody) -> Steps[None]:
        """Parse a piece. Raises ScrapeError for what is not HTTP, or if the pod sends more than it may."""
        assert self._http is not None, "what comes without a request is refused"
        try:
            messages, _, _ = self._http.feed_data(piece)
        except Exception as error:  # aiohttp does not say what its parser raises
            raise _invalid(getattr(error, "message", "") or type(error).__name__) from error
        for message, payload in messages:
            self._take(message, payload, body)
        part = self._payload.read_nowait()
        if part and self._message is not None and self._message.code == HTTPStatus.OK:
            yield from body.take(part)
        if self._left < 0:
            raise ScrapeError("size", "the answer has too many bytes that are not of its body")
        if self.is_answered:
            if self._offset < len(self._unparsed):
                raise _invalid("more bytes than the answer")
            self._settle()

    def _take(self, message: RawResponseMessage, payload: StreamReader, body: AnswerBody) -> None:
        if self._message is not None:
            raise _invalid("more than one response")
        if message.code < HTTPStatus.OK and message.code != HTTPStatus.SWITCHING_PROTOCOLS:
            self._hints += 1
            if self._hints > MOST_HINTS:
                raise _invalid(f"more than {MOST_HINTS} informational responses")
            return
        self._message, self._payload = message, payload
        self.should_close = message.should_close or message.code == HTTPStatus.SWITCHING_PROTOCOLS
        if message.code == HTTPStatus.OK:
            body.begin(message.headers)
        else:
            self._settle()

    # -- the end

    def _fail(self, error: ScrapeError) -> None:
        """Close the connection; the scrape fails if it has not ended."""
        self.abort()
        self._unparsed, self._offset = b"", 0
        self._settle(error)

    def abort(self) -> None:
        """Close the connection. The scrape has ended, and its body may be closed: no more of it is parsed."""
        self.should_close, self._http = True, None
        if self._job is not None:
            self._turns.abort(self._job)
        if self.transport is not None:
            self.transport.abort()
            self.transport = None

    def _end(self, exc: BaseException | None) -> None:
        """End the answer: a body without a length is whole now, any other is cut."""
        if self._message is not None and self._http is not None:
            with contextlib.suppress(HttpProcessingError):
                self._http.feed_eof()
        if self.is_answered:
            self._settle()
        elif self._message is not None:
            self._settle(aiohttp.ClientPayloadError())
        else:
            self._settle(exc if isinstance(exc, OSError) else aiohttp.ServerDisconnectedError())
        self.should_close, self._http = True, None
        super().connection_lost(exc)

    def _settle(self, error: Exception | None = None) -> None:
        """End the answer: with an error, or with the head if no error is given."""
        if self._answer is None or self._answer.done():
            return
        if error is None and self._message is not None:
            self._answer.set_result(self._message)
        elif error is not None:
            self._answer.set_exception(error)


def _invalid(what: str) -> ScrapeError:
    return ScrapeError("status", matchers.shorten(f"invalid HTTP response: {what}"))


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

    async def exchange(
        self, place: PodPlace, request: bytes, body: AnswerBody, most: int
    ) -> RawResponseMessage:
        """Send a request and return the head of its answer, as `PodConnection.ask` does.

        It is sent again if the pod had closed the connection that was kept.
        """
        buffer = body.buffer
        is_over = self._busy.put(buffer.namespace, buffer, 1)
        while is_over and (loss := self._busy.loss(buffer.namespace)) is not None:
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
                    return await connection.ask(request, body, most)
                except (aiohttp.ServerDisconnectedError, OSError):
                    connection.abort()
                    if not was_kept:
                        raise
        finally:
            self._busy.put(buffer.namespace, buffer, 0)
            if connection is not None:
                self._keep(place, connection)

    def _take(self, place: PodPlace) -> PodConnection | None:
        connection = self._kept.pop(place, None)
        if connection is None:
            return None
        if connection.expiry is not None:
            connection.expiry.cancel()
        is_open = connection.transport is not None and not connection.transport.is_closing()
        return connection if is_open else None

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
