"""The HTTPS server: its connections, the order of requests, and graceful shutdown.

The client certificate tells the cluster's front proxy from everything else that reaches the port. Connections
with a trusted certificate have a reserved share of all connections, and their requests start at once.
Connections without one share the rest fairly by remote address, and their requests take turns (`FairQueue`),
so that a probe of the kubelet or a scrape gets through a flood from elsewhere.

Shutdown is that of Kubernetes' API servers. Readiness fails first, while serving goes on for the shutdown
delay, since endpoints are removed later than a pod is told to stop. Then new connections are refused,
requests in flight are answered, and connections close. Every response during shutdown asks the client to
close its connection, and no connection is closed while a request on it is unread.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from adapter.server.auth.client_cert import Peer
from adapter.server.health import Check
from adapter.server.http import budgets, listener
from adapter.server.http import connection as connections
from adapter.server.http.budgets import LongHeads
from adapter.server.http.connection import ClientConnection
from adapter.server.http.fair_queue import FairQueue
from adapter.server.http.handler import Handler
from adapter.server.http.listener import TLSListener
from adapter.server.http.requests import HTTPRequest
from adapter.server.http.responses import Later, Response
from adapter.server.tls import ServingCertificate
from adapter.telemetry import logs
from adapter.telemetry.metrics import Monitoring

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 800
"""Connections at a time: below the 1024 files that a process may open by default, less those for
handshakes."""

MOST_UNCERTIFIED = 200
"""Connections at a time without a trusted certificate; the others are reserved for those with one."""

REQUESTS_PER_TURN = 8
"""Requests without a trusted certificate that start in one turn of the event loop, in rotation over
addresses."""

_YOUNG_SECONDS = 1.0  # shutdown waits for handshakes that are younger
_LOOK = 0.02  # seconds between two looks at the open connections during shutdown


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Limits on the connections of one server, all together and each."""

    most_connections: int = MOST_CONNECTIONS
    most_uncertified: int = MOST_UNCERTIFIED
    most_handshakes: int = listener.MOST_HANDSHAKES
    handshake_seconds: float = listener.HANDSHAKE_SECONDS
    long_heads_bytes: int = budgets.LONG_HEADS_BYTES
    head_seconds: float | None = None
    """Replaces the times of `HeadLimits`, if given."""
    unread_seconds: float = connections.UNREAD_SECONDS


class Shutdown:
    """Whether the process is shutting down: the readiness check that fails first."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self.check = Check("shutdown", lambda: None if self._begun is None else "process is shutting down")

    def begin(self) -> None:
        """Fail the check from now on."""
        if self._begun is None:
            self._begun = asyncio.get_running_loop().time()

    def remaining(self, delay: float) -> float:
        """Return the seconds that are left of `delay`, counted from the begin of the shutdown."""
        elapsed = 0.0 if self._begun is None else asyncio.get_running_loop().time() - self._begun
        return max(0.0, delay - elapsed)


class ConnectionServer:
    """The connections of a server. A new one beyond the limits replaces another, see `_choose`."""

    def __init__(
        self,
        answer: Callable[[HTTPRequest], Response | Later],
        own_metrics: Monitoring,
        judge: Callable[[Peer], object],
        limits: ServerLimits,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.answer = answer
        self.judge = judge
        self.limits = limits
        self.cuts = own_metrics.connections_closed
        self.turns = FairQueue(self.loop, REQUESTS_PER_TURN)
        self.long_heads = LongHeads(limits.long_heads_bytes)
        self.held: dict[ClientConnection, None] = {}
        """The connections, oldest first. One that its client has closed stays until its request ends."""
        own_metrics.connections.set_function(lambda: len(self.open_connections()))
        own_metrics.requests_waiting.set_function(lambda: self.turns.waiting)

    def __call__(self) -> ClientConnection:
        return ClientConnection(self)

    def open_connections(self) -> list[ClientConnection]:
        """Return the open connections, oldest first, without those that this side is closing."""
        return [connection for connection in self.held if connection.is_open]

    async def end(self) -> None:
        """Close the connections that are left, and cancel their requests."""
        tasks = [connection.task for connection in self.held if connection.task is not None]
        for task in tasks:
            task.cancel()
        for connection in self.open_connections():
            connection.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    def admit(self, newcomer: ClientConnection) -> None:
        """Take a new connection in; end one where there are too many."""
        others = self.open_connections()
        abandoned = [connection for connection in self.held if connection.transport is None]
        self.held[newcomer] = None
        held = [*abandoned, *others]
        uncertified = sum(not connection.is_certified for connection in held)
        if len(held) >= self.limits.most_connections or (
            not newcomer.is_certified and uncertified >= self.limits.most_uncertified
        ):
            self._choose(newcomer, abandoned, others).cut("limit")

    @staticmethod
    def _choose(
        newcomer: ClientConnection, abandoned: list[ClientConnection], others: list[ClientConnection]
    ) -> ClientConnection:
        """Return the connection to close: an older one, or the new one.

        Requests that no client waits for end first; a connection with a certificate is not replaced by one
        without. Then connections without a certificate are closed: those of the address that has the most,
        idle ones before busy ones, then the oldest. A busy one is not closed for another of an address that
        has as many. Connections with a certificate are closed only for another with one, and only if idle.
        """
        for left in abandoned:
            if newcomer.is_certified or not left.is_certified:
                return left
        uncertified = [other for other in others if not other.is_certified]
        if not newcomer.is_certified:
            uncertified.insert(0, newcomer)  # the first of busy ones
        if not uncertified:
            return next((other for other in others if other.waits), newcomer)
        counts = Counter(other.address for other in uncertified)

        def rank(other: ClientConnection) -> tuple[int, bool]:
            is_idle = other.waits or other.writing_paused
            return -counts[other.address], other is newcomer or not is_idle

        return min(uncertified, key=rank)


class MetricsServer:
    """Serves `handler` over TLS from `start` to `stop`.

    Port 0 takes a free one; see `port` after the start.
    """

    def __init__(
        self,
        handler: Handler,
        certificate: ServingCertificate,
        shutdown: Shutdown,
        *,
        host: str,
        port: int,
        shutdown_delay: float = 0.0,
        drain_timeout: float = 60.0,
        share_port: bool = False,
        limits: ServerLimits = ServerLimits(),
    ) -> None:
        """`host` is an IP address; `share_port` is SO_REUSEPORT."""
        self._handler = handler
        self._shutdown = shutdown
        self._host = host
        self.port = port
        self._shutdown_delay = shutdown_delay
        self._drain_timeout = drain_timeout
        self._share_port = share_port
        self._connections = ConnectionServer(
            handler.answer, handler.own_metrics, handler.admission.judge, limits
        )
        self._listener = TLSListener(
            self._connections,
            certificate.context,
            handler.own_metrics,
            most_handshakes=limits.most_handshakes,
            handshake_seconds=limits.handshake_seconds,
        )

    @property
    def listening(self) -> bool:
        return self._listener.listening

    async def start(self) -> None:
        """Listen. Raises OSError where the address is not available."""
        self.port = self._listener.start(self._host, self.port, share_port=self._share_port)
        log.info("serving", extra=logs.facts(host=self._host, port=self.port))

    async def stop(self) -> None:
        """Shut down; takes the rest of the shutdown delay, and at most the drain timeout."""
        self._shutdown.begin()
        self._handler.stopping = True
        if not self.listening:
            return
        delay = self._shutdown.remaining(self._shutdown_delay)
        log.info("shutting down", extra=logs.facts(delay=round(delay, 3)))
        await asyncio.sleep(delay)
        self._listener.close()
        await self._drain()

    async def _drain(self) -> None:
        """Close each connection as soon as that loses nothing, and the rest after the drain timeout."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout):
                while (
                    self._listener.has_young_handshakes(_YOUNG_SECONDS)
                    or self._connections.open_connections()
                ):
                    for connection in self._connections.open_connections():
                        if connection.may_end:
                            connection.close()
                    await asyncio.sleep(_LOOK)
        await self._listener.end_handshakes()
        await self._connections.end()
