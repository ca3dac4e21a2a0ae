"""The scaler's local endpoints over plain HTTP: health, self-metrics and the journal of an autoscaler.

Callers are not authenticated: they are on the machine or in the pod already, and `kubectl port-forward` has
its own permission. The endpoints are read-only, and the command line accepts loopback addresses only.
"""

from aiohttp import web

from adapter.server.api import encoding
from adapter.server.health import Health
from adapter.server.http import negotiation
from adapter.server.http.pages import ShowAutoscaler
from adapter.telemetry import exposition, metrics


class LocalPages:
    """Listens between `start` and `stop`, unless the address is ""."""

    def __init__(
        self,
        address: str,
        health: Health,
        own_metrics: metrics.Monitoring,
        show_autoscaler: ShowAutoscaler,
    ) -> None:
        self._address = address
        self._health = health
        self._monitoring = own_metrics
        self._show_autoscaler = show_autoscaler
        self._runner: web.ServerRunner | None = None
        self.port = 0
        """The port it listens on, 0 while it does not listen."""

    async def start(self) -> None:
        """Listen. OSError where the address is not available."""
        if not self._address:
            return
        host, _, port = self._address.rpartition(":")
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None))
        await self._runner.setup()
        site = web.TCPSite(self._runner, host.strip("[]"), int(port))
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in {"GET", "HEAD"}:
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        segments = tuple(request.path.split("/")[1:])
        match segments:
            case ("metrics",):
                body = await encoding.join(self._monitoring.exposition_pieces())
                return web.Response(body=body, headers={"Content-Type": exposition.CONTENT_TYPE})
            case ("debug", "fastpath", "autoscalers", namespace, name) if namespace and name:
                status, body = self._show_autoscaler(namespace, name)
                return web.Response(status=status, body=body, content_type=negotiation.JSON)
        answer = self._health.answer(segments, request.query_string)
        if answer is None:
            return web.Response(status=404, text="not found\n")
        return web.Response(status=answer.status, text=answer.text)
