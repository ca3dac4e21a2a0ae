"""Pods of Fastpath that end: killed on the node, and evicted as a drain of nodes does."""

import json
from typing import Any

import pytest

from tests.cluster.site import QUEUE, MetricReader, Site
from tests.support.objects import plain
from tests.support.waiting import running

pytestmark = [pytest.mark.cluster, pytest.mark.integration, pytest.mark.timeout(300)]

METRICS = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/shop/pods/*/inflight"


async def test_a_container_that_is_killed(site: Site) -> None:
    """Its next process, in the same pod, has the slices before the Leases of the first have ended (15 s)."""
    await site.workload("load", 1)
    await site.workload("worker")
    await site.ask("load", "/queue?depth=10")
    await site.autoscale("worker", QUEUE, "fastpath convert")
    await site.until(site.is_shared, 60)
    scaler = await site.until(site.deciding, 30)
    pod = await site.get("pod", scaler, namespace="fastpath")
    before = set(await site.owners())
    await site.apply_file("killer.yaml", uid=pod["metadata"]["uid"], node=pod["spec"]["nodeName"])

    async def restarted() -> bool:
        (status,) = (await site.get("pod", scaler, namespace="fastpath"))["status"]["containerStatuses"]
        return bool(status["restartCount"])

    async def taken() -> bool:
        owners = await site.owners()
        return sum(owners.values()) == 64 and set(owners) != before

    await site.until(restarted, 30)
    await site.ask("load", "/queue?depth=20")
    await site.until(taken, 9)

    async def raised() -> bool:
        return await site.replicas("worker") == 4

    await site.until(raised, 8)
    await site.kubectl("delete", "pod/killer", "fpa/worker", "deployment/worker", "-n", "shop")


async def test_all_pods_are_evicted(site: Site) -> None:
    """As by a drain: budgets let one pod of a Deployment go at a time, and no read of a metric fails."""
    await site.workload("web")
    await site.until(site.is_shared, 60)

    async def settled() -> Any:
        """Return the four pods, once none is on its way out and the metric has values."""
        pods = [each["metadata"] for each in (await site.get("pods", namespace="fastpath"))["items"]]
        stay = [each["name"] for each in pods if "deletionTimestamp" not in each]
        return len(pods) == len(stay) == 4 and (await site.raw(METRICS))["items"] and stay

    names = set(await site.until(settled, 120))
    reader = MetricReader(site, METRICS)
    refused = 0
    async with running(reader.read()):
        for name in names:
            eviction = plain("Eviction", name, "fastpath") | {"apiVersion": "policy/v1"}

            async def evicted(eviction: dict[str, Any] = eviction, name: str = name) -> bool:
                nonlocal refused
                path = f"/api/v1/namespaces/fastpath/pods/{name}/eviction"
                done = await site.run("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
                refused += "disruption budget" in done.stderr
                assert done.status == 0, done.stderr
                return True

            await site.until(evicted, 60)

        async def replaced() -> bool:
            pods = (await site.get("pods", namespace="fastpath"))["items"]
            left = names & {each["metadata"]["name"] for each in pods}
            return not left and len(pods) == 4 and await site.is_shared()

        await site.until(replaced, 90)
    assert refused
    assert (reader.faults, reader.answers > 10) == ([], True)
