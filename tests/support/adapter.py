"""A whole adapter or scaler in the test's process: `app.run` with real HTTPS, or `app.run_scaler`.

Both are on a sandbox cluster, or any other that can be pointed at, and a Prometheus.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote

import aiohttp

from adapter.compose import app
from adapter.config.options import SERVE
from adapter.model.clock import Clock
from adapter.server.http.connection_server import MetricsServer
from adapter.server.http.endpoints import LocalPages
from fastpath_sandbox.apiserver.reviews import TokenVerdict
from fastpath_sandbox.apiserver.server import Cluster
from tests.support import certificates
from tests.support.kubectl import TOKEN
from tests.support.processor import limited

Listening = TypeVar("Listening")


class Reachable(Protocol):
    """A cluster that an adapter can be pointed at."""

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig to `path` and return it."""
        ...


class DecodedAnswer(NamedTuple):
    """Status and decoded body (text where it is not JSON)."""

    status: int
    body: Any

    @classmethod
    async def of(cls, response: aiohttp.ClientResponse) -> "DecodedAnswer":
        is_json = response.content_type == "application/json"
        return cls(response.status, await response.json() if is_json else await response.text())

    @property
    def values(self) -> dict[str, str]:
        """Return the values of a custom metric by object name."""
        return {item["describedObject"]["name"]: item["value"] for item in self.body["items"]}


class RunningAdapter:
    """Talks to a running adapter: with `headers`, over TLS as `context` says. `url` is where it listens."""

    def __init__(
        self, url: str, session: aiohttp.ClientSession, headers: Mapping[str, str], context: ssl.SSLContext
    ) -> None:
        self.url = url
        self.headers = headers
        self.context = context
        self._session = session

    async def get(self, path: str) -> DecodedAnswer:
        async with self._session.get(f"{self.url}{path}", ssl=self.context, headers=self.headers) as response:
            return await DecodedAnswer.of(response)

    async def pods(self, namespace: str, metric: str, selector: str = "") -> DecodedAnswer:
        """Ask as an autoscaler does for a Pods metric."""
        query = f"?labelSelector={quote(selector)}" if selector else ""
        return await self.get(
            f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{namespace}/pods/%2A/{metric}{query}"
        )

    async def wait_for(self, path: str, accept: Any, seconds: float = 20.0) -> DecodedAnswer:
        """Ask until `accept(answer)` holds; fails with the last answer."""
        answer = DecodedAnswer(0, None)
        try:
            async with limited(seconds):
                while True:
                    answer = await self.get(path)
                    if accept(answer):
                        return answer
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{path} never answered as expected; last: {answer}") from None

    async def metric_lines(self, name: str) -> dict[str, float]:
        """Return the samples of one self-metric, by the text before the value."""
        text = (await self.get("/metrics")).body
        lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith(name))
        return {series: float(value) for series, _, value in lines}


class RunningScaler:
    """Talks to the local pages of a scaler."""

    def __init__(
        self, session: aiohttp.ClientSession, port: int, stop: asyncio.Event, run: "asyncio.Task[None]"
    ) -> None:
        self.session = session
        self.port = port
        self.stop = stop
        self._run = run

    def at(self, port: int) -> "RunningScaler":
        """Return the same scaler, asked at another port."""
        return RunningScaler(self.session, port, self.stop, self._run)

    async def get(self, path: str) -> DecodedAnswer:
        async with self.session.get(f"http://127.0.0.1:{self.port}{path}") as response:
            return await DecodedAnswer.of(response)

    async def shows(self, words: str, path: str = "/metrics") -> None:
        """Wait until a page holds the words."""
        async with limited(30):
            while words not in str((await self.get(path))[1]):  # noqa: ASYNC110 - another page announces nothing
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        """End it as SIGTERM does."""
        self.stop.set()
        await self._run


def admit(cluster: Cluster) -> None:
    """Have a cluster know the token and publish client authorities, unless a test has done so."""
    if cluster.reviews.token({"token": TOKEN}).authenticated is False:
        cluster.reviews.token = lambda spec: TokenVerdict(spec["token"] == TOKEN, "someone")
    if not any(
        each["metadata"]["name"] == certificates.NAME for each in cluster.list("ConfigMap", "kube-system")
    ):
        front_proxy, clients = certificates.Signer("front-proxy-ca"), certificates.Signer("kubernetes")
        cluster.create(certificates.config_map_object(certificates.config_map(front_proxy.pem, clients.pem)))


@contextlib.asynccontextmanager
async def running(
    directory: Path,
    cluster: Reachable,
    prometheus: str,
    *arguments: str,
    clock: Clock | None = None,
    until_ready: bool = True,
    admitted: bool = True,
    token: str = TOKEN,
    aggregated: bool = False,
) -> AsyncIterator[RunningAdapter]:
    """Run an adapter on a free port of loopback until the block ends; `directory`/rules.yaml holds its rules.

    The block begins when the adapter is ready, or with `until_ready` False as soon as it listens. A sandbox
    cluster is made to know TOKEN and to publish authorities, unless `admitted` is False; any other cluster
    has to know `token` by itself. With `aggregated` the `RunningAdapter` shows no token: it is the
    aggregator's own check, which no review is asked about.
    """
    headers, context = {"Authorization": f"Bearer {token}"}, ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if aggregated:
        authority, file = certificates.Signer("aggregation-ca"), directory / "aggregation-ca.crt"
        file.write_text(authority.pem)
        context.load_cert_chain(authority.issue("front-proxy-client").write(directory))
        headers = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
        arguments = (*arguments, f"--requestheader-client-ca-file={file}")
    if admitted and isinstance(cluster, Cluster):
        admit(cluster)
    options, _ = SERVE.parse(
        [
            "--bind-address=127.0.0.1",
            f"--config={directory / 'rules.yaml'}",
            f"--prometheus-url={prometheus}",
            f"--lister-kubeconfig={cluster.kubeconfig(directory / 'kubeconfig')}",
            f"--cert-dir={directory / 'certificates'}",
            *arguments,
        ]
    )
    options = replace(options, secure_port=0)

    def run(stop: asyncio.Event, started: Callable[[MetricsServer], None]) -> Coroutine[Any, Any, None]:
        return app.run(options, "test", stop, started=started, clock=clock)

    async with _started(run, "adapter") as (server, _, _), aiohttp.ClientSession() as session:
        adapter = RunningAdapter(f"https://127.0.0.1:{server.port}", session, headers, context)
        if until_ready:
            await adapter.wait_for("/readyz", lambda answer: answer.status == 200)
        yield adapter


@contextlib.asynccontextmanager
async def running_scaler(
    directory: Path, rules: str, prometheus: str, kubeconfig: Path, *arguments: str
) -> AsyncIterator[RunningScaler]:
    """Run a scaler with local pages on a free port until the block ends."""
    (directory / "rules.yaml").write_text(rules)
    options, _ = SERVE.parse(
        [
            f"--config={directory / 'rules.yaml'}",
            f"--prometheus-url={prometheus}",
            f"--lister-kubeconfig={kubeconfig}",
            "--local-address=127.0.0.1:0",
            *arguments,
        ]
    )

    def run(stop: asyncio.Event, started: Callable[[LocalPages], None]) -> Coroutine[Any, Any, None]:
        return app.run_scaler(options, "test", stop, started=started)

    async with _started(run, "scaler") as (pages, stop, task), aiohttp.ClientSession() as session:
        yield RunningScaler(session, pages.port, stop, task)


@contextlib.asynccontextmanager
async def _started(
    run: Callable[[asyncio.Event, Callable[[Listening], None]], Coroutine[Any, Any, None]], name: str
) -> AsyncIterator[tuple[Listening, asyncio.Event, "asyncio.Task[None]"]]:
    """Run a server until the block ends, which begins as soon as it listens; its failure fails the test."""
    stop = asyncio.Event()
    listening: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(run(stop, listening.set_result), name=name)
    try:
        first: list[asyncio.Future[Any]] = [task, listening]
        await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task  # says why it did not start
        yield listening.result(), stop, task
    finally:
        stop.set()
        await asyncio.gather(task, return_exceptions=True)
    await task
