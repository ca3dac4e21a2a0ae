"""A forecast on a running scaler: its history is read with the rules, and its status says what is missing."""

import asyncio
import contextlib
import types
from pathlib import Path
from typing import Any

import pytest

from adapter.autoscaler.forecasts.verdict_store import KIND
from adapter.bounds.forecast.stored import decode_verdict
from adapter.model.autoscaling import slices
from tests.support.adapter import RunningScaler
from tests.support.owners import are_shared
from tests.support.prometheus import PrometheusFactory
from tests.support.waiting import until
from tests.world.workloads import CLOCK, HOME, NAMESPACE, OWN
from tests.world.world import World, scaling

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

WAIT = 120.0
"""Seconds: in the first minute of an hour a job waits until Prometheus has all of the hour before."""

HOUR = 3600


def condition(world: World) -> tuple[str, str, str]:
    status = world.sandbox.get("fastpathautoscaler", OWN, NAMESPACE).get("status") or {}
    for each in status.get("conditions", ()):
        if each["type"] == "ForecastReady":
            return each["status"], each["reason"], each["message"]
    return "", "", ""


def history_of(days: int) -> str:
    """Return samples of the backlog, a minute apart, up to an hour from now."""
    last = int(CLOCK.wall()) // 60 * 60
    begin = last // HOUR * HOUR - days * 24 * HOUR
    labels = f'namespace="{NAMESPACE}",queue="{OWN}"'
    samples = [
        f"backlog{{{labels}}} {20 + at // 1800 % 6 * 10} {at}" for at in range(begin + 60, last + HOUR, 60)
    ]
    return "\n".join(["# TYPE backlog gauge", *samples])


async def shown(scaler: RunningScaler) -> dict[str, Any]:
    """Return what a scaler shows, nothing while it does not lead."""
    document: dict[str, Any]
    _, document = await scaler.get(f"/debug/fastpath/autoscalers/{NAMESPACE}/{OWN}")
    return document


async def test_the_status_names_the_missing_history(
    tmp_path: Path, shop: World, prometheus_server: PrometheusFactory
) -> None:
    shop.fpa(OWN, forecast={"mode": "Floor"})
    await shop.create()
    history = history_of(3)
    server = await asyncio.to_thread(prometheus_server, samples=history)
    shop.prometheus = types.SimpleNamespace(url=server.url)  # type: ignore[assignment]  # one with a past
    async with scaling(shop, tmp_path):
        await until(lambda: condition(shop)[1] not in {"", "Pending"}, WAIT)
        assert condition(shop)[:2] == ("False", "Incomplete")
        # what is missing depends on whether a pod was seen to start by then
        missing = ("3 of 7 days of history", "no start of a pod was seen yet")
        assert condition(shop)[2] in {f"no verdict yet: {each}" for each in missing}
        await asyncio.to_thread(server.kill)


async def test_the_next_leader_goes_on_with_a_verdict_while_prometheus_is_away(
    tmp_path: Path, shop: World, prometheus_server: PrometheusFactory
) -> None:
    shop.fpa(OWN, behavior={})  # with a short window few decisions of a replay can be left out
    await shop.create()
    server = await asyncio.to_thread(prometheus_server, samples=history_of(8))
    shop.prometheus = types.SimpleNamespace(url=server.url)  # type: ignore[assignment]  # one with a past
    async with contextlib.AsyncExitStack() as stack:
        first = await stack.enter_async_context(scaling(shop, tmp_path / "1"))
        async with asyncio.timeout(WAIT):
            while not (await shown(first)).get("target", {}).get("replicas"):  # noqa: ASYNC110 - over HTTP
                await asyncio.sleep(0.05)
            shop.sandbox.delete("Pod", shop.sandbox.list("Pod", NAMESPACE)[0]["metadata"]["name"], NAMESPACE)
            while not (await shown(first)).get("readyTimes", {}).get("pods"):  # noqa: ASYNC110 - over HTTP
                await asyncio.sleep(0.05)
        second = await stack.enter_async_context(scaling(shop, tmp_path / "2"))
        await until(lambda: are_shared(shop.seen["leases"].values(), 2), WAIT)
        (leader,) = [each for each in (first, second) if "target" in await shown(each)]
        standby = second if leader is first else first
        document = shop.sandbox.get("fastpathautoscaler", OWN, NAMESPACE)
        document["spec"]["forecast"] = {"mode": "Floor"}
        shop.sandbox.update(document)
        await until(lambda: condition(shop)[0] == "True", WAIT)
        before = (await shown(leader))["forecast"]["card"]["verdict"]

        await asyncio.to_thread(server.kill)
        await leader.end()
        async with asyncio.timeout(WAIT):
            while (await shown(standby)).get("forecast", {}).get("card") is None:  # noqa: ASYNC110 - over HTTP
                await asyncio.sleep(0.05)

        after = (await shown(standby))["forecast"]["card"]["verdict"]
        assert (after["at"], after["chosen"]) == (before["at"], before["chosen"])
        (text,) = shop.sandbox.get("configmap", slices.name_of(KIND.name, slices.slice_of(NAMESPACE)), HOME)[
            "data"
        ].values()
        assert decode_verdict(text, int(CLOCK.wall())).verdict.at == before["at"]
