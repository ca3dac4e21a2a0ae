"""Which addresses may be scraped as pods.

The address of a pod is what its node reports. Loopback addresses, link-local addresses and the metadata
services of clouds are never addresses of pods, but they are reachable from where Fastpath runs, so they are
refused in every notation.
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_METADATA = frozenset(
    map(
        ipaddress.ip_address,
        (
            "168.63.129.16",  # Azure
            "100.100.100.200",  # Alibaba Cloud
            "192.0.0.192",  # Oracle Cloud
            "fd00:ec2::254",  # AWS
            "fd20:ce::254",  # Google Cloud
        ),
    )
)
_SHOWN = 200
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_COMPATIBLE = ipaddress.IPv6Network("::/96")


@dataclass(frozen=True, slots=True)
class PodNetworks:
    """The networks of the pods; none for all addresses that are not refused. Loopback has to be named."""

    networks: tuple[_Network, ...] = ()

    def resolve(self, text: str) -> _Address:
        """Return the address of a pod, an IPv4 address as such.

        Raises ValueError with a sentence for an address that must not be scraped.
        """
        address = _read_address(text)
        forms = (address, *_embedded(address))
        if any(map(_is_refused, forms)):
            raise ValueError(f"not the address of a pod: {address}")
        # A pod that may set its own status could name the address of this process. Loopback is scraped only
        # where a flag names it, in tests and in the demo.
        if any(form.is_loopback for form in forms):
            if not any(network.is_loopback and address in network for network in self.networks):
                raise ValueError(f"not the address of a pod: {address} is a loopback address")
        elif self.networks and not any(address in network for network in self.networks):
            raise ValueError(f"not the address of a pod: {address} is in none of --scrape-pod-cidrs")
        return address


def parse_networks(texts: Iterable[str]) -> PodNetworks:
    """Return the networks that a flag names. ValueError with what was expected."""
    networks = []
    for text in texts:
        try:
            network = ipaddress.ip_network(text.strip())
        except ValueError:
            raise ValueError("expected networks such as 10.244.0.0/16 or fd00:10:244::/56") from None
        single = network.num_addresses == 1 and _is_refused(network.network_address)
        if network.is_link_local or network.is_multicast or single:
            raise ValueError(
                f"expected networks of pods: {network} is link-local, multicast or a metadata service"
            )
        networks.append(network)
    return PodNetworks(tuple(networks))


def _read_address(text: str) -> _Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        shown = f"{text[:_SHOWN]}{'...' if len(text) > _SHOWN else ''}"
        raise ValueError(f"not an IP address: {shown}") from None
    if isinstance(address, ipaddress.IPv6Address):
        if address.scope_id is not None:
            raise ValueError(f"not the address of a pod: {address} has a zone")
        return address.ipv4_mapped or address
    return address


def _is_refused(address: _Address) -> bool:
    return address.is_link_local or address.is_multicast or address.is_unspecified or address in _METADATA


def _embedded(address: _Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address stands for where it is translated or tunnelled."""
    if not isinstance(address, ipaddress.IPv6Address):
        return []
    embedded = [address.sixtofour] if address.sixtofour is not None else []
    if address.teredo is not None:
        embedded.append(address.teredo[1])
    if address in _NAT64 or (address in _COMPATIBLE and not address.is_loopback):
        embedded.append(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    return embedded
