"""The verbs of the sandbox cluster over HTTP: from a decoded request to a response.

This module reads query parameters, bodies, list options and continue tokens. `objects` carries out the
writes, `watching` streams and `views` encodes the responses. Every refusal is a Status object.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import yaml
from aiohttp import web

from fastpath_sandbox.apiserver import patches, requests, scale, selectors, status
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.objects import ObjectRegistry
from fastpath_sandbox.apiserver.requests import Target
from fastpath_sandbox.apiserver.reviews import Reviews
from fastpath_sandbox.apiserver.scale import WriteOptions
from fastpath_sandbox.apiserver.store import JSON, KindKey, Record
from fastpath_sandbox.apiserver.views import ObjectView, View, json_response, negotiate
from fastpath_sandbox.apiserver.watching import Watches

_JSON_TYPES = ("application/json", "application/yaml")
_PATCH_TYPES = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)


class ResourceHandlers:
    """Answers requests for resources, one method for each verb."""

    def __init__(
        self, objects: ObjectRegistry, reviews: Reviews, watches: Watches, now: Callable[[], float]
    ) -> None:
        self._objects = objects
        self._reviews = reviews
        self._watches = watches
        self._now = now

    async def answer(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """Answer a request for a resource; raises StatusFailure."""
        target.check_method()
        kind, query = target.kind, request.query
        if not kind.stored and kind.verbs == ("create",):
            review = self._reviews.answer(kind, await _read_body(request))
            return json_response(msgspec.json.encode(review), 201)
        if not kind.stored:
            raise status.not_built(
                f"conversion to {kind.api_version} {kind.kind}", "ask for the preferred version of its group"
            )
        form = negotiate(request.headers.get("Accept", ""))
        view = View(form, kind, query.get("includeObject", "Metadata"), self._now)
        match target.verb:
            case "watch":
                predicate = selectors.of_query(kind, query)
                if target.namespace:
                    predicate = selectors.both(lambda record: record.namespace == target.namespace, predicate)
                return await self._watches.serve(request, view, predicate)
            case "list":
                return self._list(query, target, view)
            case "delete" | "deletecollection":
                return await self._delete(request, target)
        record, created = await self._act(request, target)
        if target.subresource == "scale":
            return json_response(msgspec.json.encode(scale.build_scale(kind, record)))
        return json_response(view.one(record), 201 if created else 200)

    async def _act(self, request: web.BaseRequest, target: Target) -> tuple[Record, bool]:
        """Carry out get, create, update or patch; the flag says whether an object was created."""
        kind, namespace, name = target.kind, target.namespace, target.name
        by = _write_options(request, target)
        match target.verb:
            case "get":
                return self._objects.read(kind, namespace, name), False
            case "create":
                return self._objects.create(kind, namespace, await _read_body(request), by), True
            case "patch":
                return await self._patch(request, target, by)
        document = await _read_body(request)
        if target.subresource == "scale":
            written = _object(document)
            return self._objects.rescale(kind, namespace, name, lambda _: written, by), False
        return self._objects.replace(kind, namespace, name, document, by)

    async def _patch(self, request: web.BaseRequest, target: Target, by: WriteOptions) -> tuple[Record, bool]:
        kind, namespace, name = target.kind, target.namespace, target.name
        media = request.headers.get("Content-Type", "").partition(";")[0].strip()
        if media not in _PATCH_TYPES:
            raise status.unsupported_media_type(_PATCH_TYPES)
        change = _build_change(media, await request.read(), kind)
        if target.subresource == "scale":
            return self._objects.rescale(kind, namespace, name, lambda old: _object(change(old)), by), False
        if media == "application/apply-patch+yaml":
            if not request.query.get("fieldManager"):
                raise status.invalid(
                    "PatchOptions",
                    "meta.k8s.io",
                    "",
                    field="fieldManager",
                    message="Required value: is required for apply patch",
                    reason="FieldValueRequired",
                )
            if not target.subresource:
                return self._objects.apply(kind, namespace, name, change, by._replace(operation="Apply"))
        return self._objects.patch(kind, namespace, name, change, by), False

    async def _delete(self, request: web.BaseRequest, target: Target) -> web.Response:
        kind, store = target.kind, self._objects.store
        dry_run = _write_options(request, target).dry_run
        options = _object(await _read_body(request)) if request.can_read_body else {}
        if "propagationPolicy" in request.query:
            options = {"propagationPolicy": request.query["propagationPolicy"]} | options
        view = View(ObjectView.PLAIN, kind, "", self._now)
        if target.verb == "deletecollection":
            predicate = selectors.of_query(kind, request.query)
            chosen = [record for record in store.records(kind.key, target.namespace) if predicate(record)]
            for record in chosen if not dry_run else ():
                self._objects.delete(kind, record, options)
            return json_response(view.many(chosen, {"resourceVersion": str(store.version)}))
        record = self._objects.read(kind, target.namespace, target.name)
        last = record if dry_run else self._objects.delete(kind, record, options)
        metadata = last.document["metadata"]
        if metadata.get("finalizers") or kind.plural == "pods":
            return json_response(view.one(last))
        details = {"name": record.name, "kind": kind.plural, "uid": metadata["uid"]}
        success = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "details": details | ({"group": kind.group} if kind.group else {}),
        }
        return json_response(msgspec.json.encode(success))

    def _list(self, query: Mapping[str, str], target: Target, view: View) -> web.Response:
        kind = target.kind
        if "sendInitialEvents" in query:
            raise status.forbidden_option("sendInitialEvents", "sendInitialEvents is forbidden for list")
        predicate = selectors.of_query(kind, query)
        # As the watch cache does, a list from version 0 ignores the limit.
        is_cached = query.get("resourceVersion") == "0"
        limit = 0 if is_cached else requests.unsigned("limit", query.get("limit") or "0")
        version, records = self._present(kind.key, target.namespace, query, limit)
        chosen = [record for record in records if predicate(record)]
        metadata: JSON = {"resourceVersion": str(version)}
        if limit and len(chosen) > limit:
            if predicate is selectors.everything:
                metadata["remainingItemCount"] = len(chosen) - limit
            chosen = chosen[:limit]
            # the form of a real token
            token = {"v": "meta.k8s.io/v1", "rv": version, "start": f"{chosen[-1].key}\x00"}
            metadata["continue"] = base64.urlsafe_b64encode(msgspec.json.encode(token)).rstrip(b"=").decode()
        return json_response(view.many(chosen, metadata))

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
        text = query.get("resourceVersion", "")
        if text not in {"", "0"}:
            version = requests.unsigned("resourceVersion", text)
            if version > store.version:
                raise status.too_large_version(version, store.version)
            if query.get("resourceVersionMatch", "Exact" if limit else "NotOlderThan") == "Exact":
                records = store.records_at(key, version, namespace)
                if records is None:
                    raise status.too_old(version, store.horizon(key))
                return version, records
        return store.version, store.records(key, namespace)


def _write_options(request: web.BaseRequest, target: Target) -> WriteOptions:
    """Return the options of a write; the manager is fieldManager, else the user agent up to the slash."""
    agent = request.headers.get("User-Agent", "").partition("/")[0]
    manager = request.query.get("fieldManager") or agent
    is_dry = request.query.get("dryRun") == "All"
    return WriteOptions(manager, subresource=target.subresource, dry_run=is_dry)


def _read_token(text: str) -> tuple[int, str]:
    try:
        token = msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
        return int(token["rv"]), str(token["start"]).removesuffix("\x00")
    except (binascii.Error, msgspec.DecodeError, KeyError, TypeError, ValueError):
        raise status.bad_request(
            "continue key is not valid: it is not one that a list of this server gave"
        ) from None


def _build_change(media: str, body: bytes, kind: Kind) -> Callable[[JSON], Any]:
    """Return the function that applies a patch body."""
    if media == "application/json-patch+json":
        operations = _read_json(body)
        if not isinstance(operations, list) or not all(isinstance(step, dict) for step in operations):
            raise status.bad_request("json: cannot unmarshal object into Go value of type jsonpatch.Patch")
        return lambda document: patches.json_patch(document, operations)
    patch = _object(_read_yaml(body) if media == "application/apply-patch+yaml" else _read_json(body))
    if media == "application/merge-patch+json":
        return lambda document: patches.merge(document, patch)
    if kind.custom and media == "application/strategic-merge-patch+json":
        raise status.unsupported_media_type([kept for kept in _PATCH_TYPES if kept != media])
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


async def _read_body(request: web.BaseRequest) -> Any:
    """Return the decoded body of a write; raise 415 if it is neither JSON nor YAML."""
    media = request.headers.get("Content-Type", "application/json").partition(";")[0].strip()
    if media == "application/vnd.kubernetes.protobuf":
        raise status.no_protobuf()
    if media not in _JSON_TYPES:
        raise status.unsupported_media_type(_JSON_TYPES)
    body = await request.read()
    return _read_yaml(body) if media == "application/yaml" else _read_json(body)
