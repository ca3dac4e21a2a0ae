"""Which addresses are scraped."""

import pytest

from adapter.model.objects import pod_networks
from adapter.model.objects.pod_networks import PodNetworks
from tests.support.answers import answers

NAMED = pod_networks.parse_networks(["10.244.0.0/16", "fd00:10:244::/56"])
LOOPBACK = pod_networks.parse_networks(["127.0.0.0/8", "::1/128"])


@pytest.mark.parametrize(
    ("text", "address"),
    [("10.244.1.2", "10.244.1.2"), ("::ffff:10.244.1.2", "10.244.1.2"), ("FD00:10:244::5", "fd00:10:244::5")],
)
@pytest.mark.parametrize("networks", [PodNetworks(), NAMED], ids=["any", "named"])
def test_addresses_of_pods(text: str, address: str, networks: PodNetworks) -> None:
    assert str(networks.resolve(text)) == address


@pytest.mark.parametrize("text", answers("model/pod_networks", "no pod"))
@pytest.mark.parametrize(
    "networks", [PodNetworks(), pod_networks.parse_networks(["0.0.0.0/0", "::/0"])], ids=["any", "all named"]
)
def test_addresses_that_no_pod_has(text: str, networks: PodNetworks) -> None:
    with pytest.raises(ValueError, match=r"^not the address of a pod: "):
        networks.resolve(text)


@pytest.mark.parametrize("text", ["127.0.0.1", "::ffff:127.0.1.9", "::1"])
def test_loopback_where_a_loopback_network_is_named(text: str) -> None:
    assert LOOPBACK.resolve(text).is_loopback


@pytest.mark.parametrize("text", ["10.245.0.1", "192.168.0.1", "fd00:10:245::1", "::ffff:10.245.0.1"])
def test_other_networks_than_those_named(text: str) -> None:
    assert not PodNetworks().resolve(text).is_loopback
    with pytest.raises(ValueError, match=r"is in none of --scrape-pod-cidrs$"):
        NAMED.resolve(text)


@pytest.mark.parametrize("text", ["example.org", "", "10.0.0", "1" * 5000])
def test_other_texts(text: str) -> None:
    with pytest.raises(ValueError, match=r"^not an IP address: ") as raised:
        NAMED.resolve(text)
    assert len(str(raised.value)) < 300


@pytest.mark.parametrize(("text", "said"), answers("model/pod_networks", "networks"))
def test_networks_as_a_flag_names_them(text: str, said: str) -> None:
    if not said:
        assert pod_networks.parse_networks([text]).networks
        return
    with pytest.raises(ValueError, match=r".") as raised:
        pod_networks.parse_networks([text])
    assert str(raised.value) == said
