"""The programs of `benchmarks.counters`: servers with the client libraries of several languages.

Each has a path that takes some milliseconds of processor time, and one that makes garbage. A program that
cannot run on this machine says why.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import common

SERVERS = Path(__file__).with_name("servers")
COUNTER = "process_cpu_seconds_total"
OWN_RESIDENT = "process_resident_memory_bytes"

CLASS_PATH = "JAVA_CLASSES"
"""The environment variable with a class path of Prometheus' Java client: JVM metrics and HTTP server."""


@dataclass(frozen=True, slots=True)
class Program:
    """A server: its command for a port and a folder, and the paths of its work.

    `missing` says what it needs and this machine lacks, "" if nothing. `prepare` runs before it starts.
    `counter` is the series of its processor seconds.
    """

    about: str
    command: Callable[[int, Path], Sequence[str]]
    missing: Callable[[], str]
    work: str = "/work?ms=8"
    litter: str = "/litter?kb=2000"
    counter: str = COUNTER
    prepare: Callable[[Path], None] = lambda _: None


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _needs(*programs: str) -> Callable[[], str]:
    def missing() -> str:
        absent = [program for program in programs if shutil.which(program) is None]
        return f"{' and '.join(absent)} not installed" if absent else ""

    return missing


def _needs_modules(*modules: str) -> Callable[[], str]:
    def missing() -> str:
        command = [sys.executable, "-c", f"import {', '.join(modules)}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stderr.strip().rpartition("\n")[2]

    return missing


def _node_missing() -> str:
    if missing := _needs("node")():
        return missing
    if not (SERVERS / "node_modules").exists():
        return f"its modules are not installed: npm ci --prefix {SERVERS}"
    return ""


def _java_missing() -> str:
    if missing := _needs("java", "javac")():
        return missing
    return (
        "" if os.environ.get(CLASS_PATH) else f"{CLASS_PATH} names no class path of Prometheus' Java client"
    )


def _compile_java(folder: Path) -> None:
    source = str(SERVERS / "CountedServer.java")
    subprocess.run(["javac", "-cp", os.environ[CLASS_PATH], "-d", str(folder), source], check=True)


def _python(*command: str) -> Callable[[int, Path], Sequence[str]]:
    return lambda port, _: [sys.executable, *(part.format(port=port) for part in command)]


def _server(name: str, *arguments: str) -> Callable[[int, Path], Sequence[str]]:
    return _python("-m", f"benchmarks.servers.{name}", "{port}", *arguments)


def _workers(port: int, _: Path) -> Sequence[str]:
    options = ["--workers", "2", "--bind", f"127.0.0.1:{port}", "--chdir", str(common.ROOT)]
    return [sys.executable, "-m", "gunicorn", *options, "benchmarks.servers.python_server:application"]


def _beside(port: int, folder: Path) -> Sequence[str]:
    """Return a server, and beside it in its group a process that is busy at random moments."""
    busy = f"{sys.executable} -m benchmarks.servers.busy"
    server = " ".join(_server("python_server")(port, folder))
    return ["/bin/sh", "-c", f"{busy} & trap 'kill $!' EXIT; {server} & wait $!"]


def _node(name: str) -> Callable[[int, Path], Sequence[str]]:
    return lambda port, _: ["node", str(SERVERS / name), str(port)]


def _java(port: int, folder: Path) -> Sequence[str]:
    return ["java", "-cp", f"{folder}:{os.environ[CLASS_PATH]}", "CountedServer", str(port)]


def _prometheus(port: int, folder: Path) -> Sequence[str]:
    config = folder / "prometheus.yml"
    targets = f"static_configs: [{{targets: ['127.0.0.1:{port}']}}]"
    config.write_text(f"scrape_configs: [{{job_name: own, scrape_interval: 1s, {targets}}}]")
    return [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder}/data",
        f"--web.listen-address=127.0.0.1:{port}",
    ]


def _etcd(port: int, folder: Path) -> Sequence[str]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    return [
        "etcd",
        f"--data-dir={folder}/data",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


ETCD_KEYS = 5000
"""The keys that etcd is given before its load, of a kilobyte each, for its load to read."""

_RANGE = (
    "/api/v1/query_range?query=sum by (job) (sum_over_time({__name__=~%22.%2B%22}[30s:1s]))"
    "&start={start}&end={now}&step=1"
)
_OTEL = ("opentelemetry.sdk.metrics", "opentelemetry.exporter.prometheus")
PROGRAMS: Mapping[str, Program] = {
    "go_prometheus": Program("Go: Prometheus", _prometheus, _needs("prometheus"), _RANGE, _RANGE),
    "go_etcd": Program("Go: etcd", _etcd, _needs("etcd"), "/v3/kv/range", "/v3/kv/range"),
    "python": Program("Python: prometheus-client", _server("python_server"), lambda: ""),
    "node": Program("Node: prom-client", _node("node_server.js"), _node_missing),
    "java": Program("Java: Prometheus' client", _java, _java_missing, prepare=_compile_java),
    "otel_query": Program(
        "Python: OpenTelemetry with system metrics",
        _server("otel_server", "system"),
        _needs_modules(*_OTEL, "opentelemetry.instrumentation.system_metrics"),
        counter="process_cpu_time_seconds_total",
    ),
    "python_workers": Program("Python: gunicorn with two workers", _workers, _needs_modules("gunicorn")),
    "python_beside": Program("Python: beside a busy process in its container", _beside, lambda: ""),
    "otel": Program("Python: OpenTelemetry alone", _server("otel_server"), _needs_modules(*_OTEL)),
    "otel_node": Program("Node: OpenTelemetry alone", _node("otel_server.js"), _node_missing),
}

COUNTED = ("go_prometheus", "go_etcd", "python", "node", "java", "otel_query")
"""Those whose counter is that of their container."""
