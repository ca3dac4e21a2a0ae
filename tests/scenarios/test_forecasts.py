"""A forecast on a running scaler: its history is read with the rules, and its status says what is missing."""

import asyncio
import types
from pathlib import Path

import pytest

from tests.support import boosting
from tests.support.boosting import CLOCK, NAMESPACE, OWN, World
from tests.support.prometheus import PrometheusFactory
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

WAIT = 120.0
"""Seconds: in the first minute of an hour a job waits until Prometheus has all of the hour before."""

HOUR = 3600


def condition(world: World) -> tuple[str, str, str]:
    status = world.cluster.get("fastpathautoscaler", OWN, NAMESPACE).get("status") or {}
    for each in status.get("conditions", ()):
        if each["type"] == "ForecastReady":
            return each["status"], each["reason"], each["message"]
    return "", "", ""


async def test_the_status_names_the_missing_history(
    tmp_path: Path, shop: World, prometheus_server: PrometheusFactory
) -> None:
    shop.add_own(forecast={"mode": "Floor"})
    last = int(CLOCK.wall()) // 60 * 60
    begin = last // HOUR * HOUR - 72 * HOUR
    labels = f'namespace="{NAMESPACE}",queue="{OWN}"'
    samples = [f"backlog{{{labels}}} {at // 60 % 50} {at}" for at in range(begin + 60, last + HOUR, 60)]
    history = "\n".join(["# TYPE backlog gauge", *samples])
    server = await asyncio.to_thread(prometheus_server, samples=history)
    shop.prometheus = types.SimpleNamespace(url=server.url)  # type: ignore[assignment]  # one with a past
    async with boosting.scaling(shop, tmp_path):
        await until(lambda: condition(shop)[1] not in {"", "Pending"}, WAIT)
        assert condition(shop)[:2] == ("False", "Incomplete")
        # what is missing depends on whether a pod was seen to start by then
        missing = ("3 of 7 days of history", "no start of a pod was seen yet")
        assert condition(shop)[2] in {f"no verdict yet: {each}" for each in missing}
        await asyncio.to_thread(server.kill)
