"""The demo: sandbox cluster, Prometheus, adapter and view in one process, until the time is over or Ctrl-C."""

import asyncio
import contextlib
import json
import secrets
import ssl
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from rich.console import Console
from rich.live import Live

from adapter import app
from adapter.config.options import Options
from adapter.demo import metricsource, view
from adapter.demo.view import Question, Reading
from adapter.demo.world import NAMESPACE, RULES, World
from adapter.errors import RunError
from adapter.sandbox.cluster import Cluster
from adapter.sandbox.reviews import TokenVerdict
from adapter.server.serving import MetricsServer

_STEP_SECONDS = 0.25
_READ_SECONDS = 1.0

_CUSTOM = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}"
_EXTERNAL = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}"
QUESTIONS = (
    Question("http_requests_per_second", "pods, app=web", f"{_CUSTOM}/pods/*/http_requests_per_second?labelSelector=app%3Dweb"),
    Question("http_requests_per_second", "pods, app=api", f"{_CUSTOM}/pods/*/http_requests_per_second?labelSelector=app%3Dapi"),
    Question("ingress_hits", "Ingress web", f"{_CUSTOM}/ingresses.networking.k8s.io/web/ingress_hits"),
    Question("queue_depth", "external, queue=orders", f"{_EXTERNAL}/queue_depth?labelSelector=queue%3Dorders"),
)  # fmt: skip


@dataclass(slots=True)
class Seen:
    """What was read so far: the last readings, a line of sums for each question, and whether a value ever changed."""

    readings: list[Reading] = field(default_factory=lambda: [Reading({}) for _ in QUESTIONS])
    history: list[list[float | None]] = field(default_factory=lambda: [[] for _ in QUESTIONS])

    def add(self, readings: list[Reading]) -> None:
        """Take the readings of one moment."""
        self.readings = readings
        for line, reading in zip(self.history, readings, strict=True):
            line.append(view.total(reading))

    def unchanged(self) -> list[str]:
        """Return the questions whose value never changed: what the demo is there to show did not happen."""
        return [
            question.subject
            for question, line in zip(QUESTIONS, self.history, strict=True)
            if len({value for value in line if value is not None}) < 2
        ]


class Caller(NamedTuple):
    """How the demo asks: where, whom it trusts to be the adapter, and what it shows."""

    url: str
    trust: ssl.SSLContext
    token: str


async def run(version: str, *, seconds: float | None, port: int, console: Console) -> None:
    """Run the demo for `seconds`, or until cancelled when None; RunError when no value was seen to change in a bounded run."""
    clock = app.SystemClock()
    with tempfile.TemporaryDirectory(prefix="fastpath-demo-") as temporary:
        directory = Path(temporary)
        async with Cluster(now=clock.wall) as cluster:
            token = secrets.token_hex(8)
            cluster.reviews.token = lambda spec: TokenVerdict(spec["token"] == token, "demo")
            world = World(cluster, clock.wall())
            world.step(clock.wall())
            async with metricsource.serve(world.series, clock.wall, directory / "prometheus") as (prometheus, about):
                (directory / "rules.yaml").write_text(RULES)
                kubeconfig = str(cluster.kubeconfig(directory / "kubeconfig"))
                options = Options(
                    config=(str(directory / "rules.yaml"),),
                    prometheus_url=prometheus,
                    lister_kubeconfig=kubeconfig,
                    authentication_kubeconfig=kubeconfig,
                    authorization_kubeconfig=kubeconfig,
                    cert_dir=str(directory / "certificates"),
                    bind_address="127.0.0.1",
                    authentication_skip_lookup=True,  # there is no front proxy here: callers show the token
                    secure_port=port,
                    metrics_relist_interval=2.0,
                    metrics_max_age=60.0,
                )
                async with _adapter(options, version) as server:
                    url = f"https://127.0.0.1:{server.port}"
                    curl = f"curl -k -H 'Authorization: Bearer {token}'"
                    places = {
                        "adapter": f"{url}  (self-signed certificate: curl -k)",
                        "Prometheus": f"{prometheus}  {about}",
                        "cluster": f"{cluster.url}  (kubectl --server={cluster.url} get pods -A)",
                        "try": f"{curl} '{url}{QUESTIONS[0].path}'",
                        "health": f"curl -k '{url}/readyz?verbose'",
                        "metrics": f"{curl} '{url}/metrics'",
                    }
                    trust = ssl.create_default_context(cafile=str(directory / "certificates" / "apiserver.crt"))
                    for (
                        name,
                        text,
                    ) in places.items():  # before the screen and not cut into its lines, so that they can be copied
                        console.print(f"{name:<11} {text}", soft_wrap=True, markup=False, highlight=False)
                    await _show(world, clock, Caller(url, trust, token), seconds, console)


@contextlib.asynccontextmanager
async def _adapter(options: Options, version: str) -> AsyncIterator[MetricsServer]:
    """Run the adapter as `fastpath serve` does, until the block ends."""
    listening: asyncio.Future[MetricsServer] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    adapter = asyncio.create_task(app.run(options, version, stop, started=listening.set_result), name="adapter")
    first: list[asyncio.Future[Any]] = [adapter, listening]
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    try:
        if listening.done():
            yield listening.result()
    finally:
        stop.set()
        await adapter  # raises what kept it from starting


async def _show(
    world: World,
    clock: app.SystemClock,
    caller: Caller,
    seconds: float | None,
    console: Console,
) -> None:
    seen = Seen()
    headers = {"Authorization": f"Bearer {caller.token}"}
    connector = aiohttp.TCPConnector(ssl=caller.trust)
    async with aiohttp.ClientSession(base_url=caller.url, connector=connector, headers=headers) as session:
        stepping = asyncio.create_task(_step(world, clock), name="world")
        try:
            with Live(console=console, auto_refresh=False) as live, contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    while True:
                        seen.add(await _read(session))
                        ready, wanted = world.replicas("web")
                        replicas = {"web": f"{ready} of {wanted} pods ready; scaled between 3 and 5 every 15 s"}
                        live.update(view.render(QUESTIONS, seen.readings, seen.history, replicas), refresh=True)
                        await asyncio.sleep(_READ_SECONDS)
        finally:
            stepping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await stepping
    if still := seen.unchanged():
        raise RunError(f"no changing value was read in {seconds:g} s for: {', '.join(still)}")


async def _step(world: World, clock: app.SystemClock) -> None:
    while True:
        world.step(clock.wall())
        await asyncio.sleep(_STEP_SECONDS)


async def _read(session: aiohttp.ClientSession) -> list[Reading]:
    """Ask every question as an autoscaler would."""
    readings = []
    for question in QUESTIONS:
        async with session.get(question.path) as response:
            readings.append(view.parse(json.loads(await response.read())))
    return readings
