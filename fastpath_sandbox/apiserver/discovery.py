"""Discovery documents, legacy and aggregated, and the aggregation layer for the servers behind APIServices.

Both forms of discovery are computed from the table of kinds at every request, so they agree, and a kind that
is added at run time appears at once.

A request that is proxied to the server of an APIService carries what kube-apiserver sends: its client
certificate and the caller in X-Remote headers, and none of the caller's own credentials. The condition
Available is never written. Only Services of type ExternalName have an address. A real cluster reaches a port
on loopback the same way.
"""

import base64
import binascii
import ssl
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from fastpath_sandbox.apiserver import status
from fastpath_sandbox.apiserver.kinds import SUBRESOURCE_VERBS, Kind, KindTable
from fastpath_sandbox.apiserver.store import JSON, Store

AGGREGATED_VERSIONS = ("v2", "v2beta1")
_SCALE = {"group": "autoscaling", "version": "v1", "kind": "Scale"}

_TIMEOUT = aiohttp.ClientTimeout(total=60.0)
_DISCOVERY_TIMEOUT = aiohttp.ClientTimeout(total=5.0)
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_FORWARDED = ("Accept", "Accept-Encoding", "User-Agent", "Audit-Id", "If-None-Match", "Traceparent")
"""The headers of the caller that go on; `_RETURNED` are those of the answer that come back."""
_RETURNED = (
    "Content-Type",
    "Content-Encoding",
    "ETag",
    "Vary",
    "Cache-Control",
    "Audit-Id",
    "Allow",
    "Retry-After",
)


def legacy(
    path: str,
    kinds: KindTable,
    *,
    address: str,
    others: Mapping[str, list[str]],
    stale: Collection[tuple[str, str]],
) -> JSON | None:
    """Return the legacy document of a path, None for an unknown group or version.

    `others` are the groups and versions of APIServices. A version in `stale` is a 503.
    """
    match path.strip("/").split("/"):
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in {**kinds.groups(), **others}.items()]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version]:
            return _resource_list(kinds, "", version)
        case ["apis", name]:
            versions = {**kinds.groups(), **others}.get(name)
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None
        case ["apis", name, version]:
            if (name, version) in stale:
                raise status.failure(503)
            return _resource_list(kinds, name, version)
    return None


def _group(name: str, versions: list[str]) -> JSON:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _resource_list(kinds: KindTable, group: str, version: str) -> JSON | None:
    served = kinds.of(group, version)
    if not served:
        return None
    resources = []
    for kind in served:
        scope = {"namespaced": kind.namespaced}
        plain = {"name": kind.plural, "singularName": kind.singular, "kind": kind.kind, **scope}
        resources.append(plain | {"verbs": list(kind.verbs)} | _short_forms(kind))
        for name in kind.subresources:
            entry = {"name": f"{kind.plural}/{name}", "singularName": "", "verbs": _verbs(name), **scope}
            resources.append(entry | (_SCALE if name == "scale" else {"kind": kind.kind}))
    document: JSON = {"kind": "APIResourceList", "resources": resources}
    if group:
        return document | {"apiVersion": "v1", "groupVersion": f"{group}/{version}"}
    return document | {"groupVersion": version}


def _short_forms(kind: Kind) -> JSON:
    fields = {"shortNames": list(kind.short_names), "categories": list(kind.categories)}
    return {field: names for field, names in fields.items() if names}


def _verbs(subresource: str) -> list[str]:
    return ["update"] if subresource == "finalize" else list(SUBRESOURCE_VERBS)


def aggregated(kinds: KindTable, version: str, *, core: bool, stale: Collection[tuple[str, str]]) -> JSON:
    """Return the APIGroupDiscoveryList of /api (`core`) or /apis; `stale` versions have no resources."""
    groups = {"": ["v1"]} if core else kinds.groups()
    items = []
    for name, versions in groups.items():
        entries: list[JSON] = [
            {"version": entry, "freshness": "Stale"}
            if (name, entry) in stale
            else {
                "version": entry,
                "resources": [_aggregated_resource(kind) for kind in kinds.of(name, entry)],
                "freshness": "Current",
            }
            for entry in versions
        ]
        metadata: JSON = {"creationTimestamp": None} | ({"name": name} if name else {})
        items.append({"metadata": metadata, "versions": entries})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _aggregated_resource(kind: Kind) -> JSON:
    group, version = (kind.group, kind.version) if kind.custom else ("", "")
    own = {"group": group, "version": version, "kind": kind.kind}
    entry: JSON = {
        "resource": kind.plural,
        "responseKind": own,
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": list(kind.verbs),
    }
    if kind.subresources:
        entry["subresources"] = [
            {"subresource": name, "responseKind": _SCALE if name == "scale" else own, "verbs": _verbs(name)}
            for name in kind.subresources
        ]
    return entry | _short_forms(kind)


class Backend(NamedTuple):
    """The server of a group-version.

    `url` is "" if the Service does not exist or has no address. `name` is the expected name in the server's
    certificate, "" if it is not verified.
    """

    group: str
    version: str
    url: str
    name: str
    authority: str
    priority: tuple[int, int]


class Aggregation:
    """Serves the groups that have an APIService with a Service.

    `certificate` is a PEM file of certificate and key, presented to the servers behind as kube-apiserver
    does.
    """

    def __init__(self, store: Store, kinds: KindTable, certificate: Path | None) -> None:
        self._store = store
        self._services = kinds.find("services").key
        self._apiservices = kinds.find("apiservices").key
        self._certificate = certificate
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def versions(self) -> dict[str, list[str]]:
        """Return the groups of APIServices and their versions, the preferred one first."""
        groups: dict[str, list[str]] = {}
        for backend in self._backends():
            groups.setdefault(backend.group, []).append(backend.version)
        return groups

    def backend(self, path: str) -> Backend | None:
        """Return the server of a path, None if this cluster serves it itself."""
        parts = path.split("/")
        if len(parts) < 4 or parts[1] != "apis":
            return None
        return next((api for api in self._backends() if [api.group, api.version] == parts[2:4]), None)

    def _backends(self) -> list[Backend]:
        """Return the group-versions of APIServices, the highest priority first."""
        backends = [
            self._backend(record.document)
            for record in self._store.records(self._apiservices)
            if record.document.get("spec", {}).get("service")
        ]
        return sorted(backends, key=lambda backend: (backend.priority, backend.group, backend.version))

    def _backend(self, document: JSON) -> Backend:
        spec = document["spec"]
        service = spec["service"]
        record = self._store.get(self._services, service["namespace"], service["name"])
        host = record.document.get("spec", {}).get("externalName", "") if record is not None else ""
        is_checked = not spec.get("insecureSkipTLSVerify")
        return Backend(
            spec["group"],
            spec["version"],
            f"https://{host}:{service.get('port', 443)}" if host else "",
            f"{service['name']}.{service['namespace']}.svc" if is_checked else "",
            _decode(spec.get("caBundle", "")),
            (-spec.get("groupPriorityMinimum", 0), -spec.get("versionPriority", 0)),
        )

    async def forward(self, request: web.BaseRequest, backend: Backend, user: str) -> web.Response:
        """Proxy a request of `user`."""
        if not backend.url:
            instead = "give its Service the type ExternalName and externalName localhost"
            raise status.not_built(
                f"an APIService ({backend.version}.{backend.group}) without an address", instead
            )
        headers = CIMultiDict((name, request.headers[name]) for name in _FORWARDED if name in request.headers)
        headers["X-Remote-User"] = user
        is_anonymous = user == "system:anonymous"
        headers["X-Remote-Group"] = "system:unauthenticated" if is_anonymous else "system:authenticated"
        try:
            async with self._ask(backend, request.method, request.raw_path, headers, _TIMEOUT) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise status.StatusFailure(
                503, "ServiceUnavailable", f"error trying to reach service: {error}"
            ) from error
        kept = {name: answer.headers[name] for name in _RETURNED if name in answer.headers}
        return web.Response(status=answer.status, body=body, headers=kept)

    async def discover(self) -> list[JSON]:
        """Return the groups of APIServices as an aggregated document has them; unreachable ones are stale."""
        groups: dict[str, JSON] = {}
        documents: dict[str, JSON] = {}
        for backend in self._backends():
            if backend.url not in documents:
                documents[backend.url] = await self._read_discovery(backend)
            entry = groups.setdefault(backend.group, {"metadata": {"name": backend.group}, "versions": []})
            entry["versions"].append(_version_in(documents[backend.url], backend))
        return list(groups.values())

    async def _read_discovery(self, backend: Backend) -> JSON:
        if not backend.url:
            return {}
        caller = {"X-Remote-User": "system:kube-aggregator", "X-Remote-Group": "system:masters"}
        headers = CIMultiDict({"Accept": _AGGREGATED} | caller)
        try:
            async with self._ask(backend, "GET", "/apis", headers, _DISCOVERY_TIMEOUT) as answer:
                document: JSON = msgspec.json.decode(await answer.read()) if answer.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return {}
        return document

    def _ask(
        self,
        backend: Backend,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        timeout: aiohttp.ClientTimeout,
    ) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=False)
        trust = ssl.create_default_context(cadata=backend.authority or None)
        if not backend.name:
            trust.check_hostname = False
            trust.verify_mode = ssl.CERT_NONE
        if self._certificate is not None:
            trust.load_cert_chain(self._certificate)
        return self._session.request(
            method,
            URL(backend.url + target, encoded=True),
            headers=headers,
            ssl=trust,
            server_hostname=backend.name or None,
            timeout=timeout,
            allow_redirects=False,
        )


def _version_in(document: JSON, backend: Backend) -> JSON:
    """Return a group-version of a server's document; an unlisted one has no resources."""
    if not document:
        return {"version": backend.version, "freshness": "Stale"}
    for item in document["items"]:
        for version in item["versions"] if item["metadata"]["name"] == backend.group else ():
            if version["version"] == backend.version:
                return dict(version)
    return {"version": backend.version, "resources": [], "freshness": "Current"}


def _decode(bundle: str) -> str:
    try:
        return base64.b64decode(bundle, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise status.bad_request(f"sandbox: caBundle is not base64 of a PEM text: {error}") from error
