"""The Lease at an API server, over HTTP."""

import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
from aiohttp import web

from adapter.errors import KubernetesError
from adapter.kubernetes.ownership import lease
from adapter.kubernetes.ownership.lease import KubernetesLeases, Lease, LeaseRecord, next_record
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import answering, connected, error_of

STAMP = "2026-01-31T12:00:00.000000Z"
MINE = LeaseRecord("web-1_a", 15, STAMP, STAMP, 0)
LATER = msgspec.structs.replace(MINE, renewed="2026-01-31T12:00:02.000000Z")


def test_records() -> None:
    me = "web-1_a", 15.0
    stamp, wall = "2023-11-14T22:13:20.250000Z", 1_700_000_000.25
    mine, other = (
        Lease(LeaseRecord(holder, 15, "since", "t0", 3), "7", {}) for holder in ("web-1_a", "web-2_b")
    )
    assert next_record(None, *me, wall) == LeaseRecord("web-1_a", 15, stamp, stamp, 0)
    assert next_record(mine, *me, wall) == LeaseRecord("web-1_a", 15, "since", stamp, 3)
    assert next_record(other, *me, wall) == LeaseRecord("web-1_a", 15, stamp, stamp, 4)


@contextlib.asynccontextmanager
async def store_of(url: str) -> AsyncIterator[KubernetesLeases]:
    async with connected(url) as client:
        yield KubernetesLeases(client, "default", "fastpath")


@pytest.fixture
async def store(cluster: Cluster) -> AsyncIterator[KubernetesLeases]:
    async with store_of(cluster.url) as store:
        yield store


async def test_a_lease_is_created_read_and_replaced(cluster: Cluster, store: KubernetesLeases) -> None:
    assert await store.fetch(1) is None
    made = await store.write(None, MINE, 1)
    assert made.record == MINE
    renewed = await store.write(made, LATER, 1)
    assert (await store.fetch(1)) == renewed
    assert cluster.get("leases", "fastpath")["spec"] == {
        "holderIdentity": "web-1_a",
        "leaseDurationSeconds": 15,
        "acquireTime": STAMP,
        "renewTime": "2026-01-31T12:00:02.000000Z",
        "leaseTransitions": 0,
    }


async def test_a_lease_that_is_cleared_has_no_holder_and_no_time(store: KubernetesLeases) -> None:
    made = await store.write(None, msgspec.structs.replace(MINE, transitions=3), 1)
    stamp = "2023-11-14T22:13:20.250000Z"
    cleared = await store.clear(made, 1_700_000_000.25, 1)
    assert cleared.record == LeaseRecord("", 1, stamp, stamp, 3)


async def test_only_the_version_that_was_read_is_replaced(store: KubernetesLeases) -> None:
    made = await store.write(None, MINE, 1)
    await store.write(made, LATER, 1)
    caught = await error_of(store.write(made, LATER, 1))
    assert caught.status == 409
    caught = await error_of(store.write(None, MINE, 1))
    assert caught.status == 409


async def test_fields_of_others_in_a_lease_stay(cluster: Cluster, store: KubernetesLeases) -> None:
    await store.write(None, MINE, 1)
    cluster.patch(
        "leases",
        "fastpath",
        {"metadata": {"labels": {"team": "x"}}, "spec": {"strategy": "OldestEmulationVersion"}},
    )
    found = await store.fetch(1)
    assert found is not None
    await store.write(found, LATER, 1)
    after = cluster.get("leases", "fastpath")
    assert after["metadata"]["labels"] == {"team": "x"}
    assert after["spec"]["strategy"] == "OldestEmulationVersion"


async def test_only_the_version_that_was_read_is_deleted(store: KubernetesLeases) -> None:
    made = await store.write(None, MINE, 1)
    renewed = await store.write(made, LATER, 1)
    caught = await error_of(store.delete(made.version, 1))
    assert caught.status == 409
    await store.delete(renewed.version, 1)
    assert await store.fetch(1) is None
    for late in (store.delete(renewed.version, 1), store.write(renewed, LATER, 1)):
        assert (await error_of(late)).status == 409, "it was deleted meanwhile"


async def test_every_call_is_bounded(cluster: Cluster, store: KubernetesLeases) -> None:
    made = await store.write(None, MINE, 1)
    cluster.delay(30, "*", "leases")
    for call in (store.fetch(0.05), store.write(None, MINE, 0.05), store.write(made, LATER, 0.05)):
        caught = await error_of(call)
        assert caught.reason == "Timeout"


async def test_an_empty_lease_has_no_holder(cluster: Cluster, store: KubernetesLeases) -> None:
    cluster.create(
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "fastpath"}}
    )
    found = await store.fetch(1)
    assert found is not None
    assert found.record == LeaseRecord("", 0, "", "", 0)


@pytest.mark.parametrize(
    "body",
    [
        b"{}",
        b"[]",
        b"no",
        b'{"spec": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"metadata": {}}',
        b'{"metadata": {"resourceVersion": "1"}, "spec": {"holderIdentity": 7}}',
    ],
)
async def test_an_invalid_lease_is_an_error(body: bytes) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async with answering(handle) as url, store_of(url) as store:
        with pytest.raises(KubernetesError, match="the response is not a Lease object"):
            await store.fetch(1)


def test_times_are_those_of_the_api() -> None:
    assert lease.micro_time(1_769_860_800.25) == "2026-01-31T12:00:00.250000Z"
    assert msgspec.json.decode(b'"2026-01-31T12:00:00.250000Z"') == lease.micro_time(1_769_860_800.25)
