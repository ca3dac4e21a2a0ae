"""A writer on the running sandbox cluster."""

from collections.abc import AsyncIterator

import pytest

from fastpath_sandbox.apiserver.server import Cluster
from tests.support.writing import Desk, desk_on


@pytest.fixture
async def desk(cluster: Cluster) -> AsyncIterator[Desk]:
    async with desk_on(cluster) as desk:
        yield desk
