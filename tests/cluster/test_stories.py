"""What boost, the fast-scaler, CPU at one second and idle scale-down are for, under load, one story each."""

import json
from typing import Any

import pytest

from tests.cluster.site import CPU, QUEUE, Site
from tests.support.rendered import JSON

pytestmark = [pytest.mark.cluster, pytest.mark.integration, pytest.mark.timeout(420)]

INFLIGHT = '{type: Pods, pods: {metric: {name: inflight}, target: {type: AverageValue, averageValue: "3.5"}}}'


async def until_raised(site: Site, name: str, seconds: float) -> None:
    before = await site.replicas(name)

    async def is_raised() -> bool:
        return await site.replicas(name) > before

    await site.until(is_raised, seconds)


async def until_true(site: Site, kind: str, name: str, condition: str, seconds: int) -> None:
    flags = ("--for", f"condition={condition}", f"--timeout={seconds}s")
    await site.kubectl("wait", kind, name, "-n", "shop", *flags)


@pytest.mark.parametrize(("by", "kind"), [("fastpath boost", "hpa"), ("fastpath convert", "fpa")])
async def test_a_step_of_the_load(site: Site, by: str, kind: str) -> None:
    """Fastpath writes the count within seconds of a step, before the HPA controller looks (15 s)."""
    await site.workload("load", 1)
    await site.workload("web")
    await site.autoscale("web", INFLIGHT, by)
    await site.load("web", 12, "/wait?ms=500")
    await until_true(site, kind, "web", "ScalingActive", 60)

    async def is_steady() -> bool:
        metrics = (await site.get(kind, "web"))["status"]["currentMetrics"]
        return 2000 < milli(metrics[0]["pods"]["current"]["averageValue"]) < 4000

    await site.until(is_steady, 60)
    await site.load("web", 50, "/wait?ms=500")
    await until_raised(site, "web", 5)
    fields = (await site.get("deployment", "web", "--show-managed-fields"))["metadata"]["managedFields"]
    (writer,) = (each["manager"] for each in fields if each.get("subresource") == "scale")
    assert writer == "fastpath"
    await site.kubectl("rollout", "status", "-n", "shop", "deployment/web", "--timeout=60s")
    counts = await site.load("web", 0, "/wait?ms=500")
    assert counts["answered"] > 50
    assert counts["failed"] == 0
    await site.kubectl("delete", f"{kind}/web", "deployment/web", "-n", "shop")


def milli(quantity: str) -> int:
    return int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000


async def test_cpu_at_one_second(site: Site) -> None:
    """What pods expose agrees with the kubelet's cAdvisor, and raises before that has seen the load."""
    await site.workload("load", 1)
    await site.workload("burner")
    await site.autoscale("burner", CPU, "fastpath convert")
    await site.load("burner", 5, "/burn?ms=8")
    await until_true(site, "fpa", "burner", "FastUsage", 300)
    await site.load("burner", 30, "/burn?ms=8")
    await until_raised(site, "burner", 8)
    await site.load("burner", 0, "/burn?ms=8")
    await site.kubectl("delete", "fpa/burner", "deployment/burner", "-n", "shop")


async def test_the_idlest_pods_go(site: Site) -> None:
    """The busy pod stays, and the ReplicaSet controller removes the two that Fastpath has marked."""
    await site.workload("load", 1)
    await site.workload("idle", 3)
    await site.ask("load", "/queue?depth=15")
    await site.autoscale("idle", QUEUE, "fastpath convert", minimum=1)
    change = {
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 10}},
        "scaleDown": {"prefer": "Idle", "metric": "inflight"},
    }
    await site.kubectl(
        "patch", "fpa", "idle", "-n", "shop", "--type=merge", "-p", json.dumps({"spec": change})
    )
    await until_true(site, "fpa", "idle", "ScalingActive", 60)
    pods = await idle_pods(site)
    busy = max(pods.values(), key=lambda pod: pod["metadata"]["creationTimestamp"] + pod["metadata"]["name"])
    await site.ask("load", f"/load?rate=2&url=http://{busy['status']['podIP']}:8080/wait?ms=2000")
    await site.ask("load", "/queue?depth=5")
    marked: set[str] = set()

    async def is_one() -> Any:
        pods = await idle_pods(site)
        marked.update(name for name, pod in pods.items() if COST in pod["metadata"].get("annotations", {}))
        return len(pods) == 1 and pods

    left = await site.until(is_one, 60)
    assert left.keys() == {busy["metadata"]["name"]}
    assert marked == pods.keys() - left.keys()
    await site.ask("load", "/load?rate=0")
    await site.kubectl("delete", "fpa/idle", "deployment/idle", "-n", "shop")


COST = "controller.kubernetes.io/pod-deletion-cost"


async def idle_pods(site: Site) -> dict[str, JSON]:
    pods = (await site.get("pods", "-l", "app=idle"))["items"]
    return {pod["metadata"]["name"]: pod for pod in pods if "deletionTimestamp" not in pod["metadata"]}
