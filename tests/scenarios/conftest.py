"""Fixtures that several scenarios share."""

from collections.abc import AsyncIterator

import pytest

from tests.support import adapter, boosting
from tests.support.boosting import HOME, World


@pytest.fixture
async def shop(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world for scalers in the test's process, whose namespace is HOME."""
    monkeypatch.setenv("POD_NAMESPACE", HOME)
    async with boosting.running() as world:
        adapter.admit(world.cluster)
        yield world
