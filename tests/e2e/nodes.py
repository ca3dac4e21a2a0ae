"""Pods as real processes on a control plane without kubelets, and their usage as metrics-server has it.

Each pod of a namespace is a `tests.e2e.busy` at an address of its own. The pods of a workload share its
load. Kubelets sample the processor time of each process, and metrics-server reads two samples at a time. Both
happen once in a period, independently of each other, so that a usage is up to two periods old.
"""

import asyncio
import contextlib
import json
import random
import ssl
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import aiohttp
from aiohttp import web

from adapter.compose.clock import SystemClock
from adapter.model.autoscaling import boost
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.listener import Listener
from tests.e2e import busy
from tests.support import tools
from tests.support.objects import api_service, local_service
from tests.support.waiting import running
from tests.world import controllers, watching
from tests.world.clusters import Document
from tests.world.workloads import Workload, handshake, level
from tests.world.world import QUEUE

METRICS = "v1beta1.metrics.k8s.io"
KINDS = ("plain", "boosted", "fast")
"""The autoscalers of a workload: an HPA, the same with boost, and a FastPathAutoscaler."""
TARGET = 60
"""Their target, in percent of the request."""

_BASE = "/apis/metrics.k8s.io/v1beta1"
_CLOCK = SystemClock()


class _Sample(NamedTuple):
    """The processor seconds of a process at a time."""

    time: float
    used: float


@dataclass(eq=False)
class _PodProcess:
    name: str
    app: str
    address: str
    process: asyncio.subprocess.Process
    samples: deque[_Sample] = field(default_factory=lambda: deque(maxlen=2))
    timer: asyncio.TimerHandle | None = None

    def used(self) -> float:
        """Return the processor seconds of all its threads, also of those that have ended."""
        return time.clock_gettime(~self.process.pid << 3 | 2)  # as clock_getcpuclockid(3) makes it

    def use(self, cores: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"%.6f\n" % cores)


class UsageServer(Listener):
    """Serves metrics.k8s.io, with the usage of each pod between its last two samples.

    `served` is replaced each period, unless it is `held`.
    """

    def __init__(self, pods: Mapping[str, _PodProcess], period: float, tls: ssl.SSLContext) -> None:
        super().__init__(self._handle, "127.0.0.1", 0, tls)
        self.served: dict[str, list[Document]] = {}
        """The items by workload."""
        self.held = False
        self.asked: Counter[tuple[str, str]] = Counter()
        """The requests by user and workload."""
        self._pods = pods
        self._period = period
        self._timer: asyncio.TimerHandle | None = None

    @property
    def port(self) -> int:
        return self._port

    async def start(self) -> None:
        await super().start()
        self._collect()

    async def stop(self) -> None:
        assert self._timer is not None
        self._timer.cancel()
        await super().stop()

    def cores(self, app: str) -> float:
        """Return the cores that are served for a workload."""
        usages = [each["containers"][0]["usage"]["cpu"] for each in self.served.get(app, ())]
        return sum(int(usage.removesuffix("n")) for usage in usages) / 1e9

    def _collect(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._period, self._collect)
        if self.held:
            return
        self.served = {}
        for pod in self._pods.values():
            if len(pod.samples) == 2:
                self.served.setdefault(pod.app, []).append(_item(pod))

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == _BASE:
            return web.json_response(_DISCOVERY)
        namespaced = request.path.removeprefix(f"{_BASE}/namespaces/")
        if not namespaced.endswith("/pods"):
            return web.Response(status=404)
        app = request.query.get("labelSelector", "").removeprefix("app=")
        self.asked[request.headers.get("X-Remote-User", ""), app] += 1
        found = {"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {}}
        return web.json_response(found | {"items": self.served.get(app, [])})


_PODS = {
    "name": "pods",
    "singularName": "",
    "namespaced": True,
    "kind": "PodMetrics",
    "verbs": ["get", "list"],
}
_DISCOVERY: Document = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": "metrics.k8s.io/v1beta1",
    "resources": [_PODS],
}


def _item(pod: _PodProcess) -> Document:
    first, last = pod.samples
    window = last.time - first.time
    usage = {"cpu": f"{(last.used - first.used) / window * 1e9:.0f}n", "memory": "20Mi"}
    return {
        "metadata": {"name": pod.name, "labels": {"app": pod.app}},
        "timestamp": timestamp(last.time),
        "window": f"{window:.3f}s",
        "containers": [{"name": "main", "usage": usage}],
    }


class Nodes:
    """Runs the pods of a namespace."""

    def __init__(
        self, session: aiohttp.ClientSession, namespace: str, period: float, tls: ssl.SSLContext
    ) -> None:
        self.port = tools.free_port()
        """Where each pod serves its metrics."""
        self._session = session
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._period = period
        self._loads: dict[str, float] = {}
        self._pods: dict[str, _PodProcess] = {}
        self._starting: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._started = 0
        self._dice = random.Random(1)
        self.metrics = UsageServer(self._pods, period, tls)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run what becomes a pod until the block ends."""
        async with self.metrics:
            pods = watching.follow(self._session, self._path, self._saw)
            try:
                async with running(pods, self._start_pods()):
                    yield
            finally:
                ended = [self._end(name) for name in list(self._pods)]
                await asyncio.gather(*(process.wait() for process in ended))

    def use(self, app: str, cores: float) -> None:
        """Have the pods of a workload use so many cores together, from now on."""
        self._loads[app] = cores
        mine = [pod for pod in self._pods.values() if pod.app == app]
        for pod in mine:
            pod.use(cores / len(mine))

    def count(self, app: str) -> int:
        """Return the number of pods of a workload that run."""
        return sum(pod.app == app for pod in self._pods.values())

    def _saw(self, kind: str, document: Document) -> None:
        metadata = document["metadata"]
        name, app = metadata["name"], metadata["labels"]["app"]
        if kind == "DELETED" or "deletionTimestamp" in metadata:
            if name in self._pods:
                self._end(name)
                self.use(app, self._loads[app])
        elif kind == "ADDED":
            self._starting.put_nowait((name, app))

    def _end(self, name: str) -> asyncio.subprocess.Process:
        pod = self._pods.pop(name)
        if pod.timer is not None:
            pod.timer.cancel()
        with contextlib.suppress(ProcessLookupError):
            pod.process.kill()
        return pod.process

    async def _start_pods(self) -> None:
        while True:
            name, app = await self._starting.get()
            self._started += 1
            address = f"127.86.{self._started >> 8}.{self._started & 255}"
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, str(Path(busy.__file__)), address, str(self.port)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            assert await process.stdout.readline(), f"the program of {name} ended"
            pod = self._pods[name] = _PodProcess(name, app, address, process)
            self.use(app, self._loads[app])
            self._sample(pod, self._period * self._dice.random())
            await self._report(pod)

    def _sample(self, pod: _PodProcess, pause: float | None = None) -> None:
        """Sample a process now, and then once in a period; the first time after a pause."""
        if pause is None:
            pod.samples.append(_Sample(_CLOCK.wall(), pod.used()))
        loop = asyncio.get_running_loop()
        pod.timer = loop.call_later(self._period if pause is None else pause, self._sample, pod)

    async def _report(self, pod: _PodProcess) -> None:
        """Write the status of a pod whose program serves, as its kubelet does."""
        now = timestamp(_CLOCK.wall())
        status = controllers.well(now) | {"podIP": pod.address, "podIPs": [{"ip": pod.address}]}
        async with self._session.patch(
            f"{self._path}/{pod.name}/status",
            data=json.dumps({"status": status}),
            headers={"Content-Type": "application/merge-patch+json"},
        ) as response:
            assert response.status in {200, 404}, await response.text()


def workload(kind: str, name: str, namespace: str, request: float) -> list[Document]:
    """Return a Deployment of one pod that requests so many cores, with the autoscaler of a kind."""
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": TARGET}}
    metrics: list[Document] = [{"type": "Resource", "resource": cpu}]
    spec: Document = {"minReplicas": 1, "maxReplicas": 10, "metrics": metrics}
    made = Workload(name, QUEUE, level(1), "", spec, 1, own=kind == "fast")
    target, autoscaler = made.deployment(), made.autoscaler()
    (container,) = target["spec"]["template"]["spec"]["containers"]
    container |= {"name": "main", "resources": {"requests": {"cpu": f"{request * 1000:g}m"}}}
    if kind == "boosted":
        autoscaler["metadata"]["annotations"] = {boost.MODE_ANNOTATION: "boost"}
        metrics.append(handshake(name, boost.EXTERNAL))
    for each in (target, autoscaler):
        each["metadata"]["namespace"] = namespace
    return [target, autoscaler]


def registration(group_version: str, namespace: str, port: int) -> list[Document]:
    """Return the APIService of a server on a port of loopback, with its Service."""
    name = group_version.partition(".")[2].replace(".", "-")
    service = {"name": name, "namespace": namespace, "port": port}
    return [local_service(name, namespace), api_service(group_version, service)]
