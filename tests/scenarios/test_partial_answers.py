"""An engine that answers with a part of its data: `fastpath serve --scaler` over HTTP on a sandbox cluster.

The whole answer asks for ten replicas. The partial one asks for one, and the workload keeps its ten. An
autoscaler that asks the API gets the last whole answer, then an error, which makes it hold.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from fastpath_sandbox.apiserver.server import Cluster
from fastpath_sandbox.apiserver.workloads import Workloads, deployment
from fastpath_sandbox.prometheus.series import Series, SeriesSet
from tests.scenarios.test_scale import CLOCK, ROOT, autoscaler, happens, tick
from tests.support.adapter import Answer, RunningAdapter, running
from tests.support.faulty import QUERY, FaultyPrometheus
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

RULES = """
externalRules:
- seriesQuery: queue_depth
  resources: {namespaced: false}
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>})
"""
METRIC = {
    "type": "External",
    "external": {"metric": {"name": "queue_depth"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
PATH = "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue_depth"
PARTIAL: dict[str, dict[str, Any]] = {
    "warnings": {"warnings": ["receive series from Addr: 10.0.0.7:10901: Unavailable"]},
    "isPartial": {"isPartial": True},
}


class LossyEngine:
    """A Deployment, and an engine that can lose a part of its data: nine tenths of the queue."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.queue = 100.0
        self.lost: dict[str, Any] = {}
        known = SeriesSet([Series("queue_depth", {}, lambda _: self.queue)], interval=0.5)
        self.prometheus = FaultyPrometheus(known, now=CLOCK.wall)
        self.prometheus.behaviours[QUERY] = self.answer
        self.counts: list[int] = []

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        response = await self.prometheus.answer(request)
        if not self.lost:
            return response
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        body = json.loads(response.body)
        return web.json_response({"status": body.pop("status")} | self.lost | body)

    def lose(self, how: dict[str, Any]) -> None:
        self.lost, self.queue = how, 10.0

    def recover(self, queue: float) -> None:
        self.lost, self.queue = {}, queue

    def note(self) -> int:
        """Return how many replicas are asked for, and remember it."""
        self.counts.append(self.cluster.get("Deployment", "web", "default")["spec"]["replicas"])
        return self.counts[-1]

    def reason(self) -> str:
        """Return why the metric has no value, "" where it has one."""
        status = self.cluster.get("FastPathAutoscaler", "web", "default").get("status", {})
        found = {each["type"]: each for each in status.get("conditions", [])}
        active = found.get("ScalingActive", {"status": "False", "message": "not yet"})
        return "" if active["status"] == "True" else str(active["message"])


@pytest.fixture
async def world() -> AsyncIterator[LossyEngine]:
    async with contextlib.AsyncExitStack() as stack:
        made = LossyEngine(await stack.enter_async_context(Cluster(now=CLOCK.wall)))
        await stack.enter_async_context(made.prometheus)
        definition = ROOT / "manifests/chart/files/crd/fastpathautoscalers.yaml"
        for document in yaml.safe_load_all(definition.read_text()):
            made.cluster.create(document)
        made.cluster.create(deployment("web", "default", 1))
        workloads = Workloads(made.cluster, startup=0.1, address=lambda number: f"127.0.1.{number}")
        ticking = asyncio.create_task(tick(workloads))
        await until(lambda: len(made.cluster.list("Pod", "default")) == 1)
        yield made
        ticking.cancel()
        await asyncio.gather(ticking, return_exceptions=True)


@contextlib.asynccontextmanager
async def serving(tmp_path: Path, world: LossyEngine, option: str = "") -> AsyncIterator[RunningAdapter]:
    (tmp_path / "rules.yaml").write_text(RULES + option)
    flags = ["--metrics-relist-interval=5s", "--metrics-max-age=60s", "--metrics-ttl=50ms"]
    flags += ["--scaler", "--local-address=", "--metrics-max-answer-age=1500ms"]
    async with running(tmp_path, world.cluster, world.prometheus.url, *flags) as adapter:
        yield adapter


def eager() -> dict[str, Any]:
    """Return an autoscaler that shrinks at once when it may."""
    down = {
        "stabilizationWindowSeconds": 0,
        "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
    }
    up = {"policies": [{"type": "Pods", "value": 20, "periodSeconds": 15}]}
    return autoscaler(
        metrics=[METRIC], minReplicas=1, maxReplicas=12, behavior={"scaleDown": down, "scaleUp": up}
    )


@pytest.mark.parametrize("how", PARTIAL.values(), ids=PARTIAL)
async def test_a_partial_answer_shrinks_nothing(
    tmp_path: Path, world: LossyEngine, how: dict[str, Any]
) -> None:
    world.cluster.create(eager())
    async with serving(tmp_path, world):
        await happens(lambda: world.note() == 10 and not world.reason())
        world.counts.clear()

        world.lose(how)
        await happens(lambda: world.note() != 10 or world.reason())
        assert world.counts[-1] == 10
        assert world.reason().endswith("may be incomplete: it may scale up, not down")
        asked = world.prometheus.queries()
        await happens(lambda: (world.note(), world.prometheus.queries())[1] >= asked + 10)
        assert set(world.counts) == {10}

        world.queue = 120.0
        await happens(lambda: world.note() == 12)  # what is there may ask for more

        world.recover(queue=10.0)
        await happens(lambda: world.note() == 1)


async def test_a_rule_may_accept_partial_answers(tmp_path: Path, world: LossyEngine) -> None:
    world.cluster.create(eager())
    async with serving(tmp_path, world, "  onWarnings: accept\n") as adapter:
        await happens(lambda: world.note() == 10)
        world.lose(PARTIAL["warnings"])
        await happens(lambda: world.note() == 1)
        answer = await adapter.get(PATH)
        assert [item["value"] for item in answer.body["items"]] == ["10"]


@pytest.mark.parametrize("how", PARTIAL.values(), ids=PARTIAL)
async def test_the_api_answers_the_last_whole_answer_and_then_none(
    tmp_path: Path, world: LossyEngine, how: dict[str, Any]
) -> None:
    async with serving(tmp_path, world) as adapter:
        await adapter.wait_for(PATH, lambda answer: answer.status == 200)
        seen: list[Answer] = []

        def fails(answer: Answer) -> bool:
            seen.append(answer)
            return answer.status != 200

        world.lose(how)
        failed = await adapter.wait_for(PATH, fails)
        assert (failed.status, failed.body["message"]) == (
            500,
            "Internal error occurred: unable to fetch metrics",
        )
        assert len(seen) > 1
        assert {item["value"] for answer in seen[:-1] for item in answer.body["items"]} == {"100"}

        world.recover(queue=10.0)
        answer = await adapter.wait_for(PATH, lambda answer: answer.status == 200)
        assert [item["value"] for item in answer.body["items"]] == ["10"]
