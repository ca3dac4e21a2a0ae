"""A running sandbox cluster and a client for it whose pauses take no time."""

from collections.abc import AsyncIterator

import pytest

from adapter.kubernetes import client as kubernetes
from adapter.kubernetes import credentials
from adapter.kubernetes.client import KubernetesClient
from fastpath_sandbox.apiserver.server import Cluster


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[KubernetesClient]:
    configuration = credentials.ClientConfiguration(cluster.url)

    async def at_once(_seconds: float) -> None:
        return

    async with await kubernetes.connect(configuration, sleep=at_once, random=lambda: 0.0) as client:
        yield client
