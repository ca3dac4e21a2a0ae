"""`fastpath serve` as a process under floods of request heads: its memory, and the front proxy meanwhile."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from benchmarks.stage import memory_of
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.prometheus.series import SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from tests.support import certificates
from tests.support.adapter import admit
from tests.support.serving import Connection, careless_context
from tests.world.processes import Fastpath
from tests.world.workloads import CLOCK

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

FLOOD, BATCH = 240, 40
MOST_MIB = 186
"""Of the connections: the reader of kubeconfig files, which a pod does not need, takes 39 more."""

AS_BOB = {"X-Remote-User": "bob"}
BEGIN = b"GET /livez HTTP/1.1\r\nHost: x\r\n"
WIDE = "\U0001f600".encode()
"""A character that makes each of its text take four bytes."""


class FrontedServer:
    """The process, and a connection of the front proxy."""

    def __init__(self, pid: int, port: int, proxy: ssl.SSLContext) -> None:
        self.pid = pid
        self._port = port
        self._proxy = proxy
        self._anyone = careless_context()

    async def connect(self) -> Connection:
        return Connection(*await asyncio.open_connection("127.0.0.1", self._port, ssl=self._proxy))

    async def flood(self, pieces: Iterator[bytes]) -> "Stranger | None":
        """Connect without a certificate; None where the server refuses."""
        connecting = asyncio.get_running_loop().create_connection(
            lambda: Stranger(pieces), "127.0.0.1", self._port, ssl=self._anyone
        )
        with contextlib.suppress(OSError):
            return (await connecting)[1]
        return None


class Stranger(asyncio.Protocol):
    """A connection that sends pieces as fast as the server reads, and reads nothing."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._transport: asyncio.Transport | None = None
        self._is_full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.pause_reading()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        while self._transport is not None and not self._is_full and (piece := next(self._pieces, b"")):
            self._transport.write(piece)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def end(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[FrontedServer]:
    authority = certificates.Signer("aggregation-ca")
    (tmp_path / "ca.crt").write_text(authority.pem)
    proxy = careless_context(authority.issue("front-proxy-client").write(tmp_path))
    (tmp_path / "rules.yaml").write_text("rules: []\n")
    async with Cluster(now=CLOCK.wall) as cluster, Prometheus(SeriesSet(), CLOCK.wall) as prometheus:
        admit(cluster)
        trust = f"--requestheader-client-ca-file={tmp_path / 'ca.crt'}"
        url = f"--prometheus-url={prometheus.url}"
        async with Fastpath(cluster, tmp_path, url, trust, pod="server") as fastpath:
            assert fastpath.process is not None
            yield FrontedServer(fastpath.process.pid, fastpath.port, proxy)


def wide_heads() -> Iterator[bytes]:
    """A head that is never finished, of nearly as many bytes as allowed, with text that takes the most."""
    yield BEGIN
    yield from (b"X-%d: %s%s\r\n" % (number, WIDE, b"x" * 8000) for number in range(3))
    yield b"Y: " + WIDE + b"x" * 8000


def many_headers() -> Iterator[bytes]:
    """A head that is never finished, with as many headers as allowed, the longest last."""
    yield BEGIN
    yield b"".join(b"X-%d: x\r\n" % number for number in range(90))
    yield b"Y: " + WIDE + b"x" * 23_000


def endless() -> Iterator[bytes]:
    """A head that never ends."""
    yield BEGIN
    for number in range(200):
        yield b"X-%d: %s\r\n" % (number, b"x" * 14_000)


def pipelined() -> Iterator[bytes]:
    """Whole requests, without end, whose responses are not read."""
    head = BEGIN + b"".join(b"X-%d: %s\r\n" % (number, WIDE + b"x" * 240) for number in range(90)) + b"\r\n"
    for _ in range(100):
        yield head


async def test_floods_of_heads_take_little_memory(server: FrontedServer) -> None:
    """Waves of more connections than there are places, with requests of the front proxy in between."""
    pooled, before = await server.connect(), memory_of(server.pid)
    for flood in (wide_heads, many_headers, endless, pipelined):
        strangers: list[Stranger | None] = []
        while len(strangers) < FLOOD:
            strangers += await asyncio.gather(*(server.flood(flood()) for _ in range(BATCH)))
            assert (await pooled.request("/version", headers=AS_BOB)).status == 200
        fresh = await server.connect()
        assert (await fresh.request("/version", headers=AS_BOB)).status == 200
        await fresh.close()
        assert memory_of(server.pid, "VmHWM") - before < MOST_MIB
        for each in strangers:
            if each is not None:
                each.end()
    await pooled.close()
