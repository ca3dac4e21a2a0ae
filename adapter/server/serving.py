"""The HTTPS server: listener, limits of the HTTP layer, and an orderly end.

The end is the one of Kubernetes' API servers: readiness fails first while serving goes on for the shutdown delay, since
endpoints are removed later than a pod is told to stop; then nothing new is accepted, requests in flight are answered, and
connections close. Every answer since the beginning of the end asks its caller to leave, and no connection is closed over a
request that has arrived but was not read yet.
"""

import asyncio
import contextlib
import logging

from adapter import monitoring
from adapter.server import connections
from adapter.server.connections import ConnectionServer
from adapter.server.handler import Handler
from adapter.server.health import Check
from adapter.server.tls import ServingCertificate

log = logging.getLogger(__name__)

MAX_HEADERS = 4096
MAX_LINE = 64 * 1024
"""Bytes of a request line or a header field: a long selector, a long token, a user in hundreds of groups."""

HANDSHAKE_SECONDS = 10.0
"""A TLS handshake takes no longer than this."""

FAREWELL_SECONDS = 2.0
"""How long the other end of a connection that ends is waited for to say so too; asyncio's own limit is half a minute."""

_BACKLOG = 128
_LOOK = 0.02  # seconds between two looks at what is still open while the server ends
_CUT = 0.01  # seconds in which what did not end in time is cancelled; aiohttp takes 0 for no limit


class Shutdown:
    """Whether the process is asked to end: the readiness check that fails first."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self.check = Check("shutdown", lambda: None if self._begun is None else "process is shutting down")

    @property
    def begun(self) -> bool:
        """Whether the end has begun."""
        return self._begun is not None

    def begin(self) -> None:
        """Fail the check from now on."""
        if self._begun is None:
            self._begun = asyncio.get_running_loop().time()

    def remaining(self, delay: float) -> float:
        """Return the seconds until the end has lasted for `delay`."""
        elapsed = 0.0 if self._begun is None else asyncio.get_running_loop().time() - self._begun
        return max(0.0, delay - elapsed)


class MetricsServer:
    """Serves `handler` over TLS from `start` to `stop`. Port 0 takes a free one, which `port` is from the start on."""

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
        share_address: bool = False,
        head_seconds: float = connections.HEAD_SECONDS,
        unread_seconds: float = connections.UNREAD_SECONDS,
        most_connections: int = connections.MOST_CONNECTIONS,
    ) -> None:
        """Take the settings; nothing is opened. `share_port` is SO_REUSEPORT, `share_address` SO_REUSEADDR."""
        self._handler = handler
        self._certificate = certificate
        self._shutdown = shutdown
        self._host = host
        self.port = port
        self._shutdown_delay = shutdown_delay
        self._drain_timeout = drain_timeout
        self._share_port = share_port
        self._share_address = share_address
        self._connections = ConnectionServer(
            handler.handle,
            handler.own_metrics,
            most=most_connections,
            head_seconds=head_seconds,
            unread_seconds=unread_seconds,
            access_log=None,
            keepalive_timeout=connections.KEEPALIVE,
            lingering_time=0,  # bodies are not read; a connection with one left over is closed
            auto_decompress=False,
            max_headers=MAX_HEADERS,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
        )
        self._listener: asyncio.Server | None = None

    @property
    def listening(self) -> bool:
        """Whether the listener is up."""
        return self._listener is not None and self._listener.is_serving()

    async def start(self) -> None:
        """Listen. Raises OSError where the address cannot be had."""
        self._listener = await asyncio.get_running_loop().create_server(
            self._connections,
            self._host,
            self.port,
            ssl=self._certificate.context,
            ssl_handshake_timeout=HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=FAREWELL_SECONDS,
            backlog=_BACKLOG,
            reuse_port=self._share_port or None,
            reuse_address=self._share_address or None,
        )
        self.port = self._listener.sockets[0].getsockname()[1]
        log.info("serving", extra=monitoring.facts(host=self._host, port=self.port))

    async def stop(self) -> None:
        """End in order; takes what is left of the shutdown delay, and at most the drain timeout."""
        self._shutdown.begin()
        self._handler.stopping = True
        if self._listener is None:
            return
        listener = self._listener
        delay = self._shutdown.remaining(self._shutdown_delay)
        log.info("shutting down", extra=monitoring.facts(delay=round(delay, 3)))
        await asyncio.sleep(delay)
        await _accept_who_waits(listener)
        listener.close()
        await self._drain()
        self._listener = None

    async def _drain(self) -> None:
        """Close connections as soon as nothing is lost by it, the others at the end of the time for it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._drain_timeout):
                while self._connections.is_shaking_hands or self._connections.open_connections():
                    for connection in self._connections.open_connections():
                        if connection.may_end:
                            connection.force_close()
                    await asyncio.sleep(_LOOK)
        await self._connections.shutdown(_CUT)


async def _accept_who_waits(listener: asyncio.Server) -> None:
    """Have the event loop accept the connections that the system has made already: closing the listener would cut them."""
    for _ in range(_BACKLOG):
        if not any(connections.is_readable(each.fileno()) for each in listener.sockets):
            break
        await asyncio.sleep(0)
    for _ in range(2):  # what was accepted becomes a task, and the task a connection that belongs to the listener
        await asyncio.sleep(0)
