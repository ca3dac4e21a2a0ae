"""`fastpath scale` on a machine whose clock is wrong: the load of an hour ago lowers no count."""

from pathlib import Path

import pytest

from tests.world.workloads import AT_ONCE, CLOCK, OWN, level, step
from tests.world.world import QUEUE, World

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

PATCH = """\
import time
real = time.time
time.time = lambda: real() + float(open({shift!r}).read())
"""


class Machine:
    """A machine whose time of day is set, also while a process runs."""

    def __init__(self, folder: Path) -> None:
        self.modules = folder / "machine"
        self.modules.mkdir()
        self._shift = folder / "shift"
        (self.modules / "sitecustomize.py").write_text(PATCH.format(shift=str(self._shift)))

    def set(self, seconds: float) -> None:
        new = self._shift.with_name("new")
        new.write_text(str(seconds))
        new.replace(self._shift)


@pytest.mark.parametrize("start", [0, -3600], ids=["it is set back", "it is wrong from the start"])
async def test_a_wrong_clock_lowers_no_count(tmp_path: Path, shop: World, start: int) -> None:
    """The queue was short an hour ago, and is long now."""
    machine = Machine(tmp_path)
    machine.set(start)
    spec = {"behavior": AT_ONCE}
    load = step(0.0, level(6)(0.0))
    shop.hpa(OWN, QUEUE, load, way="", own=True, spec=spec, replicas=6 if start else 2)
    shop.began = CLOCK.wall() - 600
    await shop.scaler(modules=machine.modules)
    await shop.run(lambda: shop.replicas(OWN) == 6)
    machine.set(-3600)
    await shop.run(lambda: shop.condition(OWN, "AbleToScale")[:2] == ("False", "ClockInDoubt"))
    await shop.run(lambda: shop.told(OWN, "ClockInDoubt"))
    assert shop.replicas(OWN) == 6
    machine.set(0)
    await shop.run(lambda: shop.condition(OWN, "AbleToScale").status == "True")
    assert {write.after for write in shop.audit.of(OWN)} <= {6}
