"""A rolling restart under load: two processes behind a slow balancer, and callers that never retry.

The balancer is as Services are: it looks at readiness now and then, and an endpoint that is unready still
gets new connections for two seconds. Open connections are left alone; what ends them is the adapter's
`Connection: close` and its orderly end.
"""

import asyncio
import contextlib
import functools
import itertools
import re
import signal
import ssl
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Self

import pytest
import yaml

from adapter.model import timestamps
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from tests.support import adapter as support
from tests.support import waiting
from tests.support.clock import ShiftedClock
from tests.support.kubectl import TOKEN
from tests.support.processor import limited

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

RATE = 500.0
"""Requests a second."""
DROPPED_AFTER = 2.0
"""Seconds for which an endpoint that is unready goes on getting connections."""
DELAY = 4
"""Seconds for which an ending endpoint serves on: longer than the balancer needs to see it and to act."""
CONNECTIONS = 50
LOOKS_EVERY = 0.25
PATIENCE = 10.0

RULES = """
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""
LOAD = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/load"


def test_the_manifests_wait_longer_than_needed() -> None:
    """If no request is lost here, none is lost there: the flag of the Deployment is on the safe side."""
    text = (Path(__file__).parents[2] / "manifests/base/deployment.yaml").read_text()
    arguments = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"][0]["args"]
    (flag,) = [argument for argument in arguments if argument.startswith("--shutdown-delay=")]
    assert timestamps.parse_go_duration(flag.partition("=")[2]) > 2 * DELAY


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


class Connection:
    """One connection of a caller's pool."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port, ssl=_CONTEXT))

    @property
    def usable(self) -> bool:
        """Whether the other end has not closed it, as far as is known here."""
        return not self._reader.at_eof() and not self.writer.is_closing()

    async def get(self, path: str) -> tuple[int, bool, bytes]:
        """Return status, whether the connection may be used again, and body."""
        self.writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        found = re.search(rb"content-length: (\d+)", head)
        assert found is not None
        body = await self._reader.readexactly(int(found[1]))
        return int(head.split()[1]), b"connection: close" not in head, body


_CONTEXT = _context()


class Balancer:
    """Hands connections to ready endpoints in turn, byte for byte."""

    def __init__(self, *ports: int) -> None:
        self.taken: Counter[int] = Counter()
        self._ports = ports
        self._dropped_at = dict.fromkeys(ports, 0.0)  # loop time; infinite for an endpoint that is ready
        self._turn = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """Serve until the block ends; gives the port."""
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        looks = [asyncio.create_task(self._look(port), name=f"probe {port}") for port in self._ports]
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in (*looks, *self._tasks):
                task.cancel()
            await asyncio.gather(*looks, *self._tasks, return_exceptions=True)
            await server.wait_closed()

    def serves(self, port: int) -> bool:
        """Whether the endpoint gets connections."""
        return asyncio.get_running_loop().time() < self._dropped_at[port]

    async def until_serves(self, port: int) -> None:
        await waiting.until(lambda: self.serves(port), 30)

    async def _look(self, port: int) -> None:
        """Probe an endpoint forever, each time over a new connection, as kubelets do."""
        loop = asyncio.get_running_loop()
        while True:
            ready = await self._is_ready(port)
            if ready:
                self._dropped_at[port] = float("inf")
            elif self._dropped_at[port] == float("inf"):
                self._dropped_at[port] = loop.time() + DROPPED_AFTER
            await asyncio.sleep(LOOKS_EVERY)

    async def _is_ready(self, port: int) -> bool:
        try:
            connection = await Connection.open(port)
        except OSError:
            return False
        try:
            return (await connection.get("/readyz"))[0] == 200
        except (OSError, asyncio.IncompleteReadError):
            return False
        finally:
            connection.writer.transport.abort()

    def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._accept(reader, writer), name="balanced connection")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ready = [port for port in self._ports if self.serves(port)]
        try:
            port = ready[next(self._turn) % len(ready)]
            self.taken[port] += 1
            behind_reader, behind_writer = await asyncio.open_connection("127.0.0.1", port)
        except (ZeroDivisionError, OSError):
            writer.transport.abort()
            return
        try:
            await asyncio.gather(_pass_on(reader, behind_writer), _pass_on(behind_reader, writer))
        finally:
            writer.transport.abort()
            behind_writer.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Pass on bytes until their end, and the end."""
    with contextlib.suppress(OSError):
        while received := await reader.read(65536):
            writer.write(received)
            await writer.drain()
        writer.write_eof()


class Callers:
    """Asks `RATE` times a second over `CONNECTIONS`, each in its turn, and asks nothing again.

    A closed connection is replaced at once, so that each reachable endpoint always has one.
    """

    def __init__(self, port: int) -> None:
        self.asked = 0
        self.answered = 0
        self.lost: list[str] = []
        self.told_to_leave = 0
        self._port = port
        self._pool: deque[Connection] = deque()
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def run(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        self._pool += [await Connection.open(self._port) for _ in range(CONNECTIONS)]
        started = loop.time()
        async with asyncio.TaskGroup() as group:
            while not stop.is_set():
                for _ in range(int((loop.time() - started) * RATE) - self.asked):
                    group.create_task(self._wait_and_ask(), name="caller")
                    self.asked += 1
                await asyncio.sleep(1 / RATE)
        for connection in self._pool:
            connection.writer.transport.abort()

    def has_sent(self, count: int) -> bool:
        """Whether so many requests are sent: all but those that `CONNECTIONS` have yet to answer."""
        return self.answered + len(self.lost) >= count - CONNECTIONS

    async def _wait_and_ask(self) -> None:
        async with self._free:
            await self._ask()

    async def _ask(self) -> None:
        try:
            async with limited(PATIENCE):
                connection = self._pool.popleft()
                if not connection.usable:
                    connection.writer.transport.abort()
                    connection = await Connection.open(self._port)
                status, goes_on, body = await connection.get(LOAD)
                assert (status, b'"value":"7"' in body) == (200, True), body
                self.answered += 1
        except (OSError, asyncio.IncompleteReadError, AssertionError, TimeoutError) as error:
            self.lost.append(f"{asyncio.get_running_loop().time():.2f} {error!r}")
            goes_on = False
        if not goes_on:
            self.told_to_leave += 1
            connection.writer.transport.abort()
        self._pool.append(connection)


class Instance:
    """A process on one port that can be started again."""

    def __init__(self, directory: Path, port: int, *arguments: str) -> None:
        self.port = port
        self._directory = directory
        self._arguments = arguments
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        with (self._directory / f"{self.port}.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "adapter", "serve", *self._arguments),
                f"--secure-port={self.port}",
                f"--cert-dir={self._directory / str(self.port)}",
                stdout=log,
                stderr=log,
            )

    async def end(self) -> int:
        """Ask it to end; returns its status when it has."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return await self._process.wait()

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    @property
    def log(self) -> str:
        return (self._directory / f"{self.port}.log").read_text()


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        cluster.create(
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-0", "namespace": "shop"}}
        )
        support.admit(cluster)
        yield cluster


@pytest.fixture
async def prometheus() -> AsyncIterator[Prometheus]:
    labels = {"namespace": "shop", "pod": "web-0"}
    async with Prometheus(
        SeriesSet([Series("load", labels, lambda _: 7.0)]), ShiftedClock().wall
    ) as prometheus:
        yield prometheus


@pytest.fixture
async def instances(
    tmp_path: Path, cluster: Cluster, prometheus: Prometheus, unused_tcp_port_factory: Callable[[], int]
) -> AsyncIterator[list[Instance]]:
    (tmp_path / "rules.yaml").write_text(RULES)
    arguments = [
        "--bind-address=127.0.0.1",
        f"--config={tmp_path / 'rules.yaml'}",
        f"--prometheus-url={prometheus.url}",
        f"--lister-kubeconfig={cluster.kubeconfig(tmp_path / 'kubeconfig')}",
        f"--shutdown-delay={DELAY}s",
    ]
    instances = [Instance(tmp_path, unused_tcp_port_factory(), *arguments) for _ in range(2)]
    try:
        for instance in instances:
            await instance.start()
        yield instances
    finally:
        for instance in instances:
            await instance.kill()


async def test_no_request_is_lost(instances: list[Instance]) -> None:
    balancer, stop = Balancer(*(instance.port for instance in instances)), asyncio.Event()
    found: list[tuple[int, int, bool]] = []
    async with balancer.listening() as port:
        for instance in instances:
            await balancer.until_serves(instance.port)
        callers = Callers(port)
        running = asyncio.create_task(callers.run(stop), name="callers")
        try:
            for instance in instances:
                await asyncio.sleep(1)  # of undisturbed service
                taken, left = balancer.taken[instance.port], callers.told_to_leave
                assert await instance.end() == 0
                late, told = balancer.taken[instance.port] - taken, callers.told_to_leave - left
                found.append((late, told, balancer.serves(instance.port)))
                # the other one answers for both, while asking goes on
                due = callers.asked
                await waiting.until(functools.partial(callers.has_sent, due), 30)
                await instance.start()
                await balancer.until_serves(instance.port)
            await asyncio.sleep(1)
        finally:
            stop.set()
            await running
    assert callers.lost == []
    for late, told, served in found:
        assert late > 0, "connections came after the signal"
        assert told > 0, "callers were told to find another"
        assert not served, "it ended after the balancer had dropped it"
    assert callers.answered == callers.asked
    for instance in instances:
        assert "adapter.server.http.connection_server: shutting down" in instance.log
        assert "Traceback" not in instance.log
