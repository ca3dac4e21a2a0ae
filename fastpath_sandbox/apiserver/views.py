"""Content negotiation, and the encoding of objects, lists and PartialObjectMetadata.

The store encodes an object once; a view only joins those bytes. Watch events of many clients thus share the
work. There are no Tables: `kubectl get` then prints names and ages.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from fastpath_sandbox.apiserver import status
from fastpath_sandbox.apiserver.kinds import Kind
from fastpath_sandbox.apiserver.store import JSON, Record

HEADERS = {"Cache-Control": "no-cache, private"}
_METADATA = "meta.k8s.io/v1"


class ObjectView(enum.Enum):
    """The representation that a client asks for."""

    PLAIN = "plain"
    PARTIAL = "PartialObjectMetadata"
    PARTIAL_LIST = "PartialObjectMetadataList"


class MediaRange(NamedTuple):
    """One entry of an Accept header: type and parameters."""

    type: str
    parameters: dict[str, str]


def json_response(body: bytes, code: int = 200, content_type: str = "application/json") -> web.Response:
    return web.Response(body=body, status=code, headers=HEADERS | {"Content-Type": content_type})


def parse_accept(accept: str) -> list[MediaRange]:
    """Return the entries of an Accept header by quality, otherwise in order."""
    ranges = []
    for entry in filter(None, (part.strip() for part in (accept or "*/*").split(","))):
        kind, *rest = (piece.strip() for piece in entry.split(";"))
        ranges.append(MediaRange(kind, dict(piece.partition("=")[::2] for piece in rest)))
    return sorted(ranges, key=_negative_quality)


def _negative_quality(media: MediaRange) -> float:
    try:
        return -float(media.parameters.get("q", "1"))
    except ValueError:
        return 0.0


def negotiate(accept: str) -> ObjectView:
    """Return the view of the first acceptable entry; raise 406 without one. Only JSON is supported."""
    for media in parse_accept(accept):
        if media.type not in {"application/json", "*/*", "application/*"}:
            continue
        wanted = media.parameters.get("as")
        if wanted is None:
            return ObjectView.PLAIN
        if media.parameters.get("g") == "meta.k8s.io" and media.parameters.get("v") in {"v1", "v1beta1"}:
            for form in (ObjectView.PARTIAL, ObjectView.PARTIAL_LIST):
                if form.value == wanted:
                    return form
    raise status.not_acceptable()


class View(NamedTuple):
    """How one client sees the objects of a kind."""

    form: ObjectView
    kind: Kind

    def one(self, record: Record) -> bytes:
        self.check_object()
        if self.form is ObjectView.PARTIAL:
            return _typed("PartialObjectMetadata", _METADATA, b'"metadata":' + record.metadata)
        return _typed(self.kind.kind, self.kind.api_version, record.body)

    def many(self, records: Sequence[Record], metadata: JSON) -> bytes:
        """Return a list. As in real lists, items carry kind and apiVersion only if the kind is custom."""
        kind = self.kind
        if self.form is ObjectView.PARTIAL:
            raise status.not_acceptable(
                f"you requested PartialObjectMetadata, but the requested object is a list (*{kind.kind}List)"
            )
        items: Iterable[bytes]
        name, api_version = f"{kind.kind}List", kind.api_version
        if self.form is ObjectView.PARTIAL_LIST:
            name, api_version = "PartialObjectMetadataList", _METADATA
            items = map(self._replace(form=ObjectView.PARTIAL).one, records)
        elif kind.custom:
            items = map(self.one, records)
        else:
            items = (b"{" + record.body + b"}" for record in records)
        return _typed(name, api_version, _metadata(metadata) + b',"items":[' + b",".join(items) + b"]")

    def bookmark(self, version: int) -> bytes:
        """Return the object of a BOOKMARK event: a version, and a null timestamp as upstream sends it."""
        metadata = _metadata({"resourceVersion": str(version), "creationTimestamp": None})
        if self.form is ObjectView.PARTIAL:
            return _typed("PartialObjectMetadata", _METADATA, metadata)
        return _typed(self.kind.kind, self.kind.api_version, metadata)

    def check_object(self) -> None:
        """Raise 406 if the client asks for a list where an object is shown."""
        if self.form is ObjectView.PARTIAL_LIST:
            raise status.not_acceptable(
                "you requested PartialObjectMetadataList, "
                f"but the requested object is not a list (*{self.kind.kind})"
            )


def _typed(kind: str, api_version: str, body: bytes) -> bytes:
    return f'{{"kind":"{kind}","apiVersion":"{api_version}",'.encode() + body + b"}"


def _metadata(metadata: Any) -> bytes:
    return b'"metadata":' + msgspec.json.encode(metadata)
