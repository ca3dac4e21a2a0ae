"""Schedules on a running scaler: a window from its begin to its end, and what their status says meanwhile."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from adapter.model.autoscaling import floor as floors
from adapter.model.autoscaling import slices
from fastpath_sandbox.apiserver.kinds import FASTPATH_SCHEDULES
from tests.support import boosting
from tests.support.boosting import BOOSTED, CLOCK, HOME, LIMITS, NAMESPACE, OWN, Workload, World
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

WAIT = 40.0


@pytest.fixture
def world(shop: World) -> World:
    shop.cluster.create(FASTPATH_SCHEDULES)
    return shop


def schedule(begin: datetime, end: datetime, least: int, **spec: Any) -> dict[str, Any]:
    """Return a schedule of both autoscalers with one window, in UTC."""
    window = {"name": "sale", "minReplicas": least}
    window |= {key: f"{at:%Y-%m-%dT%H:%M:%S}" for key, at in (("start", begin), ("end", end))}
    targets = [
        {"kind": "HorizontalPodAutoscaler", "name": BOOSTED},
        {"kind": "FastPathAutoscaler", "name": OWN},
    ]
    return {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathSchedule",
        "metadata": {"name": "office", "namespace": NAMESPACE},
        "spec": {"timeZone": "UTC", "targets": targets, "windows": [window], **spec},
    }


def now() -> datetime:
    return datetime.fromtimestamp(int(CLOCK.wall()), UTC)


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.cluster.get("fastpathschedule", "office", NAMESPACE).get("status", {})
    return found


def applied(world: World) -> tuple[str, str]:
    """Return status and reason of the condition."""
    for each in status(world).get("conditions", ()):
        return each["status"], each["reason"]
    return "", ""


def published(world: World) -> int:
    """Return the floor of the boosted HPA that is published."""
    found = world.cluster.get("configmap", floors.config_map_name(slices.slice_of(NAMESPACE)), HOME)
    return sum(each.scheduled for each in floors.decode_floors(found["data"]).values())


async def test_a_window_from_its_begin_to_its_end(tmp_path: Path, world: World) -> None:
    world.add_pair()
    begin, end = now() + timedelta(seconds=6), now() + timedelta(seconds=16)
    world.cluster.create(schedule(begin, end, 8))
    async with boosting.scaling(world, tmp_path):
        await until(lambda: applied(world) == ("True", "Applied"), WAIT)
        ahead = {"time": f"{begin:%Y-%m-%dT%H:%M:%SZ}", "window": "sale", "edge": "begin"}
        assert status(world)["nextBoundary"] == ahead
        assert (world.replicas(OWN), world.replicas(BOOSTED)) == (LIMITS[0], LIMITS[0])

        await asyncio.sleep(begin.timestamp() - 0.1 - CLOCK.wall())
        assert (world.replicas(OWN), world.replicas(BOOSTED)) == (LIMITS[0], LIMITS[0])
        await until(lambda: world.replicas(OWN) == world.replicas(BOOSTED) == 8, 1.0)

        assert now() >= begin
        await until(lambda: status(world)["active"] == "sale", WAIT)
        assert status(world)["minReplicas"] == 8
        assert published(world) == 8
        await until(lambda: status(world)["active"] == "", WAIT)
        assert now() >= end
        assert world.replicas(OWN) == 8, "the scale-down waits for its stabilization window"
        await until(lambda: world.replicas(OWN) == LIMITS[0] and not published(world), WAIT)
        assert world.replicas(BOOSTED) == 8, "an HPA goes back by itself"


async def test_the_status_names_the_reason_of_an_idle_schedule(tmp_path: Path, world: World) -> None:
    world.add([Workload(BOOSTED, "external-average", boosting.step(), way="")])
    world.cluster.create(schedule(now(), now() + timedelta(hours=1), 8, ready="ByStart"))
    async with boosting.scaling(world, tmp_path):
        await until(lambda: len(status(world).get("targets", ())) == 2, WAIT)
        assert applied(world) == ("False", "NotBoosted")
        hpa, missing = status(world)["targets"]
        assert (hpa["applied"], hpa["reason"]) == (False, "NotBoosted")
        assert hpa["message"] == "it has no annotation fastpath.io/mode: boost"
        assert missing["message"] == f"there is no FastPathAutoscaler {NAMESPACE}/{OWN}"

        world.add_own()
        await until(lambda: world.replicas(OWN) == 8, WAIT)
        await until(lambda: status(world)["targets"][1]["applied"], WAIT)

        broken = {"spec": {"timeZone": "Europe/Berlln"}}
        world.cluster.patch("fastpathschedule", "office", broken, NAMESPACE)
        await until(lambda: applied(world) == ("False", "Invalid"), WAIT)
        shown = status(world)["conditions"][0]["message"]
        assert "spec.timeZone: Europe/Berlln: expected a time zone of the tz database" in shown
        assert world.replicas(OWN) == 8, "the last valid one counts"

        world.cluster.delete("fastpathschedule", "office", NAMESPACE)
        await until(lambda: world.replicas(OWN) == LIMITS[0], WAIT)
