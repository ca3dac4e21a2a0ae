"""New pods that share a load: no step asks for more than is needed.

Workloads of one pod each have the load of ten at once. Half of them are boosted, beside the HPA controller,
and half are scaled by the fast-scaler. The pods become ready after half a second to three, one after the
other, and are scraped once a second, so samples are from before and after the load has moved. Judged are the
counts that Fastpath writes: the controller decides each second here, upstream's way, from what the metrics
API serves, and may ask for more by itself.
"""

import asyncio
import random

import pytest

from tests.e2e.conftest import WITH_WORKLOADS
from tests.world.scalewrites import BOOSTER
from tests.world.workloads import BEHAVIOR, UNIT, step
from tests.world.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

NEEDED = 10


@pytest.mark.parametrize("fronted", WITH_WORKLOADS, indirect=True)
async def test_no_step_asks_for_more_than_is_needed(world: World) -> None:
    dice, load = random.Random(17), step(UNIT, NEEDED * UNIT)
    world.interval, world.startup = "1s", lambda: dice.uniform(0.5, 3.0)
    spec = {"minReplicas": 1, "maxReplicas": 13, "behavior": BEHAVIOR}
    for number in range(15 if world.is_real else 3):
        world.hpa(f"boosted-{number:02}", "pods-scraped", load, spec=spec, replicas=1)
        world.hpa(f"fast-{number:02}", "pods-scraped", load, way="", own=True, spec=spec, replicas=1)
    await world.serve()
    await world.run(lambda: all(world.scrapes[name] > 2 for name in world.workloads))
    await world.run(lambda: all(world.is_active(name) for name in world.workloads))
    start = world.begin()
    await world.run(lambda: all(each.ready >= NEEDED for each in world.workloads.values()))
    await asyncio.sleep(2)  # the samples that would count twice
    written = {name: world.audit.of(name, BOOSTER, start) for name in world.workloads}
    assert [name for name, writes in written.items() if any(write.after > NEEDED for write in writes)] == []
    assert any(written.values())
