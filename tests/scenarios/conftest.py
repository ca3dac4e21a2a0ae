"""Fixtures that several scenarios share."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fastpath_sandbox.prometheus.series import Series, SeriesSet
from fastpath_sandbox.prometheus.server import Prometheus
from tests.world.workloads import CLOCK, HOME
from tests.world.world import World, sandboxed


@pytest.fixture
def rules(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a file with the RULES of the module."""
    path = tmp_path / "rules.yaml"
    path.write_text(request.module.RULES)
    return path


@pytest.fixture
async def prometheus() -> AsyncIterator[Prometheus]:
    """Return a small Prometheus in which pod shop/web-0 has a load of 7."""
    series = Series("load", {"namespace": "shop", "pod": "web-0"}, lambda _: 7.0)
    async with Prometheus(SeriesSet([series]), CLOCK.wall) as prometheus:
        yield prometheus


@pytest.fixture
async def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    """A world for scalers in the test's process, whose namespace is HOME; no HPA controller looks."""
    monkeypatch.setenv("POD_NAMESPACE", HOME)
    async with sandboxed(tmp_path) as world:
        yield world
