"""From zero: a queue exporter behind a Service wakes Deployments; without it they stay at zero and say why.

Prometheus runs and scrapes nothing.
"""

import contextlib
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from fastpath_sandbox.listener import Listener
from tests.e2e.conftest import WITH_WORKLOADS
from tests.support.objects import plain
from tests.world.clusters import ClusterUnderTest, Document
from tests.world.workloads import AT_ONCE, level
from tests.world.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

NAMES = ("web-0", "web-1", "web-2")
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


@contextlib.asynccontextmanager
async def exporting(cluster: ClusterUnderTest) -> AsyncIterator[dict[str, int]]:
    """Run an exporter of queues as a pod of the cluster, and as an endpoint of its Service."""
    lengths = dict.fromkeys(NAMES, 0)

    async def show(_: web.BaseRequest) -> web.StreamResponse:
        lines = [f'queue_length{{queue="{name}"}} {length}\n' for name, length in lengths.items()]
        return web.Response(text="".join(lines))

    spec = {"containers": [{"name": "main", "image": "registry.example/none:1"}]}
    pod = plain("Pod", "exporter-0", cluster.namespace, {"app": "exporter"}, spec=spec)
    async with Listener(show, ADDRESS, 0) as listener:
        port = int(listener.address.rpartition(":")[2])
        status = json.dumps({"status": {"phase": "Running", "podIP": ADDRESS, "podIPs": [{"ip": ADDRESS}]}})
        where = ("pod", "exporter-0", "-n", cluster.namespace)
        await cluster.create(pod, endpoint_slice(cluster, port))
        await cluster.kubectl("patch", *where, "--subresource=status", "--type=merge", "-p", status)
        yield lengths


def endpoint_slice(cluster: ClusterUnderTest, port: int) -> Document:
    """Return the slice of the exporter, as the EndpointSlice controller writes it.

    It is that of the other address family of the pod: an API server takes no loopback addresses.
    """
    labels = {"kubernetes.io/service-name": "exporter"}
    reference = {"kind": "Pod", "namespace": cluster.namespace, "name": "exporter-0"}
    endpoint = {"addresses": ["fd00:87::1"], "conditions": {"ready": True}, "targetRef": reference}
    return plain("EndpointSlice", "exporter-1", cluster.namespace, labels) | {
        "apiVersion": "discovery.k8s.io/v1",
        "addressType": "IPv6",
        "ports": [{"name": "metrics", "port": port, "protocol": "TCP"}],
        "endpoints": [endpoint],
    }


def queue(name: str) -> Document:
    metric = {"name": "queue_length", "selector": {"matchLabels": {"queue": name}}}
    return {
        "type": "External",
        "external": {"metric": metric, "target": {"type": "AverageValue", "averageValue": "10"}},
    }


@pytest.mark.parametrize("fronted", WITH_WORKLOADS, indirect=True)
async def test_an_exporter_wakes_deployments_and_without_it_they_sleep(world: World) -> None:
    def counts() -> set[int]:
        return {world.replicas(name) for name in NAMES}

    async with exporting(world.cluster) as lengths:
        for name in NAMES:
            spec = {"minReplicas": 0, "maxReplicas": 3, "metrics": [queue(name)], "behavior": AT_ONCE}
            world.hpa(name, load=level(0), way="", own=True, spec=spec)
        await world.scaler(rules=RULES.replace("NAMESPACE", world.namespace))
        await world.run(lambda: counts() == {0})
        lengths.update(dict.fromkeys(NAMES, 5))
        await world.run(lambda: counts() == {1})
        lengths.update(dict.fromkeys(NAMES, 0))
        await world.run(lambda: counts() == {0})
        await world.cluster.kubectl("delete", "endpointslice", "exporter-1", "-n", world.namespace)
        lengths.update(dict.fromkeys(NAMES, 50))
        said = f"Service {world.namespace}/exporter has no EndpointSlice"
        await world.run(lambda: all(said in world.condition(name, "ScalingActive").message for name in NAMES))
        assert counts() == {0}
