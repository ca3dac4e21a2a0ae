"""The HTTPS server: listener, limits of the HTTP layer, and graceful shutdown.

Shutdown is that of Kubernetes' API servers. Readiness fails first, while serving goes on for the shutdown
delay, since endpoints are removed later than a pod is told to stop. Then new connections are refused,
requests in flight are answered, and connections close. Every response during shutdown asks the client to
close its connection, and no connection is closed while a request on it is unread.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable

from adapter.server.auth.client_cert import Peer
from adapter.server.health import Check
from adapter.server.http import connection_server, connections, heads, listener
from adapter.server.http.connection_server import ConnectionServer
from adapter.server.http.handler import Handler
from adapter.server.http.listener import TLSListener
from adapter.server.tls.serving_certificate import ServingCertificate
from adapter.telemetry import logs

log = logging.getLogger(__name__)

UNCERTIFIED_BYTES = (
    heads.HEADS_BYTES
    + connection_server.MOST_UNCERTIFIED * connections.CONNECTION_BYTES
    + listener.MOST_HANDSHAKES * listener.HANDSHAKE_BYTES
)
"""Memory that clients without a trusted certificate can take in all, before one of their requests is
answered."""

_YOUNG_SECONDS = 1.0  # shutdown waits for handshakes that are younger
_LOOK = 0.02  # seconds between two looks at the open connections during shutdown
_CUT = 0.01  # seconds for cancelling the rest; aiohttp takes 0 for no limit


class Shutdown:
    """Whether the process is shutting down: the readiness check that fails first."""

    def __init__(self) -> None:
        self._begun: float | None = None
        self.check = Check("shutdown", lambda: None if self._begun is None else "process is shutting down")

    @property
    def begun(self) -> bool:
        return self._begun is not None

    def begin(self) -> None:
        """Fail the check from now on."""
        if self._begun is None:
            self._begun = asyncio.get_running_loop().time()

    def remaining(self, delay: float) -> float:
        """Return the seconds that are left of `delay`, counted from the begin of the shutdown."""
        elapsed = 0.0 if self._begun is None else asyncio.get_running_loop().time() - self._begun
        return max(0.0, delay - elapsed)


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
        judge: Callable[[Peer], object],
        host: str,
        port: int,
        shutdown_delay: float = 0.0,
        drain_timeout: float = 60.0,
        share_port: bool = False,
        head_seconds: float | None = None,
        unread_seconds: float = connections.UNREAD_SECONDS,
        handshake_seconds: float = listener.HANDSHAKE_SECONDS,
        most_connections: int = connection_server.MOST_CONNECTIONS,
        most_uncertified: int = connection_server.MOST_UNCERTIFIED,
        most_handshakes: int = listener.MOST_HANDSHAKES,
        head_bytes: int = heads.HEADS_BYTES,
    ) -> None:
        """`judge` gives a peer with a certificate its verdict.

        `host` is an IP address; `share_port` is SO_REUSEPORT.
        """
        self._handler = handler
        self._certificate = certificate
        self._shutdown = shutdown
        self._host = host
        self.port = port
        self._shutdown_delay = shutdown_delay
        self._drain_timeout = drain_timeout
        self._share_port = share_port
        self._connections = ConnectionServer(
            handler.handle,
            handler.own_metrics,
            judge=judge,
            most=most_connections,
            most_uncertified=most_uncertified,
            head_seconds=head_seconds,
            unread_seconds=unread_seconds,
            head_bytes=head_bytes,
            access_log=None,
            keepalive_timeout=connections.KEEPALIVE,
            lingering_time=0,  # bodies are not read; a connection with one left over is closed
            auto_decompress=False,
        )
        self._listener = TLSListener(
            self._connections,
            certificate.context,
            handler.own_metrics,
            most_handshakes=most_handshakes,
            handshake_seconds=handshake_seconds,
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
                            connection.force_close()
                    await asyncio.sleep(_LOOK)
        await self._listener.end_handshakes()
        await self._connections.shutdown(_CUT)
