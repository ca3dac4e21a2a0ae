"""Scalers that come and go on a real control plane, seen in its audit log."""

import pytest

from tests.e2e import conftest, fleet
from tests.e2e.fleet import Sizes
from tests.world.controlplane import ControlPlane
from tests.world.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(600)]

SIZES = Sizes(24, 12, lease=4, renew=3, retry=0.5, step=4, window=8, freeze=8, quiet=8)


@pytest.mark.parametrize("fronted", conftest.REAL_ONLY, indirect=True)
async def test_no_write_is_another_than_that_of_one_scaler(world: World, control_plane: ControlPlane) -> None:
    """And every target has what it needs in the end."""
    async with fleet.opened(world, control_plane, SIZES, seed=1) as scalers:
        await fleet.turns(scalers)
    assert scalers.doubles() == []
    assert scalers.unjournalled() == []
    assert scalers.wrong() == []
    assert all(scalers.audit.of(target) for target in scalers.demands.steps)
