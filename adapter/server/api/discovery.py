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

import functools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.model.metrics import CustomMetricInfo, GroupResource
from adapter.server.api import encoding
from adapter.server.api.paths import CUSTOM_GROUP, RESOURCE_GROUP

MOST_LISTED = 20_000
"""Metrics of one API that its documents list. Each `COUNTS_AS_ONE` characters of a name count as one."""

COUNTS_AS_ONE = 100
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


# The entries that upstream's library lists for a provider without metrics: clients warn about an empty list,
# or fail.
_EMPTY_CUSTOM = ParentResource("", namespaced=False, metrics=["custommetrics"])
_EMPTY_EXTERNAL = "externalmetrics"

_SCOPES = {True: "Namespaced", False: "Cluster"}
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


def group_entry(group: str, versions: Sequence[str]) -> dict[str, object]:
    """Return a group with its versions, the preferred one first."""
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def resource_list(group: str, version: str, listed: ListedMetrics) -> Iterator[bytes]:
    head = b'{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"%s/%s","resources":['
    yield head % (group.encode(), version.encode())
    if group == CUSTOM_GROUP:
        for number, parent in enumerate(listed.custom or [_EMPTY_CUSTOM]):
            build = functools.partial(_custom_resource, parent)
            yield from encoding.members(parent.metrics, build, first=not number)
    else:
        yield from encoding.members(_flat_resources(group, listed), lambda resource: resource)
    yield b"]}\n"


def aggregated(served: Mapping[str, Sequence[str]], listed: ListedMetrics) -> Iterator[bytes]:
    """Yield the APIGroupDiscoveryList of groups and their versions."""
    yield b'{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":['
    for number, (group, versions) in enumerate(served.items()):
        yield b'%s{"metadata":{"name":"%s"},"versions":[' % (b"," if number else b"", group.encode())
        for place, version in enumerate(versions):
            start = b'%s{"version":"%s","freshness":"Current","resources":['
            yield start % (b"," if place else b"", version.encode())
            if group == CUSTOM_GROUP:
                yield from _aggregated_parents(version, listed)
            else:
                build = functools.partial(_aggregated_resource, group, version)
                yield from encoding.members(_flat_resources(group, listed), build)
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
    names: dict[GroupResource, tuple[list[str], list[str]]] = {}
    for number, info in enumerate(metrics, 1):
        scopes = names.get(info.resource)
        if scopes is None:
            scopes = names[info.resource] = ([], [])
        scopes[info.namespaced].append(info.metric)
        if number % _STEP == 0:
            yield
    return [
        # usually they are sorted already, and sorting costs next to nothing
        ParentResource(str(resource), bool(namespaced), sorted(dict.fromkeys(namespaced or others)))
        for resource, (others, namespaced) in names.items()
    ]


def _cut(names: list[str], room: int) -> tuple[list[str], int]:
    """Return the first names that fit, and the room they take."""
    used = 0
    for number, name in enumerate(names):
        weight = 1 + len(name) // COUNTS_AS_ONE
        if used + weight > room:
            return names[:number], used
        used += weight
    return names, used


def _custom_resource(parent: ParentResource, metric: str) -> _Resource:
    return _Resource(f"{parent.name}/{metric}", "", parent.namespaced, "MetricValueList", _GET)


def _aggregated_parents(version: str, listed: ListedMetrics) -> Iterator[bytes]:
    kind = _response_kind(CUSTOM_GROUP, version, "MetricValueList")
    no_kind = _response_kind("", "", "")  # clients of 0.26 crash without it
    for number, parent in enumerate(listed.custom or [_EMPTY_CUSTOM]):
        entry = _Aggregated(parent.name, no_kind, _SCOPES[parent.namespaced], "", _NO_VERBS)
        yield (b"," if number else b"") + encoding.encode_fragment(entry)[:-1] + b',"subresources":['
        yield from encoding.members(parent.metrics, lambda metric: _Subresource(metric, kind, _GET))
        yield b"]}"


def _flat_resources(group: str, listed: ListedMetrics) -> Iterator[_Resource]:
    """Yield the resources of a group whose metrics describe no parent."""
    if group == RESOURCE_GROUP:
        yield _Resource("nodes", "", namespaced=False, kind="NodeMetrics", verbs=_GET_LIST)
        yield _Resource("pods", "", namespaced=True, kind="PodMetrics", verbs=_GET_LIST)
        return
    for metric in listed.external or [_EMPTY_EXTERNAL]:
        yield _Resource(metric, "", namespaced=True, kind="ExternalMetricValueList", verbs=_GET)


def _aggregated_resource(group: str, version: str, resource: _Resource) -> _Aggregated:
    kind, scope = _response_kind(group, version, resource.kind), _SCOPES[resource.namespaced]
    return _Aggregated(resource.name, kind, scope, "", resource.verbs)


@functools.lru_cache(maxsize=16)
def _response_kind(group: str, version: str, kind: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"group": group, "version": version, "kind": kind}))
