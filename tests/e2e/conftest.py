"""Fixtures of the end-to-end tests: each test runs on the sandbox, and on a real control plane if present.

After each test a client that is not ours reads what was written to the cluster (`oracle`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from fastpath_sandbox.apiserver.server import Cluster
from tests.e2e import controlplane, oracle
from tests.e2e.aggregation import FrontedBackend, FrontedControlPlane, FrontedSandbox
from tests.e2e.clusters import ClusterUnderTest, RealBackend, SandboxBackend
from tests.e2e.controlplane import ControlPlane
from tests.e2e.frontproxy import FrontProxy
from tests.support.kubectl import Kubectl
from tests.support.tls import Authority
from tests.world.workloads import CLOCK
from tests.world.world import World, opened

_REAL = pytest.param(
    "control plane",
    marks=pytest.mark.skipif(
        controlplane.find_assets() is None,
        reason=f"{controlplane.VARIABLE} names no folder with etcd and kube-apiserver (see setup-envtest)",
    ),
)
KINDS = ["sandbox", _REAL]

_CONTROLLED = pytest.param(
    "control plane",
    marks=[
        *_REAL.marks,
        pytest.mark.skipif(
            controlplane.find_controllers() is None,
            reason=(
                f"{controlplane.VARIABLE} names no folder with {controlplane.CONTROLLERS} (the server "
                "binaries of a release)"
            ),
        ),
    ],
)
_UNCONTROLLED = pytest.param(
    "sandbox",
    marks=pytest.mark.skip(reason="the sandbox has no controllers: nothing scales or ends namespaces there"),
)
_SCHEMALESS = pytest.param("sandbox", marks=pytest.mark.skip(reason="the sandbox looks at no schema"))
REAL_ONLY = [_SCHEMALESS, _REAL]
WITH_CONTROLLERS = [_UNCONTROLLED, _CONTROLLED]
WITH_WORKLOADS = ["sandbox", _CONTROLLED]
"""Where `FrontedBackend.workloads` gives Deployments their pods."""


class Fronted(NamedTuple):
    """A cluster with an aggregation layer, and what it does in its own way."""

    cluster: ClusterUnderTest
    backend: FrontedBackend


@pytest.fixture(scope="session", autouse=True)
def control_plane(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ControlPlane | None]:
    """Return the session's control plane, None without its binaries.

    It starts before any guard notes what runs.
    """
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
        await oracle.examine(cluster)
        return
    async with Cluster() as sandbox:
        cluster = ClusterUnderTest(SandboxBackend(sandbox), Kubectl(directory), directory)
        await cluster.open()
        yield cluster
        await oracle.examine(cluster)


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
    """Return a cluster that a test may let crash: no other test uses it."""
    if request.param == "sandbox":
        async with _open(None, tmp_path) as opened:
            yield opened
        return
    async with _own_plane(tmp_path, authority) as plane, _open(plane, tmp_path) as opened:
        yield opened


@asynccontextmanager
async def _own_plane(directory: Path, authority: Authority) -> AsyncIterator[ControlPlane]:
    assets = controlplane.find_assets()
    assert assets is not None
    own = directory / "control-plane"
    own.mkdir()
    plane = ControlPlane(assets, own, authority)
    await asyncio.to_thread(plane.__enter__)
    try:
        yield plane
    finally:
        await asyncio.to_thread(plane.close)


@asynccontextmanager
async def _open_fronted(
    plane: ControlPlane | None, directory: Path, authority: Authority
) -> AsyncIterator[Fronted]:
    if plane is not None:
        backend = FrontedControlPlane(plane)
        cluster = ClusterUnderTest(backend, Kubectl(directory, plane.kubectl), directory)
        await cluster.open()
        yield Fronted(cluster, backend)
        await oracle.examine(cluster)
        return
    proxy = FrontProxy(directory)
    context = authority.server_context()
    async with Cluster(now=CLOCK.wall, tls=context, proxy_certificate=proxy.identity) as sandbox:
        front = FrontedSandbox(sandbox, authority, proxy)
        cluster = ClusterUnderTest(front, Kubectl(directory), directory)
        await cluster.open()
        yield Fronted(cluster, front)
        await oracle.examine(cluster)


@pytest.fixture(params=KINDS)
async def fronted(
    request: pytest.FixtureRequest, control_plane: ControlPlane | None, tmp_path: Path, authority: Authority
) -> AsyncIterator[Fronted]:
    """Return a cluster with an aggregation layer and a namespace of the test's own."""
    plane = control_plane if request.param != "sandbox" else None
    async with _open_fronted(plane, tmp_path, authority) as opened:
        yield opened


@pytest.fixture(params=KINDS)
async def own_fronted(
    request: pytest.FixtureRequest, tmp_path: Path, authority: Authority
) -> AsyncIterator[Fronted]:
    """Return one whose front proxy a test may change: no other test uses it."""
    if request.param == "sandbox":
        async with _open_fronted(None, tmp_path, authority) as opened:
            yield opened
        return
    async with _own_plane(tmp_path, authority) as plane, _open_fronted(plane, tmp_path, authority) as opened:
        yield opened


@pytest.fixture
async def world(fronted: Fronted) -> AsyncIterator[World]:
    """Return an empty world in which a story is told."""
    async with opened(fronted.cluster) as world:
        yield world
