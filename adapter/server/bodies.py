# ruff: noqa: N815 - the fields are named as they are sent: renaming them on the way costs nothing but hides the text
"""The JSON of answers and failures, byte for byte as upstream's serializer writes it.

Go's rules: fields in the order of the types, map keys sorted, `<`, `>`, `&` and the two line separators of Unicode
escaped, a newline after compact text and none after indented text.
"""

from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from adapter import errors
from adapter.model import quantity, selectors
from adapter.model.metrics import CustomAnswer, CustomQuestion, ExternalAnswer, MetricValue

_GO_ESCAPES = {
    b"<": rb"\u003c",
    b">": rb"\u003e",
    b"&": rb"\u0026",
    "\u2028".encode(): rb"\u2028",
    "\u2029".encode(): rb"\u2029",
}


class _Selector(msgspec.Struct):
    """A LabelSelector of the API, its fields in the order of the Go type."""

    matchLabels: object = msgspec.UNSET
    matchExpressions: object = msgspec.UNSET


class _Described(msgspec.Struct):
    kind: str
    namespace: str | msgspec.UnsetType
    name: str
    apiVersion: str


class _ItemV1beta1(msgspec.Struct):
    describedObject: _Described
    metricName: str
    timestamp: str
    value: str
    selector: _Selector | None


class _Identifier(msgspec.Struct):
    name: str
    selector: _Selector | None


class _ItemV1beta2(msgspec.Struct):
    describedObject: _Described
    metric: _Identifier
    timestamp: str
    value: str


class _ExternalItem(msgspec.Struct):
    metricName: str
    metricLabels: Mapping[str, str] | None
    timestamp: str
    value: str


class _List(msgspec.Struct):
    kind: str
    apiVersion: str
    metadata: dict[str, str]
    items: list[_ItemV1beta1] | list[_ItemV1beta2] | list[_ExternalItem]


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


class _Status(msgspec.Struct):
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


def encode(document: msgspec.Struct) -> bytes:
    """Return compact JSON with a newline at its end, as Go's encoder writes it. Keys of dicts come out sorted."""
    return _go_text(_sorting.encode(document))


def encode_as_built(document: Mapping[str, object]) -> bytes:
    """Return JSON as `encode` does, for a document built of dicts whose keys already stand in the order to send."""
    return _go_text(_as_built.encode(document))


def indent(body: bytes) -> bytes:
    """Return compact JSON as Go's indented form: two spaces, no newline at the end."""
    return msgspec.json.format(body, indent=2)


def encode_custom(version: str, question: CustomQuestion, answer: CustomAnswer) -> bytes:
    """Return a MetricValueList of ``custom.metrics.k8s.io``.

    Every item repeats the metric selector of the request. One that the API's form cannot say raises `errors.PlainError`,
    but only when there is an item to carry it, as upstream.
    """
    selector = None
    if answer.items and (form := selectors.selector_to_json(question.selector)) is not None:
        selector = _Selector(**form)
    items: list[_ItemV1beta1] | list[_ItemV1beta2]
    if version == "v1beta1":
        items = [
            _ItemV1beta1(_described(item), item.metric, stamp, quantity.format_milli(item.milli), selector)
            for item, stamp in _stamped(answer.items)
        ]
    else:
        items = [
            _ItemV1beta2(_described(item), _Identifier(item.metric, selector), stamp, quantity.format_milli(item.milli))
            for item, stamp in _stamped(answer.items)
        ]
    return encode(_List("MetricValueList", f"custom.metrics.k8s.io/{version}", {}, items))


def encode_external(version: str, answer: ExternalAnswer) -> bytes:
    """Return an ExternalMetricValueList; `metricLabels` is null only where the answer has no labels at all."""
    items = [
        _ExternalItem(item.metric, item.labels, format_time(item.time), quantity.format_milli(item.milli))
        for item in answer.items
    ]
    return encode(_List("ExternalMetricValueList", f"external.metrics.k8s.io/{version}", {}, items))


def encode_status(error: errors.StatusError) -> bytes:
    """Return the Status object of a failure. Details of None are left out; empty ones are written, as Go does."""
    details = msgspec.UNSET if error.details is None else msgspec.convert(error.details, _Details)
    return encode(
        _Status("Status", "v1", {}, "Failure", error.message, error.reason or msgspec.UNSET, details, error.code)
    )


def format_time(seconds: float) -> str:
    """Return epoch seconds as RFC 3339 in UTC, cut to whole seconds."""
    return datetime.fromtimestamp(seconds // 1, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _described(item: MetricValue) -> _Described:
    described = item.described
    return _Described(described.kind, described.namespace or msgspec.UNSET, described.name, described.api_version)


def _stamped(items: tuple[MetricValue, ...]) -> list[tuple[MetricValue, str]]:
    """Pair items with their formatted times; the items of one answer mostly share theirs."""
    known: dict[float, str] = {}
    pairs = []
    for item in items:
        stamp = known.get(item.time)
        if stamp is None:
            stamp = known[item.time] = format_time(item.time)
        pairs.append((item, stamp))
    return pairs


def _go_text(body: bytes) -> bytes:
    for character, escape in _GO_ESCAPES.items():
        if character in body:  # only ever inside a string
            body = body.replace(character, escape)
    return body + b"\n"
