"""New pods that share a load: no step asks for more than is needed.

Workloads of one pod each have the load of ten at once. Half of them are boosted, beside the HPA controller,
and half are scaled by the fast-scaler. The pods become ready after half a second to three, and are scraped
once a second. Judged are the counts that Fastpath writes: the controller decides each second here, upstream's
way, from what the metrics API serves, and may ask for more by itself.
"""

import asyncio

import pytest

from tests.e2e.conftest import WITH_WORKLOADS
from tests.world import sharing
from tests.world.sharing import NEEDED
from tests.world.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.mark.parametrize("fronted", WITH_WORKLOADS, indirect=True)
async def test_no_step_asks_for_more_than_is_needed(world: World) -> None:
    world.interval, world.startup = "1s", sharing.random_startup(17)
    world.declare(sharing.workloads(30 if world.is_real else 6))
    await world.serve()
    await world.run(lambda: all(world.scrapes[name] > 2 for name in world.workloads))
    await world.run(lambda: all(world.is_active(name) for name in world.workloads))
    start = world.begin()
    await world.run(lambda: all(each.ready >= NEEDED for each in world.workloads.values()))
    await asyncio.sleep(2)  # the samples that would count twice
    scaled = sharing.judge(world.audit, list(world.workloads), start)
    assert [each for each in scaled if each.most > NEEDED] == []
