"""Connections of the HTTPS server: what one is allowed to take its time with, how many there are, and when one may end.

Not here: the listener and the order of the end (`serving`), what is answered (`handler`). The law: who is silent, slow, or
comes in numbers keeps out nobody else, and no connection ends over a request that has arrived.
"""

import asyncio
import logging
import select
import weakref
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aiohttp import web
from prometheus_client import Counter

from adapter import monitoring
from adapter.server.peers import Peer

log = logging.getLogger(__name__)

KEEPALIVE = 120.0
"""Seconds an idle connection lives: longer than the 90 s after which kube-apiserver drops its own, so that we never
close one it is about to use."""

HEAD_SECONDS = 32.0
"""Within this time a new connection has to send its first request, and one that was begun has to be whole; Go's limit."""

MOST_CONNECTIONS = 800
"""Connections at a time: below the 1024 files that a process may open where nobody has asked for more."""

MOST_HEAD_BYTES = 1024 * 1024
"""Bytes of a request's line and headers together; Go's limit."""

UNREAD_SECONDS = 60.0
"""Who takes nothing of its answers for so long, while more of them wait to be sent, is given up: they stand in memory meanwhile. One
answer alone waits in the transport for as long as idle connections live."""

_FIRST_REQUEST = 1.0
"""Seconds for which, at the end, a connection that was just accepted is left to send what it came for."""

_BARE_HEADERS = {"Connection": "close", "Server": "fastpath", "X-Content-Type-Options": "nosniff"}


class ClientConnection(web.RequestHandler):
    """A connection that remembers its peer, and whose malformed requests get Go's bare text.

    Their details are nobody's business and no error of ours; nor are they logged, for a line that cannot be read may be the
    one with somebody's token.
    """

    __slots__ = (
        "__weakref__",
        "_cuts",
        "_head_begun",
        "_head_bytes",
        "_head_deadline",
        "_head_seconds",
        "_heads_read",
        "_opened",
        "_unread_deadline",
        "_unread_seconds",
        "peer",
    )

    def __init__(
        self,
        manager: web.Server,
        *,
        loop: asyncio.AbstractEventLoop,
        cuts: Counter,
        head_seconds: float,
        unread_seconds: float,
        **settings: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **settings)
        self._cuts = cuts
        self._head_bytes = 0
        self._unread_seconds = unread_seconds
        self._unread_deadline: asyncio.TimerHandle | None = None
        self.peer: Peer | None = None
        self._opened = loop.time()
        self._heads_read = 0
        self._head_begun = False
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
        """Whether it was accepted so lately that what it came for may be on its way still."""
        return self._request_count == 0 and self._loop.time() - self._opened < _FIRST_REQUEST

    @property
    def may_end(self) -> bool:
        """Whether nothing is lost by ending it: it has had the time to ask something, and nothing has arrived since."""
        return self.waits and not self.is_new and not self._head_begun and not self._has_arrived()

    @property
    def is_certified(self) -> bool:
        """Whether a request over it came with a certificate that was believed."""
        verdict = self.peer.verdict if self.peer is not None else None
        return verdict is not None and (verdict.is_proxy or verdict.user is not None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection, and expect a request."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Read, and see to it that a request that was begun becomes whole."""
        super().data_received(data)
        if self._request_count != self._heads_read:
            self._heads_read = self._request_count
            self._head_begun = False
            self._head_bytes = 0
            self._forget_head()
            return
        self._head_bytes += len(data)  # a body is not read, so of that there comes but little
        if self._head_bytes > MOST_HEAD_BYTES:
            self.cut("headers")
        elif self.waits:
            self._head_begun = True
            if self._head_deadline is None:
                self._expect_head()

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
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - what it quotes is for nobody's eyes
    ) -> web.StreamResponse:
        """Answer what could not be parsed as a request, and close."""
        facts = monitoring.facts(status=status, remote=request.remote, error=type(exc).__name__)
        if status >= 500:
            log.error("request failed in the HTTP layer", extra=facts, exc_info=exc)
        else:
            log.debug("request failed in the HTTP layer", extra=facts)
        text = f"{status} {HTTPStatus(status).phrase}\n"
        response = web.Response(status=status, text=text, headers=_BARE_HEADERS)
        response.force_close()
        return response

    def _expect_head(self) -> None:
        self._head_deadline = self._loop.call_later(self._head_seconds, self._give_up)

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

    def cut(self, reason: str) -> None:
        """End it now: no farewell is waited for. `reason` is what the self-metrics count it by."""
        self._cuts.labels(reason).inc()
        transport = self.transport
        self.force_close()
        if transport is not None:
            transport.abort()

    def _has_arrived(self) -> bool:
        """Return whether the other end has sent something that was not read yet."""
        connection = self.transport.get_extra_info("socket") if self.transport is not None else None
        return connection is not None and is_readable(connection.fileno())


class ConnectionServer(web.Server):
    """aiohttp's low-level server with `ClientConnection`s, of which there are not more than `most`.

    Beyond, one that waits ends for each that comes, those without a certificate first, of these the oldest: a flood keeps
    out strangers at most. Where none waits the one that comes ends.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        own_metrics: monitoring.Monitoring,
        *,
        most: int,
        head_seconds: float,
        unread_seconds: float,
        **settings: Any,
    ) -> None:
        super().__init__(handler, **settings)
        self._most = most
        self._cuts = own_metrics.connections_cut
        self._timing = {"head_seconds": head_seconds, "unread_seconds": unread_seconds}
        own_metrics.connections.set_function(lambda: len(self.open_connections()))
        self._accepted: weakref.WeakSet[ClientConnection] = weakref.WeakSet()

    @property
    def is_shaking_hands(self) -> bool:
        """Whether a connection that is new still has its TLS handshake before it."""
        return any(each.is_new for each in self._accepted)

    def __call__(self) -> web.RequestHandler:
        """Make the protocol of a connection that was accepted."""
        made = ClientConnection(self, loop=self._loop, cuts=self._cuts, **self._timing, **self._kwargs)
        self._accepted.add(made)
        return made

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Take a connection whose handshake is done."""
        super().connection_made(handler, transport)
        assert isinstance(handler, ClientConnection)
        self._accepted.discard(handler)
        there = self.open_connections()  # the others: this one has not begun
        if len(there) >= self._most:
            chosen = min(there, key=lambda each: (not each.waits, each.is_certified))
            (chosen if chosen.waits else handler).cut("flood")

    def open_connections(self) -> list[ClientConnection]:
        """Return the connections that are open, oldest first; not those that we have ended and whose other end is silent."""
        return [each for each in self._connections if isinstance(each, ClientConnection) and each.is_open]


def is_readable(descriptor: int) -> bool:
    """Return whether something waits to be read, be it the end; False for a descriptor that was closed (negative)."""
    if descriptor < 0:
        return False
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
