"""HTTP callers: a lean client, and wrk if it is installed. Every connection is kept alive.

Requests carry the headers that kube-apiserver's aggregator sends, since reading them is part of the work.
"""

import asyncio
import itertools
import json
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Self, cast

import uvloop

from benchmarks import common

TOKEN = "benchmark-token"
"""What callers show, since wrk shows no certificates; the sandbox cluster of a benchmark knows it."""

HEADERS = {
    "User-Agent": "kube-controller-manager/v1.36.0 (linux/amd64) kubernetes/0000000/"
    "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    "Accept": "application/json, */*",
    "Accept-Encoding": "gzip",
    "Audit-Id": "6b1f7f5a-7f0f-4d53-9b6a-6f6dbd0f3c11",
    "X-Forwarded-For": "10.0.0.1",
    "X-Remote-Group": "system:authenticated",
    "X-Remote-User": "system:serviceaccount:kube-system:horizontal-pod-autoscaler",
    "Authorization": f"Bearer {TOKEN}",
}

_CHUNK = 256 * 1024
_FRESH_EVERY = 10
_PATIENCE_SECONDS = 120.0
_STEADY_CONNECTIONS = 8
_WRK_SCRIPT = Path(__file__).with_name("requests.lua")


class Load(NamedTuple):
    """The result of a closed loop: each connection sends a request as soon as the last is answered."""

    requests: int
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    errors: int


class Reply(NamedTuple):
    status: int
    body: bytes


class Connection(asyncio.Protocol):
    """One connection with one request at a time. Open it with `open`."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._reply: asyncio.Future[Reply] | None = None

    @classmethod
    async def open(cls, port: int, tls: ssl.SSLContext | None = None) -> Self:
        name = "localhost" if tls else None
        _, connection = await asyncio.get_running_loop().create_connection(
            cls, "127.0.0.1", port, ssl=tls, server_hostname=name
        )
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's own is no subclass

    def get(self, request: bytes) -> asyncio.Future[Reply]:
        """Send a whole request, as `render` builds it; the future has the response."""
        assert self._transport is not None
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._reply

    def data_received(self, data: bytes) -> None:
        self._received = self._received + data if self._received else data
        reply = parse_reply(self._received)
        if reply is not None and self._reply is not None:
            self._received = b""
            self._reply.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending request."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or ConnectionResetError("the server closed the connection"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class Caller:
    """A blocking connection for the time of single requests: it adds the least of its own."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname="localhost")

    def time(self, request: bytes) -> float:
        """Return the seconds to the complete response; a status other than 200 ends the program."""
        begun = time.perf_counter()
        self._socket.sendall(request)
        received = self._socket.recv(_CHUNK)
        while (reply := parse_reply(received)) is None:
            received += self._socket.recv(_CHUNK)
        took = time.perf_counter() - begun
        if reply.status != 200:
            sys.exit(f"HTTP status {reply.status}: {reply.body.decode()}")
        return took

    def close(self) -> None:
        self._socket.close()


def parse_reply(received: bytes) -> Reply | None:
    """Return the response once it is complete; knows both framings of the servers here."""
    head = received.find(b"\r\n\r\n") + 4
    if head < 4:
        return None
    length = received.find(b"Content-Length: ", 0, head)
    if length >= 0:
        whole = len(received) - head >= int(received[length + 16 : received.index(b"\r", length)])
    else:
        whole = received.endswith(b"\r\n0\r\n\r\n")
    return Reply(int(received[9:12]), received[head:]) if whole else None


def render(path: str, headers: Mapping[str, str] = HEADERS) -> bytes:
    lines = [
        f"GET {path} HTTP/1.1",
        "Host: localhost",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()


def make_fresh(path: str, word: str) -> str:
    """Return a path with a new selector that selects the same; requests.lua does the same."""
    return f"{path}%2Cprobe%21%3D{word}"


async def wait_for(condition: Callable[[], object], what: str) -> None:
    """Wait until `condition`, which may block, holds; TimeoutError names `what`."""
    try:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not await asyncio.to_thread(condition):  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise TimeoutError(f"waited {_PATIENCE_SECONDS:g} s in vain for {what}") from None


class SteadyCallers:
    """Callers that send requests at a constant rate, whose answers must have a value for each pod."""

    def __init__(
        self, port: int, tls: ssl.SSLContext, requests: Sequence[bytes], pods: int, rate: float
    ) -> None:
        self._port, self._tls = port, tls
        self._requests = itertools.cycle(requests)
        self._pods = pods
        self._rate = rate
        self.took: list[float] = []
        """Latencies in milliseconds, from the moment at which a request was due."""
        self.failures: list[Reply] = []
        self.stopping = False

    async def run(self, count: int | None = None) -> None:
        """Send so many requests, or until `stopping`; return once all are answered."""
        free: asyncio.Queue[Connection] = asyncio.Queue()
        for _ in range(_STEADY_CONNECTIONS):
            free.put_nowait(await Connection.open(self._port, self._tls))
        begun, number = time.perf_counter(), 0
        async with asyncio.TaskGroup() as group:
            while not self.stopping and number != count:
                due = begun + number / self._rate
                await asyncio.sleep(due - time.perf_counter())
                group.create_task(self._ask(free, due))
                number += 1
        while not free.empty():
            free.get_nowait().close()

    async def _ask(self, free: asyncio.Queue[Connection], due: float) -> None:
        connection = await free.get()
        reply = await connection.get(next(self._requests))
        free.put_nowait(connection)
        self.took.append((time.perf_counter() - due) * 1000)
        if reply.status != 200 or reply.body.count(b'"describedObject"') != self._pods:
            self.failures.append(reply)


def run_closed_loop(
    port: int,
    tls: ssl.SSLContext,
    paths: Sequence[str],
    connections: int,
    seconds: float,
    directory: Path,
    *,
    fresh: str = "",
) -> Load:
    """Request the paths in turn over some connections, with `generator(seconds)`.

    With `fresh`, every tenth request is one of `make_fresh`, its word beginning with that: always new, unless
    the same `fresh` was used before.
    """
    if generator(seconds) != "wrk":
        return uvloop.run(_run_own(port, tls, paths, connections, seconds, fresh))
    listed = directory / "paths"
    listed.write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
    command = ["taskset", "--cpu-list", str(common.LOAD_CORE), "wrk", "--threads", "1"]
    command += ["--connections", str(connections), "--duration", f"{round(seconds)}s", "--timeout", "10s"]
    command += [part for name, value in HEADERS.items() for part in ("--header", f"{name}: {value}")]
    command += ["--script", str(_WRK_SCRIPT), f"https://localhost:{port}", "--", str(listed), fresh]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return Load(
        found["requests"],
        found["requests"] / (found["microseconds"] / 1e6),
        found["p50"] / 1000,
        found["p99"] / 1000,
        found["errors"],
    )


def generator(seconds: float) -> str:
    """Return the load generator for so long: wrk, if installed, takes whole seconds only."""
    return "wrk" if seconds >= 1 and shutil.which("wrk") else "benchmarks/load.py"


async def _run_own(
    port: int, tls: ssl.SSLContext, paths: Sequence[str], connections: int, seconds: float, fresh: str
) -> Load:
    requests = [render(path) for path in paths]
    took: list[float] = []
    errors = 0
    turn = 0
    begun = time.perf_counter()
    end = begun + seconds

    async def caller() -> None:
        nonlocal errors, turn
        connection = await Connection.open(port, tls)
        try:
            sent = begun
            while not took or sent < end:  # one at least, however busy the machine
                sent = time.perf_counter()
                turn += 1
                request = requests[turn % len(requests)]
                if fresh and turn % _FRESH_EVERY == 1:
                    request = render(make_fresh(paths[turn % len(requests)], f"{fresh}-{turn}"))
                reply = await connection.get(request)
                took.append(time.perf_counter() - sent)
                errors += reply.status != 200
        finally:
            connection.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(connections):
            group.create_task(caller())
    elapsed = time.perf_counter() - begun
    p50, p99 = (common.percentile(took, share) * 1000 for share in (0.5, 0.99))
    return Load(len(took), len(took) / elapsed, p50, p99, errors)
