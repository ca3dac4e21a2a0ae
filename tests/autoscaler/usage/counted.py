"""Servers with the client libraries of several languages: `/work?ms=N` takes processor time.

A program that cannot run on this machine says why.
"""

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SERVERS = Path(__file__).with_name("servers")
ROOT = SERVERS.parents[3]

CLASS_PATH = "JAVA_CLASSES"
"""The environment variable with a class path of Prometheus' Java client: JVM metrics and HTTP server."""


@dataclass(frozen=True, slots=True)
class Program:
    """A server: its command for a port and a folder.

    `missing` says what it needs and this machine lacks, "" if nothing. `prepare` runs before it starts.
    """

    command: Callable[[int, Path], Sequence[str]]
    missing: Callable[[], str]
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


def _server(name: str, *arguments: str) -> Callable[[int, Path], Sequence[str]]:
    module = f"tests.autoscaler.usage.servers.{name}"
    return lambda port, _: [sys.executable, "-m", module, str(port), *arguments]


def _workers(port: int, _: Path) -> Sequence[str]:
    options = ["--workers", "2", "--bind", f"127.0.0.1:{port}", "--chdir", str(ROOT)]
    return [
        sys.executable,
        "-m",
        "gunicorn",
        *options,
        "tests.autoscaler.usage.servers.python_server:application",
    ]


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


_OTEL = ("opentelemetry.sdk.metrics", "opentelemetry.exporter.prometheus")
PROGRAMS: Mapping[str, Program] = {
    "go_prometheus": Program(_prometheus, _needs("prometheus")),
    "python": Program(_server("python_server"), lambda: ""),
    "node": Program(_node("node_server.js"), _node_missing),
    "java": Program(_java, _java_missing, prepare=_compile_java),
    "otel_query": Program(
        _server("otel_server", "system"),
        _needs_modules(*_OTEL, "opentelemetry.instrumentation.system_metrics"),
    ),
    "python_workers": Program(_workers, _needs_modules("gunicorn")),
    "otel": Program(_server("otel_server"), _needs_modules(*_OTEL)),
    "otel_node": Program(_node("otel_server.js"), _node_missing),
}
