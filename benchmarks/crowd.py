"""Many HPAs on a real control plane with the defaults of Kubernetes; `opened` makes all but the HPAs.

Each HPA has a Deployment of two pods. Nothing runs them and nothing adds any: a status says that they are
Ready, and a raised count stays a count. One exporter shows the load of all pods, and Prometheus scrapes it.
"""

import asyncio
import contextlib
import json
import shutil
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks import documents, plane
from benchmarks.stage import App, Stage, make_apps
from benchmarks.stepping import CLOCK, until
from fastpath_sandbox.apiserver.workloads import deployment
from fastpath_sandbox.demo import metric_source
from fastpath_sandbox.demo.metric_source import Job
from fastpath_sandbox.prometheus.series import Exporter, Series, SeriesSet
from tests.support.objects import plain
from tests.world import controllers, watching

PERIOD = 15.0
"""How often HPAs are to be synced, and the pods are scraped."""

PODS, NEEDED, MOST = 2, 4, 10
"""The pods of a workload, how many a high load needs, and the maximum of its HPA."""

LOW, HIGH = 8.0, 19.5
_TARGET = 10
_METRIC = "load"
_SERVED = "v1beta2.custom.metrics.k8s.io"
_AT_ONCE = 32


class Crowd:
    """The workloads. `load` is what each pod shows, and `shown` when Prometheus last read it."""

    def __init__(self, count: int, session: aiohttp.ClientSession, audit_log: Path) -> None:
        self.apps = make_apps(count, PODS)
        self.session = session
        self.audit_log = audit_log
        """Has the requests for the metrics of HPAs."""
        self.load = LOW
        self.shown = 0.0

    def show(self, now: float) -> float:
        self.shown = now
        return self.load

    async def create_targets(self) -> None:
        namespaces = dict.fromkeys(app.namespace for app in self.apps)
        await _each(lambda name: self._write("/api/v1/namespaces", plain("Namespace", name)), namespaces)
        await _each(self._create_target, self.apps)

    async def create_autoscalers(self, *, boosted: bool) -> None:
        metric = documents.pods_metric(_METRIC, str(_TARGET))
        kind: dict[str, Any] = {"native": True, "boosted": boosted}

        async def create(app: App) -> None:
            path = f"/apis/autoscaling/v2/namespaces/{app.namespace}/horizontalpodautoscalers"
            hpa = documents.autoscaler(app.name, app.namespace, [metric], (PODS, MOST), **kind)
            await self._write(path, hpa)

        await _each(create, self.apps)

    async def _create_target(self, app: App) -> None:
        target, counts = deployment(app.name, app.namespace, PODS), {"replicas": PODS, "readyReplicas": PODS}
        path = f"/apis/apps/v1/namespaces/{app.namespace}/deployments"
        await self._write(path, target)
        await self._write(f"{path}/{app.name}/status", {"status": counts}, "PATCH")
        template = target["spec"]["template"]
        for name in app.pods:
            pod = plain("Pod", name, app.namespace, spec=template["spec"])
            pod["metadata"] |= template["metadata"]
            path = f"/api/v1/namespaces/{app.namespace}/pods"
            await self._write(path, pod)
            await self._write(f"{path}/{name}/status", {"status": controllers.well()}, "PATCH")

    async def _write(self, path: str, document: dict[str, Any], method: str = "POST") -> None:
        headers = {"Content-Type": f"application/{'merge-patch+' * (method == 'PATCH')}json"}
        async with self.session.request(method, path, data=json.dumps(document), headers=headers) as answer:
            if answer.status >= 300:
                sys.exit(f"{method} {path}: {await answer.text()}")


async def _each(work: Callable[[Any], Awaitable[None]], items: Iterable[Any]) -> None:
    """Do the work for all items, some at once."""
    left = iter(items)

    async def worker() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(_AT_ONCE):
            group.create_task(worker())


@contextlib.asynccontextmanager
async def opened(stage: Stage, assets: Path, count: int, *, scales: bool) -> AsyncIterator[Crowd]:
    """Run a control plane with so many workloads, Prometheus and `fastpath serve`; with `scales` a scaler."""
    async with contextlib.AsyncExitStack() as stack:
        on = await stack.enter_async_context(plane.opened(stage, assets, period=0))
        session = await stack.enter_async_context(watching.connect(on.cluster))
        crowd = Crowd(count, session, on.plane.audit_log)
        series = SeriesSet(
            Series(_METRIC, {"namespace": app.namespace, "pod": pod}, crowd.show)
            for app in crowd.apps
            for pod in app.pods
        )
        exporter = await stack.enter_async_context(Exporter(series, CLOCK.wall))
        jobs, folder = [Job("pods", [exporter.address], PERIOD)], stage.directory / "prometheus"
        running = metric_source.running(shutil.which("prometheus") or "prometheus", jobs, folder)
        prometheus = await stack.enter_async_context(running)
        await crowd.create_targets()
        await until(lambda: crowd.shown, 2 * PERIOD)
        rules = {"rules": [documents.pods_rule(_METRIC)]}
        registered = dict.fromkeys((_SERVED, plane.FLOORS) if scales else (_SERVED,))
        await plane.start_fastpath(stage, on, prometheus, rules, registered, scales=scales)
        yield crowd
