"""A forecast on a running scaler: its history is read with the rules, and its status says what is missing."""

import asyncio
import types
from pathlib import Path
from typing import Any

import pytest

from tests.support.adapter import RunningScaler
from tests.support.processor import limited
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.world.owners import are_shared
from tests.world.workloads import BOOSTED, CLOCK, NAMESPACE, OWN
from tests.world.world import World, scaling

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

WAIT = 120.0
"""Seconds: in the first minute of an hour a job waits until Prometheus has all of the hour before."""

HOUR = 3600
READY = "ForecastReady"


def history_of(days: int) -> str:
    """Return samples of the backlog, a minute apart, up to an hour from now."""
    last = int(CLOCK.wall()) // 60 * 60
    begin = last // HOUR * HOUR - days * 24 * HOUR
    labels = f'namespace="{NAMESPACE}",queue="{OWN}"'
    samples = [
        f"backlog{{{labels}}} {20 + at // 1800 % 6 * 10} {at}" for at in range(begin + 60, last + HOUR, 60)
    ]
    return "\n".join(["# TYPE backlog gauge", *samples])


async def shown(scaler: RunningScaler, name: str = OWN) -> dict[str, Any]:
    """Return what a scaler shows, nothing while it does not lead."""
    document: dict[str, Any]
    _, document = await scaler.get(f"/debug/fastpath/autoscalers/{NAMESPACE}/{name}")
    return document


async def wait_shown(scaler: RunningScaler, *path: str, name: str = OWN) -> Any:
    """Wait until a scaler shows something, and return it."""
    async with limited(WAIT):
        while True:
            found: Any = await shown(scaler, name)
            for part in path:
                found = (found or {}).get(part)
            if found:
                return found
            await asyncio.sleep(0.05)


async def rested(scaler: RunningScaler, name: str) -> Any:
    """Return the ready times of an autoscaler once none of its pods is starting."""
    while (found := await wait_shown(scaler, "readyTimes", name=name))["starting"]["pods"]:  # noqa: ASYNC110 - over HTTP
        await asyncio.sleep(0.05)
    return found


async def past(shop: World, prometheus_server: PrometheusFactory, days: int) -> PrometheusServer:
    """Give a world a real Prometheus with so many days of history."""
    server = await asyncio.to_thread(prometheus_server, samples=history_of(days))
    shop.prometheus = types.SimpleNamespace(url=server.url)  # type: ignore[assignment]  # no series are added
    return server


async def test_the_status_names_the_missing_history(
    tmp_path: Path, shop: World, prometheus_server: PrometheusFactory
) -> None:
    shop.fpa(OWN, forecast={"mode": "Floor"})
    await shop.create()
    server = await past(shop, prometheus_server, 3)
    async with scaling(shop, tmp_path / "scaler"):
        await shop.run(lambda: shop.condition(OWN, READY).reason not in {"", "Pending"}, WAIT)
        assert shop.condition(OWN, READY)[:2] == ("False", "Incomplete")
        # what is missing depends on whether a pod was seen to start by then
        missing = ("3 of 7 days of history", "no start of a pod was seen yet")
        assert shop.condition(OWN, READY).message in {f"no verdict yet: {each}" for each in missing}
        await asyncio.to_thread(server.kill)


async def test_the_next_leader_goes_on_with_a_verdict_while_prometheus_is_away(
    tmp_path: Path, shop: World, prometheus_server: PrometheusFactory
) -> None:
    """And knows how long pods took to be Ready."""
    shop.hpa(BOOSTED)
    shop.fpa(OWN, behavior={})  # with a short window few decisions of a replay can be left out
    await shop.create()
    server = await past(shop, prometheus_server, 8)
    async with scaling(shop, tmp_path / "1") as first, scaling(shop, tmp_path / "2") as second:
        await shop.run(lambda: are_shared(shop.seen["leases"].values(), 2), WAIT)
        (leader,) = [each for each in (first, second) if "target" in await shown(each)]
        standby = second if leader is first else first
        for name in (BOOSTED, OWN):
            pod = next(pod for pod in shop.seen["pods"] if pod.startswith(name))
            shop.sandbox.delete("Pod", pod, NAMESPACE)
            await wait_shown(leader, "readyTimes", "pods", name=name)
        shop.sandbox.patch("fastpathautoscaler", OWN, {"spec": {"forecast": {"mode": "Floor"}}}, NAMESPACE)
        await shop.run(lambda: shop.condition(OWN, READY).status == "True", WAIT)
        before = (await shown(leader))["forecast"]["card"]["verdict"]
        times = {name: await rested(leader, name) for name in (BOOSTED, OWN)}
        await asyncio.to_thread(server.kill)
        await leader.end()
        after = await wait_shown(standby, "forecast", "card", "verdict")
        assert (after["at"], after["chosen"]) == (before["at"], before["chosen"])
        for name in (BOOSTED, OWN):
            assert await rested(standby, name) == times[name]
