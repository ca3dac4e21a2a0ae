# ruff: noqa: N815 - the fields are named as they are sent: renaming them on the way costs nothing but hides the text
"""The JSON of values and failures, byte for byte as upstream's serializer writes it.

Go's rules: fields in the order of the types, map keys sorted, `<`, `>`, `&` and the two line separators of
Unicode escaped, a newline after compact text and none after indented text. Ten thousand objects are a body of
megabytes, so lists come in pieces of bounded size, between which the event loop may do other work.
"""

import asyncio
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

import msgspec

from adapter import errors
from adapter.model import metrics, quantity, timestamps
from adapter.model.objects import api_selectors
from adapter.model.objects.api_selectors import APISelector
from adapter.server.api.paths import RESOURCE_GROUP
from adapter.server.http.budgets import SMALL_ANSWER, Charge

PIECE_BYTES = 16_384
"""A piece of a list ends with the member that reaches this size, which takes a fraction of a millisecond."""

_Item = TypeVar("_Item")

_GO_ESCAPES = {
    b"<": rb"\u003c",
    b">": rb"\u003e",
    b"&": rb"\u0026",
    "\u2028".encode(): rb"\u2028",
    "\u2029".encode(): rb"\u2029",
}


class _ItemV1beta1(msgspec.Struct, gc=False):
    describedObject: metrics.ObjectReference
    metricName: str
    timestamp: str
    value: str
    selector: APISelector | None


class _Identifier(msgspec.Struct, gc=False):
    name: str
    selector: APISelector | None


class _ItemV1beta2(msgspec.Struct, gc=False):
    describedObject: metrics.ObjectReference
    metric: _Identifier
    timestamp: str
    value: str


class _ExternalItem(msgspec.Struct, gc=False):
    metricName: str
    metricLabels: Mapping[str, str] | None
    timestamp: str
    value: str


class _Cause(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """StatusCause of the API, in the order of the Go type."""

    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """StatusDetails of the API, in the order of the Go type."""

    name: str = ""
    group: str = ""
    kind: str = ""
    causes: list[_Cause] = []
    retryAfterSeconds: int = 0


class _FailureStatus(msgspec.Struct):
    kind: str
    apiVersion: str
    metadata: dict[str, str]
    status: str
    message: str
    reason: str | msgspec.UnsetType
    details: _Details | msgspec.UnsetType
    code: int


_sorting = msgspec.json.Encoder(order="deterministic")
_as_built = msgspec.json.Encoder()


def encode_fragment(fragment: object) -> bytes:
    """Return a part of a document as compact JSON. Keys of dicts come out sorted."""
    return _go_escaped(_sorting.encode(fragment))


def encode_as_built(document: Mapping[str, object]) -> bytes:
    """Return compact JSON with a newline at its end, for dicts whose keys are in the order to send."""
    return _go_escaped(_as_built.encode(document)) + b"\n"


def indent(body: bytes) -> bytes:
    """Return compact JSON as Go's indented form: two spaces, no newline at the end."""
    return msgspec.json.format(body, indent=2)


def encode_custom(
    version: str, question: metrics.CustomQuestion, answer: metrics.CustomAnswer
) -> Iterator[bytes]:
    """Yield a MetricValueList of ``custom.metrics.k8s.io`` in pieces.

    Every item repeats the metric selector of the request. A selector that the API's type cannot express
    raises `errors.PlainError`, as upstream only if there is an item.
    """
    selector = api_selectors.to_api(question.selector) if answer.items else None
    identifier = _Identifier(question.metric, selector)

    def build(item: metrics.MetricValue) -> msgspec.Struct:
        value, time = quantity.format_milli(item.milli), _format_second(item.time // 1)
        if version == "v1beta1":
            return _ItemV1beta1(item.described, question.metric, time, value, selector)
        return _ItemV1beta2(item.described, identifier, time, value)

    return encode_list("MetricValueList", f"custom.metrics.k8s.io/{version}", answer.items, build)


def encode_external(version: str, answer: metrics.ExternalAnswer) -> Iterator[bytes]:
    """Yield an ExternalMetricValueList in pieces; `metricLabels` is null only for values without labels."""

    def build(item: metrics.ExternalValue) -> msgspec.Struct:
        return _ExternalItem(
            item.metric, item.labels, format_time(item.time), quantity.format_milli(item.milli)
        )

    return encode_list("ExternalMetricValueList", f"external.metrics.k8s.io/{version}", answer.items, build)


def encode_list(
    kind: str, api_version: str, items: Iterable[_Item], build: Callable[[_Item], msgspec.Struct]
) -> Iterator[bytes]:
    """Yield a list of the API in pieces; `build` makes each of its objects."""
    yield f'{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{{}},"items":['.encode()
    yield from members(items, build)
    yield b"]}\n"


def members(
    items: Iterable[_Item], build: Callable[[_Item], msgspec.Struct], *, first: bool = True
) -> Iterator[bytes]:
    """Yield the members of a JSON list in pieces of `PIECE_BYTES`; a comma stands before unless `first`."""
    piece, separator = bytearray(), b"" if first else b","
    for item in items:
        piece += separator
        separator = b","
        _sorting.encode_into(build(item), piece, -1)  # appends
        if len(piece) >= PIECE_BYTES:
            yield _go_escaped(bytes(piece))
            piece.clear()
    if piece:
        yield _go_escaped(bytes(piece))


async def join(pieces: Iterable[bytes], charge: Charge | None = None) -> bytes:
    """Return a body made in pieces. Other work runs after each `PIECE_BYTES`, however small the pieces.

    `charge` counts the pieces as they are made, and both pieces and body while a large body is joined. Raises
    TooManyRequestsError where it does.
    """
    parts, size, since_yield = [], 0, 0
    for piece in pieces:
        size += len(piece)
        if charge is not None and size > SMALL_ANSWER:
            charge.resize(size)
        parts.append(piece)
        since_yield += len(piece)
        if since_yield >= PIECE_BYTES:
            since_yield = 0
            await asyncio.sleep(0)
    if charge is None or size <= SMALL_ANSWER:
        return b"".join(parts)
    charge.resize(2 * size)
    body = b"".join(parts)
    charge.resize(size)
    return body


def encode_status(error: errors.StatusError) -> bytes:
    """Return the Status object of a failure. Details of None are left out, empty ones written, as in Go."""
    details = msgspec.UNSET if error.details is None else msgspec.convert(error.details, _Details)
    reason = error.reason or msgspec.UNSET
    status = _FailureStatus("Status", "v1", {}, "Failure", error.message, reason, details, error.code)
    return encode_fragment(status) + b"\n"


def format_time(seconds: float) -> str:
    """Return epoch seconds as RFC 3339 in UTC, cut to whole seconds."""
    return _format_second(seconds // 1)


@functools.lru_cache(maxsize=64)  # values of a time mostly share their second
def _format_second(second: float) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _go_escaped(body: bytes) -> bytes:
    for character, escape in _GO_ESCAPES.items():
        if character in body:  # only ever inside a string
            body = body.replace(character, escape)
    return body


_KINDS = {"pods": "PodMetrics", "nodes": "NodeMetrics"}


class _ObjectMeta(msgspec.Struct, gc=False):
    name: str
    namespace: str | msgspec.UnsetType
    creationTimestamp: str
    labels: Mapping[str, str] | msgspec.UnsetType


class _Usage(msgspec.Struct, gc=False):
    cpu: str
    memory: str


class _ContainerMetrics(msgspec.Struct, gc=False):
    name: str
    usage: _Usage


class _PodMetrics(msgspec.Struct, gc=False):
    metadata: _ObjectMeta
    timestamp: str
    window: str
    containers: list[_ContainerMetrics]


class _NodeMetrics(msgspec.Struct, gc=False):
    metadata: _ObjectMeta
    timestamp: str
    window: str
    usage: _Usage


class _PartialObject(msgspec.Struct, gc=False):
    kind: str
    apiVersion: str
    metadata: _ObjectMeta


class _Row(msgspec.Struct, gc=False):
    cells: list[str]
    object: _PartialObject | msgspec.Raw | None


class _Column(msgspec.Struct):
    """A TableColumnDefinition of the API, in the order of the Go type."""

    name: str
    type: str
    format: str
    description: str = ""
    priority: int = 0


_COLUMNS = encode_fragment(
    [
        _Column("Name", "string", "name", "Name of the resource"),
        _Column("cpu", "string", "quantity"),
        _Column("memory", "string", "quantity"),
        _Column("Window", "string", "duration"),
    ]
)


class _Stamp(NamedTuple):
    """The texts that all objects of one answer share: when it was built, and the window of a sample."""

    built: str
    window: str


class TableOptions(NamedTuple):
    """The Table that a caller wants: its `version`, and the part of each object (``includeObject``)."""

    version: str
    include: str = ""


def encode_resource(
    version: str,
    question: metrics.ResourceQuestion,
    answer: metrics.ResourceAnswer,
    table: TableOptions | None,
) -> Iterator[bytes]:
    """Yield a PodMetricsList or NodeMetricsList, or the one object of a name, or their `table`, in pieces.

    `version` is that of ``metrics.k8s.io``.
    """
    stamp = _Stamp(format_time(answer.made), timestamps.format_go_duration(answer.window))
    head = f'"kind":"{_KINDS[question.resource]}","apiVersion":"{RESOURCE_GROUP}/{version}",'.encode()
    if table is not None:
        start = b'{"kind":"Table","apiVersion":"meta.k8s.io/%s","metadata":{},"columnDefinitions":%s,"rows":['
        yield start % (table.version.encode(), _COLUMNS)
        yield from members(answer.items, lambda item: _row(item, stamp, table, head))
        yield b"]}\n"
    elif question.name is not None:
        (one,) = answer.items
        yield b"{" + head + encode_fragment(_object(one, stamp))[1:] + b"\n"
    else:
        kind, api_version = f"{_KINDS[question.resource]}List", f"{RESOURCE_GROUP}/{version}"
        yield from encode_list(kind, api_version, answer.items, lambda item: _object(item, stamp))


def _row(item: metrics.ObjectUsage, stamp: _Stamp, table: TableOptions, head: bytes) -> _Row:
    """Return the cells of metrics-server: name, the sum of each resource, window."""
    usage = _usage(item.usage)
    shown: _PartialObject | msgspec.Raw | None = None
    if table.include == "Object":
        shown = msgspec.Raw(b"{" + head + encode_fragment(_object(item, stamp))[1:])
    elif table.include != "None":
        shown = _PartialObject(
            "PartialObjectMetadata", f"meta.k8s.io/{table.version}", _metadata(item, stamp)
        )
    return _Row([item.name, usage.cpu, usage.memory, stamp.window], shown)


def _object(item: metrics.ObjectUsage, stamp: _Stamp) -> _PodMetrics | _NodeMetrics:
    metadata, time = _metadata(item, stamp), format_time(item.time)
    if not item.containers:
        return _NodeMetrics(metadata, time, stamp.window, _usage(item.usage))
    containers = [_ContainerMetrics(container.name, _usage(container.usage)) for container in item.containers]
    return _PodMetrics(metadata, time, stamp.window, containers)


def _metadata(item: metrics.ObjectUsage, stamp: _Stamp) -> _ObjectMeta:
    return _ObjectMeta(item.name, item.namespace or msgspec.UNSET, stamp.built, item.labels or msgspec.UNSET)


def _usage(usage: metrics.Usage) -> _Usage:
    return _Usage(quantity.format_milli(usage.cpu), quantity.format_binary(usage.memory))
