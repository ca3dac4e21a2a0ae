"""What the scenarios of boosting stand on, without a boost: the native controller alone follows its loads,
and the naive booster loses.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support import boosting, naive
from tests.support.boosting import LIMITS, NAMESPACE, UNIT, Workload, World
from tests.support.naive import MANAGER
from tests.support.nativechain import Front, controlling, serving
from tests.support.scalewrites import NATIVE, Audit, follow
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

WAIT = 30.0


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with boosting.running() as made:
        yield made


async def test_the_naive_booster_is_taken_back(tmp_path: Path, world: World) -> None:
    """By a controller that sees totals three periods late.

    (Of pods' own values it keeps 6: those that have none yet count as on target.)
    """
    kinds = ("object-average", "external-average")
    world.add(
        Workload(f"{kind}-{shape}", kind, load, way="")
        for kind in kinds
        for shape, load in boosting.SHAPES.items()
    )
    audit = Audit(boosting.CLOCK.wall, boosting.HOLD, booster=MANAGER)
    follow(world.cluster, audit)

    def need(name: str) -> float:
        return world.load(name) / UNIT

    async def write(name: str, count: int) -> None:
        world.cluster.scale("Deployment", name, count, NAMESPACE, manager=MANAGER)

    async with contextlib.AsyncExitStack() as stack:
        fastpath = await stack.enter_async_context(serving(world, tmp_path))
        front = await stack.enter_async_context(Front(world, [fastpath], lag=3))
        await stack.enter_async_context(controlling(world, front, tmp_path))
        await until(lambda: all(world.is_active(name) for name in world.workloads), WAIT)
        await asyncio.sleep(3)  # so that answers are as late as they will be
        boosting_task = asyncio.create_task(
            naive.boost(world.workloads, need, LIMITS[1], world.replicas, write)
        )
        world.begin()
        try:
            await until(
                lambda: {each.write.target.name for each in audit.counted} >= world.workloads.keys(), WAIT
            )
        finally:
            boosting_task.cancel()
            await asyncio.gather(boosting_task, return_exceptions=True)
    assert {each.write.by for each in audit.counted} == {NATIVE}
    assert audit.unpublished, "it publishes nothing"
