"""kubectl top and an autoscaler on cpu through v1 of metrics.k8s.io alone, v1beta1 alone, and both.

Which version kubectl and the controller read depends on their own version, so a test looks at that first.
What an older one cannot read is still served: to raw requests, and to newer clients.
"""

import asyncio
import functools
import json
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.e2e import aggregation, controlplane
from tests.e2e.clusters import ClusterUnderTest, Document
from tests.e2e.conftest import REAL_ONLY, WITH_CONTROLLERS, Fronted
from tests.e2e.test_aggregation import (
    MIB,
    RULES,
    autoscaler,
    deployment,
    get,
    make_pod,
    make_well,
    read,
    service,
    until,
    wait_replicas,
    write,
    write_all,
)
from tests.support.prometheus import PrometheusFactory, PrometheusServer

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

TOP_READS_V1 = 37
"""kubectl reads the first version of the two that discovery lists (kubernetes/kubernetes#139726)."""
CONTROLLER_READS_V1 = 38
"""That of 1.37 reads v1beta1 alone; kubernetes/kubernetes#141366, which prefers v1, is not in it.

Raise this if the controller of 1.38 proves to be without it too.
"""

EACH = pytest.mark.parametrize(
    "versions", [("v1",), ("v1beta1",), ("v1", "v1beta1")], ids=["v1 alone", "v1beta1 alone", "both"]
)


@pytest.fixture
async def prometheus(prometheus_server: PrometheusFactory, tmp_path: Path) -> PrometheusServer:
    (tmp_path / "rules.yaml").write_text(RULES)
    return await asyncio.to_thread(prometheus_server)


@pytest.fixture
async def node(fronted: Fronted, prometheus: PrometheusServer) -> AsyncIterator[str]:
    """Return the name of a node with four cores, of which one and a half are used."""
    cluster = fronted.cluster
    name = f"node-{cluster.namespace}"
    await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    capacity = {"cpu": "4", "memory": "4Gi"}
    status = json.dumps({"status": {"capacity": capacity, "allocatable": capacity}})
    await cluster.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)
    await write(prometheus, "cores", 1.5, node=name, id="/")
    await write(prometheus, "working_set_bytes", 1024 * MIB, node=name, id="/")
    yield name
    await cluster.kubectl("delete", "node", name)


def readable(versions: Sequence[str], *, stable: bool) -> str:
    """Return the version that a client reads, "" if none; `stable` tells whether it knows v1."""
    known = ("v1", "v1beta1") if stable else ("v1beta1",)
    return next((version for version in known if version in versions), "")


async def kubectl_minor(cluster: ClusterUnderTest) -> int:
    said = json.loads(await cluster.kubectl("version", "--client", "-o", "json"))
    return int(re.sub(r"\D", "", said["clientVersion"]["minor"]))


def names_of(versions: Sequence[str]) -> list[str]:
    """Return the APIServices to register: all of the other groups, and these versions."""
    others = [name for name in aggregation.GROUP_VERSIONS if not name.endswith(".metrics.k8s.io")]
    return others + [f"{version}.metrics.k8s.io" for version in versions]


@EACH
async def test_kubectl_top(
    tmp_path: Path, fronted: Fronted, prometheus: PrometheusServer, node: str, versions: tuple[str, ...]
) -> None:
    cluster, backend = fronted
    await make_pod(cluster, prometheus)
    version = readable(versions, stable=await kubectl_minor(cluster) >= TOP_READS_V1)

    async def top(*what: str) -> list[list[str]]:
        """Return the lines; the aggregator needs a while to list what is registered."""
        finished = await until(
            lambda found: (found.status == 0) is bool(version),
            lambda: cluster.run(cluster.admin_kubeconfig, "top", *what),
        )
        if not version:
            assert finished.stderr == "error: Metrics API not available\n"
        return [line.split() for line in finished.stdout.splitlines()[1:]]

    async with aggregation.register(
        cluster, backend, tmp_path, prometheus.url, group_versions=names_of(versions)
    ) as registered:
        pods, nodes = await top("pods", "-n", cluster.namespace), await top("nodes")
        assert await registered.asked_versions() == ({version} if version else set())
        if version:
            assert pods == [["web-0", "150m", "64Mi"]]
            (row,) = (each for each in nodes if each[0] == node)
            assert row[1:] == ["1500m", "37%", "1024Mi", "25%"]
        for each in versions:
            path = f"/apis/metrics.k8s.io/{each}"
            (usage,) = (await read(cluster, f"{path}/namespaces/{cluster.namespace}/pods"))["items"]
            assert usage["containers"] == [{"name": "main", "usage": {"cpu": "150m", "memory": "64Mi"}}]
            assert (await read(cluster, f"{path}/nodes/{node}"))["usage"] == {"cpu": "1500m", "memory": "1Gi"}
            table = await cluster.kubectl("get", f"pods.{each}.metrics.k8s.io", "-n", cluster.namespace)
            assert [line.split() for line in table.splitlines()] == [
                ["NAME", "CPU", "MEMORY", "WINDOW"],
                ["web-0", "150m", "64Mi", "1m0s"],
            ]
        group = await read(cluster, "/apis/metrics.k8s.io")
        assert [each["version"] for each in group["versions"]] == list(versions)
        assert group["preferredVersion"]["version"] == versions[0]


def inactive(found: Document) -> str:
    """Return why an autoscaler does not scale, "" as long as it does not say so."""
    for each in found.get("status", {}).get("conditions", ()):
        if (each["type"], each["status"]) == ("ScalingActive", "False"):
            assert each["reason"] == "FailedGetResourceMetric"
            return str(each["message"])
    return ""


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
@EACH
async def test_an_autoscaler_on_cpu(
    tmp_path: Path, fronted: Fronted, prometheus: PrometheusServer, versions: tuple[str, ...]
) -> None:
    cluster, backend = fronted
    program = controlplane.find_controllers()
    assert program is not None
    minor = await asyncio.to_thread(controlplane.minor_of, program)
    version = readable(versions, stable=minor >= CONTROLLER_READS_V1)
    await cluster.create(deployment(cluster), service(cluster))
    pods = await until(lambda found: found["items"], lambda: get(cluster, "pods", "-l", "app=web"))
    [pod] = [each["metadata"]["name"] for each in pods["items"]]
    await make_well(cluster, pod)
    await write_all(prometheus, cluster.namespace, pod)
    async with aggregation.register(
        cluster, backend, tmp_path, prometheus.url, group_versions=names_of(versions)
    ) as registered:
        await cluster.create(autoscaler(cluster, "Resource"))
        try:
            if version:
                await wait_replicas(cluster, 3)
                assert await registered.asked_versions() == {version}
            else:
                reason = await until(lambda found: found, lambda: why_inactive(cluster))
                assert "the server could not find the requested resource (get pods.metrics.k8s.io)" in reason
                await wait_replicas(cluster, 1)
        finally:
            await cluster.kubectl("delete", "hpa", "web", "-n", cluster.namespace)


async def why_inactive(cluster: ClusterUnderTest) -> str:
    return inactive(await get(cluster, "hpa", "web"))


@pytest.mark.parametrize("fronted", REAL_ONLY, indirect=True)
async def test_kubectl_explains_each_version(
    tmp_path: Path, fronted: Fronted, prometheus: PrometheusServer
) -> None:
    """From the specification that the aggregator has put together."""
    cluster, backend = fronted
    async with aggregation.register(cluster, backend, tmp_path, prometheus.url):
        for version in ("v1", "v1beta1"):
            field = ("podmetrics.containers.usage", f"--api-version=metrics.k8s.io/{version}")
            ask = functools.partial(cluster.run, cluster.admin_kubeconfig, "explain", *field)
            explained = await until(lambda found: found.status == 0, ask)
            assert f"VERSION:    {version}\n" in explained.stdout
            assert "What is used of cpu and memory." in explained.stdout
