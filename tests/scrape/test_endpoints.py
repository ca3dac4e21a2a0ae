"""Which endpoints are scraped, and why others are not."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest

from adapter.config.scrape_keys import Access, EndpointSource
from adapter.model.label_selectors import parse_selector
from adapter.scrape import endpoints
from adapter.scrape.endpoints import Endpoint, FoundEndpoints, resolve_pods, resolve_service
from tests.support.world import FakePod

SERVICE = EndpointSource("inference", "gateway")
PODS = EndpointSource("inference", "", parse_selector("app=epp"))
ACCESS = Access("metrics")


class Port(NamedTuple):
    name: str = "metrics"
    port: int = 9090


class Given(NamedTuple):
    """An endpoint of a slice."""

    address: str = "10.0.0.1"
    pod: str = "a"
    ready: bool = True
    terminating: bool = False


class Slice(NamedTuple):
    endpoints: Sequence[Given] = ()
    ports: Sequence[Port] = (Port(), Port("http", 80))
    cut: bool = False


A, B = FakePod("a", "10.0.0.1"), FakePod("b", "10.0.0.2")


def resolve(*slices: Slice, pods: Sequence[FakePod] = (A, B), access: Access = ACCESS) -> FoundEndpoints:
    by_name = {pod.name: pod for pod in pods}
    by_address = {pod.ip: pod for pod in pods}
    return resolve_service(SERVICE, access, slices, by_name.get, by_address.get)


def test_the_endpoints_of_all_slices_are_found_once() -> None:
    found = resolve(
        Slice([Given(), Given("10.0.0.2", "b")]),
        Slice([Given("fd00::1", "a"), Given("fd00::2", "b")]),  # the same pods in the other address family
        Slice([Given()], [Port("http", 80)]),
    )

    assert found == FoundEndpoints((Endpoint("a", "10.0.0.1", 9090), Endpoint("b", "10.0.0.2", 9090)))


def test_a_named_port_may_have_another_number_in_each_slice() -> None:
    found = resolve(Slice([Given()]), Slice([Given("10.0.0.2", "b")], [Port("metrics", 8080)]))

    assert [each.port for each in found.endpoints] == [9090, 8080]


def test_a_port_by_number_is_one_of_the_slice() -> None:
    assert resolve(Slice([Given()]), access=Access("80")).endpoints == (Endpoint("a", "10.0.0.1", 80),)
    assert resolve(Slice([Given()]), access=Access("81")).reason == (
        "Service inference/gateway has no port with the number 81"
    )


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ((), "Service inference/gateway has no EndpointSlice: it does not exist, or has no selector"),
        ((Slice(),), "Service inference/gateway has no endpoints"),
        (
            (Slice([Given()], [Port("http", 80)]), Slice([], [Port("http", 80)])),
            "Service inference/gateway has no endpoints",
        ),
        ((Slice([Given()], [Port("http", 80)]),), "Service inference/gateway has no port named metrics"),
        ((Slice([Given(terminating=True)]), Slice()), "Service inference/gateway has no ready endpoints"),
        (
            (Slice([Given(ready=False)]),),
            "nothing to scrape of Service inference/gateway: pod a is not ready",
        ),
    ],
)
def test_why_there_are_no_endpoints(slices: tuple[Slice, ...], reason: str) -> None:
    found = resolve(*slices)

    assert (found.endpoints, found.reason) == ((), reason)


@pytest.mark.parametrize(
    ("given", "pod", "missing", "kind"),
    [
        pytest.param(
            Given("10.9.9.9", ""),
            B,
            "10.9.9.9 is not the address of a pod of namespace inference",
            "foreign",
            id="written by hand",
        ),
        pytest.param(
            Given("169.254.169.254", "b"),
            B,
            "169.254.169.254 is not the address of pod b",
            "address",
            id="another address for a pod",
        ),
        pytest.param(
            Given("metadata.internal", "b"),
            B,
            "metadata.internal is not the address of pod b",
            "address",
            id="a name",
        ),
        pytest.param(
            Given("10.0.0.2", "b"),
            B._replace(host_network=True),
            "pod b is in its node's network",
            "host-network",
            id="in the node's network",
        ),
        pytest.param(Given("10.0.0.3", "c"), B, "pod c is not known", "", id="unknown pod"),
        pytest.param(Given("10.0.0.2", "b", ready=False), B, "pod b is not ready", "", id="not ready"),
        pytest.param(
            Given("10.0.0.2", "b"), B._replace(phase="Pending"), "pod b does not run yet", "", id="pending"
        ),
        pytest.param(
            Given("10.0.0.2", "b"), B._replace(ip=""), "pod b does not run yet", "", id="no address"
        ),
    ],
)
def test_an_endpoint_that_is_not_scraped_is_missing(
    given: Given, pod: FakePod, missing: str, kind: str
) -> None:
    found = resolve(Slice([Given(), given]), pods=(A, pod))

    assert found.endpoints == (Endpoint("a", "10.0.0.1", 9090),)
    assert found.missing == (missing,)
    assert found.refused == (((kind, 1),) if kind else ())
    assert found.reason == ""


@pytest.mark.parametrize("pod", [B._replace(deleting=True), B._replace(phase="Failed")])
def test_a_pod_that_ends_is_gone(pod: FakePod) -> None:
    found = resolve(Slice([Given(), Given("10.0.0.2", "b")]), pods=(A, pod))

    assert found == FoundEndpoints((Endpoint("a", "10.0.0.1", 9090),))


def test_an_address_without_a_reference_may_be_that_of_a_pod() -> None:
    assert resolve(Slice([Given("10.0.0.2", "")])).endpoints == (Endpoint("b", "10.0.0.2", 9090),)


def test_a_pod_in_its_nodes_network_may_be_allowed() -> None:
    access = Access("metrics", host_network=True)

    found = resolve(Slice([Given()]), pods=(A._replace(host_network=True),), access=access)

    assert found.endpoints == (Endpoint("a", "10.0.0.1", 9090),)


def test_too_many_endpoints_are_not_scraped_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "MOST_ENDPOINTS", 1)

    found = resolve(Slice([Given(), Given("10.0.0.2", "b")]))

    assert (found.endpoints, found.refused) == ((), (("limit", 1),))
    assert found.reason == "Service inference/gateway has more than 1 endpoints"
    assert resolve(Slice([Given()], cut=True)) == found
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
