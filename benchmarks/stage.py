"""The real programs around a measurement: Prometheus, the sandbox cluster, `fastpath serve`, a bare server.

All listen on loopback, each in its own process, and end with the stage. `common` chooses their cores.
The stage compiles the adapter to byte code first, as the image does, so that no start includes compilation.
"""

import compileall
import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import trustme

from benchmarks import common, load
from benchmarks.common import ROOT
from tests.support.prometheus import PrometheusServer
from tests.support.remotewrite import Written

START_SECONDS = 300.0
_POLL_SECONDS = 0.01
_BATCH = 10_000
_STEP = 15.0
_PAST = 150.0
_FUTURE = 540.0  # Prometheus refuses what lies ten minutes ahead


class App(NamedTuple):
    """A workload, the target of one HorizontalPodAutoscaler. `metric` is its counter."""

    namespace: str
    name: str
    pods: tuple[str, ...]
    metric: str


def make_apps(count: int, pods_per_app: int, metrics: Sequence[str] = ("http_requests_total",)) -> list[App]:
    """Return apps over namespaces of 10, always the same; they take the metrics in turn."""
    return [
        App(
            f"team-{number // 10:04}",
            f"app-{number:05}",
            tuple(f"app-{number:05}-7c9f8d6b5-{pod:05}" for pod in range(pods_per_app)),
            metrics[number % len(metrics)],
        )
        for number in range(count)
    ]


@dataclass(frozen=True, slots=True)
class Adapter:
    port: int
    pid: int
    start_seconds: float
    """From the start of the process to the first successful `readyz`."""
    config: Path
    """The rules file that it reads."""

    def memory(self, field: str = "VmRSS") -> float:
        """Return a field of /proc/PID/status in MiB: VmRSS is resident memory, VmHWM its peak."""
        return memory_of(self.pid, field)

    def cpu_seconds(self) -> float:
        return processor_seconds(self.pid)


class Stage:
    """Starts programs, and ends them all at the end of the ``with`` block."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._started = 0
        self._authority = trustme.CA()
        self._processes: dict[int, tuple[subprocess.Popen[bytes], Path]] = {}
        self.pids: dict[str, int] = {}
        self.token = load.TOKEN
        """What `fetch` shows to the adapter."""
        self.local_port = 0
        """Where the last scaler serves its local pages."""
        self.directory = Path()
        self.tls = ssl.create_default_context()

    def __enter__(self) -> Self:
        compileall.compile_dir(ROOT / "adapter", quiet=1)
        self.directory = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="fastpath-benchmark-"))
        )
        self.tls = ssl.create_default_context()
        self._authority.configure_trust(self.tls)
        self._authority.cert_pem.write_to_path(str(self.authority))
        self.issue()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def authority(self) -> Path:
        """The certificate of the adapter's certificate authority."""
        return self.directory / "ca.crt"

    def issue(self) -> bytes:
        """Replace the serving certificate; return the new one (DER)."""
        pair = self._authority.issue_cert("localhost", "127.0.0.1")
        pem = pair.cert_chain_pems[0].bytes()
        replace(self.directory / "tls.crt", pem)
        replace(self.directory / "tls.key", pair.private_key_pem.bytes())
        return ssl.PEM_cert_to_DER_cert(pem.decode())

    def start_cluster(
        self, count: int, pods_per_app: int, owner: str = "Deployment", *, tls: bool = False
    ) -> Path:
        """Start the cluster with the pods of `make_apps`, labelled for `owner`; return its kubeconfig."""
        kubeconfig = self.directory / f"kubeconfig-{self._started}"
        self._start(
            "cluster",
            [
                *("benchmarks.cluster", str(kubeconfig), str(count), str(pods_per_app), owner),
                *([str(self.directory)] if tls else []),
            ],
            kubeconfig.exists,
        )
        return kubeconfig

    def start_prometheus(self, apps: Iterable[App] = ()) -> PrometheusServer:
        """Start a real Prometheus with a counter of every pod, sampled every 15 seconds.

        The samples reach from two minutes ago to nine minutes ahead, so that no write disturbs a measurement.
        """
        if shutil.which("prometheus") is None:
            sys.exit("this benchmark needs Prometheus; Debian's package prometheus has it")
        server = PrometheusServer(self.directory / "prometheus", targets={}, scrape_interval="15s", flags=())
        self._stack.callback(server.kill)
        server.start()
        pending: list[Written] = []
        for sample in _samples(apps, common.wall()):
            pending.append(sample)
            if len(pending) == _BATCH:
                server.write(*pending)
                pending.clear()
        if pending:
            server.write(*pending)
        return server

    def start_adapter(
        self,
        kubeconfig: Path,
        prometheus_url: str,
        rules: object,
        *flags: str,
        pod: bool = False,
        program: Sequence[str] = ("adapter",),
    ) -> Adapter:
        """Start `fastpath serve` on the server's core and wait until it is ready.

        As a `pod` it has a service account in place of the kubeconfig; the cluster then needs TLS.
        `program` is the module that runs it.
        """
        config = self._write_rules(rules)
        port: list[int] = []

        def ready() -> bool:
            if not port:
                found = re.search(rb"serving .*\bport=(\d+)", log.read_bytes())
                if found is None:
                    return False
                port.append(int(found[1]))
            return self.fetch(port[0], "/readyz")[0] == 200

        if pod:
            account = self.directory / "serviceaccount"
            account.mkdir()
            shutil.copy(self.authority, account)
            (account / "token").write_text(load.TOKEN, encoding="ascii")
            program = ["benchmarks.pod", str(kubeconfig), str(account)]
        command = [
            *(*program, "serve", "--config", str(config), "--secure-port", "0"),
            *([] if pod else ["--lister-kubeconfig", str(kubeconfig)]),
            *("--prometheus-url", prometheus_url, "--scrape-pod-cidrs", "127.0.0.0/8"),
            *("--tls-cert-file", str(self.directory / "tls.crt")),
            *("--tls-private-key-file", str(self.directory / "tls.key")),
            *("--bind-address", "127.0.0.1", "--authentication-skip-lookup"),
            *flags,
        ]
        log = self.directory / f"adapter-{self._started}.log"
        begun = time.perf_counter()
        pid = self._start("adapter", command, ready, pinned=True)
        return Adapter(port[0], pid, time.perf_counter() - begun, config)

    def start_scaler(
        self,
        kubeconfig: Path,
        prometheus_url: str,
        rules: object,
        *flags: str,
        program: Sequence[str] = ("adapter",),
    ) -> int:
        """Start `fastpath scale` on the server's core, wait until its caches are full; return its PID."""
        config = self._write_rules(rules)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.local_port = port = probe.getsockname()[1]

        def ready() -> bool:
            with contextlib.suppress(OSError):
                caller = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                with contextlib.closing(caller):
                    caller.request("GET", "/readyz")
                    with caller.getresponse() as response:
                        return response.status == 200
            return False

        command = [
            *(*program, "scale", "--config", str(config), "--local-address", f"127.0.0.1:{port}"),
            *("--lister-kubeconfig", str(kubeconfig), "--prometheus-url", prometheus_url),
            *("--scrape-pod-cidrs", "127.0.0.0/8"),
            *flags,
        ]
        return self._start("scaler", command, ready, pinned=True)

    def _write_rules(self, rules: object) -> Path:
        config = self.directory / f"rules-{self._started}.yaml"
        config.write_text(json.dumps(rules), encoding="utf-8")  # JSON is YAML
        return config

    def start_server(self, module: str, *arguments: object, pinned: bool = False) -> str:
        """Start a server of this folder, which writes its port into a file; return its URL."""
        port = self.directory / f"port-{self._started}"
        command = [f"benchmarks.{module}", str(port), *map(str, arguments)]
        self._start(module, command, port.exists, pinned=pinned)
        return f"http://127.0.0.1:{port.read_text(encoding='ascii')}"

    def start_bare(self, body: bytes) -> int:
        """Start aiohttp alone with one response, over the same TLS on the same core; return its port."""
        answer = self.directory / f"answer-{self._started}"
        answer.write_bytes(body)
        pair = self.directory / "tls.crt", self.directory / "tls.key"
        return int(self.start_server("bare", answer, *pair, pinned=True).rpartition(":")[2])

    def end(self, pid: int) -> int:
        """End a program with SIGTERM, after a timeout with SIGKILL; return its exit status."""
        process, _ = self._processes[pid]
        process.terminate()
        try:
            return process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def check(self, pid: int) -> None:
        """Raise ChildProcessError if a program has ended."""
        process, log = self._processes[pid]
        if process.poll() is not None:
            text = log.read_text(encoding="utf-8", errors="replace")
            raise ChildProcessError(f"ended with exit status {process.returncode}:\n{text[-4000:]}")

    def fetch(self, port: int, path: str) -> tuple[int, bytes]:
        """Return status and body of one request to the adapter or the bare server."""
        with contextlib.closing(
            http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=self.tls)
        ) as caller:
            caller.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            with caller.getresponse() as response:
                return response.status, response.read()

    def metric(self, port: int, name: str, **labels: str) -> float | None:
        """Return a metric of the adapter with these labels, None without it."""
        within = "".join(rf'(?=[^}}]*\b{label}="{value}")' for label, value in labels.items())
        text = self.fetch(port, "/metrics")[1].decode()
        found = re.search(rf"^{name}(?:\{{{within}[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else None

    def _start(
        self, name: str, module: Sequence[str], ready: Callable[[], bool], *, pinned: bool = False
    ) -> int:
        """Start a Python module as a process and wait until `ready`; return its id."""
        log = self.directory / f"{name}-{self._started}.log"
        self._started += 1
        command = [sys.executable, "-m", *module]
        try:
            pid = self.start_program(command, log, ready, START_SECONDS, directory=ROOT, pinned=pinned)
        except ChildProcessError as error:
            sys.exit(f"{name} {error}:\n{log.read_text(encoding='utf-8', errors='replace')}")
        self.pids[name] = pid
        return pid

    def start_program(
        self,
        command: Sequence[str],
        log: Path,
        ready: Callable[[], bool],
        seconds: float,
        *,
        directory: Path,
        pinned: bool,
    ) -> int:
        """Start a program, `pinned` to the server's core, and wait until `ready`; return its PID.

        ChildProcessError says whether it ended or was not ready in time.
        """
        with log.open("wb") as output:
            process = subprocess.Popen(
                common.on_server_core(command) if pinned else command,
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._processes[process.pid] = process, log
        self._stack.callback(self.end, process.pid)
        deadline = time.perf_counter() + seconds
        while not ready():
            if process.poll() is not None:
                raise ChildProcessError(f"ended with exit status {process.returncode} before it was ready")
            if time.perf_counter() > deadline:
                raise ChildProcessError(f"was not ready within {seconds:g} s")
            time.sleep(_POLL_SECONDS)
        return process.pid


def replace(path: Path, content: bytes) -> None:
    """Write a file that others read: whole or not at all."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.replace(path)


def processor_seconds(pid: int) -> float:
    """Return the processor time of a process and its ended children; the children's is in hundredths."""
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    own = sum(int(file.read_text(encoding="ascii").split()[0]) for file in threads) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return own + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def count_entries(pid: int, folder: str) -> int:
    """Return how many file descriptors (fd) or threads (task) a process has."""
    return len(list(Path(f"/proc/{pid}/{folder}").iterdir()))


def memory_of(pid: int, field: str = "VmRSS") -> float:
    """Return a line of a process' status (VmRSS: resident now, VmHWM: the most so far) in MiB."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(rf"^{field}:\s+(\d+) kB", text, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def queries_of(server: PrometheusServer) -> float:
    """Return the number of instant queries that Prometheus has counted."""
    return _read_counter(server, r'prometheus_http_requests_total\{[^}]*handler="/api/v1/query"[^}]*\}')


def cpu_seconds_of(server: PrometheusServer) -> float:
    """Return the processor time that Prometheus reports."""
    return _read_counter(server, "process_cpu_seconds_total")


def _read_counter(server: PrometheusServer, pattern: str) -> float:
    """Return the sum of the series that match, among Prometheus' own."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)) as caller:
        caller.request("GET", "/metrics")
        with caller.getresponse() as response:
            text = response.read().decode()
    return sum(float(value) for value in re.findall(rf"^{pattern} (\S+)$", text, re.MULTILINE))


def _samples(apps: Iterable[App], now: float) -> Iterator[Written]:
    """Yield the counters of all pods one by one, each in the order of time, as Prometheus requires."""
    moments = [turn * _STEP for turn in range(int((_PAST + _FUTURE) / _STEP))]
    for app in apps:
        for number, pod in enumerate(app.pods):
            labels = {
                "__name__": app.metric,
                "job": "apps",
                "instance": f"10.0.0.{number}:8080",
                "namespace": app.namespace,
                "pod": pod,
            }
            for moment in moments:
                yield Written(labels, (1 + number) * moment, now - _PAST + moment)
