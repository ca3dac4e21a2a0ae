"""Fixtures of the end-to-end tests: each test runs on the sandbox, and on a real control plane if present.

After each test a client that is not ours reads what was written to the cluster (`oracle`).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from fastpath_sandbox.apiserver.server import Cluster
from tests.support.kubectl import Kubectl
from tests.support.tls import Authority
from tests.world import controlplane, oracle
from tests.world.aggregation import FrontedBackend, FrontedControlPlane, FrontedSandbox
from tests.world.clusters import ClusterUnderTest
from tests.world.controlplane import ControlPlane
from tests.world.frontproxy import FrontProxy
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
"""Where Deployments get their pods."""


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
async def _open(plane: ControlPlane | None, directory: Path, authority: Authority) -> AsyncIterator[Fronted]:
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
    async with _open(plane, tmp_path, authority) as opened:
        yield opened


@pytest.fixture(params=KINDS)
async def own_fronted(
    request: pytest.FixtureRequest, tmp_path: Path, authority: Authority
) -> AsyncIterator[Fronted]:
    """Return one that a test may change, and let crash: no other test uses it."""
    async with AsyncExitStack() as stack:
        plane = None
        if request.param != "sandbox":
            assets, own = controlplane.find_assets(), tmp_path / "control-plane"
            assert assets is not None
            own.mkdir()
            plane = ControlPlane(assets, own, authority)
            stack.push_async_callback(asyncio.to_thread, plane.close)
            await asyncio.to_thread(plane.__enter__)
        yield await stack.enter_async_context(_open(plane, tmp_path, authority))


@pytest.fixture
def cluster(fronted: Fronted) -> ClusterUnderTest:
    return fronted.cluster


@pytest.fixture
def own_cluster(own_fronted: Fronted) -> ClusterUnderTest:
    return own_fronted.cluster


@pytest.fixture
async def world(cluster: ClusterUnderTest) -> AsyncIterator[World]:
    """Return an empty world in which a story is told."""
    async with opened(cluster) as world:
        yield world


@pytest.fixture
async def own_world(own_cluster: ClusterUnderTest) -> AsyncIterator[World]:
    """Return one whose API server a test may let crash."""
    async with opened(own_cluster) as world:
        yield world
