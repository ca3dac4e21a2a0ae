"""Idle scale-down in adverse conditions, on a real control plane, with the rights of the shipped manifests.

Another writer has costs of its own, costs are refused or not answered, a shrink does not come, a scaler ends
between costs and Scale.
"""

import signal
from collections import Counter
from collections.abc import AsyncIterator

import pytest

from adapter.model.objects.pods import COST_ANNOTATION as COST
from tests.e2e import idle
from tests.e2e.conftest import WITH_CONTROLLERS, Fronted
from tests.e2e.helm import policy_kinds
from tests.e2e.idle import MANAGER
from tests.e2e.scaleraudit import PodPatch, ScalerAudit
from tests.e2e.webhook import UpdateGate
from tests.support.waiting import running, until
from tests.world.aggregation import NAMESPACE
from tests.world.controlplane import ControlPlane
from tests.world.view import WAIT
from tests.world.workloads import HASTY, Workload, level
from tests.world.world import World

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.integration,
    pytest.mark.timeout(300),
    pytest.mark.parametrize("fronted", WITH_CONTROLLERS, indirect=True),
]

PODS = 8
LEFT = PODS // 2
RIGHT = "clusterrolebinding/fastpath-idle-scale-down"
BOTH = pytest.mark.parametrize("kind", idle.KINDS)
OTHER = "another-writer"


@pytest.fixture(autouse=True)
async def _policies(fronted: Fronted) -> None:
    if not await policy_kinds(fronted.cluster):
        pytest.skip("the API server has no ValidatingAdmissionPolicies, which the component needs")


@pytest.fixture
async def gate(fronted: Fronted) -> AsyncIterator[UpdateGate]:
    async with UpdateGate(fronted.backend.authority) as gate:
        yield gate
        gate.is_open.set()
        await gate.leave(fronted.cluster)


async def add(world: World, kind: str) -> Workload:
    """Return a new workload once its autoscaler follows its pods."""
    made = idle.workload(kind, "web", PODS)
    world.declare([made])
    await world.run(lambda: idle.is_settled(world, "web"))
    return made


async def set_cost(world: World, pod: str, cost: str) -> None:
    path = f"/api/v1/namespaces/{world.cluster.namespace}/pods/{pod}"
    await world.patch(path, {"metadata": {"annotations": {COST: cost}}}, fieldManager=OTHER)


def patches(plane: ControlPlane, world: World) -> list[PodPatch]:
    """Return what the scaler has asked of pods, refused or not."""
    audit = ScalerAudit(plane.audit_log, NAMESPACE)
    audit.read()
    return [
        patch
        for patch in audit.patches
        if patch.by == MANAGER and patch.pod.namespace == world.cluster.namespace
    ]


@BOTH
async def test_costs_of_another_writer_stay(kind: str, world: World, control_plane: ControlPlane) -> None:
    """An idle pod that is to stay does, and a busy one that is to go goes first."""
    await world.serve(components=["idle-scale-down"])
    made = await add(world, kind)
    kept, first, *_ = made.parts
    await set_cost(world, kept, "100")
    await set_cost(world, first, "-100")
    await until(lambda: idle.costs(world, "web") == {kept: "100", first: "-100"})
    idle.fall(made, "a")
    made.parts |= {kept: 1e-9, first: 100.0}
    await until(lambda: made.ready == LEFT, WAIT)
    assert kept in made.parts
    assert first not in made.parts
    await until(lambda: idle.costs(world, "web") == {kept: "100"}, WAIT)
    assert len(world.told("web", "ForeignDeletionCost")) == 1
    written = Counter(patch.pod.name for patch in patches(control_plane, world))
    assert written
    assert written.keys().isdisjoint({kept, first})
    # One pod goes without us. The marks of the others may move ahead of the Scale and with it, by two writes.
    assert written.total() <= 5 * (PODS - LEFT - 1), written


@BOTH
async def test_a_writer_that_insists_has_its_way(
    kind: str, world: World, control_plane: ControlPlane
) -> None:
    await world.serve(components=["idle-scale-down"])
    made = await add(world, kind)

    async def insist() -> None:
        while True:
            ours = [pod for pod, cost in idle.costs(world, "web").items() if cost != "7"]
            for pod in ours:
                await set_cost(world, pod, "7")
            await until(lambda: any(cost != "7" for cost in idle.costs(world, "web").values()), 3 * WAIT)

    async with running(insist()):
        for left in (LEFT, LEFT // 2):
            before = len(patches(control_plane, world))
            idle.fall(made, "a")
            await until(lambda left=left: made.ready == left, WAIT)  # type: ignore[misc]  # mypy sees no defaults
            await until(lambda: set(idle.costs(world, "web").values()) <= {"7"}, WAIT)
            found = patches(control_plane, world)[before:]
            assert max(Counter(patch.pod for patch in found).values(), default=0) <= 2, (
                "one cost, and one attempt to take it back"
            )
            made.replicas = left
    assert patches(control_plane, world)
    assert len(world.told("web", "ForeignDeletionCost")) <= 1


@BOTH
async def test_without_the_right_it_scales_all_the_same(
    kind: str, world: World, control_plane: ControlPlane
) -> None:
    """A second shrink asks no more."""
    await world.serve(components=["idle-scale-down"])
    await world.cluster.kubectl("delete", RIGHT)
    made = await add(world, kind)
    idle.fall(made, "a")
    await until(lambda: made.ready == LEFT, WAIT)
    found = patches(control_plane, world)
    assert 0 < len(found) <= PODS - LEFT
    assert {patch.status for patch in found} == {403}
    await until(lambda: world.told("web", "Forbidden"), WAIT)
    made.replicas = LEFT
    idle.fall(made, "b")
    await until(lambda: made.ready == LEFT // 2, WAIT)
    assert patches(control_plane, world) == found
    assert len(world.told("web", "Forbidden")) == 1


@BOTH
async def test_costs_that_are_not_answered_do_not_hold_a_shrink(
    kind: str, world: World, gate: UpdateGate, control_plane: ControlPlane
) -> None:
    """They come late then, and do not remain."""
    await world.serve(components=["idle-scale-down"])
    made = await add(world, kind)
    await gate.stand(world.cluster, "", "pods")
    idle.fall(made, "a")
    await until(lambda: made.ready == LEFT, WAIT)
    assert gate.asked
    assert not [patch for patch in patches(control_plane, world) if patch.status < 400], "none is answered"
    gate.is_open.set()
    await until(lambda: len(patches(control_plane, world)) >= len(gate.asked), WAIT)
    await until(lambda: not idle.costs(world, "web"), WAIT)


@BOTH
async def test_a_shrink_that_does_not_come_leaves_no_cost(
    kind: str, world: World, gate: UpdateGate, control_plane: ControlPlane
) -> None:
    await world.serve(components=["idle-scale-down"])
    made = await add(world, kind)
    gate.refuses = True
    gate.is_open.set()
    await gate.stand(world.cluster, "apps", "deployments/scale")
    idle.fall(made, "a")
    await until(lambda: gate.asked and idle.costs(world, "web"), WAIT)
    made.load = level(PODS)
    await until(lambda: not idle.costs(world, "web"), WAIT)
    assert made.ready == PODS
    found = patches(control_plane, world)
    assert len(found) <= 4 * (PODS - LEFT), found  # marked, moved with the load once, and taken back


async def test_the_costs_of_a_scaler_that_was_killed_are_taken_back(world: World, gate: UpdateGate) -> None:
    """It ends between costs and Scale. What another writer has set stays, and stands for no pod that goes."""
    account = await world.admit_scaler("idle-scale-down")
    scaler = await world.scaler(*HASTY, account=account)
    made = await add(world, "fast-idle")
    kept, *_ = made.parts
    await set_cost(world, kept, "100")
    await until(lambda: idle.costs(world, "web") == {kept: "100"}, WAIT)
    await gate.stand(world.cluster, "apps", "deployments/scale")
    idle.fall(made, "a")
    await until(lambda: gate.asked, WAIT)
    assert idle.costs(world, "web").keys() > {kept}
    await scaler.end(signal.SIGKILL)
    made.load = level(PODS)
    gate.refuses = True
    gate.is_open.set()
    await world.scaler(*HASTY, pod="scaler-1", account=account)
    await until(lambda: idle.costs(world, "web") == {kept: "100"}, WAIT)
    assert made.ready == PODS
