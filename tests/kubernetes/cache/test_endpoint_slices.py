"""The EndpointSlices of one Service: what is kept of them, and that no others are watched."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from adapter.kubernetes.cache import endpoint_slices
from adapter.kubernetes.cache.endpoint_slices import ServiceEndpoints, SliceEndpoint, SlicePort, WatchedSlice
from fastpath_sandbox.apiserver.server import Cluster
from tests.kubernetes.apiclient import reflecting
from tests.support.waiting import running, until


def endpoint_slice(name: str, service: str, *endpoints: Any, namespace: str = "inference") -> Any:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4",
        "ports": [{"name": "metrics", "port": 9090, "protocol": "TCP"}],
        "endpoints": list(endpoints),
    }


@contextlib.asynccontextmanager
async def watching(cluster: Cluster, changed: list[int]) -> AsyncIterator[ServiceEndpoints]:
    async with reflecting(cluster.url) as context:
        cache = ServiceEndpoints(context, "inference", "gateway", lambda: changed.append(1))
        async with running(cache.run()):
            yield cache
        cache.stop()


def test_what_is_kept_of_a_slice() -> None:
    document = endpoint_slice(
        "s",
        "gateway",
        {"addresses": ["10.0.0.1", "10.0.0.9"], "targetRef": {"kind": "Pod", "name": "a"}},
        {
            "addresses": ["10.0.0.2"],
            "conditions": {"ready": False, "terminating": True},
            "targetRef": {"kind": "Pod", "namespace": "inference", "name": "b"},
        },
        {"addresses": ["10.0.0.3"], "targetRef": {"kind": "Pod", "namespace": "other", "name": "c"}},
        {"addresses": ["10.0.0.4"], "targetRef": {"kind": "Node", "name": "n"}},
        {"addresses": []},
    )
    document["ports"] += [{"port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}, {"name": "all"}]

    assert endpoint_slices.CODEC.decode(msgspec.json.encode(document)) == WatchedSlice(
        "inference",
        "s",
        (SlicePort("metrics", 9090), SlicePort("", 80)),
        (
            SliceEndpoint("10.0.0.1", "a", ready=True, terminating=False),
            SliceEndpoint("10.0.0.2", "b", ready=False, terminating=True),
            SliceEndpoint("10.0.0.3", "", ready=True, terminating=False),
            SliceEndpoint("10.0.0.4", "", ready=True, terminating=False),
        ),
    )
    bare = {"metadata": {"name": "s", "namespace": "n"}, "ports": None, "endpoints": None}
    assert endpoint_slices.CODEC.decode(msgspec.json.encode(bare)) == WatchedSlice("n", "s", (), ())


async def test_only_the_slices_of_the_service_are_watched(cluster: Cluster) -> None:
    changed: list[int] = []
    cluster.create(endpoint_slice("b", "gateway"))
    cluster.create(endpoint_slice("x", "other"))
    cluster.create(endpoint_slice("y", "gateway", namespace="other"))
    async with watching(cluster, changed) as cache:
        assert cache.unknown == "the first list has not arrived yet"
        await until(lambda: not cache.unknown)
        assert [each.name for each in cache.slices] == ["b"]
        cluster.create(endpoint_slice("a", "gateway"))
        await until(lambda: [each.name for each in cache.slices] == ["a", "b"])
        cluster.delete("EndpointSlice", "b", "inference")
        await until(lambda: [each.name for each in cache.slices] == ["a"])
        assert len(changed) == 3


async def test_more_endpoints_than_are_kept(cluster: Cluster) -> None:
    most = endpoint_slices.MOST_KEPT // 2 + 1
    half = [{"addresses": [f"10.0.{number // 250}.{number % 250}"]} for number in range(most)]
    cluster.create(endpoint_slice("a", "gateway", *half))
    cluster.create(endpoint_slice("b", "gateway", *half))
    async with watching(cluster, []) as cache:
        await until(lambda: not cache.unknown)
        assert [(len(each.endpoints), each.cut) for each in cache.slices] == [(most, False), (0, True)]
        cluster.patch("EndpointSlice", "a", {"endpoints": half[:1]}, namespace="inference")
        cluster.patch("EndpointSlice", "b", {"endpoints": half}, namespace="inference")
        cluster.patch("EndpointSlice", "b", {"metadata": {"labels": {"x": "y"}}}, namespace="inference")
        await until(lambda: [len(each.endpoints) for each in cache.slices] == [1, most])
        cluster.delete("EndpointSlice", "a", "inference")
        cluster.create(endpoint_slice("c", "gateway", half[0]))
        await until(lambda: [each.name for each in cache.slices] == ["b", "c"])
        assert not any(each.cut for each in cache.slices)


async def test_a_list_that_is_refused_says_so(cluster: Cluster) -> None:
    cluster.forbid("list", "endpointslices")
    async with watching(cluster, []) as cache:
        await until(lambda: "forbidden" in cache.unknown)
        assert cache.slices == ()
