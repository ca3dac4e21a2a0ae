"""A cluster in which an incident is put: an HPA with its Deployment, the metrics APIs, and a Prometheus."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.model.autoscaling import slices
from adapter.model.autoscaling.fastpath_autoscaler import KIND
from fastpath_sandbox.apiserver.objects import timestamp
from fastpath_sandbox.apiserver.server import EPOCH, Cluster
from fastpath_sandbox.apiserver.workloads import Workloads
from fastpath_tools.doctor.command import Doctor
from fastpath_tools.ui.autoscaler_reading import AutoscalerReader, AutoscalerReading
from fastpath_tools.ui.options import UiOptions
from scripts.generate import crd
from tests.support import doctor
from tests.support.tls import Authority

RULES = """
rules:
- seriesQuery: 'http_requests_total{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  name: {matches: '^(.*)_total$', as: '${1}_per_second'}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)'
externalRules:
- seriesQuery: 'queue_depth{namespace!=""}'
  resources: {overrides: {namespace: {resource: namespace}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
"""
NAME = "http_requests_per_second"


class AgedMetrics:
    """The server behind the metrics APIs: values as they are, or a refusal; `age` is that of the values."""

    def __init__(self) -> None:
        self.value = "10"
        self.count: int | None = 4
        """How many values it has; None for a server that is down."""
        self.age = 5.0

    async def handle(self, request: web.Request) -> web.Response:
        if self.count is None:
            status = {"kind": "Status", "status": "Failure", "message": "no endpoints", "code": 503}
            return web.json_response(status, status=503)
        if request.path == "/apis":
            return web.json_response({"items": []})
        at = timestamp(now() - self.age)
        if request.path.startswith("/apis/metrics.k8s.io"):
            items = [{"metadata": {"name": "web-0"}, "timestamp": at, "window": "15s"}] * self.count
        elif request.path.startswith("/apis/external"):
            items = [{"metricName": "m", "value": self.value, "timestamp": at}] * self.count
        else:
            items = [{"describedObject": {"name": "o"}, "value": self.value, "timestamp": at}] * self.count
        return web.json_response({"items": items})


class ScriptedPrometheus:
    """A Prometheus that answers by script: `values` by a part of the query, the first that is in it."""

    def __init__(self) -> None:
        self.values: dict[str, float | None] = {"time()": now(), "max(timestamp(": now() - 4, "avg(": 20.0}
        self.series = [
            {"__name__": "http_requests_total", "namespace": "shop", "pod": "web-0"},
            {"__name__": "queue_depth", "namespace": "shop", "queue": "mail"},
        ]
        self.ranges: dict[str, list[float]] = {}
        """The values of a range by a part of its query, the newest last, each holding for 5 minutes."""
        self.status = 200

    async def handle(self, request: web.Request) -> web.Response:
        given = {**request.query, **{name: str(value) for name, value in (await request.post()).items()}}
        query = given.get("query", "")
        if self.status != 200:
            return web.Response(status=self.status)
        if request.path.endswith("/query_range"):
            return self._range(query, float(given["start"]), float(given["end"]), float(given["step"]))
        if request.path.endswith("/series"):
            data = [labels for labels in self.series if labels["__name__"] in given.get("match[]", "")]
            return web.json_response({"status": "success", "data": data})
        value = next((value for part, value in self.values.items() if part in query), None)
        result = [] if value is None else [{"metric": {}, "value": [now(), str(value)]}]
        return web.json_response({"status": "success", "data": {"resultType": "vector", "result": result}})

    def _range(self, query: str, start: float, end: float, step: float) -> web.Response:
        values = next((values for part, values in self.ranges.items() if re.search(part, query)), [])
        points = []
        while values and start <= end:
            place = min(int((end - start) // 300), len(values) - 1)
            points.append([start, str(values[-1 - place])])
            start += step
        result = [{"metric": {}, "values": points}] if points else []
        return web.json_response({"status": "success", "data": {"resultType": "matrix", "result": result}})


def now() -> float:
    return time.time()  # noqa: TID251  # the reader compares with the real clock


class Incident:
    """The cluster, and what a page reads of shop/web in it."""

    def __init__(
        self,
        workloads: Workloads,
        cluster: Cluster,
        metrics: AgedMetrics,
        prometheus: ScriptedPrometheus,
        folder: Path,
        url: str,
    ) -> None:
        self.workloads = workloads
        self.cluster = cluster
        self.metrics = metrics
        self.prometheus = prometheus
        self._folder = folder
        self._url = url

    def start_pods(self) -> None:
        """Create the pods that are missing, and have all be Ready."""
        for seconds in (20, 40):
            self.workloads.step(EPOCH + seconds)

    def lead(self) -> None:
        """Have a scaler own the slice of the namespace."""
        slice_name = slices.name_of("fastpath-scaler", slices.slice_of("shop"))
        for name in (slice_name, "fastpath-scaler-member-s"):
            spec = {"holderIdentity": "s", "leaseDurationSeconds": 15, "renewTime": timestamp(now())}
            meta = {"name": name, "namespace": "fastpath"}
            version = "coordination.k8s.io/v1"
            self.cluster.create({"apiVersion": version, "kind": "Lease", "metadata": meta, "spec": spec})

    def create(
        self,
        *metrics: dict[str, Any],
        current: list[Any] | None = None,
        mode: str = "",
        kind: str = "",
        spec: dict[str, Any] | None = None,
        **changes: Any,
    ) -> None:
        """Create the autoscaler, an HPA unless `kind` is another, with fields of its `spec`.

        `current` are the statuses of its metrics, `changes` conditions by their type: status, reason and
        message.
        """
        document = doctor.hpa("web", *metrics, mode=mode)
        document["spec"] |= spec or {}
        if kind == KIND:
            self.cluster.create(yaml.safe_load(crd.PATH.read_text()))
            document |= {"apiVersion": "fastpath.io/v1alpha1", "kind": KIND}
        for condition in document["status"]["conditions"]:
            if condition["type"] in changes:
                condition.update(_condition(*changes.pop(condition["type"])))
        document["status"]["conditions"] += [
            {"type": kind, **_condition(*given)} for kind, given in changes.items() if kind[0].isupper()
        ]
        status = {"currentReplicas": 4, "desiredReplicas": 4, "currentMetrics": current or []}
        document["status"] |= status | changes.get("status", {})
        self.cluster.create(document)

    @asynccontextmanager
    async def reader(self, *, prometheus: bool = False) -> AsyncIterator[AutoscalerReader]:
        rules = self._folder / "rules.yaml"
        rules.write_text(RULES)
        options = UiOptions(
            kubeconfig=str(self.cluster.kubeconfig(self._folder / "kubeconfig")),
            config=(str(rules),),
            prometheus_url=self._url if prometheus else "",
        )
        async with AsyncExitStack() as stack:
            doctor = await Doctor.open(options, stack)
            yield AutoscalerReader(doctor, "shop", "web")

    async def read(self, *, prometheus: bool = False) -> AutoscalerReading:
        async with self.reader(prometheus=prometheus) as reader:
            return await reader.read()


def _condition(status: str, reason: str, message: str = "") -> dict[str, str]:
    return {"status": status, "reason": reason, "message": message}


def measured(value: str, name: str = NAME) -> list[Any]:
    """Return the status of a metric of pods with an average."""
    return [{"type": "Pods", "pods": {"metric": {"name": name}, "current": {"averageValue": value}}}]


@asynccontextmanager
async def incident(folder: Path, authority: Authority) -> AsyncIterator[Incident]:
    """Return a cluster with Deployment shop/web of four Ready pods, whose metrics APIs work."""
    metrics, prometheus = AgedMetrics(), ScriptedPrometheus()
    application, engine = web.Application(), web.Application()
    application.router.add_route("*", "/{path:.*}", metrics.handle)
    engine.router.add_route("*", "/{path:.*}", prometheus.handle)
    server = TestServer(application, host="127.0.0.1", scheme="https")
    certificate = authority.server_context(authority.issue("fastpath.fastpath.svc"))
    async with Cluster() as cluster, TestServer(engine, host="127.0.0.1") as queried:
        await server.start_server(ssl=certificate)
        cluster.create(doctor.web(4))
        workloads = Workloads(cluster, startup=12.0)
        workloads.step(EPOCH)
        workloads.step(EPOCH + 12)
        place = {"apiVersion": "v1", "kind": "Service", "spec": {"type": "ExternalName"}}
        place["spec"]["externalName"] = "localhost"  # type: ignore[index]
        cluster.create(place | {"metadata": {"name": "fastpath", "namespace": "fastpath"}})
        service = {"namespace": "fastpath", "name": "fastpath", "port": server.port}
        for name in (
            "v1beta2.custom.metrics.k8s.io",
            "v1beta1.external.metrics.k8s.io",
            "v1beta1.metrics.k8s.io",
        ):
            doctor.register(cluster, name, service, authority.file.read_bytes())
        yield Incident(workloads, cluster, metrics, prometheus, folder, str(queried.make_url("")).rstrip("/"))
        await server.close()
