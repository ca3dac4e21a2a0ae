"""Which addresses are scraped."""

import pytest

from adapter.model import pod_networks
from adapter.model.pod_networks import PodNetworks

NAMED = pod_networks.parse_networks(["10.244.0.0/16", "fd00:10:244::/56"])
LOOPBACK = pod_networks.parse_networks(["127.0.0.0/8", "::1/128"])


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.244.1.2", "10.244.1.2"),
        ("::ffff:10.244.1.2", "10.244.1.2"),
        ("FD00:10:244::5", "fd00:10:244::5"),
    ],
)
@pytest.mark.parametrize("networks", [PodNetworks(), NAMED], ids=["any", "named"])
def test_addresses_of_pods(text: str, address: str, networks: PodNetworks) -> None:
    assert str(networks.resolve(text)) == address


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "127.255.0.3",
        "::1",
        "::ffff:127.0.0.1",
        "::127.0.0.1",
        "64:ff9b::127.0.0.1",
        "2002:7f00:1::",
        "2001:0:a01:203:0:0:80ff:fffe",
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "64:ff9b::169.254.169.254",
        "168.63.129.16",
        "::ffff:168.63.129.16",
        "64:ff9b::168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254%eth0",
        "224.0.0.1",
        "ff02::1",
        "0.0.0.0",
        "::",
        "::ffff:0.0.0.0",
    ],
)
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("10.244.0.0", ""),
        ("10.244.0.1/16", "expected networks such as 10.244.0.0/16 or fd00:10:244::/56"),
        ("pods", "expected networks such as 10.244.0.0/16 or fd00:10:244::/56"),
        (
            "169.254.0.0/16",
            "expected networks of pods: 169.254.0.0/16 is link-local, multicast or a metadata service",
        ),
        (
            "168.63.129.16",
            "expected networks of pods: 168.63.129.16/32 is link-local, multicast or a metadata service",
        ),
    ],
)
def test_networks_as_a_flag_names_them(text: str, said: str) -> None:
    if not said:
        assert pod_networks.parse_networks([text]).networks
        return
    with pytest.raises(ValueError, match=r".") as raised:
        pod_networks.parse_networks([text])
    assert str(raised.value) == said
