"""One connection of the HTTPS server: its limits on size and time, and when it may be closed.

The limits depend on the client certificate, which is judged after the handshake and again for each request.

Requests are parsed by aiohttp's parser, one at a time. A head ends with an empty line, and so does a body in
chunks; the end of any other body is known from its length. The parser is never given more than one of them,
so nothing behind a request is parsed before its response is sent.

A response that exists already is written as its request arrives: a task would take most of the time of such a
request. All others are made and sent in a task.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from aiohttp.base_protocol import BaseProtocol
from aiohttp.http import HttpProcessingError, HttpRequestParser, StreamWriter

from adapter.server.auth import client_cert
from adapter.server.auth.client_cert import Peer, PeerVerdict
from adapter.server.http import budgets, listener, responses
from adapter.server.http.requests import HTTPRequest
from adapter.server.http.responses import Later, Response
from adapter.telemetry import logs

if TYPE_CHECKING:
    from adapter.server.http.connection_server import ConnectionServer

log = logging.getLogger(__name__)

KEEPALIVE = 120.0
"""Seconds an idle connection lives: longer than the 90 s after which kube-apiserver drops its own, so that we
never close one it is about to use."""

CONNECTION_BYTES = 384 * 1024
"""Memory of one connection at most, beside its request heads and its response: TLS state, and the buffers of
the TLS layer and of the system. An idle connection takes 52 KiB."""

UNREAD_SECONDS = 60.0
"""A client that reads nothing for so long, while the buffers of its connection are full, is disconnected."""

_READ_BUFFER = 16 * 1024  # bytes that the TLS layer reads ahead while the connection is not read
_WRITE_BUFFER = 32 * 1024  # bytes not sent yet, beyond which no more of a response is written
_BODY_BUFFER = 8 * 1024  # half the bytes of a body, which is never read, before reading stops
_FIRST_REQUEST = 1.0
"""Seconds that a new connection has for its first request while the server shuts down."""

_BLANKS = b"\r\n"
_END = b"\r\n\r\n"


class BodyError(Exception):
    """The body of a request is truncated or malformed."""


class ClientConnection(BaseProtocol):
    """A connection with the identity of its peer. Malformed requests get Go's plain text.

    They are not logged, since such a line may hold a token.
    """

    def __init__(self, server: "ConnectionServer") -> None:
        super().__init__(server.loop)
        self._server = server
        self.peer: Peer | None = None
        self.address = self.remote = ""
        self.is_certified = False
        """Whether its certificate was trusted when last judged: after the handshake, and for each request."""
        self._verdict: PeerVerdict | None = None
        self._limits = budgets.UNCERTIFIED_HEADS
        self._http: HttpRequestParser | None = None
        """Made when it is needed: with other limits, and behind an upgrade, it is another one."""
        self._arrived = b""  # and not parsed yet, but while it is being parsed
        self._parsed = 0  # bytes of it
        self._edge = b""  # the last bytes that were parsed, where an end may have begun
        self._begun = self._lines = 0  # bytes and lines of a head that has begun
        self._has_long_head = False
        self._request: HTTPRequest | None = None  # until it is answered
        self.task: asyncio.Task[None] | None = None
        """What makes and sends a response."""
        self._has_asked = False
        self._is_paused = False
        self._is_closing = False
        self._idle_since = server.loop.time()
        self._idle_deadline: asyncio.TimerHandle | None = None
        self._head_deadline: asyncio.TimerHandle | None = None
        self._unread_deadline: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether its requests are still answered."""
        return self.transport is not None and not self._is_closing

    @property
    def waits(self) -> bool:
        """Whether it is idle: no request is being answered, nor waits for its turn."""
        return self._request is None and self.is_open

    @property
    def may_end(self) -> bool:
        """Whether closing it loses nothing: it had time to send a request, and nothing is unread."""
        is_new = not self._has_asked and self._server.loop.time() - self._idle_since < _FIRST_REQUEST
        if not self.waits or is_new or self._begun or self._arrived or self.transport is None:
            return False
        # none between the end of the TLS layer and `connection_lost`
        connection = self.transport.get_extra_info("socket")
        return connection is None or not listener.is_readable(connection.fileno())

    # --- what the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        peername = transport.get_extra_info("peername")
        if peername:
            self.remote = peername[0]
            self.address = listener.group_address(self.remote)
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            self.peer = client_cert.read_peer(secured)
            if self.peer.shown:
                self._server.judge(self.peer)
            transport.set_read_buffer_limits(high=_READ_BUFFER)  # type: ignore[attr-defined]  # of TLS transports
            transport.set_write_buffer_limits(high=_WRITE_BUFFER)  # type: ignore[attr-defined]  # of all transports
        self._follow_trust()
        self._expect_head()
        self._idle_deadline = self._server.loop.call_later(KEEPALIVE, self._end_idle)
        self._server.admit(self)

    def data_received(self, data: bytes) -> None:
        """Parse what has arrived, to the end of one request, and begin to answer that."""
        if self._is_closing:
            return
        self._arrived += data
        before = self._request
        is_whole = before is not None and before.body.is_eof()
        try:
            while not (is_whole or self._is_paused or self._is_closing) and self._parsed < len(self._arrived):
                self._feed(self._take_piece())
                is_whole = self._request is not None and self._request.body.is_eof()
        except HttpProcessingError as error:
            self._parsed = len(self._arrived)
            if before is None:
                self._refuse(400, error)
            else:  # its response ends the connection, since the body is not whole
                self.pause_reading()
        self._arrived, self._parsed = self._arrived[self._parsed :], 0
        if self._request is None:
            if self._begun and self._head_deadline is None and not self._is_closing:
                self._expect_head()
            return
        if self._arrived:
            self.pause_reading()
        if self._request is not before and (
            self.is_certified or self._server.turns.enter_now(self.address, self._answer)
        ):
            self._answer()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_deadline = self._server.loop.call_later(
            self._server.limits.unread_seconds, self.cut, "unread"
        )

    def resume_writing(self) -> None:
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._is_closing = True
        self._http = None
        for deadline in (self._idle_deadline, self._head_deadline, self._unread_deadline):
            if deadline is not None:
                deadline.cancel()
        super().connection_lost(exc)
        if self.task is None or self.task.done():
            self._end(keep_alive=False)

    # --- what the parser calls about a body

    def pause_reading(self) -> None:
        """Read no more: enough of a body has arrived."""
        if not self._is_paused and self.transport is not None:
            self._is_paused = True
            self.transport.pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:  # noqa: FBT001, FBT002 - aiohttp's own signature
        """Do nothing: the connection is read on when the response is sent."""

    # --- requests

    def _take_piece(self) -> bytes:
        """Take what the parser may have of what has arrived: to the end of a head or of a body at most."""
        data, start, request = self._arrived, self._parsed, self._request
        if request is None and not self._begun:
            data = self._arrived = data.lstrip(_BLANKS)
        if request is not None and not request.is_chunked:
            self._parsed = min(len(data), start + request.missing)
        elif (found := (self._edge + data).find(_END, start)) >= 0:
            self._parsed, self._edge = found + len(_END) - len(self._edge), b""
        else:
            self._parsed, self._edge = len(data), (self._edge + data[start:])[1 - len(_END) :]
        return data[start : self._parsed]

    def _feed(self, piece: bytes) -> None:
        """Parse a piece, which completes one head or body at most. Raises HttpProcessingError."""
        parser = self._http = self._http or self._make_parser()
        messages, is_upgraded, _ = parser.feed_data(piece)
        if len(messages) > 1:  # the parser saw an end that nothing here saw: what follows would be lost
            raise HttpProcessingError(code=400, message="a head within a head")
        if is_upgraded:
            self._http = None
        if self._request is None:
            self._begun += len(piece)
            self._lines += piece.count(b"\n")
            weight = budgets.BYTE_WEIGHT * self._begun + budgets.HEADER_WEIGHT * self._lines
            if weight > budgets.SMALL_HEAD:
                self._follow_long_head(weight)
        if messages:
            message, body = messages[0]
            self._request = HTTPRequest(message, body, self)
            self._has_asked = True
            self._begun = self._lines = 0
            if self._head_deadline is not None:
                self._head_deadline.cancel()
                self._head_deadline = None

    def _follow_long_head(self, weight: int) -> None:
        if self._begun > self._limits.total:
            self.cut("headers")
        elif self.is_certified:
            self._has_long_head = True
            self._server.long_heads.hold(self, weight)

    def _answer(self) -> bool:
        """Answer the request: at once if that takes no task, and the client reads.

        Returns False if the client has left.
        """
        request, transport = self._request, self.transport
        if request is None or transport is None or self._is_closing:
            return False
        try:
            answer = self._server.answer(request)
        except Exception as error:  # noqa: BLE001 - the connection is closed
            self._refuse(500, error)
            return True
        if isinstance(answer, Response):
            self._follow_trust(answer)
            body = answer.sent_body
            has_room = transport.get_write_buffer_size() + 2 * responses.PIECE <= _WRITE_BUFFER
            if answer.keep_alive and len(body) <= responses.PIECE and has_room:
                transport.write(answer.render_head() + body)
                self._end(keep_alive=True)
                return True
        self.task = self._server.loop.create_task(self._respond(answer), name="request")
        return True

    async def _respond(self, answer: Response | Later) -> None:
        response, is_sent = None, False
        try:
            response = answer if isinstance(answer, Response) else await answer()
            self._follow_trust(response)
            if self._has_long_head:
                self._release_head()
            await response.send(StreamWriter(self, self._server.loop))
            is_sent = True
        except ConnectionError:
            log.debug("the client has left before its response was sent")
        except Exception as error:
            if response is not None:
                raise
            self._refuse(500, error)
        finally:
            if response is not None and response.charge is not None:
                response.charge.close()
            self.task = None
            self._end(keep_alive=is_sent and response is not None and response.keep_alive)

    def _end(self, *, keep_alive: bool) -> None:
        """Go on with what arrived behind the request that is answered, or end the connection."""
        self._request = None
        if self._has_long_head:
            self._release_head()
        if self.transport is None:
            self._server.held.pop(self, None)
        elif not keep_alive or self._is_closing:
            self.close()
        else:
            self._idle_since = self._server.loop.time()
            if self._is_paused:
                self._is_paused = False
                self.transport.resume_reading()
            if self._arrived:
                self._server.loop.call_soon(self.data_received, b"")  # other connections have a turn

    def _refuse(self, status: int, error: Exception) -> None:
        """Answer in plain text, and close the connection."""
        facts = logs.facts(status=status, remote=self.remote, error=type(error).__name__)
        if status >= 500:
            log.error("request failed in the HTTP layer", extra=facts, exc_info=error)
        else:
            log.debug("request failed in the HTTP layer", extra=facts)
        if self.transport is not None:
            self.transport.write(responses.render_refusal(status))
        self.close()

    # --- trust

    def _follow_trust(self, response: Response | None = None) -> None:
        """Follow the verdict on the certificate, which admission makes again for each request."""
        verdict = self.peer.verdict if self.peer is not None else None
        if verdict is self._verdict:
            return
        self._verdict = verdict
        is_certified = verdict is not None and (verdict.is_proxy or verdict.user is not None)
        if is_certified is not self.is_certified:
            self.is_certified = is_certified
            self._limits = budgets.CERTIFIED_HEADS if is_certified else budgets.UNCERTIFIED_HEADS
            self._http = None
            if self._arrived and response is not None:
                response.keep_alive = False

    def _make_parser(self) -> HttpRequestParser:
        return HttpRequestParser(
            self,
            self._server.loop,
            _BODY_BUFFER,
            max_line_size=self._limits.line,
            max_field_size=self._limits.line,
            max_headers=self._limits.headers,
            payload_exception=BodyError,
            auto_decompress=False,
        )

    # --- the end

    def _release_head(self) -> None:
        self._has_long_head = False
        self._server.long_heads.release(self)

    def _expect_head(self) -> None:
        seconds = self._server.limits.head_seconds or self._limits.seconds
        self._head_deadline = self._server.loop.call_later(seconds, self.cut, "timeout")

    def _end_idle(self) -> None:
        """Close the connection if it has been idle for long, else look again."""
        left = self._idle_since + KEEPALIVE - self._server.loop.time()
        if left <= 0 and self.waits:
            self.close()
        else:
            self._idle_deadline = self._server.loop.call_later(
                left if left > 0 else KEEPALIVE, self._end_idle
            )

    def close(self) -> None:
        """Close the connection as soon as what was written is sent."""
        self._is_closing = True
        if self.transport is not None:
            self.transport.close()

    def cut(self, reason: str) -> None:
        """Abort the connection and the request being answered. Self-metrics count it by `reason`.

        Of a connection that the client has closed the request ends.
        """
        if self.transport is None:
            self._server.held.pop(self, None)
        elif not self._is_closing:
            self._server.cuts.labels(reason).inc()
            self.transport.abort()
        self._is_closing = True
        if self.task is not None:
            self.task.cancel()
        self._release_head()
