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

from fastpath_sandbox.prometheus.series import Series
from tests.e2e.conftest import REAL_ONLY, WITH_CONTROLLERS, WITH_WORKLOADS, Fronted
from tests.e2e.test_aggregation import read, serve, until
from tests.support.objects import plain
from tests.world import aggregation, controlplane
from tests.world.clusters import ClusterUnderTest
from tests.world.workloads import level
from tests.world.world import World

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
async def node(world: World) -> AsyncIterator[str]:
    """Return the name of a node with four cores, of which one and a half are used."""
    cluster = world.cluster
    name = f"node-{cluster.namespace}"
    await cluster.create(plain("Node", name))
    capacity = {"cpu": "4", "memory": "4Gi"}
    status = json.dumps({"status": {"capacity": capacity, "allocatable": capacity}})
    await cluster.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", status)
    whole = {"node": name, "id": "/"}
    world.series.add(Series("cores", whole, lambda _: 1.5))
    world.series.add(Series("working_set_bytes", whole, lambda _: 2.0**30))
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


@pytest.mark.parametrize("fronted", WITH_WORKLOADS, indirect=True)
@EACH
async def test_kubectl_top(
    tmp_path: Path, fronted: Fronted, world: World, node: str, versions: tuple[str, ...]
) -> None:
    cluster, backend = fronted
    [pod] = (await serve(world)).parts
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
        cluster, backend, tmp_path, world.prometheus.url, group_versions=names_of(versions)
    ) as registered:
        pods, nodes = await top("pods", "-n", cluster.namespace), await top("nodes")
        assert await registered.asked_versions() == ({version} if version else set())
        if version:
            assert pods == [[pod, "30m", "1Mi"]]
            (row,) = (each for each in nodes if each[0] == node)
            assert row[1:] == ["1500m", "37%", "1024Mi", "25%"]
        for each in versions:
            path = f"/apis/metrics.k8s.io/{each}"
            (usage,) = (await read(cluster, f"{path}/namespaces/{cluster.namespace}/pods"))["items"]
            assert usage["containers"] == [{"name": "web", "usage": {"cpu": "30m", "memory": "1Mi"}}]
            assert (await read(cluster, f"{path}/nodes/{node}"))["usage"] == {"cpu": "1500m", "memory": "1Gi"}
            table = await cluster.kubectl("get", f"pods.{each}.metrics.k8s.io", "-n", cluster.namespace)
            assert [line.split() for line in table.splitlines()] == [
                ["NAME", "CPU", "MEMORY", "WINDOW"],
                [pod, "30m", "1Mi", "1m0s"],
            ]
        group = await read(cluster, "/apis/metrics.k8s.io")
        assert [each["version"] for each in group["versions"]] == list(versions)
        assert group["preferredVersion"]["version"] == versions[0]


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
@EACH
async def test_an_autoscaler_on_cpu(
    tmp_path: Path, fronted: Fronted, world: World, versions: tuple[str, ...]
) -> None:
    cluster, backend = fronted
    program = controlplane.find_controllers()
    assert program is not None
    minor = await asyncio.to_thread(controlplane.minor_of, program)
    version = readable(versions, stable=minor >= CONTROLLER_READS_V1)
    await asyncio.to_thread((tmp_path / "rules.yaml").write_text, world.rules)
    world.hpa("web", "cpu-percent", level(3), way="")
    await world.create()
    async with aggregation.register(
        cluster, backend, tmp_path, world.prometheus.url, group_versions=names_of(versions)
    ) as registered:
        if version:
            await world.run(lambda: world.replicas("web") == 3)
            assert await registered.asked_versions() == {version}
        else:
            await world.run(lambda: world.condition("web", "ScalingActive").status == "False")
            _, reason, message = world.condition("web", "ScalingActive")
            assert reason == "FailedGetResourceMetric"
            assert "the server could not find the requested resource (get pods.metrics.k8s.io)" in message
            assert world.replicas("web") == 2


@pytest.mark.parametrize("fronted", REAL_ONLY, indirect=True)
async def test_kubectl_explains_each_version(tmp_path: Path, fronted: Fronted, world: World) -> None:
    """From the specification that the aggregator has put together."""
    cluster, backend = fronted
    await serve(world)
    async with aggregation.register(cluster, backend, tmp_path, world.prometheus.url):
        for version in ("v1", "v1beta1"):
            field = ("podmetrics.containers.usage", f"--api-version=metrics.k8s.io/{version}")
            ask = functools.partial(cluster.run, cluster.admin_kubeconfig, "explain", *field)
            explained = await until(lambda found: found.status == 0, ask)
            assert f"VERSION:    {version}\n" in explained.stdout
            assert "What is used of cpu and memory." in explained.stdout
