"""The endpoints of one Service, from a watch of its EndpointSlices and of no others.

Anyone with the right to write EndpointSlices in a namespace can write very many. So the endpoints that are
kept are bounded, and a slice that does not fit is kept without its endpoints, marked as `cut`.
"""

from collections.abc import Callable

import msgspec

from adapter.kubernetes.cache.reflector import ReflectorContext
from adapter.kubernetes.cache.store import Budget, ObjectCache
from adapter.kubernetes.client import ListWatch
from adapter.kubernetes.codec import ObjectCodec, Unreadable
from adapter.model.objects.api_objects import DescribedObject, ObjectMeta, Struct
from adapter.model.objects.label_selectors import LabelSelector, Operator, Requirement
from adapter.model.objects.resources import known_kind

MOST_KEPT = 4000
"""Bound on the kept endpoints of a Service: more than are scraped, in two address families."""

ENDPOINT_SLICES = known_kind("discovery.k8s.io/v1", "EndpointSlice")
SERVICE_NAME = "kubernetes.io/service-name"
"""The label of an EndpointSlice that names its Service."""


class SlicePort(msgspec.Struct, frozen=True, gc=False):
    """A port of a slice; `name` is "" for the only port of a Service, which needs no name."""

    name: str
    port: int


class SliceEndpoint(msgspec.Struct, frozen=True, gc=False):
    """One endpoint. `pod` is the name of the pod in the slice's namespace that it refers to, "" for none."""

    address: str
    pod: str
    ready: bool
    terminating: bool


class WatchedSlice(msgspec.Struct, frozen=True, gc=False):
    """What is kept of an EndpointSlice. Its ports are those of TCP; `cut` says that it has more endpoints."""

    namespace: str
    name: str
    ports: tuple[SlicePort, ...]
    endpoints: tuple[SliceEndpoint, ...]
    cut: bool = False


class _SlicePort(Struct, frozen=True):
    name: str | None = None
    port: int | None = None
    protocol: str | None = None


class _WireConditions(Struct, frozen=True):
    ready: bool | None = None
    terminating: bool | None = None


class _WireEndpoint(Struct, frozen=True):
    addresses: tuple[str, ...] | None = None
    conditions: _WireConditions = _WireConditions()
    target_ref: DescribedObject | None = None


class _WireSlice(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    endpoints: tuple[_WireEndpoint, ...] | None = None
    ports: tuple[_SlicePort, ...] | None = None


def _keep(wire: _WireSlice) -> WatchedSlice:
    namespace = wire.metadata.namespace
    ports = tuple(
        SlicePort(port.name or "", port.port)
        for port in wire.ports or ()
        if port.port is not None and port.protocol in {None, "TCP"}
    )
    endpoints = tuple(
        SliceEndpoint(
            endpoint.addresses[0],  # the only one that clients use
            _pod_name(endpoint.target_ref, namespace),
            endpoint.conditions.ready is not False,  # unknown counts as ready
            endpoint.conditions.terminating is True,
        )
        for endpoint in wire.endpoints or ()
        if endpoint.addresses
    )
    return WatchedSlice(namespace, wire.metadata.name, ports, endpoints)


def _pod_name(reference: DescribedObject | None, namespace: str) -> str:
    if reference is None or reference.kind != "Pod" or reference.namespace not in {"", namespace}:
        return ""
    return reference.name


def _lose(lost: Unreadable, _: WatchedSlice | None) -> WatchedSlice:
    """Return a slice whose endpoints are unknown, as one that does not fit."""
    return WatchedSlice(lost.namespace, lost.name, (), (), cut=True)


CODEC: ObjectCodec[WatchedSlice] = ObjectCodec(_WireSlice, _keep)


_BUDGET: Budget[WatchedSlice] = Budget(
    lambda watched: len(watched.endpoints),
    lambda watched: msgspec.structs.replace(watched, endpoints=(), cut=True),
    MOST_KEPT,
    MOST_KEPT,
)


class ServiceEndpoints(ObjectCache[WatchedSlice]):
    """The slices of one Service, with at most `MOST_KEPT` endpoints together, while `run` runs.

    `changed` is called after each change.
    """

    def __init__(
        self, context: ReflectorContext, namespace: str, service: str, changed: Callable[[], None]
    ) -> None:
        selector = LabelSelector((Requirement(SERVICE_NAME, Operator.EQUALS, (service,)),))
        super().__init__(
            ListWatch(CODEC, ENDPOINT_SLICES, namespace, selector=selector),
            context,
            lambda *_: changed(),
            f"endpointslices of {namespace}/{service}",
            lost=_lose,
            listed=lambda: iter(()),
            budget=_BUDGET,
        )

    @property
    def slices(self) -> tuple[WatchedSlice, ...]:
        """The slices in the order of their names."""
        return tuple(sorted(self, key=lambda watched: watched.name))

    @property
    def unknown(self) -> str:
        """Why the slices are not known, "" once they are."""
        return "" if self.synced else str(self.error or "the first list has not arrived yet")
