"""Pending capacity with `fastpath scale` as a process: two equal queues, one with the option; slow starts.

The cluster's pods take five seconds to start, which Fastpath learns from the first of them. Then the load
rises. What is compared is how many pods the two autoscalers ask for, in the same run.
"""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from tests.scenarios.test_scale import CLOCK, ROOT, autoscaler, happens, scaling

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(180)]

STARTUP = 5.0
THROUGHPUT = 5.0
"""Jobs that one Ready pod works off in a second."""

TARGET = 10
AWARE, EXACT = "aware", "exact"


class Queues(NamedTuple):
    """Two Deployments, each with a queue of its own that its Ready pods work off."""

    cluster: Cluster
    prometheus: Prometheus
    jobs: dict[str, float]
    load: list[float]
    most: dict[str, int]
    port: int = 1

    def ready(self, name: str) -> int:
        status = self.cluster.get("Deployment", name, "default").get("status", {})
        count: int = status.get("readyReplicas", 0)
        return count

    def replicas(self, name: str) -> int:
        count: int = self.cluster.get("Deployment", name, "default")["spec"]["replicas"]
        return count

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get("FastPathAutoscaler", name, "default").get("status", {})
        return found

    async def run(self, workloads: Workloads) -> None:
        """Let jobs come and be worked off, by the time that has passed."""
        before = CLOCK.monotonic()
        while True:
            workloads.step(CLOCK.wall())
            now = CLOCK.monotonic()
            for name in self.most:
                done = THROUGHPUT * self.ready(name)
                self.jobs[name] = max(0.0, self.jobs[name] + (self.load[0] - done) * (now - before))
                self.most[name] = max(self.most[name], self.replicas(name))
            before = now
            await asyncio.sleep(0.05)


@pytest.fixture
async def queues() -> AsyncIterator[Queues]:
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(now=CLOCK.wall))
        jobs = {AWARE: 40.0, EXACT: 40.0}
        shown = [
            Series("queue_depth", {"queue": name}, functools.partial(lambda name, _: jobs[name], name))
            for name in jobs
        ]
        prometheus = await stack.enter_async_context(
            Prometheus(SeriesSet(shown, interval=0.2), now=CLOCK.wall)
        )
        definition = ROOT / "manifests/chart/files/crd/fastpathautoscalers.yaml"
        for document in yaml.safe_load_all(definition.read_text()):
            cluster.create(document)
        made = Queues(cluster, prometheus, jobs, [0.0], dict.fromkeys(jobs, 0))
        for name in jobs:
            cluster.create(_autoscaler(name))
        yield made


def _autoscaler(name: str) -> dict[str, Any]:
    metric = {"name": "queue_depth", "selector": {"matchLabels": {"queue": name}}}
    target = {"type": "AverageValue", "averageValue": str(TARGET)}
    document = autoscaler(
        name,
        scaleTargetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        maxReplicas=200,
        metrics=[{"type": "External", "external": {"metric": metric, "target": target}}],
        behavior={"scaleUp": {"policies": [{"type": "Pods", "value": 200, "periodSeconds": 1}]}},
    )
    if name == AWARE:
        document["spec"]["pendingCapacity"] = [{"metric": "queue_depth", "podThroughput": f"{THROUGHPUT:g}"}]
    return document


async def test_pods_that_are_starting_do_not_multiply(tmp_path: Path, queues: Queues) -> None:
    workloads = Workloads(queues.cluster, startup=STARTUP)
    async with scaling(tmp_path, queues, "--metrics-relist-interval=1s") as process:  # type: ignore[arg-type]  # a world of queues
        await process.get("/metrics")
        for name in queues.most:
            queues.cluster.create(deployment(name, "default", 4))
        running = asyncio.create_task(queues.run(workloads))
        try:
            for name in queues.most:
                await happens(functools.partial(_is_empty, queues, name))
            queues.load[0] = 12 * THROUGHPUT
            for name in queues.most:
                await happens(functools.partial(_has_enough, queues, name))

            assert queues.most[EXACT] > 1.4 * queues.most[AWARE]
            status, shown = await process.get(f"/debug/fastpath/autoscalers/default/{AWARE}")
            assert status == 200
            texts = [text for entry in shown["journal"] for text in entry["trace"]]
            assert any("that pending pods would have worked off" in text for text in texts)
            await happens(lambda: queues.status(AWARE).get("pendingCapacity"))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def _is_empty(queues: Queues, name: str) -> bool:
    """Tell whether the first pods are Ready, so that their start-up time is known, and have nothing to do."""
    return queues.ready(name) == 4 and not queues.jobs[name]


def _has_enough(queues: Queues, name: str) -> bool:
    return queues.ready(name) >= 12 and queues.ready(name) == queues.replicas(name)
