"""Fixtures of the tests on a whole cluster: skipped unless KUBECONFIG and FASTPATH_CLUSTER_IMAGE are set."""

import asyncio
import os
from collections.abc import Iterator

import pytest

from tests.cluster.site import Site

IMAGE = "FASTPATH_CLUSTER_IMAGE"


@pytest.fixture(scope="session")
def cluster_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    kubeconfig, image = os.environ.get("KUBECONFIG", ""), os.environ.get(IMAGE, "")
    if not (kubeconfig and image):
        pytest.skip(f"KUBECONFIG and {IMAGE} name no cluster and no image that its nodes run")
    site = Site(kubeconfig, image, tmp_path_factory.mktemp("cluster"))
    asyncio.run(site.prepare())
    yield site
    asyncio.run(site.close())


@pytest.fixture
async def site(cluster_site: Site) -> Site:
    """Return the cluster, with Fastpath in it."""
    await cluster_site.install()
    return cluster_site
