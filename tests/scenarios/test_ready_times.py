"""Ready times across a change of leader: two scalers, one Lease, and the pods of the sandbox."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapter.autoscaler import ready_store
from adapter.compose import app
from adapter.config.options import SERVE
from adapter.model.ready_times import decode_ledger
from adapter.server.http.endpoints import LocalPages
from tests.support import adapter as support
from tests.support import boosting
from tests.support.boosting import FLAGS, HOME, NAMESPACE, Workload, World
from tests.support.processor import limited
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

WAIT = 40.0
BOOSTED, OWN = "boosted", "own"


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("POD_NAMESPACE", HOME)
    async with boosting.running() as made:
        support.admit(made.cluster)
        yield made


class Process:
    """A running scaler."""

    def __init__(self, pages: LocalPages, stop: asyncio.Event, run: "asyncio.Task[None]") -> None:
        self._stop = stop
        self._run = run
        self._url = f"http://127.0.0.1:{pages.port}/debug/fastpath/autoscalers/{NAMESPACE}"

    async def shown(self, name: str) -> dict[str, Any]:
        """Return the ready times that it shows; nothing while it does not lead."""
        async with aiohttp.ClientSession() as session, session.get(f"{self._url}/{name}") as response:
            document: dict[str, Any] = await response.json()
        shown: dict[str, Any] = document.get("readyTimes", {})
        return shown

    async def pods(self, name: str) -> int:
        count: int = (await self.shown(name)).get("pods", 0)
        return count

    async def end(self) -> None:
        """End it as SIGTERM does."""
        self._stop.set()
        await self._run


@contextlib.asynccontextmanager
async def scaling(world: World, directory: Path) -> AsyncIterator[Process]:
    (directory / "rules.yaml").write_text(world.rules)
    arguments = [
        f"--config={directory / 'rules.yaml'}",
        f"--prometheus-url={world.prometheus.url}",
        f"--lister-kubeconfig={world.cluster.kubeconfig(directory / 'kubeconfig')}",
        "--local-address=127.0.0.1:0",
        *FLAGS,
    ]
    options, _ = SERVE.parse(arguments)
    stop = asyncio.Event()
    started: asyncio.Future[LocalPages] = asyncio.get_running_loop().create_future()
    run = asyncio.create_task(
        app.run_scaler(options, "test", stop, started=started.set_result), name=directory.name
    )
    try:
        yield Process(await started, stop, run)
    finally:
        stop.set()
        await run


def own(workload: Workload) -> boosting.Document:
    """Return a FastPathAutoscaler with the spec that a workload's HorizontalPodAutoscaler would have."""
    return {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathAutoscaler",
        "metadata": {"name": workload.name, "namespace": NAMESPACE},
        "spec": workload.autoscaler()["spec"],
    }


async def wait_for_pods(process: Process, least: int) -> None:
    """Wait until the process leads, and shows the times of so many pods of each autoscaler."""
    async with limited(WAIT):
        for name in (BOOSTED, OWN):
            while await process.pods(name) < least:  # noqa: ASYNC110 - it is asked over HTTP
                await asyncio.sleep(0.05)


async def test_the_next_leader_knows_how_long_pods_took(tmp_path: Path, world: World) -> None:
    boosted = Workload(BOOSTED, "external-average", boosting.step())
    plain = Workload(OWN, "external-average", boosting.step(), way="")
    world.add([boosted])
    world.add([plain], autoscaled=False)
    world.cluster.create(own(plain))
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    async with scaling(world, folders[0]) as first, scaling(world, folders[1]) as second:
        world.begin()
        await until(lambda: world.replicas(BOOSTED) == 6 and world.replicas(OWN) == 6, WAIT)
        leads_first = [await each.shown(OWN) != {} for each in (first, second)]
        assert sorted(leads_first) == [False, True]
        leader, standby = (first, second) if leads_first[0] else (second, first)
        await wait_for_pods(leader, 4)
        before = {name: await leader.shown(name) for name in (BOOSTED, OWN)}

        await leader.end()
        await wait_for_pods(standby, 4)

        after = {name: await standby.shown(name) for name in (BOOSTED, OWN)}
        assert after == before
        stored = world.cluster.get("configmap", ready_store.NAME, HOME)["data"]
        uids = {
            name: world.cluster.get(kind, name, NAMESPACE)["metadata"]["uid"]
            for kind, name in (("hpa", BOOSTED), ("fpa", OWN))
        }
        pods = {name: len(decode_ledger(stored[uid]).starts()) for name, uid in uids.items()}
        assert pods == {name: before[name]["pods"] for name in (BOOSTED, OWN)}
