"""Scalers that come and go on a real control plane, seen in its audit log."""

import pytest

from tests.e2e import conftest, fleet
from tests.e2e.controlplane import ControlPlane
from tests.e2e.fleet import Sizes
from tests.e2e.test_scaler import Scene, prometheus, scene  # noqa: F401 - fixtures

pytestmark = [pytest.mark.e2e, pytest.mark.integration, pytest.mark.timeout(600)]

SIZES = Sizes(24, 12, lease=4, renew=3, retry=0.5, step=4, window=8, freeze=8, quiet=8)


@pytest.mark.parametrize("fronted", conftest.REAL_ONLY, indirect=True)
async def test_no_write_is_another_than_that_of_one_scaler(
    scene: Scene,  # noqa: F811 - the fixture
    control_plane: ControlPlane,
) -> None:
    """And every target has what it needs in the end."""
    async with fleet.opened(scene, control_plane, SIZES, seed=1) as scalers:
        await fleet.turns(scalers)
    assert scalers.doubles() == []
    assert scalers.unjournalled() == []
    assert scalers.wrong() == []
    names = {reaction.target for reaction in scalers.reactions() if reaction.is_written}
    assert names == set(scalers.demands.steps)
