"""Fixtures of the end-to-end tests: each runs on the sandbox, and where there is one on a real control plane."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapter.sandbox.cluster import Cluster
from tests.e2e import controlplane
from tests.e2e.clusters import ClusterUnderTest, RealBackend, SandboxBackend
from tests.e2e.controlplane import ControlPlane
from tests.support.kubectl import Kubectl
from tests.support.tls import Authority

_REAL = pytest.param(
    "control plane",
    marks=pytest.mark.skipif(
        controlplane.find_assets() is None,
        reason=f"{controlplane.VARIABLE} names no folder with etcd and kube-apiserver (setup-envtest makes one)",
    ),
)
KINDS = ["sandbox", _REAL]


@pytest.fixture(scope="session", autouse=True)
def control_plane(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane | None]:
    """Return the session's control plane, None where there is none. Started before any test notes what runs."""
    assets = controlplane.find_assets()
    if assets is None:
        yield None
        return
    with ControlPlane(assets, tmp_path_factory.mktemp("control-plane"), authority) as plane:
        yield plane


@asynccontextmanager
async def _open(plane: ControlPlane | None, directory: Path) -> AsyncIterator[ClusterUnderTest]:
    if plane is not None:
        cluster = ClusterUnderTest(RealBackend(plane), Kubectl(directory, plane.kubectl), directory)
        await cluster.open()
        yield cluster
        return
    async with Cluster() as sandbox:
        cluster = ClusterUnderTest(SandboxBackend(sandbox), Kubectl(directory), directory)
        await cluster.open()
        yield cluster


@pytest.fixture(params=KINDS)
async def cluster(
    request: pytest.FixtureRequest, control_plane: ControlPlane | None, tmp_path: Path
) -> AsyncIterator[ClusterUnderTest]:
    """Return a cluster with a namespace of the test's own."""
    async with _open(control_plane if request.param != "sandbox" else None, tmp_path) as opened:
        yield opened


@pytest.fixture(params=KINDS)
async def own_cluster(
    request: pytest.FixtureRequest, tmp_path: Path, authority: Authority
) -> AsyncIterator[ClusterUnderTest]:
    """Return a cluster that a test may let crash: nobody else uses it."""
    if request.param == "sandbox":
        async with _open(None, tmp_path) as opened:
            yield opened
        return
    assets = controlplane.find_assets()
    assert assets is not None
    directory = tmp_path / "control-plane"
    directory.mkdir()
    plane = ControlPlane(assets, directory, authority)
    await asyncio.to_thread(plane.__enter__)
    try:
        async with _open(plane, tmp_path) as opened:
            yield opened
    finally:
        await asyncio.to_thread(plane.close)
