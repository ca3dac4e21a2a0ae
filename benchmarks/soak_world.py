"""The world of a soak: a cluster, the two programs, and a real Prometheus whose samples are known beforehand.

The value of a series is a function of its number and the time, so that an answer can be checked at any later
moment: its timestamp gives the sample. No value is ever zero.
"""

import asyncio
import contextlib
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks import documents, load, stepping
from benchmarks.stage import Stage, count_entries, make_apps, memory_of, replace
from benchmarks.stepping import CLOCK
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.prometheus.series import Exporter, Series, SeriesSet
from tests.support.remotewrite import Written

LEVEL = "soak_level"
QUEUE = "soak_queue"
QUEUES = ("mail", "orders")
SCALED = "scaled"
LEAST, MOST = 2, 8
"""Replicas that the load of the scaled workload needs in turn. A value read as zero would need one."""
_STEP = 5  # seconds between two samples of a series
_PAST = 60
_AHEAD = 300  # Prometheus refuses what lies ten minutes ahead
_TURN = 997
_EXPORTERS = 12
_GRACE = 3.0  # seconds until Prometheus, back again, has answered everyone
_TARGET = 10
_LOW, _HIGH = 2.0, 25.0


class Held(NamedTuple):
    """The resources of a process at a time, in seconds since the start of the run."""

    time: float
    memory_mib: float
    fds: float
    threads: float
    tasks: float


def level(number: int, when: float) -> int:
    """Return the value of a series by its number, at a time in epoch seconds."""
    return 1000 * (number + 1) + int(when // _STEP) % _TURN


class World:
    """The surroundings of a soak; `standing` opens them."""

    def __init__(self, stage: Stage, apps: int, pods: int) -> None:
        self.stage = stage
        self.story = "the start"
        """The fault that was made last, and the one before."""
        *self.apps, self.replaced = make_apps(apps, pods)
        """The last app's pods are replaced now and then, by those of `spare` and back."""
        self.spare = self.replaced._replace(pods=tuple(f"{pod}-b" for pod in self.replaced.pods))
        self._all_apps = (*self.apps, self.replaced, self.spare)
        every_pod = (pod for app in self._all_apps for pod in app.pods)
        self.numbers = {pod: number for number, pod in enumerate(every_pod)}
        self.queues = {queue: len(self.numbers) + number for number, queue in enumerate(QUEUES)}
        self.cluster = stepping.make_cluster(log_size=1000)
        self.prometheus = stage.start_prometheus()
        self.pids: dict[str, int] = {}
        """The programs `serve` and `scale`."""
        self.port = 0
        """That of `fastpath serve`."""
        self._config = Path()
        self._writing = asyncio.Lock()
        self._trouble: list[float] = []  # when Prometheus began to be disturbed and when it was over, in turn
        self._written = int(CLOCK.wall() - _PAST) // _STEP
        self._shown = _LOW
        with socket.socket() as probe:
            probe.bind(("127.0.1.1", 0))
            self.exporter_port: int = probe.getsockname()[1]
        self._series = self._make_series()

    @contextlib.asynccontextmanager
    async def standing(self, relist_seconds: float) -> AsyncIterator[None]:
        """Let everything stand until the block ends."""
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.cluster)
            for pod in (pod for app in (*self.apps, self.replaced) for pod in app.pods):
                self._create_pod(pod)
            stepping.create_kind(self.cluster)
            self.cluster.create(deployment("web", SCALED, LEAST))
            self.cluster.create(_autoscaler())
            shown = SeriesSet([Series("soak_load", {}, lambda _: self._shown)])
            for number in range(1, _EXPORTERS + 1):
                exporter = Exporter(shown, CLOCK.wall, port=self.exporter_port, host=f"127.0.1.{number}")
                await stack.enter_async_context(exporter)
            await self.feed()
            await self._start_programs(relist_seconds)
            yield

    # the programs

    async def _start_programs(self, relist_seconds: float) -> None:
        os.environ |= {"POD_NAME": "soak-0", "POD_NAMESPACE": "default"}
        kubeconfig = self.cluster.kubeconfig(self.stage.directory / "kubeconfig")
        flags = (f"--metrics-relist-interval={relist_seconds:g}s", "--metrics-max-age=60s")
        around = kubeconfig, self.prometheus.url

        def start() -> None:
            observed = "benchmarks.observed", str(self._told("serve"))
            served = self.stage.start_adapter(*around, _rules(0), *flags, program=observed)
            self.port, self._config = served.port, served.config
            rules = _scaler_rules(self.exporter_port)
            observed = "benchmarks.observed", str(self._told("scale"))
            self.pids = {"serve": served.pid}
            self.pids["scale"] = self.stage.start_scaler(*around, rules, *flags, program=observed)

        await asyncio.to_thread(start)

    def _told(self, program: str) -> Path:
        return self.stage.directory / f"{program}.told"

    async def hold(self, program: str, at: float) -> Held:
        """Return the resources of a program; ChildProcessError if it has ended."""
        pid, told = self.pids[program], self._told(program)
        told.unlink(missing_ok=True)
        self.stage.check(pid)
        os.kill(pid, signal.SIGUSR1)
        await load.wait_for(told.exists, f"{program} to say what it holds")
        fds, threads = (count_entries(pid, folder) for folder in ("fd", "task"))
        return Held(at, memory_of(pid), fds, threads, int(told.read_text(encoding="ascii")))

    def write_rules(self, copies: int) -> None:
        """Write the rules, with some more of other names."""
        replace(self._config, json.dumps(_rules(copies)).encode())  # JSON is YAML

    def break_rules(self) -> None:
        """Write an invalid rules file."""
        replace(self._config, b"rules: [")

    # pods

    def _create_pod(self, pod: str) -> None:
        app = next(app for app in self._all_apps if pod in app.pods)
        labels = {"app": app.name, "pod-template-hash": "7c9f8d6b5"}
        metadata = {"name": pod, "namespace": app.namespace, "labels": labels}
        self.cluster.create({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": {}})

    def replace_pods(self) -> None:
        """Replace the pods of an app, the new ones before the old ones."""
        for pod in self.spare.pods:
            self._create_pod(pod)
        for pod in self.replaced.pods:
            self.cluster.delete("Pod", pod, self.replaced.namespace)
        self.replaced, self.spare = self.spare, self.replaced

    async def run_workloads(self) -> None:
        """Create and delete pods with the scaled workload, until cancelled."""
        workloads = Workloads(
            self.cluster, startup=0.3, address=lambda number: f"127.0.1.{number % _EXPORTERS + 1}"
        )
        while True:
            workloads.step(CLOCK.wall())
            await asyncio.sleep(0.1)

    def show_load(self, *, high: bool) -> None:
        """Set the load of each pod of the scaled workload above its target, or below."""
        self._shown = _HIGH if high else _LOW

    def replicas(self) -> int:
        """Return the replicas of the scaled workload."""
        count: int = self.cluster.get("Deployment", "web", SCALED)["spec"]["replicas"]
        return count

    # Prometheus

    def _make_series(self) -> list[tuple[dict[str, str], Callable[[float], float]]]:
        """Return labels and curve of all series."""

        def numbered(number: int) -> Callable[[float], float]:
            return lambda when: level(number, when)

        found: list[tuple[dict[str, str], Callable[[float], float]]] = [
            ({"__name__": LEVEL, "namespace": app.namespace, "pod": pod}, numbered(self.numbers[pod]))
            for app in self._all_apps
            for pod in app.pods
        ]
        namespace = self.apps[0].namespace
        for queue, number in self.queues.items():
            found.append(({"__name__": QUEUE, "namespace": namespace, "queue": queue}, numbered(number)))
        found.append(({"__name__": "soak_load", "namespace": SCALED, "pod": "some"}, lambda _: 1.0))
        found.append(({"__name__": "soak_floor", "namespace": SCALED}, lambda _: float(LEAST * _TARGET)))
        return found

    async def feed(self) -> None:
        """Write samples some minutes ahead, so that a stop of Prometheus leaves no gap."""
        async with self._writing:
            last = int(CLOCK.wall() + _AHEAD) // _STEP
            samples = [
                Written(labels, value(step * _STEP), step * _STEP)
                for step in range(self._written, last)
                for labels, value in self._series
            ]
            if samples:
                await asyncio.to_thread(self.prometheus.write, *samples)
            self._written = last

    @contextlib.asynccontextmanager
    async def disturbing(self) -> AsyncIterator[None]:
        """Mark Prometheus as unreachable within the block.

        No write is in flight then: half of one cannot be repeated.
        """
        async with self._writing:
            self._trouble.append(CLOCK.monotonic())
            try:
                yield
            finally:
                self._trouble.append(CLOCK.monotonic() + _GRACE)

    def was_disturbed(self, since: float) -> bool:
        """Return whether Prometheus was unreachable at some time from `since` (monotonic) until now."""
        return len(self._trouble) % 2 == 1 or (bool(self._trouble) and self._trouble[-1] >= since)


def _rules(copies: int) -> dict[str, object]:
    rule = documents.pods_rule(LEVEL)
    more = [{**rule, "name": {"as": f"{LEVEL}_{number}"}} for number in range(copies)]
    return {"rules": [rule, *more], "externalRules": [documents.queue_rule(QUEUE)]}


def _scaler_rules(port: int) -> dict[str, object]:
    rule = documents.pods_rule("soak_load", scrape={"interval": "1s", "port": port})
    return {"rules": [rule], "externalRules": [documents.queue_rule("soak_floor")]}


def _autoscaler() -> dict[str, object]:
    fast = {"type": "Percent", "value": 400, "periodSeconds": 1}
    average = str(_TARGET)
    metrics = [documents.pods_metric("soak_load", average), documents.external_metric("soak_floor", average)]
    behavior = {
        "scaleUp": {"policies": [fast]},
        "scaleDown": {"stabilizationWindowSeconds": 0, "policies": [{**fast, "value": 100}]},
    }
    return documents.autoscaler("web", SCALED, metrics, (1, MOST), behavior=behavior)
