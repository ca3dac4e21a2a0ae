"""`fastpath scale` on a machine whose clock is wrong: the load of an hour ago lowers no count."""

from pathlib import Path

import pytest

from fastpath_sandbox.prometheus.series import Series
from tests.scenarios.test_scale import CLOCK, ScaledCluster, autoscaler, happens, scaling, world

__all__ = ["world"]

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PATCH = """\
import time
real = time.time
time.time = lambda: real() + float(open({shift!r}).read())
"""
IN_DOUBT = ("False", "ClockInDoubt")


class Machine:
    """A machine whose time of day is set, also while a process runs."""

    def __init__(self, folder: Path) -> None:
        self.modules = folder / "machine"
        self.modules.mkdir()
        (self.modules / "sitecustomize.py").write_text(PATCH.format(shift=str(folder / "shift")))
        self._shift = folder / "shift"
        self.set(0)

    def set(self, seconds: float) -> None:
        new = self._shift.with_name("new")
        new.write_text(str(seconds))
        new.replace(self._shift)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def put(world: ScaledCluster) -> None:
    """Put an autoscaler of a queue that was short an hour ago, and is long now."""
    began = CLOCK.wall() - 600
    world.prometheus.series.add(Series("queue_depth", {"of": "now"}, lambda at: 60.0 if at > began else 0.0))
    metric = {"metric": {"name": "queue_depth"}, "target": {"type": "AverageValue", "averageValue": "10"}}
    world.cluster.create(
        autoscaler(
            metrics=[{"type": "External", "external": metric}],
            behavior={"scaleDown": {"stabilizationWindowSeconds": 0}},
        )
    )


async def test_a_clock_that_is_set_back_lowers_no_count(
    tmp_path: Path, world: ScaledCluster, machine: Machine
) -> None:
    put(world)
    async with scaling(tmp_path, world, modules=machine.modules):
        await happens(lambda: world.replicas() == 6)
        machine.set(-3600)
        await happens(lambda: world.conditions().get("AbleToScale") == IN_DOUBT)
        await happens(lambda: "ClockInDoubt" in world.events())
        assert world.replicas() == 6
        machine.set(0)
        await happens(lambda: world.conditions().get("AbleToScale", ("", ""))[0] == "True")
        assert world.replicas() == 6


async def test_nor_does_one_that_is_wrong_from_the_start(
    tmp_path: Path, world: ScaledCluster, machine: Machine
) -> None:
    put(world)
    machine.set(-3600)
    world.cluster.patch("Deployment", "web", {"spec": {"replicas": 6}}, "default")
    async with scaling(tmp_path, world, modules=machine.modules):
        await happens(lambda: world.conditions().get("AbleToScale") == IN_DOUBT)
        assert world.replicas() == 6
