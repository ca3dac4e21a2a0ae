"""Half of the pods lose their values: `fastpath serve --scaler` over HTTP on a sandbox cluster.

Ten pods need ten: five are loaded, five are not. Without the loaded ones Kubernetes' formula asks for eight.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from tests.scenarios.test_scale import CLOCK, ROOT, autoscaler, happens, tick
from tests.support.adapter import running
from tests.support.faulty import FaultyPrometheus
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

RULES = """
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
"""
EAGER = {
    "scaleDown": {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    }
}


class LosingPods:
    """Ten pods, of which a test sets the load and removes the series."""

    def __init__(self, cluster: Cluster, names: list[str]) -> None:
        self.cluster = cluster
        self.load = dict(zip(names, [15.0] * 5 + [5.0] * 5, strict=True))
        self.series = SeriesSet(interval=0.5)
        self.shown = [self._show(name) for name in names]
        self.prometheus = FaultyPrometheus(self.series, now=CLOCK.wall)
        self.counts: list[int] = []

    def _show(self, pod: str) -> Series:
        return Series("load", {"namespace": "default", "pod": pod}, lambda _: self.load[pod])

    def show(self) -> None:
        for each in self.shown:
            self.series.add(each)

    def lose_the_loaded(self) -> None:
        for each in self.shown[:5]:
            self.series.remove(each)

    def note(self) -> int:
        """Return how many replicas are asked for, and remember it."""
        self.counts.append(self.cluster.get("Deployment", "web", "default")["spec"]["replicas"])
        return self.counts[-1]

    def active(self) -> tuple[str, str]:
        """Return the status and the message of ScalingActive."""
        status = self.cluster.get("FastPathAutoscaler", "web", "default").get("status", {})
        for each in status.get("conditions", []):
            if each["type"] == "ScalingActive":
                return each["status"], each["message"]
        return "Unknown", ""


@pytest.fixture
async def world() -> AsyncIterator[LosingPods]:
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(now=CLOCK.wall))
        definition = ROOT / "manifests/chart/files/crd/fastpathautoscalers.yaml"
        for document in yaml.safe_load_all(definition.read_text()):
            cluster.create(document)
        cluster.create(deployment("web", "default", 10))
        workloads = Workloads(cluster, startup=0.1, address=lambda number: f"127.0.1.{number}")
        ticking = asyncio.create_task(tick(workloads))
        await until(lambda: len(cluster.list("Pod", "default")) == 10)
        made = LosingPods(cluster, [pod["metadata"]["name"] for pod in cluster.list("Pod", "default")])
        await stack.enter_async_context(made.prometheus)
        yield made
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


async def test_the_pods_that_are_left_scale_nothing_down(tmp_path: Path, world: LosingPods) -> None:
    (tmp_path / "rules.yaml").write_text(RULES)
    world.show()
    world.cluster.create(autoscaler(minReplicas=1, maxReplicas=12, behavior=EAGER))
    flags = ["--metrics-relist-interval=5s", "--metrics-max-age=60s", "--metrics-ttl=50ms"]
    flags += ["--scaler", "--local-address="]
    async with running(tmp_path, world.cluster, world.prometheus.url, *flags):
        await happens(lambda: world.active()[0] == "True")
        assert world.note() == 10

        world.lose_the_loaded()
        await happens(lambda: world.note() != 10 or "lack a value" in world.active()[1])
        asked = world.prometheus.queries()
        await happens(lambda: (world.note(), world.prometheus.queries())[1] >= asked + 10)
        assert set(world.counts) == {10}
        status, message = world.active()
        assert status == "False"
        assert "unable to get metric load: 5 of 10 Ready pods lack a value that they had until" in message
        assert message.endswith(": it may scale up, not down")

        world.load = dict.fromkeys(world.load, 5.0)
        world.show()
        await happens(lambda: world.note() == 5)
