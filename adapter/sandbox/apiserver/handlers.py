"""The verbs of the sandbox cluster over HTTP: from a decoded request to a response.

This module reads query parameters, bodies, list options and continue tokens, and starts watches. `objects`
carries out the writes and `views` encodes the responses. Every refusal is a Status object.
"""

import asyncio
import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import yaml
from aiohttp import web

from adapter.sandbox.apiserver import patches, requests, selectors, status, views, watching
from adapter.sandbox.apiserver import scale as scaling
from adapter.sandbox.apiserver.kinds import Kind
from adapter.sandbox.apiserver.objects import ObjectRegistry
from adapter.sandbox.apiserver.requests import Target
from adapter.sandbox.apiserver.reviews import Reviews
from adapter.sandbox.apiserver.scale import FieldManager
from adapter.sandbox.apiserver.store import JSON, KindKey, Record

JSON_TYPES = ("application/json", "application/yaml")
PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
_HEADERS = {"Cache-Control": "no-cache, private"}


def json_response(body: bytes, code: int = 200, content_type: str = "application/json") -> web.Response:
    return web.Response(body=body, status=code, headers=_HEADERS | {"Content-Type": content_type})


class WatchOptions:
    """The behavior of watches: see the arguments of Cluster."""

    def __init__(self, *, bookmark_interval: float, initial_events: bool, gone_as_status: bool) -> None:
        self.bookmark_interval = bookmark_interval
        self.initial_events = initial_events
        self.gone_as_status = gone_as_status
        self.gate = watching.StreamGate()
        self.transports: set[asyncio.Transport] = set()


class ResourceHandlers:
    """Answers requests for resources, one method for each verb."""

    def __init__(
        self, objects: ObjectRegistry, reviews: Reviews, watches: WatchOptions, now: Callable[[], float]
    ) -> None:
        self._objects = objects
        self._reviews = reviews
        self._watches = watches
        self._now = now

    async def answer(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Answer a request for a resource; raises StatusFailure."""
        target.check_method()
        kind = target.kind
        if not kind.stored and kind.verbs == ("create",):
            return json_response(
                msgspec.json.encode(self._reviews.answer(kind, await read_body(request))), 201
            )
        if not kind.stored:
            raise status.not_built(
                f"conversion to {kind.api_version} {kind.kind}", "ask for the preferred version of its group"
            )
        if target.verb == "watch":
            return await self._watch(request, target)
        form = views.negotiate(request.headers.get("Accept", ""))
        if target.verb == "list":
            return self._list(request.query, target, form)
        record, created = await self._act(request, target)
        if isinstance(record, web.Response):
            return record
        if target.subresource == "scale":
            return json_response(msgspec.json.encode(scaling.scale_of(kind, record)))
        shown = views.one(
            form, kind, record, self._now(), include=request.query.get("includeObject", "Metadata")
        )
        return json_response(shown, 201 if created else 200)

    async def _act(self, request: web.BaseRequest, target: Target) -> tuple[Record | web.Response, bool]:
        """Carry out the verb; the flag says whether an object was created."""
        kind, namespace, name = target.kind, target.namespace, target.name
        dry_run = request.query.get("dryRun") == "All"
        by = _writer(request)
        if target.verb == "get":
            return self._objects.read(kind, namespace, name), False
        if target.verb == "create":
            return self._objects.create(
                kind, namespace, await read_body(request), dry_run=dry_run, by=by
            ), True
        if target.verb == "update":
            document = await read_body(request)
            if target.subresource == "scale":
                scale = _object(document)
                return self._objects.rescale(
                    kind, namespace, name, lambda _: scale, dry_run=dry_run, by=by
                ), False
            return self._objects.replace(
                kind, namespace, name, document, target.subresource, dry_run=dry_run, by=by
            )
        if target.verb == "patch":
            return await self._patch(request, target, dry_run=dry_run, by=by)
        return await self._delete(request, target, dry_run=dry_run), False

    async def _patch(
        self, request: web.BaseRequest, target: Target, *, dry_run: bool, by: FieldManager
    ) -> tuple[Record, bool]:
        kind, namespace, name, subresource = target.kind, target.namespace, target.name, target.subresource
        media = _media_type(request)
        change = _change_of(media, await request.read(), kind)
        if subresource == "scale":
            rescale = self._objects.rescale
            return rescale(
                kind, namespace, name, lambda scale: _object(change(scale)), dry_run=dry_run, by=by
            ), False
        if media == "application/apply-patch+yaml":
            if not request.query.get("fieldManager"):
                message = "Required value: is required for apply patch"
                raise status.invalid(
                    "PatchOptions",
                    "meta.k8s.io",
                    "",
                    field="fieldManager",
                    message=message,
                    reason="FieldValueRequired",
                )
            if not subresource:
                applied = by._replace(operation="Apply")
                return self._objects.apply(kind, namespace, name, change, dry_run=dry_run, by=applied)
        return self._objects.patch(kind, namespace, name, change, subresource, dry_run=dry_run, by=by), False

    async def _delete(self, request: web.BaseRequest, target: Target, *, dry_run: bool) -> web.Response:
        kind = target.kind
        options = {**(_object(await read_body(request)) if request.can_read_body else {})}
        for field in ("propagationPolicy",):
            if field in request.query:
                options.setdefault(field, request.query[field])
        if target.verb == "delete":
            record = self._objects.read(kind, target.namespace, target.name)
            last = record if dry_run else self._objects.delete(kind, record, options)
            details: JSON = {
                "name": record.name,
                "kind": kind.plural,
                "uid": last.document["metadata"]["uid"],
            }
            if kind.group:
                details["group"] = kind.group
            if last.document["metadata"].get("finalizers") or kind.plural == "pods":
                return json_response(views.one(views.ObjectView.PLAIN, kind, last, self._now()))
            success = {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "details": details,
            }
            return json_response(msgspec.json.encode(success))
        predicate = _predicate(kind, request.query)
        chosen = [
            record for record in self._objects.store.records(kind.key, target.namespace) if predicate(record)
        ]
        for record in chosen:
            if not dry_run:
                self._objects.delete(kind, record, options)
        metadata = {"resourceVersion": str(self._objects.store.version)}
        return json_response(views.many(views.ObjectView.PLAIN, kind, chosen, metadata, self._now()))

    def _list(self, query: Mapping[str, str], target: Target, form: views.ObjectView) -> web.Response:
        kind = target.kind
        if "sendInitialEvents" in query:
            raise _forbidden_option("sendInitialEvents", "sendInitialEvents is forbidden for list")
        predicate = _predicate(kind, query)
        # As the watch cache does, a list from version 0 ignores the limit.
        limit = 0 if query.get("resourceVersion") == "0" else _unsigned("limit", query.get("limit") or "0")
        version, records = self._present(kind.key, target.namespace, query, limit)
        chosen = [record for record in records if predicate(record)]
        metadata: JSON = {"resourceVersion": str(version)}
        if limit and len(chosen) > limit:
            if predicate is selectors.everything:
                metadata["remainingItemCount"] = len(chosen) - limit
            chosen = chosen[:limit]
            metadata["continue"] = _write_token(version, chosen[-1].key)
        return json_response(
            views.many(
                form, kind, chosen, metadata, self._now(), include=query.get("includeObject", "Metadata")
            )
        )

    def _present(
        self, key: KindKey, namespace: str, query: Mapping[str, str], limit: int
    ) -> tuple[int, Iterator[Record]]:
        """Return the version and records of a list: the present, or the past that a token or Exact names."""
        store = self._objects.store
        if query.get("continue"):
            version, after = _read_token(query["continue"])
            records = store.records_at(key, version, namespace, after)
            if records is None:
                raise status.continue_expired()
            return version, records
        asked = query.get("resourceVersion", "")
        if asked not in {"", "0"}:
            version = _unsigned("resourceVersion", asked)
            if version > store.version:
                raise status.too_large_version(version, store.version)
            if query.get("resourceVersionMatch", "Exact" if limit else "NotOlderThan") == "Exact":
                records = store.records_at(key, version, namespace)
                if records is None:
                    raise status.too_old(version, store.horizon(key))
                return version, records
        return store.version, store.records(key, namespace)

    async def _watch(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        query, kind = request.query, target.kind
        form = views.negotiate(request.headers.get("Accept", ""))
        if form is views.ObjectView.PARTIAL_LIST:
            raise status.not_acceptable(
                "you requested PartialObjectMetadataList, "
                f"but the requested object is not a list (*{kind.kind})"
            )
        initial_events = requests.is_true(query.get("sendInitialEvents"))
        if "sendInitialEvents" in query:
            self._check_initial_events(query)
        asked = query.get("resourceVersion", "")
        start = None if asked in {"", "0"} or initial_events else _unsigned("resourceVersion", asked)
        timeout = _unsigned("timeoutSeconds", query.get("timeoutSeconds") or "0")
        bookmarks = (
            self._watches.bookmark_interval if requests.is_true(query.get("allowWatchBookmarks")) else None
        )
        predicate = _predicate(kind, query)
        if target.namespace:
            predicate = selectors.both(lambda record: record.namespace == target.namespace, predicate)
        watch = watching.Watch(self._objects.store, kind, predicate, form, self._now)
        watch.include = query.get("includeObject", "Metadata")
        try:
            first = watch.start(start, mark_initial_end=initial_events and bookmarks is not None)
        except status.StatusFailure as gone:
            if self._watches.gone_as_status:
                raise
            return json_response(watching.error_line(gone))
        response = web.StreamResponse(headers=_HEADERS | {"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        transport = request.transport
        assert transport is not None
        self._watches.transports.add(transport)
        try:
            await response.prepare(request)
            async with asyncio.timeout(timeout or None):
                await watch.stream(response, first, self._watches.gate, bookmarks)
        except TimeoutError:
            await response.write_eof()
        finally:
            self._watches.transports.discard(transport)
        return response

    def _check_initial_events(self, query: Mapping[str, str]) -> None:
        if not self._watches.initial_events:
            message = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
            raise _forbidden_option("sendInitialEvents", message)
        if query.get("resourceVersionMatch") != "NotOlderThan":
            message = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            raise _forbidden_option("resourceVersionMatch", message)


def _forbidden_option(field: str, cause: str) -> status.StatusFailure:
    message = f"Forbidden: {cause}"
    return status.invalid(
        "ListOptions", "meta.k8s.io", "", field=field, message=message, reason="FieldValueForbidden"
    )


def _predicate(kind: Kind, query: Mapping[str, str]) -> selectors.Predicate:
    labels = selectors.label_selector(query.get("labelSelector", ""))
    return selectors.both(labels, selectors.field_selector(kind, query.get("fieldSelector", "")))


def _writer(request: web.BaseRequest) -> FieldManager:
    """Return the field manager of a write: fieldManager, else the user agent up to the slash."""
    return FieldManager(
        request.query.get("fieldManager") or request.headers.get("User-Agent", "").partition("/")[0]
    )


def _unsigned(field: str, text: str) -> int:
    if not text.isascii() or not text.isdigit():
        message = f'{field}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise status.bad_request(message)
    return int(text)


def _write_token(version: int, last: str) -> str:
    token = msgspec.json.encode({"v": "meta.k8s.io/v1", "rv": version, "start": f"{last}\x00"})
    return base64.urlsafe_b64encode(token).rstrip(b"=").decode()


def _read_token(text: str) -> tuple[int, str]:
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return int(token["rv"]), str(token["start"]).removesuffix("\x00")
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError):
        raise status.bad_request(
            "continue key is not valid: it is not one that a list of this server gave"
        ) from None


def _media_type(request: web.BaseRequest) -> str:
    media = request.headers.get("Content-Type", "").partition(";")[0].strip()
    if media not in PATCH_TYPES:
        raise status.unsupported_media_type(PATCH_TYPES)
    return media


def _change_of(media: str, body: bytes, kind: Kind) -> Callable[[JSON], Any]:
    """Return the function that applies a patch body."""
    if media == "application/json-patch+json":
        operations = _read_json(body)
        if not isinstance(operations, list) or not all(
            isinstance(operation, dict) for operation in operations
        ):
            raise status.bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
        return lambda document: patches.json_patch(document, operations)
    patch = _object(_read_yaml(body) if media == "application/apply-patch+yaml" else _read_json(body))
    if media == "application/merge-patch+json":
        return lambda document: patches.merge(document, patch)
    if kind.custom and media == "application/strategic-merge-patch+json":
        raise status.unsupported_media_type([kept for kept in PATCH_TYPES if kept != media])
    return lambda document: patches.strategic(document, patch)


def _object(document: Any) -> JSON:
    if not isinstance(document, dict):
        raise status.bad_request("the body is not a JSON object")
    return document


def _read_json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as cause:
        raise status.bad_request(f"couldn't get version/kind; json parse error: {cause}") from None


def _read_yaml(body: bytes) -> Any:
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as cause:
        raise status.bad_request(f"error decoding YAML: {cause}") from None


async def read_body(request: web.BaseRequest) -> Any:
    """Return the decoded body of a write; raise 415 if it is neither JSON nor YAML."""
    media = request.headers.get("Content-Type", "application/json").partition(";")[0].strip()
    if media == "application/vnd.kubernetes.protobuf":
        raise status.no_protobuf()
    if media not in JSON_TYPES:
        raise status.unsupported_media_type(JSON_TYPES)
    body = await request.read()
    return _read_yaml(body) if media == "application/yaml" else _read_json(body)
