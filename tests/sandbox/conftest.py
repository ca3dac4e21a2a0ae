"""A running sandbox cluster and a client for it."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from fastpath_sandbox.apiserver.server import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as running:
        yield running


@pytest.fixture
async def http(cluster: Cluster) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cluster.url) as session:
        yield session
