"""A forecast on a running scaler: its history is read with the rules, and its status says what is missing."""

import asyncio
import types
from pathlib import Path

import pytest

from tests.scenarios.test_schedules import OWN, own, scaling, world
from tests.support import boosting
from tests.support.boosting import CLOCK, NAMESPACE, Workload, World
from tests.support.prometheus import PrometheusFactory
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

__all__ = ["world"]  # the fixture

WAIT = 120.0
"""Seconds: in the first minute of an hour a job waits until Prometheus has all of the hour before."""

HOUR = 3600


def condition(world: World) -> tuple[str, str, str]:
    status = world.cluster.get("fastpathautoscaler", OWN, NAMESPACE).get("status") or {}
    for each in status.get("conditions", ()):
        if each["type"] == "ForecastReady":
            return each["status"], each["reason"], each["message"]
    return "", "", ""


async def test_what_a_verdict_needs_is_in_the_status(
    tmp_path: Path, world: World, prometheus_server: PrometheusFactory
) -> None:
    workload = Workload(OWN, "external-average", boosting.step(), way="")
    world.add([workload], autoscaled=False)
    document = own(workload)
    document["spec"]["forecast"] = {"mode": "Floor"}
    world.cluster.create(document)
    last = int(CLOCK.wall()) // 60 * 60
    begin = last // HOUR * HOUR - 72 * HOUR
    labels = f'namespace="{NAMESPACE}",queue="{OWN}"'
    samples = [f"backlog{{{labels}}} {at // 60 % 50} {at}" for at in range(begin + 60, last + HOUR, 60)]
    history = "\n".join(["# TYPE backlog gauge", *samples])
    server = await asyncio.to_thread(prometheus_server, samples=history)
    world.prometheus = types.SimpleNamespace(url=server.url)  # type: ignore[assignment]  # one with a past
    async with scaling(world, tmp_path):
        await until(lambda: condition(world)[1] not in {"", "Pending"}, WAIT)
        assert condition(world)[:2] == ("False", "Incomplete")
        # what is missing depends on whether a pod was seen to start by then
        missing = ("3 of 7 days of history", "no start of a pod was seen yet")
        assert condition(world)[2] in {f"no verdict yet: {each}" for each in missing}
        await asyncio.to_thread(server.kill)
