"""prometheus-adapter in comparison: the same requests, Prometheus, sandbox cluster, certificate and core.

`serve` measures; this module finds and starts the program. It runs twice: as shipped, where its client sends
five requests a second to the API server (it lists the objects of every request there), and without that
throttle. Without PROMETHEUS_ADAPTER in the environment there is no comparison.
"""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.common import Goal
from benchmarks.stage import Stage

VARIABLE = "PROMETHEUS_ADAPTER"
"""The environment variable that names the program."""

THROTTLED = "shipped"

FORMS: Mapping[str, Sequence[str]] = {
    THROTTLED: (),
    "unthrottled": ("--client-qps=100000", "--client-burst=100000"),
}
"""How it is run, and the flags that make it so."""


GOALS: Mapping[str, Goal] = {
    f"unthrottled_{figure}_ratio": Goal(
        f"Fastpath over prometheus-adapter without its throttle: {what}", limit, "x", at_least=least
    )
    for figure, what, limit, least in (
        ("warm_16_requests_per_second", "warm requests a second at 16 connections", 25, True),
        ("cold_1_p50_ms", "p50 of cold requests at one connection", 0.35, False),
        ("cold_16_requests_per_second", "cold requests a second at 16 connections", 6, True),
        ("cold_16_p99_ms", "p99 of cold requests at 16 connections", 0.5, False),
        ("mixed_1_p99_ms", "p99 of mixed requests at one connection", 0.5, False),
        ("mixed_16_p99_ms", "p99 of mixed requests at 16 connections", 0.3, False),
        ("memory_mib", "memory after the same requests", 1.3, False),
    )
}
"""How far Fastpath must be ahead of it without the throttle, by the name of the ratio."""


class Peer(NamedTuple):
    """A running prometheus-adapter."""

    form: str
    port: int
    pid: int


def find() -> Path | None:
    """Return the program, None without one in the environment; ValueError if it cannot be run."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    program = Path(text).absolute()
    if not program.is_file():
        raise ValueError(
            f"{VARIABLE}={text}: there is no such file; expected the path of a prometheus-adapter"
        )
    if not os.access(program, os.X_OK):
        raise ValueError(f"{VARIABLE}={text}: the file is not executable; expected a prometheus-adapter")
    return program


def ratios(figures: Mapping[str, float], form: str) -> dict[str, float]:
    """Return our figures over those of a form of the peer."""
    names = [name.removeprefix(f"{form}_") for name in figures if name.startswith(f"{form}_")]
    return {
        f"{form}_{name}_ratio": figures[name] / figures[f"{form}_{name}"]
        for name in names
        if name.endswith(("_requests_per_second", "_p50_ms", "_p99_ms", "_all_cpu_ms", "memory_mib"))
    }


def find_behind(figures: Mapping[str, float]) -> list[str]:
    """Return the figures at which a form of the peer is ahead, with the ratio of ours to its own."""
    behind = []
    for name, ratio in figures.items():
        if name.endswith("_ratio"):
            figure = name.removesuffix("_ratio")
            if ratio < 1 if figure.endswith("_per_second") else ratio > 1:
                form, _, what = figure.partition("_")
                behind.append(f"{what} ({form}, {ratio:.2f}x)")
    return behind


def start(
    stage: Stage,
    program: Path,
    form: str,
    kubeconfig: Path,
    prometheus_url: str,
    rules: object,
    question: str,
    seconds: float,
) -> Peer:
    """Start it and wait until it answers `question`, a path; ChildProcessError names the failure."""
    config = stage.directory / f"peer-{form}.yaml"
    config.write_text(json.dumps(rules), encoding="utf-8")  # JSON is YAML
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def ready() -> bool:
        try:
            return stage.fetch(port, question)[0] == 200
        except OSError:
            return False

    command = [
        *(str(program), f"--config={config}", f"--prometheus-url={prometheus_url}"),
        *(f"--{use}-kubeconfig={kubeconfig}" for use in ("lister", "authentication", "authorization")),
        *(f"--tls-cert-file={stage.directory}/tls.crt", f"--tls-private-key-file={stage.directory}/tls.key"),
        *("--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={stage.directory}"),
        *("--authentication-skip-lookup", *FORMS[form]),
    ]
    log = stage.directory / f"peer-{form}.log"
    try:
        pid = stage.start_program(command, log, ready, seconds, directory=stage.directory, pinned=True)
    except ChildProcessError as error:
        last = log.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
        said = f"; it said last: {last[:300]}" if last else ""
        raise ChildProcessError(f"{VARIABLE}={program}: it {error}{said}") from None
    return Peer(form, port, pid)
