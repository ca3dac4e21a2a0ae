# ruff: noqa: N815 - the fields are named as they are sent
"""The discovery documents of the metrics groups, legacy and aggregated, in pieces.

A metric is listed as a subresource of the object it describes, an external metric as a resource, and pods and
nodes of ``metrics.k8s.io`` as resources. Ten thousand metrics are a document of megabytes: each piece takes a
few milliseconds at most, and the caller lets the event loop do other work between two pieces.

The owner of a pod chooses the names of its series, and with them the names of metrics. Every client of the
cluster reads these documents, so they list a bounded number of metrics. The others are served all the same:
an autoscaler asks by name.

kube-aggregator polls these documents, and publishes a group-version that it cannot read or convert as stale
for the whole cluster. Therefore every served group-version is in every list, with a fixed entry where there
is no metric. And all metrics of one parent resource have one scope: where scopes clash, the namespaced
metrics stay.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from adapter.model.metrics import CustomMetricInfo, GroupResource
from adapter.server.api import encoding
from adapter.server.api.paths import CUSTOM_GROUP, EXTERNAL_GROUP, RESOURCE_GROUP

# The entries that upstream's library lists for a provider without metrics: clients warn about an empty list,
# or fail.
_EMPTY_CUSTOM_METRIC = "custommetrics"
_EMPTY_EXTERNAL = "externalmetrics"


MOST_LISTED = 20_000
"""Metrics of one API that its documents list. Each `_COUNTS_AS_ONE` characters of a name count as one."""

_COUNTS_AS_ONE = 100
_STEP = 1_000
"""Metrics between two points at which other work may run."""


class ParentResource(NamedTuple):
    """A resource and the metrics that describe it."""

    name: str
    namespaced: bool
    metrics: list[str]


class ListedMetrics(NamedTuple):
    """The metrics that the documents list, sorted, and how many are served beside them."""

    custom: list[ParentResource]
    external: list[str]
    left_out: int = 0


_EMPTY_CUSTOM = ParentResource("", namespaced=False, metrics=[_EMPTY_CUSTOM_METRIC])
_GET = msgspec.Raw(b'["get"]')
_GET_LIST = msgspec.Raw(b'["get","list"]')
_NO_VERBS = msgspec.Raw(b"[]")


class _Resource(msgspec.Struct, gc=False):
    """An entry of an APIResourceList."""

    name: str
    singularName: str
    namespaced: bool
    kind: str
    verbs: msgspec.Raw


class _Subresource(msgspec.Struct, gc=False):
    """A subresource in an aggregated document."""

    subresource: str
    responseKind: msgspec.Raw
    verbs: msgspec.Raw


class _Aggregated(msgspec.Struct, gc=False):
    """A resource in an aggregated document; without a kind where only its subresources are served."""

    resource: str
    responseKind: msgspec.Raw
    scope: str
    singularResource: str
    verbs: msgspec.Raw


class _Builders(NamedTuple):
    """How the two documents list the resources of one group: the members of a list in JSON, by version."""

    legacy: Callable[[str, ListedMetrics], Iterator[bytes]]
    aggregated: Callable[[str, ListedMetrics], Iterator[bytes]]


def group_entry(group: str, versions: Sequence[str]) -> dict[str, object]:
    """Return a group with its versions, the preferred one first."""
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def resource_list(group: str, version: str, listed: ListedMetrics) -> Iterator[bytes]:
    """Yield the APIResourceList of a group-version."""
    head = b'{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/%s","resources":['
    yield head % (group.encode(), version.encode())
    yield from _BUILDERS[group].legacy(version, listed)
    yield b"]}\n"


def aggregated(served: Mapping[str, Sequence[str]], listed: ListedMetrics) -> Iterator[bytes]:
    """Yield the APIGroupDiscoveryList of groups and their versions."""
    yield b'{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":['
    for number, (group, versions) in enumerate(served.items()):
        yield b'%s{"metadata":{"name":"%s"},"versions":[' % (b"," if number else b"", group.encode())
        for place, version in enumerate(versions):
            start = b'%s{"version":"%s","freshness":"Current","resources":['
            yield start % (b"," if place else b"", version.encode())
            yield from _BUILDERS[group].aggregated(version, listed)
            yield b"]}"
        yield b"]}"
    yield b"]}\n"


def listing(
    custom: Iterable[CustomMetricInfo], external: Iterable[str], most: int = MOST_LISTED
) -> Generator[None, None, ListedMetrics]:
    """Return the metrics to list, in steps of about a millisecond.

    Of too many custom metrics each parent has an equal share; what one does not need goes to the others.
    """
    parents = yield from _group(custom)
    kept: list[ParentResource] = []
    room = most
    by_size = sorted(parents, key=lambda parent: len(parent.metrics))
    for number, parent in enumerate(by_size):
        metrics, used = _cut(parent.metrics, room // (len(by_size) - number))
        room -= used
        if metrics:
            kept.append(parent._replace(metrics=metrics))
        yield
    names = sorted(dict.fromkeys(external))
    external_kept, _ = _cut(names, most)
    total = sum(len(parent.metrics) for parent in parents) + len(names)
    left_out = total - sum(len(parent.metrics) for parent in kept) - len(external_kept)
    return ListedMetrics(sorted(kept), external_kept, left_out)


def _group(metrics: Iterable[CustomMetricInfo]) -> Generator[None, None, list[ParentResource]]:
    """Return the metrics by the resource they describe, sorted, with one scope each: namespaced wins."""
    found: dict[GroupResource, tuple[list[str], list[str]]] = {}
    for number, each in enumerate(metrics, 1):
        scopes = found.get(each.resource)
        if scopes is None:
            scopes = found[each.resource] = ([], [])
        scopes[each.namespaced].append(each.metric)
        if number % _STEP == 0:
            yield
    return [
        # usually they are sorted already, and sorting costs next to nothing
        ParentResource(str(resource), bool(namespaced), sorted(dict.fromkeys(namespaced or others)))
        for resource, (others, namespaced) in found.items()
    ]


def _cut(names: list[str], room: int) -> tuple[list[str], int]:
    """Return the first names that fit, and the room they take."""
    used = 0
    for number, name in enumerate(names):
        weight = 1 + len(name) // _COUNTS_AS_ONE
        if used + weight > room:
            return names[:number], used
        used += weight
    return names, used


def _parents(listed: ListedMetrics) -> list[ParentResource]:
    return listed.custom or [_EMPTY_CUSTOM]


def _custom_legacy(_: str, listed: ListedMetrics) -> Iterator[bytes]:
    for number, parent in enumerate(_parents(listed)):
        prefix, namespaced = f"{parent.name}/", parent.namespaced

        def build(metric: str, prefix: str = prefix, namespaced: bool = namespaced) -> _Resource:  # noqa: FBT001 - bound here
            return _Resource(prefix + metric, "", namespaced, "MetricValueList", _GET)

        yield from encoding.members(parent.metrics, build, first=not number)


def _custom_aggregated(version: str, listed: ListedMetrics) -> Iterator[bytes]:
    kind = _response_kind(CUSTOM_GROUP, version, "MetricValueList")
    no_kind = _response_kind("", "", "")  # clients of 0.26 crash without it
    for number, parent in enumerate(_parents(listed)):
        entry = _Aggregated(parent.name, no_kind, _scope(parent.namespaced), "", _NO_VERBS)
        yield (b"," if number else b"") + encoding.encode_fragment(entry)[:-1] + b',"subresources":['
        yield from encoding.members(parent.metrics, lambda metric: _Subresource(metric, kind, _GET))
        yield b"]}"


def _external(listed: ListedMetrics) -> list[str]:
    return listed.external or [_EMPTY_EXTERNAL]


def _external_legacy(_: str, listed: ListedMetrics) -> Iterator[bytes]:
    def build(metric: str) -> _Resource:
        return _Resource(metric, "", namespaced=True, kind="ExternalMetricValueList", verbs=_GET)

    yield from encoding.members(_external(listed), build)


def _external_aggregated(version: str, listed: ListedMetrics) -> Iterator[bytes]:
    kind = _response_kind(EXTERNAL_GROUP, version, "ExternalMetricValueList")
    yield from encoding.members(
        _external(listed), lambda metric: _Aggregated(metric, kind, "Namespaced", "", _GET)
    )


_USAGE_KINDS = {"nodes": ("NodeMetrics", False), "pods": ("PodMetrics", True)}


def _resource_legacy(_: str, __: ListedMetrics) -> Iterator[bytes]:
    def build(name: str) -> _Resource:
        kind, namespaced = _USAGE_KINDS[name]
        return _Resource(name, "", namespaced, kind, _GET_LIST)

    yield from encoding.members(tuple(_USAGE_KINDS), build)


def _resource_aggregated(version: str, _: ListedMetrics) -> Iterator[bytes]:
    def build(name: str) -> _Aggregated:
        kind, namespaced = _USAGE_KINDS[name]
        return _Aggregated(
            name, _response_kind(RESOURCE_GROUP, version, kind), _scope(namespaced), "", _GET_LIST
        )

    yield from encoding.members(tuple(_USAGE_KINDS), build)


def _scope(namespaced: bool) -> str:  # noqa: FBT001 - the field's own meaning
    return "Namespaced" if namespaced else "Cluster"


def _response_kind(group: str, version: str, kind: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"group": group, "version": version, "kind": kind}))


_BUILDERS: Mapping[str, _Builders] = MappingProxyType(
    {
        CUSTOM_GROUP: _Builders(_custom_legacy, _custom_aggregated),
        EXTERNAL_GROUP: _Builders(_external_legacy, _external_aggregated),
        RESOURCE_GROUP: _Builders(_resource_legacy, _resource_aggregated),
    }
)
