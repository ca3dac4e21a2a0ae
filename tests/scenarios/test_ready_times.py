"""Ready times across a change of leader: two scalers, one Lease, and the pods of the sandbox."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from adapter.autoscaler import ready_store
from adapter.model.autoscaling import slices
from adapter.model.ready_times import decode_ledger
from tests.support.adapter import RunningScaler
from tests.support.owners import are_shared
from tests.support.processor import limited
from tests.support.waiting import until
from tests.world.workloads import BOOSTED, HOME, NAMESPACE, OWN
from tests.world.world import World, scaling

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

WAIT = 40.0


async def shown(scaler: RunningScaler, name: str) -> dict[str, Any]:
    """Return the ready times that a scaler shows; nothing while it does not lead."""
    _, document = await scaler.get(f"/debug/fastpath/autoscalers/{NAMESPACE}/{name}")
    times: dict[str, Any] = document.get("readyTimes", {})
    return times


async def wait_for_pods(scaler: RunningScaler, least: int) -> None:
    """Wait until the scaler leads, and shows the times of so many pods of each autoscaler."""
    async with limited(WAIT):
        for name in (BOOSTED, OWN):
            while (await shown(scaler, name)).get("pods", 0) < least:  # noqa: ASYNC110 - it is asked over HTTP
                await asyncio.sleep(0.05)


async def test_the_next_leader_knows_how_long_pods_took(tmp_path: Path, shop: World) -> None:
    await shop.pair()
    async with (
        scaling(shop, tmp_path / "1") as first,
        scaling(shop, tmp_path / "2") as second,
    ):
        await until(lambda: are_shared(shop.seen["leases"].values(), 2), WAIT)
        shop.begin()
        await until(lambda: shop.replicas(BOOSTED) == 6 and shop.replicas(OWN) == 6, WAIT)
        leads_first = [await shown(each, OWN) != {} for each in (first, second)]
        assert sorted(leads_first) == [False, True]
        leader, standby = (first, second) if leads_first[0] else (second, first)
        await wait_for_pods(leader, 4)
        before = {name: await shown(leader, name) for name in (BOOSTED, OWN)}

        await leader.end()
        await wait_for_pods(standby, 4)

        stored_name = slices.name_of(ready_store.KIND.name, slices.slice_of(NAMESPACE))
        after = {name: await shown(standby, name) for name in (BOOSTED, OWN)}
        assert after == before
        stored = shop.sandbox.get("configmap", stored_name, HOME)["data"]
        uids = {
            name: shop.sandbox.get(kind, name, NAMESPACE)["metadata"]["uid"]
            for kind, name in (("hpa", BOOSTED), ("fpa", OWN))
        }
        pods = {name: len(decode_ledger(stored[uid]).starts()) for name, uid in uids.items()}
        assert pods == {name: before[name]["pods"] for name in (BOOSTED, OWN)}
