"""Schedules beside the HPA controller: a window from its begin to its end, and what their status says."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.e2e.conftest import WITH_WORKLOADS
from tests.world.scalewrites import BOOSTER, NATIVE
from tests.world.workloads import BEHAVIOR, BOOSTED, CLOCK, LIMITS, OWN, STABILIZATION
from tests.world.world import World

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("fronted", WITH_WORKLOADS, indirect=True),
]

COUNT = 4
FLOOR = 8
AHEAD = 5
LENGTH = 12
"""Longer than a raise is held: what holds the floor is the schedule."""


def schedule(world: World, begin: datetime, end: datetime, hpas: list[str], **spec: Any) -> dict[str, Any]:
    """Return a schedule of HPAs and of OWN with one window, in UTC."""
    window: dict[str, Any] = {"name": "sale", "minReplicas": FLOOR}
    window |= {key: f"{at:%Y-%m-%dT%H:%M:%S}" for key, at in (("start", begin), ("end", end))}
    targets = [{"kind": "HorizontalPodAutoscaler", "name": name} for name in hpas]
    targets.append({"kind": "FastPathAutoscaler", "name": OWN})
    return {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathSchedule",
        "metadata": {"name": "office", "namespace": world.namespace},
        "spec": {"timeZone": "UTC", "targets": targets, "windows": [window], **spec},
    }


def now() -> datetime:
    return datetime.fromtimestamp(int(CLOCK.wall()), UTC)


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.seen["fastpathschedules"].get("office", {}).get("status", {})
    return found


async def test_a_window_from_its_begin_to_its_end(world: World) -> None:
    """The floors stand within two seconds of its begin, until its end; then counts are lowered after their
    stabilization: by the controller, and by the fast-scaler its own.
    """
    names = [f"web-{number}" for number in range(COUNT)]
    for name in names:
        world.hpa(name)
    world.fpa(OWN, behavior=BEHAVIOR)
    await world.serve()
    await world.settled()

    def counts() -> set[int]:
        return {world.replicas(name) for name in world.workloads}

    await world.run(lambda: counts() == {LIMITS[0]} and not world.floors())
    begin = now() + timedelta(seconds=AHEAD)
    end = begin + timedelta(seconds=LENGTH)
    await world.create(schedule(world, begin, end, names))
    await world.run(lambda: world.condition("office", "Applied")[:2] == ("True", "Applied"))
    ahead = {"time": f"{begin:%Y-%m-%dT%H:%M:%SZ}", "window": "sale", "edge": "begin"}
    assert status(world)["nextBoundary"] == ahead
    assert counts() == {LIMITS[0]}
    await world.run(lambda: counts() == {FLOOR})
    raises = [
        write for name in world.workloads for write in world.audit.of(name, since=begin.timestamp() - 5)
    ]
    assert {write.by for write in raises if write.after == FLOOR} == {BOOSTER}
    assert min(write.time for write in raises) - begin.timestamp() >= 0
    assert max(write.time for write in raises) - begin.timestamp() < 2

    await world.run(lambda: status(world)["active"] == "sale")
    assert status(world)["minReplicas"] == FLOOR
    assert sum(each.scheduled for each in world.audit.entries.values()) == COUNT * FLOOR
    await asyncio.sleep(end.timestamp() - 1 - CLOCK.wall())
    assert counts() == {FLOOR}
    shown = await world.cluster.kubectl("get", "fps", "office", "-n", world.namespace, "--no-headers")
    assert shown.split()[:3] == ["office", "sale", str(FLOOR)]

    await world.run(lambda: status(world)["active"] == "")
    assert now() >= end
    await world.run(lambda: counts() == {LIMITS[0]})
    assert not any(each.scheduled for each in world.audit.entries.values())
    lowered = [write for name in names for write in world.audit.of(name, since=end.timestamp() - 1)]
    assert {write.by for write in lowered} == {NATIVE}
    lowered += world.audit.of(OWN, since=end.timestamp() - 1)
    assert lowered[-1].by == BOOSTER
    assert min(write.time for write in lowered) - end.timestamp() > STABILIZATION - 2
    assert world.audit.counted == [], "no raise was taken back"
    since = begin.timestamp() + 2  # until then it may repeat a write that it had decided before the raise
    steps = {name: [write.after for write in world.audit.of(name, since=since)] for name in world.workloads}
    assert steps == {name: [LIMITS[0]] for name in world.workloads}


async def test_the_status_names_the_reason_of_an_idle_schedule(world: World) -> None:
    world.hpa(BOOSTED, way="")
    await world.create(schedule(world, now(), now() + timedelta(hours=1), [BOOSTED], ready="ByStart"))
    await world.serve()
    await world.run(lambda: len(status(world).get("targets", ())) == 2)
    assert world.condition("office", "Applied")[:2] == ("False", "NotBoosted")
    hpa, missing = status(world)["targets"]
    assert (hpa["applied"], hpa["reason"]) == (False, "NotBoosted")
    assert hpa["message"] == "it has no annotation fastpath.io/mode: boost"
    assert missing["message"] == f"there is no FastPathAutoscaler {world.namespace}/{OWN}"

    world.fpa(OWN, behavior=BEHAVIOR)
    await world.run(lambda: world.replicas(OWN) == FLOOR)
    await world.run(lambda: status(world)["targets"][1]["applied"])

    path = f"/apis/fastpath.io/v1alpha1/namespaces/{world.namespace}/fastpathschedules/office"
    await world.patch(path, {"spec": {"timeZone": "Europe/Berlln"}})
    await world.run(lambda: world.condition("office", "Applied")[:2] == ("False", "Invalid"))
    shown = status(world)["conditions"][0]["message"]
    assert "spec.timeZone: Europe/Berlln: expected a time zone of the tz database" in shown
    assert world.replicas(OWN) == FLOOR, "the last valid one counts"

    await world.cluster.kubectl("delete", "fps", "office", "-n", world.namespace)
    await world.run(lambda: world.replicas(OWN) == LIMITS[0])
