"""One connection of the HTTPS server: its limits on size and time, and when it may be closed.

The limits depend on the client certificate, which is judged after the handshake and again for each request.
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
from adapter.server.http import budgets, listener
from adapter.server.http.budgets import HeadAccount, HeadBudget, HeadLimits, LargeBody
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

_BARE_HEADERS = {"Connection": "close", "Server": "fastpath", "X-Content-Type-Options": "nosniff"}


class BodyError(Exception):
    """The body of a request is truncated or malformed."""


class ClientConnection(web.RequestHandler):
    """A connection with the identity of its peer. Malformed requests get Go's plain text.

    They are not logged, since such a line may hold a token.
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
        self._limits = budgets.UNCERTIFIED_HEADS
        self._opened = loop.time()
        self._heads_read = 0
        self._head_seconds = head_seconds
        self._head_deadline: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether its requests are still answered."""
        return self._task_handler is not None and self.transport is not None

    @property
    def waits(self) -> bool:
        """Whether it is idle: no request is being answered."""
        return self._waiter is not None and not self._waiter.done()

    @property
    def is_new(self) -> bool:
        """Whether it is so young that its first request may still be on its way."""
        return self._request_count == 0 and self._loop.time() - self._opened < _FIRST_REQUEST

    @property
    def may_end(self) -> bool:
        """Whether closing it loses nothing: it had time to send a request, and nothing is unread."""
        return self.waits and not self.is_new and not self.heads.unfinished and not self._has_arrived()

    @property
    def is_certified(self) -> bool:
        """Whether its certificate was trusted when last judged: after the handshake, and for each request."""
        verdict = self.peer.verdict if self.peer is not None else None
        return verdict is not None and (verdict.is_proxy or verdict.user is not None)

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
        self._use_limits(budgets.CERTIFIED_HEADS if self.is_certified else budgets.UNCERTIFIED_HEADS)
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        if self._force_close or self._close:
            return
        super().data_received(data)
        self._note_received(data)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response, and release its memory.

        After a declined upgrade aiohttp parses the rest of the input here.
        """
        try:
            sent = await super().finish_response(request, resp, start_time)
        finally:
            if isinstance(resp, web.Response) and isinstance(resp.body, LargeBody):
                resp.body.charge.close()
        if self._request_count != self._heads_read:
            self._note_received(b"")
        return sent

    def answered(self) -> None:
        """Note that the oldest request has its response, which may still be being sent."""
        self.heads.answered()
        self._budget.note(self)
        if self.heads.unfinished and self._head_deadline is None and self.is_open:
            self._expect_head()

    def follow_trust(self, response: web.StreamResponse) -> None:
        """Change the limits after another verdict on the certificate.

        Only a parser between two requests can be replaced; in any other state the connection closes after the
        response.
        """
        limits = budgets.CERTIFIED_HEADS if self.is_certified else budgets.UNCERTIFIED_HEADS
        if limits is self._limits or not self.is_open:
            return
        if self._messages or self.heads.unfinished or self._upgraded or self._buffer_paused:
            response.force_close()
        else:
            self._use_limits(limits)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread_deadline = self._loop.call_later(self._unread_seconds, self.cut, "unread")

    def resume_writing(self) -> None:
        self._forget_unread()
        super().resume_writing()

    def connection_lost(self, exc: BaseException | None) -> None:
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
        """Replace aiohttp's parser, which was made before the certificate was known."""
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
        """Count received bytes against the limits of this connection and the budget of all."""
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
        elif self.heads.unfinished:  # a response is still being sent
            self._expect_head()

    def cut(self, reason: str) -> None:
        """Abort the connection and the request being answered. Self-metrics count it by `reason`."""
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
        connection = self.transport.get_extra_info("socket") if self.transport is not None else None
        return connection is not None and listener.is_readable(connection.fileno())
