"""The HTTPS server: listener, limits of the HTTP layer, and an orderly end.

The end is the one of Kubernetes' API servers: readiness fails first while serving goes on for the shutdown delay, since
endpoints are removed later than a pod is told to stop; then nothing new is accepted, requests in flight are answered, and
connections close.
"""

import asyncio
import contextlib
import logging
from http import HTTPStatus

from aiohttp import web

from adapter import monitoring
from adapter.server.handler import Handler
from adapter.server.health import Check
from adapter.server.tls import ServingCertificate

log = logging.getLogger(__name__)

KEEPALIVE = 120.0
"""Seconds an idle connection lives: longer than the 90 s after which kube-apiserver drops its own, so that we never
close one it is about to use; short enough to be rid of callers who send half a request."""

MAX_HEADERS = 4096
MAX_LINE = 64 * 1024
"""Bytes of a request line or a header field: a long selector, a long token, a user in hundreds of groups."""


class _Protocol(web.RequestHandler):
    """A connection whose malformed requests get Go's bare text; their details are nobody's business and no error of ours."""

    __slots__ = ()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what could not be parsed as a request, and close."""
        level = logging.ERROR if status >= 500 else logging.DEBUG
        facts = monitoring.facts(status=status, remote=request.remote, detail=message)
        log.log(level, "request failed in the HTTP layer", extra=facts, exc_info=exc)
        text = f"{status} {HTTPStatus(status).phrase}\n"
        response = web.Response(status=status, text=text, headers={"X-Content-Type-Options": "nosniff"})
        response.force_close()
        return response


class _Server(web.Server):
    """aiohttp's low-level server with connections of our own kind."""

    def __call__(self) -> web.RequestHandler:
        """Make the protocol of a new connection."""
        return _Protocol(self, loop=self._loop, **self._kwargs)


class Shutdown:
    """Whether the process is asked to end: the readiness check that fails first."""

    def __init__(self) -> None:
        self.begun = False
        self.check = Check("shutdown", lambda: "process is shutting down" if self.begun else None)


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
        self._runner: web.ServerRunner | None = None
        self._follower: asyncio.Task[None] | None = None

    @property
    def listening(self) -> bool:
        """Whether the listener is up."""
        return self._runner is not None and bool(self._runner.addresses)

    async def start(self) -> None:
        """Listen. Raises OSError where the address cannot be had."""
        server = _Server(
            self._handler.handle,
            access_log=None,
            keepalive_timeout=KEEPALIVE,
            lingering_time=0,  # bodies are not read; a connection with one left over is closed
            max_headers=MAX_HEADERS,
            max_line_size=MAX_LINE,
            max_field_size=MAX_LINE,
        )
        runner = web.ServerRunner(server, shutdown_timeout=self._drain_timeout)
        await runner.setup()
        try:
            site = web.TCPSite(
                runner,
                self._host,
                self.port,
                ssl_context=self._certificate.context,
                reuse_port=self._share_port or None,
                reuse_address=self._share_address or None,
            )
            await site.start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner
        self.port = runner.addresses[0][1]
        self._follower = asyncio.create_task(self._certificate.follow(), name="serving certificate")
        log.info("serving", extra=monitoring.facts(host=self._host, port=self.port))

    async def stop(self) -> None:
        """End in order; takes the shutdown delay and at most the drain timeout."""
        self._shutdown.begun = True
        self._handler.stopping = True
        if self._runner is None or self._follower is None:
            return
        log.info("shutting down", extra=monitoring.facts(delay=self._shutdown_delay))
        await asyncio.sleep(self._shutdown_delay)
        self._follower.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._follower
        await self._runner.cleanup()
        self._runner = self._follower = None
