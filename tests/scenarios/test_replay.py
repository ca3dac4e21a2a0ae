"""The scaler on the sandbox for half an hour of a clock that runs fast: its journal is replayed.

The journal is read as `fastpath explain -o json` reads it, and replayed as `fastpath simulate --replay` does.
"""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from adapter.cli import main
from adapter.compose import app
from adapter.config.options import SERVE
from adapter.server.http.endpoints import LocalPages
from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from tests.scenarios.test_run_scaler import QUEUE
from tests.scenarios.test_scale import CLOCK, ROOT, ScaledCluster, autoscaler
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(180)]

RULES = """
externalRules:
- seriesQuery: 'queue_depth'
  resources: {namespaced: false}
  metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'
"""
SPEED = 20.0
SECONDS = 1800.0


class FastClock:
    """Both readings run `SPEED` times as fast as the machine's."""

    def __init__(self) -> None:
        self._wall, self._monotonic = CLOCK.wall(), CLOCK.monotonic()

    def wall(self) -> float:
        return self._wall + SPEED * (CLOCK.monotonic() - self._monotonic)

    def monotonic(self) -> float:
        return self._monotonic + SPEED * (CLOCK.monotonic() - self._monotonic)


@contextlib.asynccontextmanager
async def moving_world(clock: FastClock) -> AsyncIterator[ScaledCluster]:
    """Return a world with a queue that swings and bursts until the block ends."""
    async with contextlib.AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(Cluster(now=clock.wall, bookmark_interval=30 / SPEED))
        made: list[ScaledCluster] = []
        known = SeriesSet([Series("queue_depth", {}, lambda _: made[0].queue)], interval=0.5)
        prometheus = await stack.enter_async_context(Prometheus(known, now=clock.wall))
        made.append(ScaledCluster(cluster, prometheus, 0))
        definition = ROOT / "manifests/chart/files/crd/fastpathautoscalers.yaml"
        for document in yaml.safe_load_all(definition.read_text()):
            cluster.create(document)
        cluster.create(deployment("web", "default", 2))
        workloads = Workloads(cluster, startup=20.0)
        begin = clock.monotonic()

        async def move() -> None:
            while True:
                workloads.step(clock.wall())
                second = clock.monotonic() - begin
                burst = 25.0 if second % 420 < 60 else 0.0
                made[0].queue = 45 + 30 * math.sin(second / 110) + burst
                await asyncio.sleep(0.02)

        moving = asyncio.create_task(move())
        await until(lambda: len(cluster.list("Pod", "default")) == 2)
        yield made[0]
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)


async def test_half_an_hour_on_the_sandbox(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = FastClock()
    async with moving_world(clock) as world:
        (tmp_path / "rules.yaml").write_text(RULES)
        options, _ = SERVE.parse(
            [
                f"--config={tmp_path / 'rules.yaml'}",
                f"--lister-kubeconfig={world.cluster.kubeconfig(tmp_path / 'kubeconfig')}",
                f"--prometheus-url={world.prometheus.url}",
                "--local-address=127.0.0.1:0",
                "--leader-elect=false",
                "--journal-records",
                "--journal-entries=5000",
            ]
        )
        down = {
            "stabilizationWindowSeconds": 60,
            "policies": [{"type": "Pods", "value": 2, "periodSeconds": 30}],
        }
        world.cluster.create(autoscaler(metrics=[QUEUE], behavior={"scaleDown": down}, maxReplicas=12))
        stop = asyncio.Event()
        listening: asyncio.Future[LocalPages] = asyncio.get_running_loop().create_future()
        running = asyncio.create_task(
            app.run_scaler(options, "test", stop, started=listening.set_result, clock=clock)
        )
        begin, counts = clock.monotonic(), set()
        while clock.monotonic() < begin + SECONDS:
            counts.add(world.replicas())
            await asyncio.sleep(0.1)
        server = f"http://127.0.0.1:{(await listening).port}"
        explain = ["explain", "default/web", f"--server={server}", "--output=json"]
        assert await asyncio.to_thread(main.main, explain) == 0
        stop.set()
        await running
    exported = tmp_path / "journal.json"
    exported.write_text(capsys.readouterr().out)
    journal = json.loads(exported.read_text())["journal"]
    written = [entry for entry in journal if entry["outcome"] == "written"]
    assert len(counts) >= 5, "the load changed the count"
    assert len(written) >= 20

    assert await asyncio.to_thread(main.main, ["simulate", f"--replay={exported}", "-o", "json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert (done["differences"], done["first"]) == (0, None)
    assert done["decisions"] >= len(written)
