"""What the scaler shows on its own machine: health, self-metrics, the journal of an autoscaler. Plain HTTP on a loopback address.

Who asks there is on the machine, or in the pod, already (`kubectl port-forward` is a right of its own), so nobody is asked who they are.
Law: read-only, and on loopback alone, which the command line sees to.
"""

from collections.abc import Callable

from aiohttp import web

from adapter.autoscaler import debug
from adapter.server.api import encoding
from adapter.server.health import Health
from adapter.server.http import negotiation
from adapter.telemetry import exposition, metrics


class LocalPages:
    """Listens between `start` and `stop`, unless the address is ""."""

    def __init__(
        self,
        address: str,
        health: Health,
        own_metrics: metrics.Monitoring,
        show: Callable[[str, str], debug.DebugResponse],
    ) -> None:
        self._address = address
        self._health = health
        self._monitoring = own_metrics
        self._show = show
        self._runner: web.ServerRunner | None = None
        self.port = 0
        """Where it listens, 0 before that and where it does not."""

    async def start(self) -> None:
        """Listen. OSError where the address cannot be had."""
        if not self._address:
            return
        host, _, port = self._address.rpartition(":")
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None))
        await self._runner.setup()
        site = web.TCPSite(self._runner, host.strip("[]"), int(port))
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Listen no more."""
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
                status, document = self._show(namespace, name)
                return web.Response(status=status, body=debug.encode(document), content_type=negotiation.JSON)
        answer = self._health.answer(segments, request.query_string)
        if answer is None:
            return web.Response(status=404, text="not found\n")
        return web.Response(status=answer.status, text=answer.text)
