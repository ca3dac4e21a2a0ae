"""A real VictoriaMetrics on loopback, started by tests, with exactly the samples a test gives it.

Its methods block; a test that runs an event loop calls them with `asyncio.to_thread`.
"""

import contextlib
import http.client
import subprocess
import time
import types
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support import remotewrite, tools
from tests.support.processor import Limit
from tests.support.prometheus import START_SECONDS

_POLL_SECONDS = 0.02


class VictoriaMetricsServer:
    """One single-node VictoriaMetrics with its own directory and port."""

    def __init__(self, directory: Path) -> None:
        self._program = tools.require("victoria-metrics", "victoria-metrics")
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self.port = tools.free_port()

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers; try another port if another program takes this one."""
        for _ in range(5):
            with (self._directory / "log").open("wb") as log:
                command = [
                    self._program,
                    f"-storageDataPath={self._directory / 'data'}",
                    f"-httpListenAddr=127.0.0.1:{self.port}",
                    "-memory.allowedBytes=64MB",
                ]
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
                )
            if self._wait_ready():
                return
            self.kill()
            if "address already in use" not in self._log():
                break
            self.port = tools.free_port()
        pytest.fail(f"VictoriaMetrics did not start:\n{self._log()}", pytrace=False)

    def write(self, *samples: remotewrite.Written) -> None:
        """Add samples; they can be queried when this returns."""
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
        status = self._request("POST", "/api/v1/write", remotewrite.encode(samples), headers)
        assert status == 204, status
        assert self._request("GET", "/internal/force_flush") == 200

    def kill(self) -> None:
        """End it at once. Nothing happens when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _log(self) -> str:
        return (self._directory / "log").read_text(errors="replace")

    def _wait_ready(self) -> bool:
        assert self._process is not None
        limit = Limit(START_SECONDS)
        while self._process.poll() is None and limit.left() > 0:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self._request("GET", "/health") == 200:
                    return True
            time.sleep(_POLL_SECONDS)
        return False

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = types.MappingProxyType({}),
    ) -> int:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as connection:
            connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                response.read()
                return response.status


@pytest.fixture
def victoriametrics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VictoriaMetricsServer]:
    """Return a real VictoriaMetrics that ends with the test. Needs the marks integration and timeout."""
    server = VictoriaMetricsServer(tmp_path_factory.mktemp("victoria-metrics"))
    server.start()
    yield server
    server.kill()
