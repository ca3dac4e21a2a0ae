"""Finds, starts and ends the real programs of integration tests, and finds ports for them."""

import asyncio
import contextlib
import http.client
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest

from tests.support.processor import Limit

REQUIRED = os.environ.get("FASTPATH_REQUIRE_TOOLS") == "1"
"""Set in CI, where a missing program is a failure: a test skipped there would never run anywhere."""


def require(program: str, package: str, search: str | None = None) -> str:
    """Return the program's path; where it is not installed the test is skipped, and in CI it fails.

    `search` are the folders to look in, those of PATH by default.
    """
    path = shutil.which(program, path=search)
    if path is None:
        miss(f"{program} is not installed; Debian's package {package} has it")
    return path


def miss(reason: str) -> NoReturn:
    """Skip the test, and in CI fail it."""
    if REQUIRED:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def free_port(host: str = "127.0.0.1") -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def call(*command: str | Path, **how: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its status."""
    return subprocess.run(command, capture_output=True, text=True, check=False, **how)


class Finished(NamedTuple):
    """What a run of a program came to."""

    status: int
    stdout: str
    stderr: str


async def run(
    *command: str, environment: Mapping[str, str], folder: Path | None = None, stdin: str = ""
) -> Finished:
    """Run a program beside the test's event loop; it ends with the test."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        stdout, stderr = await process.communicate(stdin.encode())
    finally:
        if process.returncode is None:  # the test was cancelled
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    assert process.returncode is not None
    return Finished(process.returncode, stdout.decode(), stderr.decode())


class StartError(Exception):
    """A program did not become ready; carries the end of its log."""


class ServerProgram:
    """One server program with a port of its own, kept over restarts unless another program takes it.

    `command` gives the command line for a port, `is_ready` asks whether it serves there. Its log is in
    `directory`. All methods block.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        command: Callable[[int], Sequence[str]],
        is_ready: Callable[[int], bool],
        seconds: float = 60.0,
    ) -> None:
        self.port = free_port()
        self._name, self._log = name, directory / f"{name}.log"
        self._command, self._is_ready = command, is_ready
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it is ready. Raises StartError."""
        assert self._process is None, f"{self._name} runs"
        for _ in range(5):
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command(self.port), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
                )
            if self._wait_ready():
                return
            self.kill()
            if "address already in use" not in self.log():
                break
            self.port = free_port()
        raise StartError(f"{self._name} did not become ready; its log ends:\n{self.log()[-4000:]}")

    def stop(self) -> None:
        """End it in order, as Kubernetes would; nothing happens when it does not run."""
        self._end(subprocess.Popen.terminate)

    def kill(self) -> None:
        """End it at once, as a crash does; nothing happens when it does not run."""
        self._end(subprocess.Popen.kill)

    def log(self) -> str:
        """Return what it has printed since its last start."""
        return self._log.read_text(errors="replace")

    def _wait_ready(self) -> bool:
        assert self._process is not None
        limit = Limit(self._seconds)
        while self._process.poll() is None and limit.left() > 0:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._is_ready(self.port):
                    return True
            time.sleep(0.02)
        return False

    def _end(self, end: Callable[[subprocess.Popen[bytes]], None]) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        end(process)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
