"""Which endpoints of an external rule are scraped, and why others are not.

A Service names its endpoints through EndpointSlices, which anyone with the right to write them can write by
hand. Therefore a slice only says which pods of its own namespace are meant: an endpoint is scraped at the
address that the API server has for that pod, and an address that is not of such a pod is refused.

An endpoint that ought to be read and cannot be is `missing`: what the others expose is then only a part.
"""

import ipaddress
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from adapter.config.rules_config import Access, EndpointSource
from adapter.kubernetes.cache.endpoint_slices import SliceEndpoint, WatchedSlice
from adapter.kubernetes.cache.pod_codec import WatchedPod
from adapter.model.timestamps import SECOND

MOST_ENDPOINTS = 1000
"""Bound on the endpoints of one rule."""

STARTING_SECONDS = 5.0
"""A pod that is Ready for less time may not listen yet: without a readiness probe it is Ready at once."""

_SHOWN = 3
_NAME = 63  # characters of a name or address that are shown


def listens_since(pod: WatchedPod) -> float:
    """Return from when on a scrape of the pod that fails is a fault (epoch seconds)."""
    return pod.ready_since / SECOND + STARTING_SECONDS if pod.ready == "True" else math.inf


class Endpoint(NamedTuple):
    pod: str
    address: str
    port: int


class FoundEndpoints(NamedTuple):
    """The endpoints to scrape, and since when they ought to answer, if not always (epoch seconds).

    `reason` says why no endpoint was found, "" otherwise.

    `missing` says why others are not scraped that belong to the source; `refused` counts, by kind, those that
    must not be. `known` is false while the API server has not answered.
    """

    endpoints: tuple[Endpoint, ...] = ()
    reason: str = ""
    missing: tuple[str, ...] = ()
    refused: tuple[tuple[str, int], ...] = ()
    known: bool = True
    listen_since: Mapping[Endpoint, float] = {}

    @property
    def trouble(self) -> str:
        """Why endpoints are not found or must not be scraped, "" otherwise."""
        return self.reason or (self.missing[0] if self.refused else "")


NOT_FOUND = FoundEndpoints((), "its endpoints are not known yet", known=False)


@dataclass(slots=True)
class _Finding:
    source: EndpointSource
    access: Access
    endpoints: dict[tuple[str, int], Endpoint] = field(default_factory=dict)
    listen_since: dict[Endpoint, float] = field(default_factory=dict)
    full: bool = False
    missing: dict[str, None] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)

    def add(self, pod: WatchedPod, port: int) -> None:
        """Add the endpoint of a pod; a pod in several slices, as of two address families, is one endpoint."""
        if pod.deleting or pod.phase in {"Succeeded", "Failed"}:
            return
        if pod.phase != "Running" or not pod.ip:
            self.missing[f"pod {pod.name} does not run yet"] = None
        elif pod.spec.host_network and not self.access.host_network:
            self.refuse("host-network", f"pod {pod.name} is in its node's network")
        else:
            endpoint = self.endpoints[pod.name, port] = Endpoint(pod.name, pod.ip, port)
            if (since := listens_since(pod)) > 0:
                self.listen_since[endpoint] = since
            self.full = self.full or len(self.endpoints) > MOST_ENDPOINTS

    def check(self, endpoint: SliceEndpoint, pod: WatchedPod | None, port: int) -> None:
        """Add what a slice names if it is the address of the pod."""
        if pod is None and endpoint.pod:
            self.missing[f"pod {endpoint.pod[:_NAME]} is not known"] = None
        elif pod is None:
            namespace = self.source.namespace
            text = f"{endpoint.address[:_NAME]} is not the address of a pod of namespace {namespace}"
            self.refuse("foreign", text)
        elif pod.ip and _contradicts(endpoint.address, pod.ip):
            self.refuse("address", f"{endpoint.address[:_NAME]} is not the address of pod {pod.name}")
        elif not endpoint.ready:
            self.missing[f"pod {pod.name} is not ready"] = None
        else:
            self.add(pod, port)

    def refuse(self, kind: str, text: str) -> None:
        self.refused[kind] += 1
        self.missing[text] = None

    def result(self, reason: str) -> FoundEndpoints:
        """Return the result; `reason` says why there are no endpoints if nothing else does."""
        missing, refused = tuple(self.missing), tuple(sorted(self.refused.items()))
        if self.full:
            reason = f"{self.source} has more than {MOST_ENDPOINTS} endpoints"
            return FoundEndpoints((), reason, missing[:_SHOWN], (*refused, ("limit", 1)))
        if self.endpoints:
            reason = ""
        elif missing:
            reason = f"nothing to scrape of {self.source}: {missing[0]}"
        ordered = tuple(self.endpoints[key] for key in sorted(self.endpoints))
        return FoundEndpoints(ordered, reason, missing[:_SHOWN], refused, listen_since=self.listen_since)


def resolve_service(
    source: EndpointSource,
    access: Access,
    slices: Iterable[WatchedSlice],
    find: Callable[[str], WatchedPod | None],
    find_by_address: Callable[[str], WatchedPod | None],
) -> FoundEndpoints:
    """Return the endpoints of a Service; `find` and `find_by_address` return a pod of its namespace."""
    finding = _Finding(source, access)
    reason = f"{source} has no EndpointSlice: it does not exist, or has no selector"
    exposed = False
    wanted = int(access.port) if access.port.isdigit() else access.port
    for part in slices:
        finding.full = finding.full or part.cut
        port = next((port.port for port in part.ports if wanted in (port.port, port.name)), None)
        if port is None or not part.endpoints:
            if not exposed:
                named = "with the number" if isinstance(wanted, int) else "named"
                what = f"port {named} {access.port}" if part.endpoints else "endpoints"
                reason = f"{source} has no {what}"
            continue
        exposed = True
        reason = f"{source} has no ready endpoints"
        for endpoint in part.endpoints:
            if not endpoint.terminating:
                pod = find(endpoint.pod) if endpoint.pod else find_by_address(endpoint.address)
                finding.check(endpoint, pod, port)
    return finding.result(reason)


def _contradicts(address: str, ip: str) -> bool:
    """Return whether an address is of the same family as that of a pod, and another one."""
    try:
        one, other = ipaddress.ip_address(address), ipaddress.ip_address(ip)
    except ValueError:
        return True
    return one.version == other.version and one != other


def resolve_pods(source: EndpointSource, access: Access, pods: Iterable[WatchedPod]) -> FoundEndpoints:
    """Return the endpoints of the pods that a selector matches."""
    finding = _Finding(source, access)
    reason = f"there are no {source}"
    for pod in pods:
        if finding.full:
            break
        port = int(access.port) if access.port.isdigit() else pod.spec.ports.get(access.port)
        reason = f"the {source} do not run"
        if port is not None:
            finding.add(pod, port)
        elif not pod.deleting:
            finding.missing[f"pod {pod.name} has no port named {access.port}"] = None
    return finding.result(reason)
