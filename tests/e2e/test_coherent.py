"""New pods that share a load, on a real control plane: no step asks for more than is needed.

Thirty workloads of one pod each have the load of ten at once. Half of them are boosted, beside the real
controller, and half are scaled by the fast-scaler. The pods become ready after half a second to three, and
are scraped once a second. The sandbox's turn is `tests/scenarios/test_coherent.py`.

Judged are the counts that Fastpath writes. The controller decides each second here, upstream's way, from what
the metrics API serves, and may ask for more by itself.
"""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.e2e import stage
from tests.e2e.aggregation import NAMESPACE
from tests.e2e.clusters import ClusterUnderTest, Document
from tests.e2e.conftest import WITH_CONTROLLERS, Fronted
from tests.e2e.test_aggregation import WELL
from tests.support import sharing
from tests.support.sharing import NEEDED
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

COUNT = 30
WAIT = 90.0


class World(stage.World):
    """Workloads whose pods are ready after a time of their own, and take their share at that moment."""

    def __init__(self, cluster: ClusterUnderTest, session: aiohttp.ClientSession) -> None:
        super().__init__(cluster, session)
        self.interval = "1s"
        self._startup = sharing.random_startup(17)
        self._starts: set[asyncio.Task[None]] = set()

    async def add_shared(self, count: int) -> None:
        """Create workloads that share a load, and their autoscalers."""
        documents = []
        for each in sharing.workloads(count):
            self.show(each, self.cluster.namespace)
            documents += sharing.objects(each, self.cluster.namespace)
        await self.cluster.create(*documents)

    def _saw_pod(self, kind: str, document: Document) -> None:
        metadata = document["metadata"]
        if kind == "ADDED" and not document["status"].get("podIP"):
            task = asyncio.create_task(self._start(metadata["name"], metadata["labels"]["app"]))
            self._starts.add(task)
            task.add_done_callback(self._starts.discard)
        elif kind == "DELETED" or "deletionTimestamp" in metadata:
            self.pod_ends(metadata["name"])

    async def _start(self, name: str, app: str) -> None:
        await asyncio.sleep(self._startup())
        address = self.free.popleft()
        self.pod_runs(name, app, address, self.cluster.namespace)
        status: Document = WELL | {"podIP": address, "podIPs": [{"ip": address}]}
        path = f"/api/v1/namespaces/{self.cluster.namespace}/pods/{name}/status"
        await self.patch(path, {"status": status})


async def jump(world: World) -> list[sharing.Scaling]:
    """Let the loads jump, and return how the workloads were scaled once all pods are ready."""
    await world.add_shared(COUNT)
    await until(lambda: all(world.scrapes[name] > 2 for name in world.workloads), WAIT)
    boosted = [each.name for each in world.workloads.values() if each.way]
    await until(lambda: all(world.is_active(name) for name in boosted), WAIT)
    start = world.begin()
    await until(lambda: all(each.ready >= NEEDED for each in world.workloads.values()), WAIT)
    await asyncio.sleep(2)  # the samples that would count twice
    return sharing.judge(world.audit, list(world.workloads), start)


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_no_step_asks_for_more_than_is_needed(
    fronted: Fronted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", NAMESPACE)  # as the manifests do: leases and floors are there
    async with stage.scaled(fronted, tmp_path, World) as world:
        scaled = await jump(world)
    assert [each for each in scaled if each.most > NEEDED] == []
