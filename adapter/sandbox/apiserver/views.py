"""Content negotiation, and the encoding of objects, lists, PartialObjectMetadata and Tables.

The store encodes an object once; a view only joins those bytes. Watch events of many clients thus share the
work.
"""

import enum
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from adapter.sandbox.apiserver import columns, status
from adapter.sandbox.apiserver.storage.kinds import Kind
from adapter.sandbox.apiserver.storage.store import Record


class ObjectView(enum.Enum):
    """The representation that a client asks for."""

    PLAIN = "plain"
    PARTIAL = "PartialObjectMetadata"
    PARTIAL_LIST = "PartialObjectMetadataList"
    TABLE = "Table"


class MediaRange(NamedTuple):
    """One entry of an Accept header: type and parameters."""

    type: str
    parameters: dict[str, str]


def parse_accept(accept: str) -> list[MediaRange]:
    """Return the entries of an Accept header by quality, otherwise in order."""
    ranges = []
    for entry in filter(None, (part.strip() for part in (accept or "*/*").split(","))):
        kind, *rest = (piece.strip() for piece in entry.split(";"))
        parameters = dict(piece.partition("=")[::2] for piece in rest)
        ranges.append(MediaRange(kind, parameters))
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
            for form in (ObjectView.PARTIAL, ObjectView.PARTIAL_LIST, ObjectView.TABLE):
                if form.value == wanted:
                    return form
    raise status.not_acceptable()


def one(
    form: ObjectView,
    kind: Kind,
    record: Record,
    now: float,
    *,
    include: str = "Metadata",
    headed: bool = True,
) -> bytes:
    """Return one object. `include` is the Table option includeObject; a `headed` Table has its columns."""
    if form is ObjectView.PLAIN:
        return _typed(kind.kind, kind.api_version, record.body)
    if form is ObjectView.PARTIAL:
        return _typed("PartialObjectMetadata", "meta.k8s.io/v1", b'"metadata":' + record.metadata)
    if form is ObjectView.TABLE:
        return _table(
            kind, [record], {"resourceVersion": str(record.version)}, now, include=include, headed=headed
        )
    raise status.not_acceptable(
        f"you requested PartialObjectMetadataList, but the requested object is not a list (*{kind.kind})"
    )


def many(
    form: ObjectView,
    kind: Kind,
    records: Sequence[Record],
    metadata: dict[str, Any],
    now: float,
    *,
    include: str = "Metadata",
) -> bytes:
    """Return a list. As in real lists, items carry kind and apiVersion only if the kind is custom."""
    if form is ObjectView.TABLE:
        return _table(kind, records, metadata, now, include=include, headed=True)
    if form is ObjectView.PARTIAL:
        raise status.not_acceptable(
            f"you requested PartialObjectMetadata, but the requested object is a list (*{kind.kind}List)"
        )
    items: Iterable[bytes]
    if form is ObjectView.PARTIAL_LIST:
        name, api_version = "PartialObjectMetadataList", "meta.k8s.io/v1"
        start = b'{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":'
        items = (start + record.metadata + b"}" for record in records)
    elif kind.custom:
        name, api_version = f"{kind.kind}List", kind.api_version
        items = (_typed(kind.kind, kind.api_version, record.body) for record in records)
    else:
        name, api_version = f"{kind.kind}List", kind.api_version
        items = (b"{" + record.body + b"}" for record in records)
    body = b'"metadata":' + msgspec.json.encode(metadata) + b',"items":[' + b",".join(items) + b"]"
    return _typed(name, api_version, body)


def bookmark(form: ObjectView, kind: Kind, version: int, *, initial_end: bool = False) -> bytes:
    """Return the object of a BOOKMARK event: only a version, and a null timestamp as upstream sends it."""
    metadata: dict[str, Any] = {"resourceVersion": str(version), "creationTimestamp": None}
    if initial_end:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    if form is ObjectView.PARTIAL:
        return _typed(
            "PartialObjectMetadata", "meta.k8s.io/v1", b'"metadata":' + msgspec.json.encode(metadata)
        )
    if form is ObjectView.TABLE:
        metadata.pop("creationTimestamp")
        return _typed(
            "Table",
            "meta.k8s.io/v1",
            b'"metadata":' + msgspec.json.encode(metadata) + b',"columnDefinitions":null,"rows":[]',
        )
    return _typed(kind.kind, kind.api_version, b'"metadata":' + msgspec.json.encode(metadata))


def _typed(kind: str, api_version: str, body: bytes) -> bytes:
    return f'{{"kind":"{kind}","apiVersion":"{api_version}",'.encode() + body + b"}"


def _table(
    kind: Kind, records: Sequence[Record], metadata: dict[str, Any], now: float, *, include: str, headed: bool
) -> bytes:
    rows = []
    for record in records:
        cells = b'{"cells":' + msgspec.json.encode(columns.cells(kind, record.document, now))
        if include == "None":
            rows.append(cells + b',"object":null}')
        else:
            form = ObjectView.PLAIN if include == "Object" else ObjectView.PARTIAL
            rows.append(cells + b',"object":' + one(form, kind, record, now) + b"}")
    definitions = msgspec.json.encode(columns.definitions(kind) if headed else None)
    body = b'"metadata":' + msgspec.json.encode(metadata) + b',"columnDefinitions":' + definitions
    return _typed("Table", "meta.k8s.io/v1", body + b',"rows":[' + b",".join(rows) + b"]")
