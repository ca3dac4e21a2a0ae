"""A small Kubernetes API server over real HTTP, for tests and for trials without a cluster.

A request passes the programmed faults, authentication and authorization before it reaches the handlers.
Python code creates objects and faults by method call. Clients see the behavior of a real API server for all
kinds that are served. A request that the sandbox does not implement gets 501 and a sentence that says so.
Nothing here reads a clock or runs a controller; `workloads` has the controllers.
"""

import asyncio
import base64
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from aiohttp import web

from fastpath_sandbox.apiserver import discovery, kinds, requests, status
from fastpath_sandbox.apiserver.handlers import ResourceHandlers
from fastpath_sandbox.apiserver.kinds import Kind, KindTable
from fastpath_sandbox.apiserver.objects import ObjectRegistry, timestamp
from fastpath_sandbox.apiserver.patches import merge
from fastpath_sandbox.apiserver.requests import Faults, Request, Target
from fastpath_sandbox.apiserver.reviews import Reviews
from fastpath_sandbox.apiserver.scale import WriteOptions
from fastpath_sandbox.apiserver.store import JSON, Change, Store
from fastpath_sandbox.apiserver.views import json_response, negotiate, parse_accept
from fastpath_sandbox.apiserver.watching import Watches
from fastpath_sandbox.listener import Listener

EPOCH = 1_767_225_600.0
VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+sandbox",
    "gitCommit": "0" * 40,
    "gitTreeState": "clean",
    "buildDate": timestamp(EPOCH),
    "goVersion": "none",
    "compiler": "none",
    "platform": "sandbox/python",
}
_OPENAPI = {
    "swagger": "2.0",
    "info": {"title": "Kubernetes", "version": "v1.36.0+sandbox"},
    "paths": {},
    "definitions": {},
}
_ANONYMOUS = "system:anonymous"


class Cluster(Listener):
    """A cluster that listens inside the ``async with`` block.

    `now` gives epoch seconds for timestamps; the default is fixed at the start of 2026. `log_size` is the
    number of changes of one kind that a watch can start behind. `bookmark_interval` is in seconds.

    With `aggregated_discovery` False, only the legacy documents are served. `gone_as_status` True answers a
    watch from a forgotten version with HTTP 410; the default is that of the watch cache: 200 and an ERROR
    event.

    `tokens` maps bearer tokens to user names and can change at any time; None accepts every request. `ca` is
    the PEM text that a kubeconfig names for `tls`. `proxy_certificate` is a PEM file of certificate and key,
    presented to the servers behind APIServices.
    """

    def __init__(
        self,
        port: int = 0,
        *,
        host: str = "127.0.0.1",
        now: Callable[[], float] = lambda: EPOCH,
        tls: ssl.SSLContext | None = None,
        ca: bytes | None = None,
        log_size: int = 10_000,
        bookmark_interval: float = 60.0,
        aggregated_discovery: bool = True,
        gone_as_status: bool = False,
        tokens: dict[str, str] | None = None,
        proxy_certificate: Path | None = None,
    ) -> None:
        super().__init__(self._handle, host, port, tls)
        self._ca = ca
        self._now = now
        self.kinds = KindTable()
        self.store = Store(log_size)
        self.reviews = Reviews()
        self.faults = Faults()
        self.forbid, self.allow = self.faults.forbid, self.faults.allow
        self.delay, self.fail = self.faults.delay, self.faults.fail
        self.lose_answers = self.faults.lose_answers
        self.tokens = tokens
        self.aggregated_discovery = aggregated_discovery
        self.requests: deque[Request] = deque(maxlen=100_000)
        self._objects = ObjectRegistry(self.store, self.kinds, now)
        self.store.subscribe(kinds.DEFINITIONS, self._definition_changed)
        self._watches = Watches(
            self.store, bookmark_interval=bookmark_interval, gone_as_status=gone_as_status
        )
        self._handlers = ResourceHandlers(self._objects, self.reviews, self._watches, now)
        self._aggregation = discovery.Aggregation(self.store, self.kinds, proxy_certificate)
        for name in ("default", "kube-system"):
            self.create({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}})

    async def stop(self) -> None:
        await super().stop()
        await self._aggregation.close()

    def kubeconfig(self, path: Path, token: str | None = None) -> Path:
        server: JSON = {"server": self.url}
        if self._tls and self._ca:
            server["certificate-authority-data"] = base64.b64encode(self._ca).decode()
        elif self._tls:
            server["insecure-skip-tls-verify"] = True
        context = {"cluster": "sandbox", "user": "sandbox", "namespace": "default"}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "sandbox",
            "clusters": [{"name": "sandbox", "cluster": server}],
            "users": [{"name": "sandbox", "user": {"token": token} if token else {}}],
            "contexts": [{"name": "sandbox", "context": context}],
        }
        path.write_text(yaml.safe_dump(document), encoding="utf-8")
        return path

    # Objects, from Python.

    def create(self, document: JSON, *, manager: str = "sandbox") -> JSON:
        """Create an object, its status included; a missing namespace is created, ``default`` if it has none.

        `manager` is the field manager for managedFields.
        """
        kind = self._kind_of(document)
        namespace = (document.get("metadata", {}).get("namespace") or "default") if kind.namespaced else ""
        return self._objects.create(kind, namespace, document, WriteOptions(manager), trusted=True).copied()

    def update(self, document: JSON, *, manager: str = "sandbox") -> JSON:
        """Replace an object and its status; a resourceVersion in it must be current."""
        kind = self._kind_of(document)
        metadata = document["metadata"]
        namespace = (metadata.get("namespace") or "default") if kind.namespaced else ""
        record, _ = self._objects.replace(kind, namespace, metadata["name"], document, WriteOptions(manager))
        if "status" in kind.subresources and "status" in document:
            current = {**document, "metadata": {**metadata, "resourceVersion": str(record.version)}}
            record, _ = self._objects.replace(
                kind, namespace, metadata["name"], current, WriteOptions(subresource="status")
            )
        return record.copied()

    def patch(
        self, kind: str, name: str, change: JSON, namespace: str = "default", *, manager: str = "sandbox"
    ) -> JSON:
        """Apply a JSON merge patch to an object, its status included."""
        return self.update(merge(self.get(kind, name, namespace), change), manager=manager)

    def scale(self, kind: str, name: str, replicas: int, namespace: str = "default", *, manager: str) -> JSON:
        """Write the replicas of an object through its Scale, as another client does; return the object."""
        row, namespace = self._scoped(kind, namespace)
        scale = {"spec": {"replicas": replicas}}
        rescale = self._objects.rescale
        return rescale(row, namespace, name, lambda _: scale, WriteOptions(manager)).copied()

    def delete(self, kind: str, name: str, namespace: str = "default") -> None:
        """Delete an object and all that it owns."""
        row, namespace = self._scoped(kind, namespace)
        self._objects.delete(row, self._objects.read(row, namespace, name))

    def get(self, kind: str, name: str, namespace: str = "default") -> JSON:
        """Return a copy of an object; raise StatusFailure 404 if it does not exist."""
        row, namespace = self._scoped(kind, namespace)
        return self._objects.read(row, namespace, name).copied()

    def list(self, kind: str, namespace: str = "") -> list[JSON]:
        """Return copies of the objects of a kind in list order, of one namespace if given."""
        row = self.kinds.find(kind)
        return [record.copied() for record in self.store.records(row.key, namespace)]

    def add_kind(self, kind: Kind) -> Kind:
        """Serve a kind as a custom resource; discovery shows it at once."""
        kind = kind._replace(custom=True)
        self.kinds.add(kind)
        return kind

    def remove_kind(self, kind: Kind) -> None:
        self.kinds.remove(kind)

    def _definition_changed(self, change: Change) -> None:
        """Serve the kinds of a changed CustomResourceDefinition; a deleted one takes its objects with it."""
        before = kinds.kinds_of_definition(change.old.document) if change.old is not None else []
        after = kinds.kinds_of_definition(change.new.document) if change.new is not None else []
        for kind in before:
            self.kinds.remove(kind)
        for kind in after:
            self.kinds.add(kind)
        for key in {kind.key for kind in before} - {kind.key for kind in after}:
            for record in list(self.store.records(key)):
                self.store.remove(key, record)

    def _kind_of(self, document: JSON) -> Kind:
        group = document.get("apiVersion", "").rpartition("/")[0]
        kind = self.kinds.find(f"{document['kind']}.{group}" if group else document["kind"])
        if kind.api_version != document.get("apiVersion"):
            raise LookupError(
                f"{document['kind']} is {kind.api_version} here, not {document.get('apiVersion')!r}"
            )
        return kind

    def _scoped(self, kind: str, namespace: str) -> tuple[Kind, str]:
        row = self.kinds.find(kind)
        return row, namespace if row.namespaced else ""

    # Faults.

    def cut_watches(self) -> int:
        """Close every open watch in the middle of the stream; return their number."""
        transports = list(self._watches.transports)
        for transport in transports:
            transport.abort()
        return len(transports)

    @property
    def open_watches(self) -> int:
        """Return the number of open watches."""
        return len(self._watches.transports)

    def freeze_watches(self) -> None:
        """Silence all watches, bookmarks included; their connections stay open."""
        self._watches.flowing.clear()

    def thaw_watches(self) -> None:
        """Resume all watches and send the changes they missed."""
        self._watches.flowing.set()

    def compact(self) -> None:
        """Drop the log of changes: watches and continued lists from older versions get 410."""
        self.store.compact()

    async def down(self, *, refuse: bool = True) -> None:
        """Refuse connections and cut open ones; with `refuse` False, answer everything with 503."""
        if not refuse:
            self.faults.unavailable = True
            self.cut_watches()
            return
        await super().down()

    async def up(self) -> None:
        """Listen again at the same address."""
        self.faults.unavailable = False
        await super().up()

    # The way of a request.

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        target = requests.parse_target(self.kinds, request.method, request.path, request.query)
        user = self._user(request)
        self.requests.append(_build_request(request, target, user or ""))
        try:
            if self.faults.unavailable:
                raise status.failure(503)
            if target is not None:
                await asyncio.sleep(self.faults.delay_of(target))
            if user is None:
                raise status.unauthorized()
            backend = self._aggregation.backend(request.path) if target is None else None
            if backend is not None:
                return await self._aggregation.forward(request, backend, user)
            if target is None:
                return await self._answer_other(request)
            if self.faults.is_forbidden(target):
                where = {"namespace": target.namespace, "name": target.name}
                raise status.forbidden(user, target.verb, target.kind, target.subresource, **where)
            return await self._answer(request, target)
        except status.StatusFailure as failure:
            return json_response(failure.encode(), failure.code)

    async def _answer(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        code = self.faults.next_code(target)
        if code:
            raise status.failure(code)
        answer = await self._handlers.answer(request, target)
        if code == 0 and request.transport is not None:
            request.transport.abort()
        return answer

    def _user(self, request: web.BaseRequest) -> str | None:
        if self.tokens is None:
            return _ANONYMOUS
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        return self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None

    async def _answer_other(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer a path without a resource: health, version, discovery."""
        path = request.path.rstrip("/") or "/"
        if path in self.faults.forbidden_paths:
            raise status.forbidden_path(self._user(request) or "", path)
        if path in {"/livez", "/readyz", "/healthz"}:
            return web.Response(text="ok")
        if request.method not in {"GET", "HEAD"}:
            return _unknown_path()
        if path == "/version":
            return _json(VERSION)
        if path == "/openapi/v2":
            negotiate(request.headers.get("Accept", ""))
            return _json(_OPENAPI)
        if path == "/openapi/v3":
            return _json({"paths": {}})
        if path in {"/api", "/apis"} and self.aggregated_discovery:
            version = _aggregated_version(request.headers.get("Accept", ""))
            if version:
                document = discovery.aggregated(
                    self.kinds, version, core=path == "/api", stale=self.faults.stale
                )
                if path == "/apis":
                    document["items"] += await self._aggregation.discover()
                form = f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
                return json_response(msgspec.json.encode(document), content_type=form)
        legacy = discovery.legacy(
            path,
            self.kinds,
            address=self.address,
            others=self._aggregation.versions(),
            stale=self.faults.stale,
        )
        return _json(legacy) if legacy is not None else _unknown_path()


def _json(document: Mapping[str, Any]) -> web.Response:
    return json_response(msgspec.json.encode(document))


def _unknown_path() -> web.Response:
    return web.Response(text="404 page not found\n", status=404)


def _aggregated_version(accept: str) -> str:
    for media in parse_accept(accept):
        if (
            media.parameters.get("as") == "APIGroupDiscoveryList"
            and media.parameters.get("g") == "apidiscovery.k8s.io"
        ):
            version = media.parameters.get("v", "")
            if version in discovery.AGGREGATED_VERSIONS:
                return version
        elif media.type in {"application/json", "*/*"}:
            return ""
    return ""


def _build_request(request: web.BaseRequest, target: Target | None, user: str) -> Request:
    return Request(
        request.method,
        request.path,
        dict(request.query),
        request.headers.get("User-Agent", ""),
        user,
        target.verb if target else "",
        target.resource if target else "",
        target.namespace if target else "",
        target.name if target else "",
        request.headers.get("Accept", ""),
    )
