"""An engine that answers with a part of its data: `fastpath serve --scaler` over HTTP on a sandbox cluster.

The whole answer asks for ten replicas. The partial one asks for one, and the workload keeps its ten. An
autoscaler that asks the API gets the last whole answer, then an error, which makes it hold.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.world.faulty import QUERY
from tests.world.workloads import AT_ONCE, NAMESPACE, OWN, level
from tests.world.world import QUEUE, World, serving

pytestmark = [pytest.mark.integration, pytest.mark.timeout(90)]

PATH = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{NAMESPACE}/backlog?labelSelector=queue%3D{OWN}"
PARTIAL: dict[str, dict[str, Any]] = {
    "warnings": {"warnings": ["receive series from Addr: 10.0.0.7:10901: Unavailable"]},
    "isPartial": {"isPartial": True},
}
FLAGS = ("--metrics-ttl=50ms", "--scaler", "--metrics-max-answer-age=1500ms")


def lose(world: World, how: dict[str, Any]) -> None:
    """Let the engine lose a part of its data, nine tenths of the queue; it says so."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        response = await world.prometheus.answer(request)
        assert isinstance(response, web.Response)
        assert isinstance(response.body, bytes)
        body = json.loads(response.body)
        return web.json_response({"status": body.pop("status")} | how | body)

    world.prometheus.behaviours[QUERY] = answer
    world.load(OWN, level(1))


async def settle(world: World) -> None:
    """Make an autoscaler that shrinks at once when it may, and wait until it has its ten replicas."""
    down = AT_ONCE["scaleDown"] | {"policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    up = {"policies": [{"type": "Pods", "value": 20, "periodSeconds": 15}]}
    spec = {"minReplicas": 1, "maxReplicas": 12, "behavior": {"scaleDown": down, "scaleUp": up}}
    world.hpa(OWN, QUEUE, level(10), way="", own=True, spec=spec)
    await world.run(lambda: world.replicas(OWN) == 10 and world.is_active(OWN))


@pytest.mark.parametrize("how", PARTIAL.values(), ids=PARTIAL)
async def test_a_partial_answer_shrinks_nothing(tmp_path: Path, shop: World, how: dict[str, Any]) -> None:
    async with serving(shop, tmp_path, *FLAGS) as adapter:
        await settle(shop)
        whole = (await adapter.get(PATH)).body["items"][0]["value"]
        lose(shop, how)
        seen: list[str] = []
        while (answer := await adapter.get(PATH)).status == 200:
            seen.append(answer.body["items"][0]["value"])
        assert answer.body["message"] == "Internal error occurred: unable to fetch metrics"
        assert set(seen) == {whole} == {"95"}
        await shop.run(lambda: not shop.is_active(OWN))
        said = shop.condition(OWN, "ScalingActive").message
        assert said.endswith("may be incomplete: it may scale up, not down")
        asked = shop.prometheus.queries()
        await shop.run(lambda: shop.prometheus.queries() >= asked + 10)
        assert {write.after for write in shop.audit.of(OWN)} == {10}

        shop.load(OWN, level(12))
        await shop.run(lambda: shop.replicas(OWN) == 12)  # what is there may ask for more

        del shop.prometheus.behaviours[QUERY]
        shop.load(OWN, level(1))
        await shop.run(lambda: shop.replicas(OWN) == 1)
        answer = await adapter.wait_for(PATH, lambda answer: answer.status == 200)
        assert answer.body["items"][0]["value"] == "5"


async def test_a_rule_may_accept_partial_answers(tmp_path: Path, shop: World) -> None:
    queue = "by (queue)'\n"
    rules = shop.rules.replace(queue, f"{queue}  onWarnings: accept\n")
    async with serving(shop, tmp_path, *FLAGS, rules=rules) as adapter:
        await settle(shop)
        lose(shop, PARTIAL["warnings"])
        await shop.run(lambda: shop.replicas(OWN) == 1)
        await adapter.wait_for(PATH, lambda answer: answer.body["items"][0]["value"] == "5")
