"""From zero: a queue exporter behind a Service wakes Deployments; without it they stay at zero and say why.

The same case runs on the sandbox and on a real control plane, there with the rights of the shipped manifests.
Prometheus runs and scrapes nothing. With `--thorough` there are 30 workloads. The test prints how long each
took and asserts no time; `python -m benchmarks.ready` measures.
"""

import asyncio
import contextlib
import json
import random
import statistics
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from fastpath_sandbox.listener import Listener
from tests.e2e import conftest
from tests.e2e.clusters import ClusterUnderTest, Document
from tests.e2e.test_aggregation import deployment, get, until
from tests.e2e.test_scaler import Scene, admit, prometheus, scaling, scene  # noqa: F401 - two are fixtures
from tests.support import thorough, tools

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

EVERYWHERE = pytest.mark.parametrize("fronted", conftest.WITH_WORKLOADS, indirect=True)
WORKLOADS = 30 if thorough.is_chosen() else 3
SPREAD = 20.0 if thorough.is_chosen() else 1.0
ADDRESS = "127.87.0.1"
RULES = """
externalRules:
- seriesQuery: 'queue_length{queue!=""}'
  resources: {namespaced: false}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (queue)'
  scrape:
    service: {namespace: NAMESPACE, name: exporter}
    port: metrics
"""


class Queues:
    """An exporter that shows the lengths of queues."""

    def __init__(self) -> None:
        self.lengths = {f"web-{number}": 0 for number in range(WORKLOADS)}
        self.listener = Listener(self._show, ADDRESS, 0)

    async def _show(self, _: web.BaseRequest) -> web.StreamResponse:
        lines = [f'queue_length{{queue="{name}"}} {length}\n' for name, length in self.lengths.items()]
        return web.Response(text="".join(lines))

    @property
    def port(self) -> int:
        return int(self.listener.address.rpartition(":")[2])


@contextlib.asynccontextmanager
async def exporting(cluster: ClusterUnderTest) -> AsyncIterator[Queues]:
    """Run an exporter as a pod of the cluster, and as an endpoint of its Service."""
    queues = Queues()
    await queues.listener.start()
    try:
        await cluster.create(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "exporter-0", "namespace": cluster.namespace},
                "spec": {"containers": [{"name": "main", "image": "registry.example/none:1"}]},
            },
            endpoint_slice(cluster, queues.port),
        )
        status = {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}
        where = ("pod", "exporter-0", "-n", cluster.namespace)
        patch = json.dumps({"status": status})
        await cluster.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", patch)
        yield queues
    finally:
        await queues.listener.stop()


def endpoint_slice(cluster: ClusterUnderTest, port: int) -> Document:
    """Return the slice of the exporter, as the EndpointSlice controller writes it.

    It is that of the other address family of the pod: an API server takes no loopback addresses.
    """
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "exporter-1",
            "namespace": cluster.namespace,
            "labels": {"kubernetes.io/service-name": "exporter"},
        },
        "addressType": "IPv6",
        "ports": [{"name": "metrics", "port": port, "protocol": "TCP"}],
        "endpoints": [
            {
                "addresses": ["fd00:87::1"],
                "conditions": {"ready": True},
                "targetRef": {"kind": "Pod", "namespace": cluster.namespace, "name": "exporter-0"},
            }
        ],
    }


def workload(cluster: ClusterUnderTest, name: str) -> list[Document]:
    """Return a Deployment and the autoscaler that follows the queue of that name."""
    target = deployment(cluster)
    target["metadata"]["name"] = name
    labels = {"app": name}
    target["spec"]["selector"]["matchLabels"] = labels
    target["spec"]["template"]["metadata"]["labels"] = labels
    metric = {"name": "queue_length", "selector": {"matchLabels": {"queue": name}}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 0,
        "maxReplicas": 3,
        "metrics": [
            {
                "type": "External",
                "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "10"}},
            }
        ],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
    }
    autoscaler = {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathAutoscaler",
        "metadata": {"name": name, "namespace": cluster.namespace},
        "spec": spec,
    }
    return [target, autoscaler]


@contextlib.asynccontextmanager
async def watching(cluster: ClusterUnderTest) -> AsyncIterator[dict[str, float]]:
    """Follow the Deployments; yield when each was first seen with a replica, in epoch seconds."""
    woken: dict[str, float] = {}
    template = '{.metadata.name} {.spec.replicas}{"\\n"}'
    process = await asyncio.create_subprocess_exec(
        tools.require("kubectl", "kubernetes-client"),
        f"--kubeconfig={cluster.admin_kubeconfig}",
        *("get", "deployments.apps", "-n", cluster.namespace, "--watch", "-o", f"jsonpath={template}"),
        stdout=asyncio.subprocess.PIPE,
        env={"HOME": str(cluster.directory), "PATH": "/usr/bin:/bin"},
    )

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            name, replicas = line.decode().split()
            if replicas != "0" and name.startswith("web-"):
                woken.setdefault(name, time.time())  # noqa: TID251 - when kubectl shows it

    task = asyncio.create_task(read(), name="deployments")
    try:
        yield woken
    finally:
        task.cancel()
        process.kill()
        await process.wait()
        await asyncio.gather(task, return_exceptions=True)


async def replicas(cluster: ClusterUnderTest) -> set[int]:
    found = await get(cluster, "deployments.apps")
    return {each["spec"]["replicas"] for each in found["items"]}


async def messages(cluster: ClusterUnderTest) -> list[str]:
    found: Any = await get(cluster, "fpa")
    return [
        condition["message"]
        for each in found["items"]
        for condition in each.get("status", {}).get("conditions", ())
        if (condition["type"], condition["status"]) == ("ScalingActive", "False")
    ]


@EVERYWHERE
async def test_an_exporter_wakes_deployments_and_without_it_they_sleep(scene: Scene) -> None:  # noqa: F811
    cluster = scene.cluster
    rules = scene.directory / "endpoints.yaml"
    rules.write_text(RULES.replace("NAMESPACE", cluster.namespace))
    flags = (f"--config={rules}", "--scrape-pod-cidrs=127.0.0.0/8")
    moments = random.Random(17)
    async with exporting(cluster) as queues:
        await cluster.create(*(each for name in queues.lengths for each in workload(cluster, name)))
        async with scaling(scene, await admit(scene), *flags):
            await until(lambda found: found == {0}, lambda: replicas(cluster))
            filled = {}
            async with watching(cluster) as woken:
                await asyncio.sleep(1)  # kubectl shows what there is
                assert woken == {}
                begin = time.time() + 0.5  # noqa: TID251 - as above
                for delay, name in sorted((SPREAD * moments.random(), name) for name in queues.lengths):
                    await asyncio.sleep(max(0.0, begin + delay - time.time()))  # noqa: TID251 - as above
                    queues.lengths[name] = 5
                    filled[name] = time.time()  # noqa: TID251 - as above
                await until(lambda found: found == {1}, lambda: replicas(cluster))
                await asyncio.sleep(0.5)
                times = [woken[name] - filled[name] for name in filled]
            found = (
                f"{len(times)} workloads, p50 {statistics.median(times):.2f} s, longest {max(times):.2f} s"
            )
            sys.stdout.write(f"zero to one: {found}\n")
            queues.lengths = dict.fromkeys(queues.lengths, 0)
            await until(lambda found: found == {0}, lambda: replicas(cluster))
            await cluster.kubectl("delete", "endpointslice", "exporter-1", "-n", cluster.namespace)
            queues.lengths = dict.fromkeys(queues.lengths, 50)
            said = f"Service {cluster.namespace}/exporter has no EndpointSlice"
            await until(
                lambda found: sum(said in each for each in found) == WORKLOADS, lambda: messages(cluster)
            )
            assert await replicas(cluster) == {0}
