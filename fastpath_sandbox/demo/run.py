"""The demo: sandbox cluster, Prometheus, adapter, scaler and native controller in one process.

It ends after the given time, or by Ctrl-C.
"""

import asyncio
import contextlib
import json
import random
import secrets
import ssl
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from rich.console import Console, RenderableType
from rich.live import Live

from adapter.compose import app
from adapter.compose.clock import SystemClock
from adapter.config.options import Options
from adapter.errors import RunError
from adapter.server.http.connection_server import MetricsServer
from fastpath_sandbox.apiserver.reviews import TokenVerdict
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.demo import metric_source, native_hpa, pages, view
from fastpath_sandbox.demo.native_hpa import Adapter
from fastpath_sandbox.demo.view import Moment, Question, Reaction, Reading
from fastpath_sandbox.demo.world import FAST, LIMITS, NAMESPACE, NATIVE, World

_STEP_SECONDS = 0.1
_READ_SECONDS = 1.0
_FRAME_SECONDS = 0.25

_CUSTOM = f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{NAMESPACE}"
_EXTERNAL = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}"


def _pods_path(app: str) -> str:
    return f"{_CUSTOM}/pods/*/requests_in_flight?labelSelector=app%3D{app}"


_QUEUE_PATH = f"{_EXTERNAL}/queue_depth?labelSelector=queue%3Dorders"
QUESTIONS = (
    Question("requests_in_flight", "web-fast, scraped each 1 s", _pods_path(FAST)),
    Question("requests_in_flight", "web-native, each 15 s", _pods_path(NATIVE)),
    Question("ingress_hits", "Ingress web", f"{_CUSTOM}/ingresses.networking.k8s.io/web/ingress_hits"),
    Question("queue_depth", "external, queue=orders", _QUEUE_PATH),
)
_SLOW = {QUESTIONS[1]}
"""Questions whose values change only once in 15 s, and so perhaps not during a short demo."""


@dataclass(slots=True)
class ScreenState:
    """The data of the screen: the last readings, their sums over time, and the columns of the chart."""

    readings: list[Reading] = field(default_factory=lambda: [Reading({}) for _ in QUESTIONS])
    history: list[list[float | None]] = field(default_factory=lambda: [[] for _ in QUESTIONS])
    moments: list[Moment] = field(default_factory=list)

    def add(self, readings: list[Reading]) -> None:
        self.readings = readings
        for line, reading in zip(self.history, readings, strict=True):
            line.append(view.total(reading))

    def unchanged(self) -> list[str]:
        """Return the questions whose value never changed, although the demo is there to show changes."""
        return [
            question.subject
            for question, line in zip(QUESTIONS, self.history, strict=True)
            if question not in _SLOW and len({value for value in line if value is not None}) < 2
        ]


async def run(version: str, *, seconds: float | None, port: int, console: Console, ui: bool = False) -> None:
    """Run the demo for `seconds`, None for until cancelled; RunError if no value changed in that time.

    With `ui` a browser shows its autoscalers.
    """
    clock = SystemClock()
    async with contextlib.AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastpath-demo-")))
        cluster = await stack.enter_async_context(Cluster(now=clock.wall))
        token = secrets.token_hex(8)
        cluster.reviews.token = lambda spec: TokenVerdict(spec["token"] == token, "demo")
        world = World(cluster, clock.wall, random.random)
        await stack.enter_async_context(world.listening(clock.wall))
        world.step(clock.wall())
        sources = metric_source.serve((world.quick, world.slow), clock.wall, directory / "prometheus")
        stepping = asyncio.create_task(_step(world, clock), name="world")
        stack.push_async_callback(_end, stepping)
        prometheus, about = await stack.enter_async_context(sources)
        rules = directory / "rules.yaml"
        rules.write_text(world.rules)
        kubeconfig = str(cluster.kubeconfig(directory / "kubeconfig"))
        options = Options(
            config=(str(rules),),
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
            scaler=True,
            leader_elect_resource_namespace=pages.SERVICE["namespace"],
            local_address="",  # one of a fixed port would keep a second demo from starting
            scrape_pod_cidrs=("127.0.0.0/8",),  # the demo's pods are on this machine
        )
        server = await stack.enter_async_context(_adapter(options, version))
        url = f"https://127.0.0.1:{server.port}"
        pages.register(cluster, server.port)
        adapter = Adapter(url, directory / "certificates" / "apiserver.crt", token)
        places = {
            "adapter": f"{url}  (self-signed certificate: curl -k)",
            "Prometheus": f"{prometheus}  {about}",
            "cluster": f"{cluster.url}  (kubectl --server={cluster.url} get fpa,hpa,pods -A)",
            "first": f"export A={url} T='Authorization: Bearer {token}'",
            "try": f'curl -kH "$T" "$A{_CUSTOM}/pods/*/{QUESTIONS[0].metric}"',
            "decisions": f'curl -kH "$T" "$A/debug/fastpath/autoscalers/{NAMESPACE}/{FAST}"',
            "health": 'curl -k "$A/readyz?verbose"',
            "metrics": 'curl -kH "$T" "$A/metrics"',
        }
        if ui:
            (directory / "token").write_text(token)
            flags = {
                "kubeconfig": kubeconfig,
                "config": rules,
                "prometheus-url": prometheus,
                "server": url,
                "token-file": directory / "token",
                "ca-file": adapter.authority,
            }
            serving = pages.served([f"--{name}={value}" for name, value in flags.items()])
            places["pages"] = await stack.enter_async_context(serving)
        # The live screen starts below these lines. They are not wrapped, so that they can be copied.
        for name, text in places.items():
            console.print(f"{name:<11} {text}", soft_wrap=True, markup=False, highlight=False)
        controller = native_hpa.running(Path(kubeconfig), adapter, directory, clock, random=random.random)
        await stack.enter_async_context(controller)
        await _show(world, clock, adapter, seconds, console)


@contextlib.asynccontextmanager
async def _adapter(options: Options, version: str) -> AsyncIterator[MetricsServer]:
    """Run the adapter as `fastpath serve --scaler` does."""
    listening: asyncio.Future[MetricsServer] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    adapter = asyncio.create_task(
        app.run(options, version, stop, started=listening.set_result), name="adapter"
    )
    first: list[asyncio.Future[Any]] = [adapter, listening]
    await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
    try:
        if listening.done():
            yield listening.result()
    finally:
        stop.set()
        await adapter  # raises what kept it from starting


async def _show(
    world: World, clock: SystemClock, adapter: Adapter, seconds: float | None, console: Console
) -> None:
    seen = ScreenState()
    headers = {"Authorization": f"Bearer {adapter.token}"}
    trust = ssl.create_default_context(cafile=str(adapter.authority))
    connector = aiohttp.TCPConnector(ssl=trust)
    try:
        async with aiohttp.ClientSession(
            base_url=adapter.url, connector=connector, headers=headers
        ) as session:
            with Live(console=console, auto_refresh=False) as live, contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    due = clock.monotonic()
                    while True:
                        if clock.monotonic() >= due:
                            due += _READ_SECONDS
                            seen.add(await _read(session))
                            fast, native = (world.replicas(name).wanted for name in (FAST, NATIVE))
                            seen.moments.append(Moment(world.needed(clock.wall()), fast, native))
                        live.update(_render(world, seen, clock.wall()), refresh=True)
                        await asyncio.sleep(_FRAME_SECONDS)
    finally:
        console.print()
        for line in view.summary(_reactions(world, clock.wall())):
            console.print(line, markup=False, highlight=False)
    if still := seen.unchanged():
        raise RunError(f"no changing value was read in {seconds:g} s for: {', '.join(still)}")


def _render(world: World, seen: ScreenState, now: float) -> RenderableType:
    fast, native = (
        f"{app.wanted} ({app.ready} ready)" for app in (world.replicas(FAST), world.replicas(NATIVE))
    )
    title = f"replicas under the same load, now {world.load(now):.0f} requests in flight, 10 to a pod"
    plot = view.chart(seen.moments, LIMITS[1])
    table = view.readings_table(QUESTIONS, seen.readings, seen.history)
    faulty = view.faults(seen.readings, seen.history)
    return view.render(title, plot, view.legend(fast, native), table, faulty, _reactions(world, now))


def _reactions(world: World, now: float) -> list[Reaction]:
    return [
        Reaction(
            f"load {step.before:.0f} to {step.after:.0f}",
            now - step.time,
            world.reaction(FAST, step),
            world.reaction(NATIVE, step),
        )
        for step in world.steps
    ]


async def _step(world: World, clock: SystemClock) -> None:
    while True:
        world.step(clock.wall())
        await asyncio.sleep(_STEP_SECONDS)


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def _read(session: aiohttp.ClientSession) -> list[Reading]:
    readings = []
    for question in QUESTIONS:
        async with session.get(question.path) as response:
            readings.append(view.parse(json.loads(await response.read())))
    return readings
