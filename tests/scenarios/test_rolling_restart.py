"""A rolling restart under load: two processes behind a slow balancer, and callers that never retry.

The balancer is as Services are: it looks at readiness now and then, and an endpoint that is unready still
gets new connections for a while. Open connections are left alone; what ends them is the adapter's
`Connection: close` and its orderly end.
"""

import asyncio
import functools
import itertools
from collections import Counter, deque
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from adapter.model import timestamps
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.prometheus.server import Prometheus
from tests.support import adapter as support
from tests.support import waiting
from tests.support.kubectl import TOKEN
from tests.support.objects import plain
from tests.support.processor import limited
from tests.support.serving import Connection, careless_context
from tests.world.processes import Fastpath

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

RATE = 150.0
"""Requests a second."""
DROPPED_AFTER = 0.5
"""Seconds for which an endpoint that is unready goes on getting connections."""
DELAY = 2
"""Seconds for which an ending endpoint serves on: longer than the balancer needs to see it and to act."""
CONNECTIONS = 30
LOOKS_EVERY = 0.25
PATIENCE = 10.0

RULES = """
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: '<<.Series>>{<<.LabelMatchers>>}'
"""
BEARER = {"Authorization": f"Bearer {TOKEN}"}
LOAD = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/%2A/load"


def test_the_manifests_wait_longer_than_needed() -> None:
    """If no request is lost here, none is lost there: the flag of the Deployment is on the safe side."""
    text = (Path(__file__).parents[2] / "manifests/base/deployment.yaml").read_text()
    arguments = yaml.safe_load(text)["spec"]["template"]["spec"]["containers"][0]["args"]
    (flag,) = [argument for argument in arguments if argument.startswith("--shutdown-delay=")]
    assert timestamps.parse_go_duration(flag.partition("=")[2]) > 4 * DELAY


_ANYONE = careless_context()


async def connect(port: int) -> Connection:
    return Connection(*await asyncio.open_connection("127.0.0.1", port, ssl=_ANYONE))


class Balancer:
    """Gives each new connection to a ready endpoint, in turn."""

    def __init__(self, *ports: int) -> None:
        self.taken: Counter[int] = Counter()
        self._ports = ports
        self._dropped_at = dict.fromkeys(ports, 0.0)  # loop time; infinite for an endpoint that is ready
        self._turn = itertools.count()

    async def connect(self) -> Connection:
        ready = [port for port in self._ports if self.serves(port)]
        port = ready[next(self._turn) % len(ready)]
        self.taken[port] += 1
        return await connect(port)

    def serves(self, port: int) -> bool:
        """Whether the endpoint gets connections."""
        return asyncio.get_running_loop().time() < self._dropped_at[port]

    async def until_serves(self, port: int) -> None:
        await waiting.until(lambda: self.serves(port), 30)

    async def look(self, port: int) -> None:
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
            connection = await connect(port)
        except OSError:
            return False
        try:
            return (await connection.request("/readyz")).status == 200
        except (OSError, asyncio.IncompleteReadError):
            return False
        finally:
            connection.writer.transport.abort()


class Callers:
    """Asks `RATE` times a second over `CONNECTIONS`, each in its turn, and asks nothing again.

    A closed connection is replaced at once, so that each reachable endpoint always has one.
    """

    def __init__(self, balancer: Balancer) -> None:
        self.asked = 0
        self.answered = 0
        self.lost: list[str] = []
        self.told_to_leave = 0
        self._balancer = balancer
        self._pool: deque[Connection] = deque()
        self._free = asyncio.Semaphore(CONNECTIONS)

    async def run(self, stop: asyncio.Event) -> None:
        loop = asyncio.get_running_loop()
        self._pool += [await self._balancer.connect() for _ in range(CONNECTIONS)]
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
                if connection.reader.at_eof() or connection.writer.is_closing():
                    connection.writer.transport.abort()
                    connection = await self._balancer.connect()
                answer = await connection.request(LOAD, headers=BEARER)
                assert (answer.status, b'"value":"7"' in answer.body) == (200, True), answer
                goes_on = answer.headers.get("connection") != "close"
                self.answered += 1
        except (OSError, ZeroDivisionError, asyncio.IncompleteReadError, AssertionError) as error:
            self.lost.append(f"{asyncio.get_running_loop().time():.2f} {error!r}")
            goes_on = False
        if not goes_on:
            self.told_to_leave += 1
            connection.writer.transport.abort()
        self._pool.append(connection)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        cluster.create(plain("Pod", "web-0", "shop"))
        support.admit(cluster)
        yield cluster


@pytest.fixture
async def instances(
    tmp_path: Path, rules: Path, cluster: Cluster, prometheus: Prometheus
) -> AsyncIterator[list[Fastpath]]:
    flags = (f"--prometheus-url={prometheus.url}", f"--shutdown-delay={DELAY}s")
    async with (
        Fastpath(cluster, tmp_path, *flags, pod="first") as first,
        Fastpath(cluster, tmp_path, *flags, pod="second") as second,
    ):
        yield [first, second]


async def test_no_request_is_lost(instances: list[Fastpath]) -> None:
    ports = [instance.port for instance in instances]
    balancer, stop = Balancer(*ports), asyncio.Event()
    found: list[tuple[int, int, bool]] = []
    async with waiting.running(*map(balancer.look, ports)):
        for instance in instances:
            await balancer.until_serves(instance.port)
        callers = Callers(balancer)
        running = asyncio.create_task(callers.run(stop), name="callers")
        try:
            for instance in instances:
                await asyncio.sleep(0.5)  # of undisturbed service
                taken, left = balancer.taken[instance.port], callers.told_to_leave
                await instance.end()
                late, told = balancer.taken[instance.port] - taken, callers.told_to_leave - left
                found.append((late, told, balancer.serves(instance.port)))
                # the other one answers for both, while asking goes on
                await waiting.until(functools.partial(callers.has_sent, callers.asked), 30)
                await instance.start()
                await balancer.until_serves(instance.port)
            await asyncio.sleep(0.5)
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
