"""Boosted HorizontalPodAutoscalers beside the real controller, under loads that step, spike and saw, and the
naive booster as control.

Then objects that are not boosted, and objects that stop being so. On a real control plane alone, with the
rights of the shipped manifests: the sandbox's turn is `tests/scenarios/test_boost.py`. Between the API server
and Fastpath is a server that makes totals three askings late, so that every raise comes before the controller
knows why.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from adapter.autoscaler.decide import boost
from tests.e2e.aggregation import NAMESPACE
from tests.e2e.conftest import WITH_CONTROLLERS, Fronted
from tests.e2e.stage import WAIT, Scene, settled, staged
from tests.support import boosting, naive
from tests.support.boosting import BEHAVIOR, CLOCK, LIMITS, UNIT, Workload, until_none
from tests.support.naive import MANAGER
from tests.support.scalewrites import NATIVE
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(300)]

LAG = 3
QUEUE = "external-average"


@pytest.fixture
async def scene(fronted: Fronted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setenv("POD_NAMESPACE", NAMESPACE)  # as the manifests do: leases and floors are there
    async with staged(fronted, tmp_path, LAG) as made:
        yield made


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_twenty_boosted_autoscalers_and_the_naive_booster(scene: Scene) -> None:
    world, front = scene
    fleet = boosting.fleet(20)
    for each in fleet:
        each.spec = {
            "behavior": BEHAVIOR
        }  # without one the controller would wait five minutes before it lowers
    kinds = ("object-average", "external-average")
    control = [Workload(f"{kind}-step", kind, boosting.step(), way="") for kind in kinds]

    def need(name: str) -> float:
        return world.load(name) / UNIT

    targets = {each.name for each in control}
    await world.add([*fleet, *control])
    await until(lambda: all(world.is_active(name) for name in world.workloads), WAIT)
    await asyncio.sleep(LAG + 2)
    # while pods start some may seem to carry the load of others, and what was raised for that comes down
    # again
    await until(lambda: {world.replicas(name) for name in world.workloads} == {LIMITS[0]}, WAIT)
    await until_none(lambda: [each.name for each in fleet if world.floor(each.name)], WAIT)

    boosted = naive.boost(targets, need, LIMITS[1], world.replicas, world.raise_naively)
    task = asyncio.create_task(boosted, name=MANAGER)
    start = world.begin()
    try:
        await asyncio.sleep(12)
        await until(lambda: {each.write.target.name for each in world.naive.counted} >= targets, WAIT)
        assert {each.write.by for each in world.naive.counted} == {NATIVE}
        await until_none(
            lambda: [world.audit.of(each.name) for each in fleet if not world.is_right(each.name)], WAIT
        )
        await until_none(lambda: [each.name for each in fleet if world.floor(each.name)], WAIT)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert world.audit.counted == []
    assert world.audit.unpublished == []
    assert front.stale == []
    jumping = boosting.jumping(fleet)
    raised, first = world.audit.raised_first(jumping, start)
    assert first == raised, "what is raised here is raised before the controller has written anything"
    assert len(raised) > len(jumping) / 2

    def is_handed_over() -> bool:
        """Tell whether counts are right, and the late values that the controller reads are theirs."""
        caught_up = CLOCK.wall() - max(write.time for write in world.audit.writes) > 2 * LAG
        return caught_up and all(world.is_right(each.name) for each in fleet)

    # the controller alone, from where both have come to, changes nothing
    await until(is_handed_over, WAIT)
    for each in fleet:
        await world.annotate(each.name, mode=None, hold=None)
        await world.remove_handshake(each)
    left = CLOCK.wall()
    await asyncio.sleep(LAG + 3)
    assert [write for each in fleet for write in world.audit.of(each.name, since=left)] == []


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_who_scales_with_kubectl_twice_is_named_and_left_alone(scene: Scene) -> None:
    world = scene.world
    await world.add([Workload("web", QUEUE, boosting.step())])
    await world.annotate("web", hold="60s")
    await settled(scene)
    world.begin()
    for reason in (boost.REVERSED, boost.DEMOTED):
        await until(lambda: world.replicas("web") >= 6, WAIT)
        await world.cluster.kubectl(
            "scale", "deployment", "web", "--replicas=3", "-n", world.cluster.namespace
        )
        # mypy sees no defaults
        await until(lambda reason=reason: world.told("web", reason), WAIT)  # type: ignore[misc]
        assert all(text.startswith("kubectl scaled the target") for text in world.told("web", reason))
    await until(lambda: world.floor("web") == 0, WAIT)
    # the controller, which has the metrics, disagrees with both
    await until(lambda: world.replicas("web") >= 6, WAIT)
    assert len(world.audit.raises("web")) <= 2
    assert world.audit.writes[-1].by == NATIVE


@pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True)
async def test_who_leaves_has_a_plain_autoscaler(scene: Scene) -> None:
    """By annotation or by metric, while a floor is held: it is 0 at once, and there never is another."""
    world, front = scene
    workloads = [Workload(name, QUEUE, boosting.spike(width=6.0)) for name in ("annotation", "metric")]
    await world.add(workloads)
    for each in workloads:
        await world.annotate(each.name, hold="60s")
    await settled(scene)
    world.begin()
    await until(lambda: all(world.audit.raises(name) for name in world.workloads), WAIT)
    await world.annotate("annotation", mode=None)
    await world.remove_handshake(workloads[1])
    await until_none(lambda: [name for name in world.workloads if world.floor(name)], 30.0)
    await until(lambda: all(world.replicas(name) == LIMITS[0] for name in world.workloads), WAIT)

    for each in workloads:
        each.load = boosting.step()
    again, asked = world.begin(), len(front.floors["annotation"])
    await until(lambda: all(world.replicas(name) == 6 for name in world.workloads), WAIT)
    assert {write.by for write in world.audit.writes if write.time >= again} == {NATIVE}
    assert {each[1:] for each in front.floors["annotation"][asked:]} == {(200, "0")}
