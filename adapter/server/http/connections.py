"""One connection of the HTTPS server: what it may send, how long it may take, and when it may end.

The limits depend on the client certificate, which is judged when the handshake is done and again for each
request.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import prometheus_client
from aiohttp import web
from aiohttp.http import HttpRequestParser

from adapter.server.auth import client_cert
from adapter.server.auth.client_cert import Peer
from adapter.server.http import heads, listener
from adapter.server.http.heads import HeadAccount, HeadBudget, HeadLimits
from adapter.server.http.response_budget import LargeBody
from adapter.telemetry import logs

log = logging.getLogger(__name__)

KEEPALIVE = 120.0
"""Seconds an idle connection lives: longer than the 90 s after which kube-apiserver drops its own, so that we
never close one it is about to use."""

CONNECTION_BYTES = 384 * 1024
"""Memory of one connection at most, beside its heads and its answer, which is handed over in pieces: TLS state,
and the buffers of the TLS layer and of the system. An idle one takes 52 KiB."""

UNREAD_SECONDS = 60.0
"""A client that takes nothing of its answers for so long, while the buffers of its connection are full, is
disconnected."""

_READ_BUFFER = 16 * 1024  # bytes that the TLS layer reads ahead while the connection is not read
_WRITE_BUFFER = 32 * 1024  # bytes not sent yet, beyond which nothing more is taken from answers
_BODY_BUFFER = 8 * 1024  # bytes of a body, which is never read, before the connection is not read any more
_FIRST_REQUEST = 1.0
"""Seconds for which, at the end, a connection that was just accepted is left to send its first request."""

_BARE_HEADERS = {"Connection": "close", "Server": "fastpath", "X-Content-Type-Options": "nosniff"}


class BodyError(Exception):
    """A body of a request broke off or is malformed."""


class ClientConnection(web.RequestHandler):
    """A connection that knows its peer, and whose malformed requests get Go's bare text.

    Malformed requests are not logged: such a line may hold a token.
    """

    __slots__ = (
        "__weakref__",
        "_budget",
        "_cuts",
        "_head_deadline",
        "_head_seconds",
        "_heads_read",
        "_judge",
        "_limits",
        "_opened",
        "_unread_deadline",
        "_unread_seconds",
        "address",
        "heads",
        "peer",
    )

    def __init__(
        self,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        cuts: prometheus_client.Counter,
        budget: HeadBudget,
        judge: Callable[[Peer], object],
        head_seconds: float | None,
        unread_seconds: float,
        **settings: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **settings)
        self._cuts = cuts
        self._budget = budget
        self._judge = judge
        self._unread_seconds = unread_seconds
        self._unread_deadline: asyncio.TimerHandle | None = None
        self.peer: Peer | None = None
        self.address = ""
        self.heads = HeadAccount()
        self._limits = heads.UNCERTIFIED
        self._opened = loop.time()
        self._heads_read = 0
        self._head_seconds = head_seconds
        self._head_deadline: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether requests over it are answered still."""
        return self._task_handler is not None and self.transport is not None

    @property
    def waits(self) -> bool:
        """Whether no request over it is being answered."""
        return self._waiter is not None and not self._waiter.done()

    @property
    def is_new(self) -> bool:
        """Whether it was accepted so lately that its first request may still be on its way."""
        return self._request_count == 0 and self._loop.time() - self._opened < _FIRST_REQUEST

    @property
    def may_end(self) -> bool:
        """Whether nothing is lost by ending it: it had time to send a request, and nothing has arrived since."""
        return self.waits and not self.is_new and not self.heads.unfinished and not self._has_arrived()

    @property
    def is_certified(self) -> bool:
        """Whether its certificate was believed when last judged: at the handshake, and for each request."""
        verdict = self.peer.verdict if self.peer is not None else None
        return verdict is not None and (verdict.is_proxy or verdict.user is not None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, with the limits that its certificate deserves, and expect a request."""
        peername = transport.get_extra_info("peername")
        self.address = listener.group_address(peername[0]) if peername else ""
        secured = transport.get_extra_info("ssl_object")
        if secured is not None:
            self.peer = client_cert.read_peer(secured)
            if self.peer.shown:
                self._judge(self.peer)
            transport.set_read_buffer_limits(high=_READ_BUFFER)  # type: ignore[attr-defined]  # of TLS transports
            transport.set_write_buffer_limits(high=_WRITE_BUFFER)  # type: ignore[attr-defined]  # of all transports
        self._use_limits(heads.CERTIFIED if self.is_certified else heads.UNCERTIFIED)
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Read, and see to it that a request that was begun becomes whole."""
        if self._force_close or self._close:
            return
        super().data_received(data)
        self._note_received(data)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer, and give back its memory. After a declined upgrade this parses what came behind it."""
        try:
            sent = await super().finish_response(request, resp, start_time)
        finally:
            if isinstance(resp, web.Response) and isinstance(resp.body, LargeBody):
                resp.body.charge.close()
        if self._request_count != self._heads_read:
            self._note_received(b"")
        return sent

    def answered(self) -> None:
        """Note that the oldest request has its answer, whose sending may still be under way."""
        self.heads.answered()
        self._budget.note(self)
        if self.heads.unfinished and self._head_deadline is None and self.is_open:
            self._expect_head()

    def follow_trust(self, response: web.StreamResponse) -> None:
        """Change the limits where the certificate was judged otherwise than before.

        That takes a parser that is between two requests. Where it is not the connection ends with its answer.
        """
        limits = heads.CERTIFIED if self.is_certified else heads.UNCERTIFIED
        if limits is self._limits or not self.is_open:
            return
        if self._messages or self.heads.unfinished or self._upgraded or self._buffer_paused:
            response.force_close()
        else:
            self._use_limits(limits)

    def pause_writing(self) -> None:
        """Expect the other end to take what it asked for."""
        super().pause_writing()
        self._unread_deadline = self._loop.call_later(self._unread_seconds, self.cut, "unread")

    def resume_writing(self) -> None:
        """Go on: it takes it."""
        self._forget_unread()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go."""
        self._forget_head()
        self._forget_unread()
        self.heads.drop(keep_first=self._request_in_progress)
        self._budget.note(self)
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes the request
    ) -> web.StreamResponse:
        """Answer what could not be parsed as a request, and close."""
        facts = logs.facts(status=status, remote=request.remote, error=type(exc).__name__)
        if status >= 500:
            log.error("request failed in the HTTP layer", extra=facts, exc_info=exc)
        else:
            log.debug("request failed in the HTTP layer", extra=facts)
        text = f"{status} {HTTPStatus(status).phrase}\n"
        response = web.Response(status=status, text=text, headers=_BARE_HEADERS)
        response.force_close()
        return response

    def _use_limits(self, limits: HeadLimits) -> None:
        """Replace the parser; aiohttp made one before the certificate was known."""
        self._limits = limits
        self._max_msg_queue_size = limits.queued
        self._msg_queue_resume_size = limits.queued // 2
        self._parser = HttpRequestParser(
            self,
            self._loop,
            _BODY_BUFFER,
            max_line_size=limits.line,
            max_field_size=limits.line,
            max_headers=limits.headers,
            payload_exception=BodyError,
            auto_decompress=False,
            max_msg_queue_size=limits.queued,
        )

    def _note_received(self, data: bytes) -> None:
        """Count what came against the limits of this connection, and against the budget of all."""
        new = self._request_count - self._heads_read
        self._heads_read = self._request_count
        parsed = [self._messages[-number] for number in range(new, 0, -1)] if new else ()
        largest = self.heads.receive(data, parsed, is_paused=self._buffer_paused)
        if largest > self._limits.total:
            self.cut("headers")
            return
        if new:
            self._forget_head()
        elif self.heads.unfinished and self._head_deadline is None and self.waits:
            self._expect_head()
        self._budget.note(self)

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
            self.cut("silence")
        elif self.heads.unfinished:  # an answer is being sent still
            self._expect_head()

    def cut(self, reason: str) -> None:
        """End it now, with the request that is being answered. Self-metrics count it by `reason`."""
        self._cuts.labels(reason).inc()
        transport, task = self.transport, self._task_handler
        self.force_close()
        if transport is not None:
            transport.abort()
        if task is not None:
            task.cancel()
        self.heads.drop(keep_first=False)
        self._budget.note(self)

    def _has_arrived(self) -> bool:
        """Return whether the other end has sent something that was not read yet."""
        connection = self.transport.get_extra_info("socket") if self.transport is not None else None
        return connection is not None and listener.is_readable(connection.fileno())
