"""Fixtures that several scenarios share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.world.workloads import HOME
from tests.world.world import World, sandboxed


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world for scalers in the test's process, whose namespace is HOME; no HPA controller looks."""
    monkeypatch.setenv("POD_NAMESPACE", HOME)
    async with sandboxed(tmp_path) as world:
        yield world
