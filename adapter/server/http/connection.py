"""One connection of the HTTPS server: its limits on size and time, and when it may be closed.

The limits depend on the client certificate, which is judged after the handshake and again for each request.

aiohttp's parser says which requests have arrived, and not whether another one has begun. That is read from
the bytes: a head ends with an empty line, and what follows the last one is the beginning of another, unless
it belongs to a body.

aiohttp answers each request in a task. That takes most of the time of a request whose answer exists already,
so a GET that comes alone is answered as it arrives, if `answer_now` can. Else aiohttp's task goes on with it.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeGuard, cast

import prometheus_client
from aiohttp import web
from aiohttp.http import HttpRequestParser, HttpVersion11, RawRequestMessage, StreamWriter
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from adapter.server.auth import client_cert
from adapter.server.auth.client_cert import Peer, PeerVerdict
from adapter.server.http import budgets, listener, responses
from adapter.server.http.budgets import SMALL_HEAD, LongHeads, weigh_head
from adapter.server.http.fair_queue import FairQueue
from adapter.server.http.responses import Response
from adapter.telemetry import logs

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
_BODY_BUFFER = 8 * 1024  # bytes of a body, which is never read, before the connection is not read any more
_FIRST_REQUEST = 1.0
"""Seconds that a new connection has for its first request while the server shuts down."""

_HEAD_END = b"\r\n\r\n"

_BARE_HEADERS = {"Connection": "close", "Server": "fastpath", "X-Content-Type-Options": "nosniff"}


class BodyError(Exception):
    """The body of a request is truncated or malformed."""


class ClientConnection(web.RequestHandler):
    """A connection with the identity of its peer. Malformed requests get Go's plain text.

    They are not logged, since such a line may hold a token.
    """

    def __init__(
        self,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        cuts: prometheus_client.Counter,
        long_heads: LongHeads,
        judge: Callable[[Peer], object],
        turns: FairQueue,
        answer_now: Callable[[web.BaseRequest], Response | None],
        head_seconds: float | None,
        unread_seconds: float,
        **settings: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **settings)
        self._cuts = cuts
        self._long_heads = long_heads
        self._judge = judge
        self._turns = turns
        self._answer_now = answer_now
        self.begun: web.BaseRequest | None = None
        """The request that has come alone, until it is answered."""
        self._unread_seconds = unread_seconds
        self._unread_deadline: asyncio.TimerHandle | None = None
        self.peer: Peer | None = None
        self.address = ""
        self.is_certified = False
        """Whether its certificate was trusted when last judged: after the handshake, and for each request."""
        self._limits = budgets.UNCERTIFIED_HEADS
        self._finished = 0  # requests whose responses are sent, of those that have arrived (_request_count)
        self._behind = b""  # what arrived while a request was being answered
        self._unfinished = 0  # bytes of a head that has begun
        self._lines = 0
        self._body: StreamReader | None = None  # the one that the next bytes belong to
        self._body_bytes = 0
        self._has_long_head = False
        self._verdict: PeerVerdict | None = None
        self._abandoned: asyncio.Task[None] | None = None  # of a request whose client has gone
        self._opened = loop.time()
        self._head_seconds = head_seconds
        self._head_deadline: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether its requests are still answered."""
        return self._task_handler is not None and self.transport is not None

    @property
    def waits(self) -> bool:
        """Whether it is idle: no request is being answered, nor waits for its turn."""
        return self._waiter is not None and not self._waiter.done() and self.begun is None

    @property
    def is_answering(self) -> bool:
        return self._current_request is not None

    @property
    def may_end(self) -> bool:
        """Whether closing it loses nothing: it had time to send a request, and nothing is unread."""
        is_new = self._request_count == 0 and self._loop.time() - self._opened < _FIRST_REQUEST
        if not self.waits or is_new or self._unfinished or self.transport is None:
            return False
        # none between the end of the TLS layer and `connection_lost`
        connection = self.transport.get_extra_info("socket")
        return connection is None or not listener.is_readable(connection.fileno())

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        peername = transport.get_extra_info("peername")
        self.address = listener.group_address(peername[0]) if peername else ""
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            self.peer = client_cert.read_peer(secured)
            if self.peer.shown:
                self._judge(self.peer)
            transport.set_read_buffer_limits(high=_READ_BUFFER)  # type: ignore[attr-defined]  # of TLS transports
            transport.set_write_buffer_limits(high=_WRITE_BUFFER)  # type: ignore[attr-defined]  # of all transports
        self._follow_trust(self.peer.verdict if self.peer is not None else None)
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._force_close or self._close:
            return
        is_busy = self._request_count != self._finished
        # A request is being answered. Bytes behind it are kept unparsed: each parsed head costs memory that
        # only its own answer frees, and a client could send thousands.
        if is_busy and self._body is None:
            self._behind += data
            if not self._buffer_paused:
                self._pause_reading_for_buffer()
            return
        if self._behind:
            data, self._behind = self._behind + data, b""
        # The parser stops after a whole request, and reading stops with it until that request is answered. A
        # request that comes alone, as nearly all do, has nothing before or behind it, and reading goes on. A
        # head that has begun may end in its empty line: the first whole one here is then of the next head.
        starts_new = not is_busy and not self._unfinished
        is_alone = starts_new and 0 < data.find(_HEAD_END) == len(data) - len(_HEAD_END)
        self._max_msg_queue_size = 2 if is_alone else 1
        before, idle = self._request_count, self._waiter
        try:
            if is_alone:
                self._waiter = None  # aiohttp's task sleeps on
            super().data_received(data)
        finally:
            self._waiter = idle
        if (
            is_alone
            and self._messages
            and self._messages[0][1] is EMPTY_PAYLOAD
            and budgets.BYTE_WEIGHT * len(data) + budgets.HEADER_WEIGHT * data.count(b"\n") <= SMALL_HEAD
        ):
            if self._head_deadline is not None:
                self._forget_head()
            message = self._messages[0][0]
            if idle is not None and not idle.done() and _is_plain(message):
                self._begin(message)
                return
        else:
            self._follow_heads(data, self._request_count - before)
        if self._messages:
            self._wake()

    def _begin(self, message: RawRequestMessage) -> None:
        """Answer a request in the turn that the fair queue gives it: at once with a trusted certificate."""
        writer = StreamWriter(self, self._loop)
        self.begun = web.BaseRequest(
            message, EMPTY_PAYLOAD, self, writer, cast("asyncio.Task[None]", self._task_handler), self._loop
        )
        self._next_keepalive_close_time = self._loop.time() + KEEPALIVE  # its turn may come later
        if self.is_certified or self._turns.enter_now(self.address, self._go_on):
            self._go_on()

    def _go_on(self) -> bool:
        """Answer the request that has begun at once, or wake aiohttp's task to do it.

        Returns False if the client has left. While a client does not read, its responses wait in the task.
        """
        request, transport = self.begun, self.transport
        if request is None or transport is None or self._parser is None:
            return False
        has_room = transport.get_write_buffer_size() + 2 * responses.PIECE <= _WRITE_BUFFER
        response = self._answer_now(request) if has_room else None
        if response is None:
            self._wake()
            return True
        self.begun = None
        self._messages.popleft()
        self._parser.message_consumed()
        self._follow_verdict(response)
        transport.write(response.render_head() + response.sent_body)
        if response.keep_alive:
            self._end_response()
        else:
            self.force_close()
        return True

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response, and go on with what arrived behind its request."""
        self.begun = None
        self._follow_verdict(resp)
        if self._has_long_head:
            self._release_head()
        self._max_msg_queue_size = 1
        try:
            sent = await super().finish_response(request, resp, start_time)
        finally:
            if isinstance(resp, Response) and resp.charge is not None:
                resp.charge.close()
        self._end_response()
        return sent

    def _end_response(self) -> None:
        """Go on with what arrived behind the request."""
        self._finished += 1
        if self._buffer_paused:
            self._resume_reading_if_drained()
        if self._unfinished and self._head_deadline is None and self.is_open:
            self._expect_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_deadline = self._loop.call_later(self._unread_seconds, self.cut, "unread")

    def resume_writing(self) -> None:
        self._forget_unread()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._forget_head()
        self._forget_unread()
        if self.is_answering:
            self._abandoned = self._task_handler
        else:
            self._release_head()
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes the request
    ) -> web.StreamResponse:
        facts = logs.facts(status=status, remote=request.remote, error=type(exc).__name__)
        if status >= 500:
            log.error("request failed in the HTTP layer", extra=facts, exc_info=exc)
        else:
            log.debug("request failed in the HTTP layer", extra=facts)
        text = f"{status} {HTTPStatus(status).phrase}\n"
        response = web.Response(status=status, text=text, headers=_BARE_HEADERS)
        response.force_close()
        return response

    def _follow_verdict(self, response: web.StreamResponse) -> None:
        """Follow the verdict on the certificate, if admission has made another one."""
        if self.peer is not None and self.peer.verdict is not self._verdict:
            self._follow_trust(self.peer.verdict, response)

    def _follow_trust(self, verdict: PeerVerdict | None, response: web.StreamResponse | None = None) -> None:
        """Use the limits for a verdict on the certificate.

        Only a parser between two requests can be replaced; in any other state the connection closes after
        `response`.
        """
        self._verdict = verdict
        was_certified = self.is_certified
        self.is_certified = verdict is not None and (verdict.is_proxy or verdict.user is not None)
        if response is None:
            self._use_limits()
        elif self.is_certified is was_certified or not self.is_open:
            return
        elif self._unfinished or self._upgraded or self._buffer_paused:
            response.force_close()
        else:
            self._use_limits()

    def _use_limits(self) -> None:
        """Replace aiohttp's parser, which was made before the certificate was known."""
        self._limits = limits = budgets.CERTIFIED_HEADS if self.is_certified else budgets.UNCERTIFIED_HEADS
        self._msg_queue_resume_size = 0
        self._parser = HttpRequestParser(
            self,
            self._loop,
            _BODY_BUFFER,
            max_line_size=limits.line,
            max_field_size=limits.line,
            max_headers=limits.headers,
            payload_exception=BodyError,
            auto_decompress=False,
            max_msg_queue_size=1,
        )

    def _resume_reading_if_drained(self) -> None:
        """Read on, except while a request is being answered, where aiohttp would parse the next one."""
        if self._request_count == self._finished:
            super()._resume_reading_if_drained()

    def _follow_heads(self, data: bytes, parsed: int) -> None:
        """Follow bytes that end anywhere, and the requests that they completed, within the limits."""
        heads = [_measure(self._messages[-number][0]) for number in range(1, parsed + 1)]
        body = self._messages[-1][1] if parsed else self._body
        rest, goes_on = data, not parsed
        if body is not None and body is not EMPTY_PAYLOAD:
            if parsed:
                rest = data.partition(_HEAD_END)[2]
            rest, goes_on = rest[self._follow_body(body, is_new=bool(parsed)) :], False
        if data:
            _, end, rest = rest.rpartition(_HEAD_END)
            if end or not goes_on:  # without an end in these bytes, a part of it was in those before
                rest = rest.lstrip(b"\r\n")
                self._unfinished = self._lines = 0
            self._unfinished += len(rest)
            self._lines += rest.count(b"\n")
        heads.append((self._unfinished, self._lines))
        # before the head is held: one that is too long must not have the long heads of others cut
        if max(heads)[0] > self._limits.total:
            self.cut("headers")
            return
        if self.is_certified and (weight := max(weigh_head(*head) for head in heads)) > SMALL_HEAD:
            self._has_long_head = True
            self._long_heads.hold(self, weight)
        if parsed:
            self._forget_head()
        elif self._unfinished and self._head_deadline is None and self._request_count == self._finished:
            self._expect_head()

    def _follow_body(self, body: StreamReader, *, is_new: bool) -> int:
        """Read a body that is not whole yet, and nothing behind it; return how much of it has arrived now."""
        arrived = body.total_bytes - (0 if is_new else self._body_bytes)
        self._body_bytes = body.total_bytes
        self._body = None if body.is_eof() else body
        self._unfinished = max(0, self._unfinished - arrived)
        if self._body is None and not self._buffer_paused:
            self._pause_reading_for_buffer()
        elif self._body is not None and self._buffer_paused:
            self._resume_reading_for_buffer()
        return arrived

    def _release_head(self) -> None:
        self._has_long_head = False
        self._long_heads.release(self)

    def _expect_head(self) -> None:
        seconds = self._limits.seconds if self._head_seconds is None else self._head_seconds
        self._head_deadline = self._loop.call_later(seconds, self._give_up)

    def _forget_head(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _forget_unread(self) -> None:
        if self._unread_deadline is not None:
            self._unread_deadline.cancel()
            self._unread_deadline = None

    def _give_up(self) -> None:
        self._head_deadline = None
        if self.waits:
            self.cut("timeout")
        elif self._unfinished:  # a response is still being sent
            self._expect_head()

    def cut(self, reason: str) -> None:
        """Abort the connection and the request being answered. Self-metrics count it by `reason`.

        Of a connection that the client has closed the request ends.
        """
        transport, task = self.transport, self._task_handler or self._abandoned
        self.force_close()
        if transport is not None:
            self._cuts.labels(reason).inc()
            transport.abort()
        if task is not None:
            task.cancel()
        self._release_head()


def _is_plain(message: object) -> TypeGuard[RawRequestMessage]:
    """Return whether it is a GET after which the connection stays as it is."""
    return (
        isinstance(message, RawRequestMessage)
        and message.method == "GET"
        and message.version == HttpVersion11
        and not message.should_close
        and not message.upgrade
    )


def _measure(message: object) -> tuple[int, int]:
    """Return the bytes and lines of a head on the wire, except for blanks that the parser strips."""
    if not isinstance(message, RawRequestMessage):  # an error, which the connection does not outlive
        return 0, 0
    headers = message.raw_headers
    text = sum(len(name) + len(value) for name, value in headers)
    # "METHOD PATH HTTP/1.1\r\n", "NAME: VALUE\r\n" for each header, "\r\n"
    return len(message.method) + len(message.path) + 14 + text + 4 * len(headers), len(headers) + 2
