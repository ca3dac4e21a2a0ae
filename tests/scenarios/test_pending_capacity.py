"""Pending capacity: two equal queues, one with the option, and pods that take five seconds to start.

Fastpath learns that from the first of them. Then the load rises. What is compared is how many pods the two
autoscalers ask for, in the same run.
"""

import asyncio
from pathlib import Path

import pytest

from tests.support.waiting import running
from tests.world.workloads import CLOCK, NAMESPACE
from tests.world.world import QUEUE, World, scaling

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(180)]

STARTUP = 5.0
THROUGHPUT = 5.0
"""Jobs that one Ready pod works off in a second."""

AWARE, EXACT = "aware", "exact"


class Queues:
    """Two Deployments, each with a queue of its own that its Ready pods work off."""

    def __init__(self, world: World) -> None:
        self.jobs = {AWARE: 40.0, EXACT: 40.0}
        self.load = 0.0
        self._world = world
        pending = [{"metric": "backlog", "podThroughput": f"{THROUGHPUT:g}"}]
        behavior = {"scaleUp": {"policies": [{"type": "Pods", "value": 200, "periodSeconds": 1}]}}
        for name in self.jobs:
            spec = {"maxReplicas": 200, "behavior": behavior}
            spec |= {"pendingCapacity": pending} if name == AWARE else {}
            load = lambda _, name=name: self.jobs[name]  # noqa: E731
            world.hpa(name, QUEUE, load, way="", own=True, spec=spec, replicas=4)

    def ready(self, name: str) -> int:
        return self._world.workloads[name].ready

    async def run(self) -> None:
        """Let jobs come and be worked off, by the time that has passed."""
        before = CLOCK.monotonic()
        while True:
            now = CLOCK.monotonic()
            for name in self.jobs:
                left = self.jobs[name] + (self.load - THROUGHPUT * self.ready(name)) * (now - before)
                self.jobs[name] = max(0.0, left)
            before = now
            await asyncio.sleep(0.05)


async def test_pods_that_are_starting_do_not_multiply(tmp_path: Path, shop: World) -> None:
    shop.startup = STARTUP
    async with scaling(shop, tmp_path / "scaler") as scaler:
        queues = Queues(shop)
        async with running(queues.run()):
            await shop.run(
                lambda: all(queues.ready(name) == 4 and not queues.jobs[name] for name in queues.jobs)
            )
            queues.load = 12 * THROUGHPUT
            await shop.run(
                lambda: all(shop.replicas(name) == queues.ready(name) >= 12 for name in queues.jobs)
            )
            most = {name: max(write.after for write in shop.audit.of(name)) for name in queues.jobs}
            assert most[EXACT] > 1.4 * most[AWARE]
            _, shown = await scaler.get(f"/debug/fastpath/autoscalers/{NAMESPACE}/{AWARE}")
            texts = [text for entry in shown["journal"] for text in entry["trace"]]
            assert any("that pending pods would have worked off" in text for text in texts)
            await shop.run(lambda: shop.autoscaler(AWARE)["status"].get("pendingCapacity"))
