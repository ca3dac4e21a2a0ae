"""The pods of `benchmarks.ready`, from the count of a Deployment to an application that is Ready.

`Pods` stands for the Deployment controller, the kubelets, the load balancer and the discovery of Prometheus.
Pods are created as soon as the count changes. Their containers run later, and their application is Ready
later still. Until then a scrape of the pod gets a 503. Ready pods share the load of their workload evenly.
"""

import asyncio
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path

from aiohttp import web

from benchmarks.ready_world import NAMESPACE, Pod, Workload
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.store import JSON, Change
from fastpath_sandbox.apiserver.workloads import deployment
from fastpath_sandbox.listener import Listener
from fastpath_sandbox.prometheus.series import CONTENT_TYPE

_LISTED_SECONDS = 0.5
"""How often the file of discovered pods is written at most. Prometheus takes a changed one within 5 s."""


class Pods(Listener):
    """Creates and deletes the pods of workloads, and serves their ``/metrics``, each at its own address.

    `now` gives epoch seconds. Prometheus discovers the pods in the file `discovered`.
    """

    def __init__(
        self, cluster: Cluster, workloads: Sequence[Workload], now: Callable[[], float], discovered: Path
    ) -> None:
        # one socket for all of 127.0.0.0/8: a thousand pods need no thousand listeners. Other addresses
        # than a pod's get a 404.
        super().__init__(self._handle, "0.0.0.0", 0)
        self.discovered = discovered
        self._cluster = cluster
        self._now = now
        self._workloads = {workload.name: workload for workload in workloads}
        self._places: dict[str, tuple[Workload, Pod]] = {}
        self._listed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def port(self) -> int:
        return self._port

    async def start(self) -> None:
        await super().start()
        for workload in self._workloads.values():
            self._cluster.create(deployment(workload.name, NAMESPACE, workload.begin))
            self._settle(workload.name)
        self._cluster.store.subscribe(self._cluster.kinds.find("deployments").key, self._changed)
        self._list()
        self._task = asyncio.create_task(self._keep_listed(), name="discovery of pods")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for workload in self._workloads.values():
            for pod in workload.pods:
                for timer in pod.timers:
                    timer.cancel()
        await super().stop()

    def _changed(self, change: Change) -> None:
        if change.new is None or change.old is None:
            return
        before, after = (each.document["spec"]["replicas"] for each in (change.old, change.new))
        if before != after:
            self._workloads[change.new.name].asked.append((self._now(), after))
            asyncio.get_running_loop().call_soon(self._settle, change.new.name)

    def _settle(self, name: str) -> None:
        """Create or delete pods until there are as many as the Deployment wants."""
        workload = self._workloads[name]
        wanted = self._cluster.get("deployments", name, NAMESPACE)["spec"]["replicas"]
        alive = workload.alive()
        for _ in range(wanted - len(alive)):
            self._create(workload)
        for pod in alive[wanted:][::-1]:
            self._delete(pod)
        self._write_status(workload)

    def _create(self, workload: Workload) -> None:
        number = len(workload.pods)
        place = len(self._places)
        pod = Pod(f"{workload.name}-{number}", f"127.{85 + (place >> 16)}.{place >> 8 & 255}.{place & 255}")
        workload.pods.append(pod)
        self._places[pod.address] = workload, pod
        now = timestamp(self._now())
        self._cluster.create(
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"name": pod.name, "namespace": NAMESPACE, "labels": {"app": workload.name}},
                "spec": {"nodeName": "node-1", "containers": [{"name": "app", "image": "app:1"}]},
                "status": {
                    "phase": "Pending",
                    "conditions": [_condition("PodScheduled", now), _condition("Ready", now, "False")],
                },
            }
        )
        if number < workload.begin:
            self._run(pod)
            self.become_ready(workload, pod)
            return
        startup = workload.startups[(number - workload.begin) % len(workload.startups)]
        loop = asyncio.get_running_loop()
        pod.timers = [
            loop.call_later(startup.started, self._run, pod),
            loop.call_later(startup.ready, self.become_ready, workload, pod),
        ]

    def _run(self, pod: Pod) -> None:
        """Start the containers of a pod: it has an address now, and Prometheus discovers it."""
        pod.running = True
        now = timestamp(self._now())
        state = {
            "phase": "Running",
            "podIP": pod.address,
            "startTime": now,
            "containerStatuses": [
                {
                    "name": "app",
                    "ready": False,
                    "restartCount": 0,
                    "started": True,
                    "state": {"running": {"startedAt": now}},
                }
            ],
        }
        self._cluster.patch("pods", pod.name, {"status": state}, NAMESPACE)
        self._listed.set()

    def become_ready(self, workload: Workload, pod: Pod) -> None:
        """Let a running pod take its share of the load."""
        status = self._cluster.get("pods", pod.name, NAMESPACE)["status"]
        (container,) = status["containerStatuses"]
        now = timestamp(self._now())
        state = {
            "conditions": [
                status["conditions"][0],
                _condition("ContainersReady", now),
                _condition("Ready", now),
            ],
            "containerStatuses": [container | {"ready": True}],
        }
        pod.times.ready = self._now()
        self._cluster.patch("pods", pod.name, {"status": state}, NAMESPACE)
        self._write_status(workload)

    def _delete(self, pod: Pod) -> None:
        for timer in pod.timers:
            timer.cancel()
        pod.running = False
        pod.times.ended = self._now()
        self._cluster.delete("pods", pod.name, NAMESPACE)
        self._listed.set()

    def _write_status(self, workload: Workload) -> None:
        ready, alive = workload.ready(), len(workload.alive())
        state = {
            "replicas": alive,
            "updatedReplicas": alive,
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        self._cluster.patch("deployments", workload.name, {"status": state}, NAMESPACE)

    async def _keep_listed(self) -> None:
        while True:
            await self._listed.wait()
            self._listed.clear()
            self._list()
            await asyncio.sleep(_LISTED_SECONDS)

    def _list(self) -> None:
        """Write the pods for Prometheus, as its discovery in Kubernetes finds them: those with an address."""
        running = [
            f"{address}:{self.port}"
            for address, (workload, pod) in self._places.items()
            if pod.running and not workload.is_at_zero
        ]
        new = self.discovered.with_suffix(".new")
        new.write_text(json.dumps([{"targets": running}]), encoding="ascii")
        new.replace(self.discovered)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        found = self._places.get(request.transport.get_extra_info("sockname")[0])
        if found is None or request.path != "/metrics":
            return web.Response(text="only /metrics of pods is served here\n", status=404)
        workload, pod = found
        if not pod.times.ready < math.inf or pod.times.ended < math.inf:
            return web.Response(text="the application is not ready\n", status=503)
        now = self._now()
        reader = (
            "prometheus" if request.headers.get("User-Agent", "").startswith("Prometheus/") else "fastpath"
        )
        if reader == workload.reader and pod.times.counted == math.inf:
            pod.times.counted = now
        labels = f'namespace="{NAMESPACE}",pod="{pod.name}"'
        value = workload.load(now) / workload.ready()
        body = f"# TYPE {workload.series} gauge\n{workload.series}{{{labels}}} {value!r}\n"
        return web.Response(body=body.encode(), headers={"Content-Type": CONTENT_TYPE})


def _condition(name: str, since: str, status: str = "True") -> JSON:
    return {"type": name, "status": status, "lastTransitionTime": since}
