"""Schedules beside the real controller: a floor at its boundary, through its window, and after its end.

On a real control plane alone, with the rights of the shipped manifests.
"""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.aggregation import NAMESPACE
from tests.e2e.clusters import ClusterUnderTest, Document
from tests.e2e.conftest import WITH_CONTROLLERS, Fronted
from tests.e2e.stage import WAIT, Scene, settled, staged
from tests.support import boosting
from tests.support.boosting import CLOCK, LIMITS, STABILIZATION, Workload
from tests.support.scalewrites import NATIVE
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

COUNT = 10
FLOOR = 8
AHEAD = 6
LENGTH = 45
"""Longer than a raise is held: what holds the floor is the schedule."""


@pytest.fixture
async def scene(fronted: Fronted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("POD_NAMESPACE", NAMESPACE)  # as the manifests do: leases and floors are there
    async with staged(fronted, tmp_path, lag=0) as made:
        yield made
        await made.world.cluster.kubectl(
            "delete", "fastpathschedules", "--all", "-n", made.world.cluster.namespace
        )


def schedule(cluster: ClusterUnderTest, begin: datetime, names: list[str]) -> Document:
    window = {"name": "sale", "minReplicas": FLOOR}
    end = begin + timedelta(seconds=LENGTH)
    window |= {key: f"{at:%Y-%m-%dT%H:%M:%S}" for key, at in (("start", begin), ("end", end))}
    return {
        "apiVersion": "fastpath.io/v1alpha1",
        "kind": "FastPathSchedule",
        "metadata": {"name": "office", "namespace": cluster.namespace},
        "spec": {
            "timeZone": "UTC",
            "targets": [{"kind": "HorizontalPodAutoscaler", "name": name} for name in names],
            "windows": [window],
        },
    }


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_boosted_autoscalers_have_their_floor_in_a_window(scene: Scene) -> None:
    """Within two seconds of its begin, until its end; then the controller lowers after its stabilization."""
    world, cluster = scene.world, scene.world.cluster
    names = [f"web-{number}" for number in range(COUNT)]
    await world.add(
        Workload(name, "external-average", boosting.step(), spec={"behavior": boosting.BEHAVIOR})
        for name in names
    )
    await settled(scene)
    await until(lambda: {world.replicas(name) for name in names} == {LIMITS[0]}, WAIT)

    begin = datetime.fromtimestamp(int(CLOCK.wall()) + AHEAD, UTC)
    end = begin + timedelta(seconds=LENGTH)
    await cluster.create(schedule(cluster, begin, names))
    await until(lambda: {world.replicas(name) for name in names} == {FLOOR}, WAIT)
    raises = [write for name in names for write in world.audit.of(name, since=begin.timestamp())]
    assert {write.by for write in raises if write.after == FLOOR} == {"fastpath"}
    assert max(write.time for write in raises) - begin.timestamp() < 2

    await until(lambda: CLOCK.wall() > end.timestamp() - 1, WAIT)
    assert {world.replicas(name) for name in names} == {FLOOR}
    shown = await cluster.kubectl("get", "fps", "office", "-n", cluster.namespace, "--no-headers")
    assert shown.split()[:3] == ["office", "sale", str(FLOOR)]

    await until(lambda: {world.replicas(name) for name in names} == {LIMITS[0]}, WAIT)
    lowered = [write for name in names for write in world.audit.of(name, since=end.timestamp() - 1)]
    assert {write.by for write in lowered} == {NATIVE}
    assert min(write.time for write in lowered) - end.timestamp() > STABILIZATION - 2
    assert world.audit.counted == [], "no raise was taken back"
    since = begin.timestamp() + 2  # until then it may repeat a write that it had decided before the raise
    steps = {name: [write.after for write in world.audit.of(name, since=since)] for name in names}
    assert steps == {name: [LIMITS[0]] for name in names}
