"""Which endpoints are scraped, and why others are not."""

from collections.abc import Sequence

import pytest

from adapter.config.rules_config import Access, EndpointSource
from adapter.kubernetes.cache.endpoint_slices import SliceEndpoint, SlicePort, WatchedSlice
from adapter.model.label_selectors import parse_selector
from adapter.scrape import endpoints
from adapter.scrape.endpoints import Endpoint, FoundEndpoints, resolve_pods, resolve_service
from tests.support.world import FakePod

SERVICE = EndpointSource("inference", "gateway")
PODS = EndpointSource("inference", "", parse_selector("app=epp"))
ACCESS = Access("metrics")


PORTS = (SlicePort("metrics", 9090), SlicePort("http", 80))


def given(
    address: str = "10.0.0.1", pod: str = "a", *, ready: bool = True, terminating: bool = False
) -> SliceEndpoint:
    return SliceEndpoint(address, pod, ready, terminating)


def part(*endpoints: SliceEndpoint, ports: tuple[SlicePort, ...] = PORTS, cut: bool = False) -> WatchedSlice:
    return WatchedSlice("inference", "s", ports, endpoints, cut)


A, B = FakePod("a", "10.0.0.1"), FakePod("b", "10.0.0.2")
OF_B = given("10.0.0.2", "b")


def resolve(
    *slices: WatchedSlice, pods: Sequence[FakePod] = (A, B), access: Access = ACCESS
) -> FoundEndpoints:
    by_name = {pod.name: pod for pod in pods}
    by_address = {pod.ip: pod for pod in pods}
    return resolve_service(SERVICE, access, slices, by_name.get, by_address.get)


def test_the_endpoints_of_all_slices_are_found_once() -> None:
    found = resolve(
        part(given(), given("10.0.0.2", "b")),
        part(given("fd00::1", "a"), given("fd00::2", "b")),  # the same pods in the other address family
        part(given(), ports=(SlicePort("http", 80),)),
    )

    assert found == FoundEndpoints((Endpoint("a", "10.0.0.1", 9090), Endpoint("b", "10.0.0.2", 9090)))


def test_a_named_port_may_have_another_number_in_each_slice() -> None:
    found = resolve(part(given()), part(given("10.0.0.2", "b"), ports=(SlicePort("metrics", 8080),)))

    assert [each.port for each in found.endpoints] == [9090, 8080]


def test_a_port_by_number_is_one_of_the_slice() -> None:
    assert resolve(part(given()), access=Access("80")).endpoints == (Endpoint("a", "10.0.0.1", 80),)
    assert resolve(part(given()), access=Access("81")).reason == (
        "Service inference/gateway has no port with the number 81"
    )


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ((), "Service inference/gateway has no EndpointSlice: it does not exist, or has no selector"),
        ((part(),), "Service inference/gateway has no endpoints"),
        (
            (part(given(), ports=(SlicePort("http", 80),)), part(ports=(SlicePort("http", 80),))),
            "Service inference/gateway has no endpoints",
        ),
        (
            (part(given(), ports=(SlicePort("http", 80),)),),
            "Service inference/gateway has no port named metrics",
        ),
        ((part(given(terminating=True)), part()), "Service inference/gateway has no ready endpoints"),
        (
            (part(given(ready=False)),),
            "nothing to scrape of Service inference/gateway: pod a is not ready",
        ),
    ],
)
def test_why_there_are_no_endpoints(slices: tuple[WatchedSlice, ...], reason: str) -> None:
    found = resolve(*slices)

    assert (found.endpoints, found.reason) == ((), reason)


@pytest.mark.parametrize(
    ("other", "pod", "missing", "kind"),
    [
        pytest.param(
            given("10.9.9.9", ""),
            B,
            "10.9.9.9 is not the address of a pod of namespace inference",
            "foreign",
            id="written by hand",
        ),
        (given("169.254.169.254", "b"), B, "169.254.169.254 is not the address of pod b", "address"),
        (given("metadata.internal", "b"), B, "metadata.internal is not the address of pod b", "address"),
        (OF_B, B._replace(host_network=True), "pod b is in its node's network", "host-network"),
        (given("10.0.0.3", "c"), B, "pod c is not known", ""),
        (given("10.0.0.2", "b", ready=False), B, "pod b is not ready", ""),
        (OF_B, B._replace(phase="Pending"), "pod b does not run yet", ""),
        (OF_B, B._replace(ip=""), "pod b does not run yet", ""),
    ],
)
def test_an_endpoint_that_is_not_scraped_is_missing(
    other: SliceEndpoint, pod: FakePod, missing: str, kind: str
) -> None:
    found = resolve(part(given(), other), pods=(A, pod))

    assert found.endpoints == (Endpoint("a", "10.0.0.1", 9090),)
    assert found.missing == (missing,)
    assert found.refused == (((kind, 1),) if kind else ())
    assert found.reason == ""


@pytest.mark.parametrize("pod", [B._replace(deleting=True), B._replace(phase="Failed")])
def test_a_pod_that_ends_is_gone(pod: FakePod) -> None:
    found = resolve(part(given(), given("10.0.0.2", "b")), pods=(A, pod))

    assert found == FoundEndpoints((Endpoint("a", "10.0.0.1", 9090),))


def test_an_address_without_a_reference_may_be_that_of_a_pod() -> None:
    assert resolve(part(given("10.0.0.2", ""))).endpoints == (Endpoint("b", "10.0.0.2", 9090),)


def test_a_pod_in_its_nodes_network_may_be_allowed() -> None:
    access = Access("metrics", host_network=True)

    found = resolve(part(given()), pods=(A._replace(host_network=True),), access=access)

    assert found.endpoints == (Endpoint("a", "10.0.0.1", 9090),)


def test_too_many_endpoints_are_not_scraped_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "MOST_ENDPOINTS", 1)

    found = resolve(part(given(), given("10.0.0.2", "b")))

    assert (found.endpoints, found.refused) == ((), (("limit", 1),))
    assert found.reason == "Service inference/gateway has more than 1 endpoints"
    assert resolve(part(given(), cut=True)) == found
    assert resolve_pods(PODS, ACCESS, [A, B, FakePod("c", "10.0.0.3")]).refused == (("limit", 1),)


def test_pods_by_selector() -> None:
    pods = [A, B._replace(ports={"http": 80}), FakePod("c", deleting=True, ports={})]

    found = resolve_pods(PODS, ACCESS, pods)

    assert found.endpoints == (Endpoint("a", "10.0.0.1", 8080),)
    assert found.missing == ("pod b has no port named metrics",)
    assert resolve_pods(PODS, Access("9"), [A]).endpoints == (Endpoint("a", "10.0.0.1", 9),)


@pytest.mark.parametrize(
    ("pods", "reason"),
    [
        ([], "there are no pods of namespace inference with app=epp"),
        ([A._replace(deleting=True)], "the pods of namespace inference with app=epp do not run"),
        (
            [A._replace(ports={})],
            "nothing to scrape of pods of namespace inference with app=epp: pod a has no port named metrics",
        ),
    ],
)
def test_why_no_pods_are_scraped(pods: list[FakePod], reason: str) -> None:
    assert resolve_pods(PODS, ACCESS, pods).reason == reason


def test_an_instance_is_written_as_prometheus_does() -> None:
    assert Endpoint("a", "10.0.0.1", 80).instance == "10.0.0.1:80"
    assert Endpoint("a", "fd00::1", 80).instance == "[fd00::1]:80"
