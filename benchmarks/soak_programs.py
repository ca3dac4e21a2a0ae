"""The programs of a soak: `fastpath serve` and `fastpath scale`, as processes that report their resources."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import common, load
from benchmarks.common import ROOT
from benchmarks.load import Connection, Reply
from benchmarks.soak_world import PATIENCE_SECONDS, World, until


class Held(NamedTuple):
    """The resources of a process at a time, in seconds since the start of the run."""

    time: float
    memory_mib: float
    fds: float
    threads: float
    tasks: float
    objects: float


class Program:
    """A running `fastpath`, started through `benchmarks.observed` on the server's core."""

    def __init__(self, name: str, directory: Path, arguments: Sequence[str]) -> None:
        self.name = name
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self.log = directory / f"{name}.log"
        self._told = directory / f"{name}.told"
        self._times = 0
        command = [sys.executable, "-m", "benchmarks.observed", str(self._told), name, *arguments]
        environment = {**os.environ, "POD_NAME": "soak-0", "POD_NAMESPACE": "default"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                common.on_server_core(command),
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    async def get(self, path: str) -> Reply:
        """Send a request on a connection of its own."""
        connection = await Connection.open(self.port, self.tls)
        try:
            return await connection.get(load.render(path))
        finally:
            connection.close()

    async def metric(self, series: str) -> float:
        """Return one of its own metrics, 0 if it does not exist yet."""
        text = (await self.get("/metrics")).body.decode()
        found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else 0.0

    async def hold(self, at: float) -> Held:
        """Return its resources; ChildProcessError if it has ended."""
        self.check()
        process = Path(f"/proc/{self._process.pid}")
        status = (process / "status").read_text(encoding="ascii")
        size, threads = (
            int(re.findall(rf"^{field}:\s+(\d+)", status, re.MULTILINE)[0]) for field in ("VmRSS", "Threads")
        )
        fds = len(list((process / "fd").iterdir()))
        self._process.send_signal(signal.SIGUSR1)
        found: dict[str, int] = {}

        def told() -> bool:
            self.check()
            if self._told.exists():
                found.update(json.loads(self._told.read_text(encoding="ascii")))
            return found.get("told", 0) > self._times

        await until(told, f"{self.name} to say what it holds")
        self._times = found["told"]
        return Held(at, size / 1024, fds, threads, found["tasks"], found["objects"])

    def check(self) -> None:
        """Raise ChildProcessError if it has ended."""
        if self._process.poll() is not None:
            text = self.log.read_text(encoding="utf-8", errors="replace")
            raise ChildProcessError(
                f"{self.name} ended with exit status {self._process.returncode}:\n{text[-4000:]}"
            )

    def end(self) -> int:
        """Stop it with SIGTERM, after a timeout with SIGKILL; return its exit status."""
        self._process.terminate()
        try:
            return self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


async def start_serve(world: World, relist_seconds: float) -> Program:
    """Start `fastpath serve` with TLS and wait until it is ready."""
    program = Program(
        "serve",
        world.directory,
        [
            *("--config", str(world.rules), "--secure-port", "0", "--bind-address", "127.0.0.1"),
            *(
                "--lister-kubeconfig",
                str(world.directory / "kubeconfig"),
                "--prometheus-url",
                world.prometheus.url,
            ),
            *("--tls-cert-file", str(world.directory / "tls.crt")),
            *("--tls-private-key-file", str(world.directory / "tls.key")),
            *("--authentication-skip-lookup", "--metrics-relist-interval", f"{relist_seconds:g}s"),
            *("--metrics-max-age", "60s", "--scrape-pod-cidrs", "127.0.0.0/8"),
        ],
    )
    program.tls = world.tls

    def listens() -> bool:
        program.check()
        found = re.search(rb"serving .*\bport=(\d+)", program.log.read_bytes())
        if found is not None:
            program.port = int(found[1])
        return found is not None

    try:
        await until(listens, "serve to listen")
        await _ready(program)
    except BaseException:
        program.end()
        raise
    return program


async def start_scale(world: World, relist_seconds: float) -> Program:
    """Start `fastpath scale` and wait until it is ready."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    program = Program(
        "scale",
        world.directory,
        [
            *("--config", str(world.scaler_rules), "--local-address", f"127.0.0.1:{port}"),
            *(
                "--lister-kubeconfig",
                str(world.directory / "kubeconfig"),
                "--prometheus-url",
                world.prometheus.url,
            ),
            *("--metrics-relist-interval", f"{relist_seconds:g}s", "--metrics-max-age", "60s"),
            *("--scrape-pod-cidrs", "127.0.0.0/8"),
        ],
    )
    program.port = port
    try:
        await _ready(program)
    except BaseException:
        program.end()
        raise
    return program


async def _ready(program: Program) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            program.check()
            with contextlib.suppress(OSError):
                if (await program.get("/readyz")).status == 200:
                    return
            await asyncio.sleep(0.05)
