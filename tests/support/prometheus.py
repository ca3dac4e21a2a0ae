"""A real Prometheus or VictoriaMetrics on loopback, with exactly the samples that a test gives it.

All methods block; a test that runs an event loop calls them with `asyncio.to_thread`.
"""

import contextlib
import http.client
import json
import os
import shutil
import signal
import time
import types
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import remotewrite, tools
from tests.support.processor import Limit

START_SECONDS = 20.0
"""How long a start or an awaited answer may take; on an idle machine a start takes 0.3 s."""

_NEWEST = Path(__file__).parents[2] / ".engines" / "usr" / "bin"
"""Where `scripts/setup` unpacks the newest engines that Debian has."""


@pytest.fixture(scope="session", params=["stable", "newest"])
def engines(request: pytest.FixtureRequest) -> str:
    """Return the PATH of an engine: each test of a real one runs on the system's and on Debian's newest."""
    if request.param == "stable":
        return os.environ["PATH"]
    if not _NEWEST.is_dir():
        tools.miss(f"{_NEWEST} has no engines; FASTPATH_REQUIRE_TOOLS=1 scripts/setup unpacks them")
    return str(_NEWEST)


class _Server(tools.ServerProgram):
    """A program with its own directory and port; the port stays the same over restarts."""

    ready = ""
    """The path that answers 200 once it is ready."""

    def __init__(self, directory: Path, program: str, engines: str | None) -> None:
        path = tools.require(program, program, engines)
        super().__init__(
            program,
            directory,
            lambda _: [path, *self._arguments()],
            lambda _: self._request("GET", self.ready)[0] == 200,
            START_SECONDS,
        )
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def _arguments(self) -> Sequence[str]:
        raise NotImplementedError

    @property
    def url(self) -> str:
        """The base URL, without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    def write(self, *samples: remotewrite.Written) -> None:
        """Add samples to the running server; they can be queried when this returns.

        The times must not lie more than an hour before the newest sample written or scraped so far.
        """
        body = remotewrite.encode(samples)
        headers = {"Content-Type": "application/x-protobuf", "Content-Encoding": "snappy"}
        status, answer = self._request("POST", "/api/v1/write", body, headers)
        assert status == 204, answer

    def _request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = types.MappingProxyType({}),
    ) -> tuple[int, str]:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)) as connection:
            connection.request(method, path, body, headers)
            with connection.getresponse() as response:
                return response.status, response.read().decode()


class PrometheusServer(_Server):
    ready = "/-/ready"

    def __init__(
        self,
        directory: Path,
        engines: str | None = None,
        *,
        targets: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
        scrape_interval: str = "200ms",
        flags: Sequence[str] = (),
        labels: Mapping[str, str] = types.MappingProxyType({}),
        jobs: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """`targets` maps job names to addresses (``host:port``) scraped at ``/metrics``; `flags` are added
        to Prometheus' command line. `labels` are those of every target; as with our ServiceMonitors, labels
        of series win over them. `jobs` are further entries of ``scrape_configs``.
        """
        super().__init__(directory, "prometheus", engines)
        self._flags = tuple(flags)
        config = {
            "global": {"scrape_interval": scrape_interval, "scrape_timeout": scrape_interval},
            "scrape_configs": [
                {
                    "job_name": job,
                    "honor_labels": bool(labels),
                    "static_configs": [{"targets": list(addresses), "labels": dict(labels)}],
                }
                for job, addresses in targets.items()
            ]
            + [dict(job) for job in jobs],
        }
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))

    def _arguments(self) -> Sequence[str]:
        return (
            f"--config.file={self._directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._directory / 'tsdb'}",
            "--storage.tsdb.retention.time=100y",  # loaded samples may be of any time
            "--web.enable-remote-write-receiver",
            f"--web.listen-address=127.0.0.1:{self.port}",
            *self._flags,
        )

    def load_samples(self, openmetrics: str) -> None:
        """Before the start, write samples with timestamps (OpenMetrics text, seconds, `# EOF` is added).

        For exact data: Prometheus itself adds no labels to them, and queries name the evaluation time.
        """
        assert self._process is None, "samples are loaded before the start"
        promtool = tools.require("promtool", "prometheus")
        text = openmetrics.strip().removesuffix("# EOF").rstrip()
        source = self._directory / "samples.om"
        source.write_text(f"{text}\n# EOF\n")
        # promtool reads the whole file for each block, which lasts two hours by default
        command = [promtool, "tsdb", "create-blocks-from", "--max-block-duration=240h"]
        command += ["openmetrics", str(source), str(self._directory / "tsdb")]
        done = tools.call(*command)
        assert done.returncode == 0, f"promtool refused the samples: {done.stderr or done.stdout}"

    def pause(self) -> None:
        """Let it stand still: the system accepts connections, and no answer follows."""
        assert self._process is not None, "it does not run"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`; nothing happens when it does not stand still."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def restart(self) -> None:
        """Stop and start it with what it has stored."""
        self.stop()
        self.start()

    def query(self, promql: str, at: float | None = None) -> list[dict[str, Any]]:
        """Return `data.result` of an instant query, evaluated at `at` (epoch seconds) or now."""
        parameters = {"query": promql} | ({} if at is None else {"time": repr(at)})
        status, body = self._request("GET", f"/api/v1/query?{urllib.parse.urlencode(parameters)}")
        assert status == 200, body
        result: list[dict[str, Any]] = json.loads(body)["data"]["result"]
        return result

    def wait_for(
        self, promql: str, accept: Callable[[list[dict[str, Any]]], bool] = bool
    ) -> list[dict[str, Any]]:
        """Ask until `accept` says yes to the result (by default: until it is not empty) and return it.

        Prometheus looks for targets 5 s after its start and not before; what is only to be stored is written.
        """
        limit = Limit(START_SECONDS)
        while True:
            result = self.query(promql)
            if accept(result):
                return result
            if limit.left() <= 0:
                pytest.fail(f"Prometheus never gave what {promql} was to give; last: {result}", pytrace=False)
            time.sleep(0.02)


class PrometheusFactory:
    """Makes servers that end with the fixture; see `prometheus_server`."""

    def __init__(self, directory: Path, engines: str) -> None:
        self._directory, self._engines = directory, engines
        self._servers: list[PrometheusServer] = []

    def __call__(self, *, samples: str = "", start: bool = True, **settings: Any) -> PrometheusServer:
        """Return a server, ready unless `start` is false; `settings` are those of `PrometheusServer`.

        `samples` is OpenMetrics text as for `PrometheusServer.load_samples`.
        """
        folder = self._directory / f"prometheus-{len(self._servers)}"
        server = PrometheusServer(folder, self._engines, **settings)
        self._servers.append(server)
        if samples:
            server.load_samples(samples)
        if start:
            server.start()
        return server

    def close(self) -> None:
        """Kill what still runs and remove what was stored."""
        for server in self._servers:
            server.kill()
        shutil.rmtree(self._directory)


@pytest.fixture
def prometheus_server(tmp_path_factory: pytest.TempPathFactory, engines: str) -> Iterator[PrometheusFactory]:
    """Return a maker of real Prometheus servers that end with the test.

    Needs the marks integration and timeout.
    """
    factory = PrometheusFactory(tmp_path_factory.mktemp("prometheus"), engines)
    yield factory
    factory.close()


@pytest.fixture(scope="module")
def module_prometheus(tmp_path_factory: pytest.TempPathFactory, engines: str) -> Iterator[PrometheusFactory]:
    """Return a maker as `prometheus_server` whose servers end with the module, for shared read-only data."""
    factory = PrometheusFactory(tmp_path_factory.mktemp("prometheus"), engines)
    yield factory
    factory.close()


class VictoriaMetricsServer(_Server):
    """A VictoriaMetrics of a single node."""

    ready = "/health"

    def __init__(self, directory: Path, engines: str) -> None:
        super().__init__(directory, "victoria-metrics", engines)

    def _arguments(self) -> Sequence[str]:
        return (
            f"-storageDataPath={self._directory / 'data'}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-memory.allowedBytes=64MB",
        )

    def write(self, *samples: remotewrite.Written) -> None:
        super().write(*samples)
        status, answer = self._request("GET", "/internal/force_flush")
        assert status == 200, answer


@pytest.fixture
def victoriametrics(
    tmp_path_factory: pytest.TempPathFactory, engines: str
) -> Iterator[VictoriaMetricsServer]:
    """Return a real VictoriaMetrics that ends with the test. Needs the marks integration and timeout."""
    server = VictoriaMetricsServer(tmp_path_factory.mktemp("victoria-metrics"), engines)
    server.start()
    yield server
    server.kill()
