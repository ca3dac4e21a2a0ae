# ruff: noqa: N815 - the fields are named as they are sent
"""The documents that say what is served: discovery, OpenAPI roots, version, the list of paths.

Answering them asks nobody: each is built from the provider's lists when it is first wanted after the provider's
`generation` changed, and kept as bytes. It is built in a thread, and there parent by parent: one sort or one encoding of
ten thousand metrics is a single call that holds the interpreter longer than the event loop may stand still. kube-aggregator reads them all the time, and what it cannot read or convert it
publishes as stale for the whole cluster; hence two laws. Every served group-version is in every list, with a fixed
entry where there is no metric. And all metrics of one parent resource have one scope, or the conversion of the whole
group-version fails: where scopes clash, the namespaced ones stay.
"""

import asyncio
import functools
import hashlib
import platform
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from adapter.model.metrics import CustomMetricInfo
from adapter.server import bodies, negotiation
from adapter.server.api import CUSTOM_GROUP, EXTERNAL_GROUP, VERSIONS, MetricsProvider

# What upstream's library lists when a provider has nothing: clients warn about an empty list, or fail on it.
_EMPTY_CUSTOM_METRIC = "custommetrics"
_EMPTY_EXTERNAL = "externalmetrics"

_LIST_KINDS = {CUSTOM_GROUP: "MetricValueList", EXTERNAL_GROUP: "ExternalMetricValueList"}
_HEALTH_PATHS = ("/healthz", "/livez", "/readyz")


class Parent(NamedTuple):
    """A resource and the metrics that describe it."""

    name: str
    namespaced: bool
    metrics: list[str]


_EMPTY_CUSTOM = Parent("", namespaced=False, metrics=[_EMPTY_CUSTOM_METRIC])
_GET = msgspec.Raw(b'["get"]')


class _Resource(msgspec.Struct, gc=False):
    name: str
    singularName: str
    namespaced: bool
    kind: str
    verbs: msgspec.Raw


class _Subresource(msgspec.Struct, gc=False):
    subresource: str
    responseKind: msgspec.Raw
    verbs: msgspec.Raw


class _ExternalResource(msgspec.Struct, gc=False):
    resource: str
    responseKind: msgspec.Raw
    scope: str
    singularResource: str
    verbs: msgspec.Raw


class Document(NamedTuple):
    """A document ready to send. `etag` is quoted, and "" where a 304 would count as a failure."""

    body: bytes
    content_type: str
    etag: str


class _Listed(NamedTuple):
    """What the provider had to list when building began."""

    custom: Sequence[CustomMetricInfo]
    external: Sequence[str]


_Builder = Callable[[_Listed], Document]


class Documents:
    """All documents of one server. `served_groups` are served whether or not they have metrics, others never."""

    def __init__(self, provider: MetricsProvider, served_groups: Iterable[str], version: str) -> None:
        self._provider = provider
        self.served_groups: tuple[str, ...] = ()
        self._version = version
        self._generation: int | None = None
        self._built: dict[tuple[str, bool], Document] = {}
        self._building = asyncio.Lock()
        self._builders: dict[tuple[str, bool], _Builder] = {}
        self.serve(served_groups)

    def serve(self, groups: Iterable[str]) -> None:
        """Serve these groups too.

        A group once served stays: an APIService may stand for it, and one without an answer harms the whole cluster.
        """
        wanted = {*self.served_groups, *groups}
        if unknown := wanted - VERSIONS.keys():
            raise ValueError(f"no such API group: {', '.join(sorted(unknown))}")
        if wanted != set(self.served_groups) or not self._builders:
            self.served_groups = tuple(sorted(wanted))
            self._built.clear()
            self._builders = self._table()

    async def find(self, path: str, *, aggregated: bool = False) -> Document | None:
        """Return the document at `path` (no slash at its end), None where there is none.

        `aggregated` asks for the aggregated form; only ``/apis`` has one.
        """
        build = self._builders.get((path, aggregated))
        if build is None:
            return None
        document = self._find_built(path, aggregated=aggregated)
        if document is not None:
            return document
        async with self._building:
            document = self._find_built(path, aggregated=aggregated)
            if document is not None:  # built while we waited
                return document
            current = (self._provider.generation, self.served_groups)
            listed = _Listed(self._provider.custom_metrics(), self._provider.external_metrics())
            document = await asyncio.to_thread(build, listed)
            if current == (self._provider.generation, self.served_groups):
                self._built[path, aggregated] = document
            return document

    def _find_built(self, path: str, *, aggregated: bool) -> Document | None:
        if self._generation != self._provider.generation:
            self._generation = self._provider.generation
            self._built.clear()
        return self._built.get((path, aggregated))

    def _table(self) -> dict[tuple[str, bool], _Builder]:
        table: dict[tuple[str, bool], _Builder] = {
            ("/", False): lambda _: _indented({"paths": paths}),
            ("/index.html", False): lambda _: _indented({"paths": paths}),
            ("/apis", False): self._groups,
            ("/apis", True): self._aggregated,
            ("/openapi/v2", False): self._openapi_v2,
            ("/openapi/v3", False): lambda _: _plain({"paths": {}}, with_etag=True),
            ("/version", False): lambda _: _indented(_version_document(self._version)),
        }
        for group in self.served_groups:
            table[f"/apis/{group}", False] = functools.partial(_group_document, group)
            for version in VERSIONS[group]:
                table[f"/apis/{group}/{version}", False] = functools.partial(_resources, group, version)
        paths = sorted({path for path, _ in table} - {"/"} | {*_HEALTH_PATHS, "/metrics"})
        return table

    def _groups(self, _: _Listed) -> Document:
        groups = [_group_entry(group) for group in self.served_groups]
        return _plain({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})

    def _aggregated(self, listed: _Listed) -> Document:
        builders = {CUSTOM_GROUP: _aggregated_custom, EXTERNAL_GROUP: _aggregated_external}
        items = [
            {
                "metadata": {"name": group},
                "versions": [
                    {"version": version, "freshness": "Current", "resources": builders[group](version, listed)}
                    for version in VERSIONS[group]
                ],
            }
            for group in self.served_groups
        ]
        document = {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }
        return _document(document, negotiation.AGGREGATED, with_etag=True)

    def _openapi_v2(self, _: _Listed) -> Document:
        info = {"title": "fastpath-adapter", "version": self._version}
        return _plain({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}}, with_etag=True)


def group_by_parent(metrics: Iterable[CustomMetricInfo]) -> list[Parent]:
    """Return the metrics by the resource they describe, all sorted by name, with one scope each: namespaced wins."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for info in metrics:
        found.setdefault(str(info.resource), (set(), set()))[info.namespaced].add(info.metric)
    return [
        Parent(name, bool(found[name][True]), sorted(found[name][True] or found[name][False])) for name in sorted(found)
    ]


def _group_entry(group: str) -> dict[str, object]:
    """Return a group as upstream's library states it: with its preferred version only, though the others are served too."""
    version = VERSIONS[group][0]
    entry = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


def _group_document(group: str, _: _Listed) -> Document:
    return _plain({"kind": "APIGroup", "apiVersion": "v1", **_group_entry(group)})


def _parents(listed: _Listed) -> list[Parent]:
    return group_by_parent(listed.custom) or [_EMPTY_CUSTOM]


def _external(listed: _Listed) -> list[str]:
    return sorted(set(listed.external)) or [_EMPTY_EXTERNAL]


def _resources(group: str, version: str, listed: _Listed) -> Document:
    kind = _LIST_KINDS[group]
    if group == CUSTOM_GROUP:
        parts = [
            [_Resource(f"{parent.name}/{metric}", "", parent.namespaced, kind, _GET) for metric in parent.metrics]
            for parent in _parents(listed)
        ]
    else:
        parts = [[_Resource(metric, "", True, kind, _GET) for metric in _external(listed)]]
    resources = msgspec.Raw(b"[" + b",".join(msgspec.json.encode(part)[1:-1] for part in parts) + b"]")
    document = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{group}/{version}"}
    return _plain({**document, "resources": resources})


def _aggregated_custom(version: str, listed: _Listed) -> list[dict[str, object]]:
    kind = _response_kind(CUSTOM_GROUP, version)
    return [
        {
            "resource": parent.name,
            "responseKind": {"group": "", "version": "", "kind": ""},  # clients of 0.26 crash without it
            "scope": "Namespaced" if parent.namespaced else "Cluster",
            "singularResource": "",
            "verbs": [],
            "subresources": msgspec.Raw(
                msgspec.json.encode([_Subresource(metric, kind, _GET) for metric in parent.metrics])
            ),
        }
        for parent in _parents(listed)
    ]


def _aggregated_external(version: str, listed: _Listed) -> msgspec.Raw:
    kind = _response_kind(EXTERNAL_GROUP, version)
    entries = [_ExternalResource(metric, kind, "Namespaced", "", _GET) for metric in _external(listed)]
    return msgspec.Raw(msgspec.json.encode(entries))


def _response_kind(group: str, version: str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({"group": group, "version": version, "kind": _LIST_KINDS[group]}))


def _version_document(version: str) -> dict[str, object]:
    """Return the document that `kubectl version` reads. What describes a Go build is empty, or Python's own."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return {
        "major": numbers[1] if numbers else "",
        "minor": numbers[2] if numbers else "",
        "gitVersion": f"v{version}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{sys.platform}/{platform.machine()}",
    }


def _plain(document: Mapping[str, object], *, with_etag: bool = False) -> Document:
    return _document(document, negotiation.JSON, with_etag=with_etag)


def _indented(document: Mapping[str, object]) -> Document:
    """Return a document that upstream always indents."""
    return Document(bodies.indent(bodies.encode_as_built(document)), negotiation.JSON, "")


def _document(document: Mapping[str, object], content_type: str, *, with_etag: bool) -> Document:
    body = bodies.encode_as_built(document)
    etag = f'"{hashlib.sha256(body).hexdigest().upper()}"' if with_etag else ""
    return Document(body, content_type, etag)
