"""`fastpath scale` as a process: pods on loopback addresses, a load step, a Deployment that follows.

Nothing here asserts how long it takes; the benchmarks do.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from adapter.compose.clock import SystemClock
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.prometheus.series import Exporter, Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from tests.support.processor import limited
from tests.support.tools import free_port
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

CLOCK = SystemClock()
ROOT = Path(__file__).parents[2]
PODS = 12
WAIT = 30.0

SCRAPED = """\
rules:
- seriesQuery: 'load{namespace!="",pod!=""}'
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)'
  scrape: {interval: 200ms, port: PORT}
externalRules:
- seriesQuery: 'queue_depth'
  resources: {namespaced: false}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
"""


class ScaledCluster:
    """A cluster whose pods show a load that a test sets, each at an address of its own."""

    def __init__(self, cluster: Cluster, prometheus: Prometheus, port: int) -> None:
        self.cluster = cluster
        self.prometheus = prometheus
        self.port = port
        self.load = 10.0
        self.queue = 0.0

    def replicas(self, name: str = "web") -> int:
        count: int = self.cluster.get("Deployment", name, "default")["spec"]["replicas"]
        return count

    def status(self, name: str = "web") -> dict[str, Any]:
        found: dict[str, Any] = self.cluster.get("FastPathAutoscaler", name, "default").get("status", {})
        return found

    def conditions(self) -> dict[str, tuple[str, str]]:
        return {
            each["type"]: (each["status"], each["reason"]) for each in self.status().get("conditions", [])
        }

    def events(self) -> set[str]:
        return {event["reason"] for event in self.cluster.list("Event", "default")}


@pytest.fixture
async def world() -> AsyncIterator[ScaledCluster]:
    port = free_port("127.0.1.1")
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(now=CLOCK.wall))
        made: list[ScaledCluster] = []
        shown = SeriesSet([Series("load", {}, lambda _: made[0].load)])
        for number in range(1, PODS + 1):
            await stack.enter_async_context(Exporter(shown, CLOCK.wall, port=port, host=f"127.0.1.{number}"))
        known = SeriesSet(
            [
                Series("load", {"namespace": "default", "pod": "some"}, lambda _: 1.0),
                Series("queue_depth", {}, lambda _: made[0].queue),
            ],
            interval=0.5,
        )
        prometheus = await stack.enter_async_context(Prometheus(known, now=CLOCK.wall))
        made.append(ScaledCluster(cluster, prometheus, port))
        definition = ROOT / "manifests/chart/files/crd/fastpathautoscalers.yaml"
        for document in yaml.safe_load_all(definition.read_text()):
            cluster.create(document)
        cluster.create(deployment("web", "default", 2))
        workloads = Workloads(cluster, startup=0.3, address=lambda number: f"127.0.1.{number}")
        ticking = asyncio.create_task(tick(workloads))
        await until(lambda: len(cluster.list("Pod", "default")) == 2)
        yield made[0]
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


async def tick(workloads: Workloads) -> None:
    while True:
        workloads.step(CLOCK.wall())
        await asyncio.sleep(0.05)


def autoscaler(name: str = "web", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathAutoscaler",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2,
            "maxReplicas": 8,
            "metrics": [
                {
                    "type": "Pods",
                    "pods": {
                        "metric": {"name": "load"},
                        "target": {"type": "AverageValue", "averageValue": "10"},
                    },
                }
            ],
            **spec,
        },
    }


class FastpathProcess:
    """A `fastpath` process."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port

    async def get(self, path: str) -> tuple[int, Any]:
        """Ask its local pages, waiting for them to be there."""
        async with limited(WAIT), aiohttp.ClientSession() as session:
            while True:
                try:
                    async with session.get(f"http://127.0.0.1:{self.port}{path}") as response:
                        is_json = response.content_type == "application/json"
                        return response.status, await response.json() if is_json else await response.text()
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)

    async def stop(self) -> int:
        """End it in order."""
        self.process.send_signal(signal.SIGTERM)
        return await self.process.wait()


@contextlib.asynccontextmanager
async def scaling(
    tmp_path: Path, world: ScaledCluster, *arguments: str, pod: str = "scaler-0", modules: Path = ROOT
) -> AsyncIterator[FastpathProcess]:
    """Run `fastpath scale` on a world; `modules` is a folder of modules that come first."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(SCRAPED.replace("PORT", str(world.port)))
    port = free_port()
    flags = [
        f"--config={rules}",
        f"--lister-kubeconfig={world.cluster.kubeconfig(tmp_path / 'kubeconfig')}",
        f"--prometheus-url={world.prometheus.url}",
        f"--local-address=127.0.0.1:{port}",
        "--metrics-relist-interval=5s",
        "--metrics-max-age=60s",
        "--scrape-pod-cidrs=127.0.0.0/8",
        *arguments,
    ]
    environment = {
        "POD_NAME": pod,
        "POD_NAMESPACE": "default",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": f"{modules}:{ROOT}",
    }
    log = (tmp_path / f"{pod}.log").open("wb")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "adapter", "scale", *flags, stdout=log, stderr=log, env=environment
    )
    try:
        yield FastpathProcess(process, port)
    except BaseException:
        sys.stderr.write((tmp_path / f"{pod}.log").read_text())
        raise
    finally:
        log.close()
        if process.returncode is None:
            process.kill()
            await process.wait()


async def happens(condition: Callable[[], object]) -> None:
    await until(condition, WAIT)


async def test_a_load_step_scales_a_deployment(tmp_path: Path, world: ScaledCluster) -> None:
    world.cluster.create(autoscaler())
    async with scaling(tmp_path, world) as process:
        await happens(lambda: world.conditions().get("ScalingActive") == ("True", "ValidMetricFound"))
        assert world.replicas() == 2

        world.load = 25.0
        await happens(lambda: world.replicas() == 5)

        await happens(lambda: world.status().get("desiredReplicas") == 5)
        await happens(lambda: "SuccessfulRescale" in world.events())
        written = world.cluster.get("Deployment", "web", "default")["metadata"]["managedFields"]
        assert [entry["manager"] for entry in written] == ["fastpath"]
        status, shown = await process.get("/debug/fastpath/autoscalers/default/web")
        assert status == 200
        written = [entry for entry in shown["journal"] if entry["outcome"] == "written"]
        # pods are scraped one after the other: the first that shows the load may be acted on before the
        # others
        assert (written[0]["currentReplicas"], written[-1]["desiredReplicas"]) == (2, 5)
        assert 25_000 in written[0]["inputs"][0]["values"].values()
        status, metrics = await process.get("/metrics")
        assert (
            'fastpath_autoscaler_desired_replicas{kind="FastPathAutoscaler",name="web",namespace="default"}'
            in metrics
        )
        assert 'fastpath_ready{command="scale"} 1.0' in metrics
        assert await process.stop() == 0
    # the lease is given back, so that the next one need not wait
    members = [
        lease for lease in world.cluster.list("Lease", "default") if "-member-" in lease["metadata"]["name"]
    ]
    assert [lease["spec"].get("holderIdentity") or "" for lease in members] == [""]
