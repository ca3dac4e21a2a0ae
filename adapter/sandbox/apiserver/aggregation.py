"""The aggregation layer: discovery of APIServices, and the proxy to the servers behind them.

A proxied request carries what kube-apiserver sends: its client certificate and the caller in X-Remote
headers, and none of the caller's own credentials. The condition Available is never written.

Only Services of type ExternalName have an address. A real cluster reaches a port on loopback the same way.
"""

import base64
import binascii
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from adapter.sandbox.apiserver import status
from adapter.sandbox.apiserver.storage.kinds import Kind
from adapter.sandbox.apiserver.storage.objects import ObjectRegistry, store_key
from adapter.sandbox.apiserver.storage.store import JSON

_TIMEOUT = aiohttp.ClientTimeout(total=60.0)
_DISCOVERY_TIMEOUT = aiohttp.ClientTimeout(total=5.0)
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_DISCOVERER = ("system:kube-aggregator", ("system:masters",))

# Of the caller's headers these go on; of the answer's these come back.
_FORWARDED = ("Accept", "Accept-Encoding", "User-Agent", "Audit-Id", "If-None-Match", "Traceparent")
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

    def __init__(self, objects: ObjectRegistry, kinds: Mapping[str, Kind], certificate: Path | None) -> None:
        """Read objects of the two `kinds`, ``apiservices`` and ``services``."""
        self._objects = objects
        self._kinds = kinds
        self._certificate = certificate
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def backends(self) -> list[Backend]:
        """Return the group-versions of APIServices, the highest priority first."""
        records = self._objects.store.records(store_key(self._kinds["apiservices"]), "")
        found = [
            self._backend(record.document)
            for record in records
            if record.document.get("spec", {}).get("service")
        ]
        return sorted(found, key=lambda each: (each.priority, each.group, each.version))

    def backend(self, path: str) -> Backend | None:
        """Return the server of a path, None if this cluster serves it itself."""
        parts = path.split("/")
        if len(parts) < 4 or parts[1] != "apis":
            return None
        return next((each for each in self.backends() if [each.group, each.version] == parts[2:4]), None)

    def _backend(self, document: JSON) -> Backend:
        spec = document["spec"]
        service = spec["service"]
        services = store_key(self._kinds["services"])
        found = self._objects.store.get(services, service["namespace"], service["name"])
        host = found.document.get("spec", {}).get("externalName", "") if found is not None else ""
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
        group = "system:unauthenticated" if user == "system:anonymous" else "system:authenticated"
        try:
            async with self._ask(
                backend, request.method, request.raw_path, headers, (user, (group,))
            ) as answer:
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
        for each in self.backends():
            if each.url not in documents:
                documents[each.url] = await self._read_discovery(each)
            entry = groups.setdefault(each.group, {"metadata": {"name": each.group}, "versions": []})
            entry["versions"].append(_version_in(documents[each.url], each))
        return list(groups.values())

    async def _read_discovery(self, backend: Backend) -> JSON:
        headers = CIMultiDict({"Accept": _AGGREGATED})
        if not backend.url:
            return {}
        try:
            async with self._ask(backend, "GET", "/apis", headers, _DISCOVERER, _DISCOVERY_TIMEOUT) as answer:
                found: JSON = msgspec.json.decode(await answer.read()) if answer.status == 200 else {}
        except (aiohttp.ClientError, TimeoutError, msgspec.DecodeError):
            return {}
        return found

    def _ask(
        self,
        backend: Backend,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        caller: tuple[str, tuple[str, ...]],
        timeout: aiohttp.ClientTimeout = _TIMEOUT,
    ) -> Any:
        if self._session is None:
            self._session = aiohttp.ClientSession(auto_decompress=False)
        headers["X-Remote-User"] = caller[0]
        for group in caller[1]:
            headers.add("X-Remote-Group", group)
        return self._session.request(
            method,
            URL(backend.url + target, encoded=True),
            headers=headers,
            ssl=self._trust(backend),
            server_hostname=backend.name or None,
            timeout=timeout,
            allow_redirects=False,
        )

    def _trust(self, backend: Backend) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=backend.authority or None)
        if not backend.name:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self._certificate is not None:
            context.load_cert_chain(self._certificate)
        return context


def group_versions(backends: list[Backend]) -> dict[str, list[str]]:
    """Return groups and their versions, the preferred one first, as a plain group list has them."""
    found: dict[str, list[str]] = {}
    for each in backends:
        found.setdefault(each.group, []).append(each.version)
    return found


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
