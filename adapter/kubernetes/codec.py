"""What the API server sends about objects, decoded: lists and watches, of PartialObjectMetadata or of whole objects.

What lives here: the slim record of metadata, `Form` for any other, and two decoders that take a body in the pieces in which it
arrives. Not here: HTTP. The law: no step decodes more than `STEP_BYTES` (one larger object excepted), for a list of 100,000 objects comes as one body of
100 MB when it is served from the API server's watch cache, and the event loop has other work.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar, overload

import msgspec

UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""What decoding may raise. RecursionError: more levels within each other than are followed; the API server stores ten times as many."""

STEP_BYTES = 128 * 1024
_HEAD_BYTES = 1024 * 1024
_WATCH_STEP = 64
_LINE_BYTES = 16 * 1024 * 1024  # etcd takes objects of a tenth of that


class ObjectMeta(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """What we keep of an object. `namespace` is "" for cluster-scoped objects."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    resource_version: str = ""


class ListMeta(msgspec.Struct, frozen=True, gc=False):
    """What a list says of itself. `continue_` is "" on the last page."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_: str = msgspec.field(default="", name="continue")


class Status(msgspec.Struct, frozen=True, gc=False):
    """The API machinery's failure object."""

    code: int = 0
    reason: str = ""
    message: str = ""


class WatchEvent(NamedTuple):
    """A line of a watch: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK``, whose object has a version only."""

    type: str
    object: ObjectMeta


T = TypeVar("T")


class ObjectEvent(NamedTuple, Generic[T]):
    """A line of a watch of whole objects: `object` is None for a ``BOOKMARK``, which has a `version` only."""

    type: str
    object: T | None
    version: str


class _Item(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta


class _Line(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


_LINE = msgspec.json.Decoder(_Line)
_OBJECT = msgspec.json.Decoder(_Item)
STATUS = msgspec.json.Decoder(Status)

_JSON = "application/json"


class Form(Generic[T]):
    """How objects of a kind are asked for, and what is kept of each.

    `wire` is a struct to which an object is decoded; `keep` makes of it what is kept, and raises nothing. `list_accept` and
    `watch_accept` are the media types to ask for.
    """

    def __init__(
        self, wire: Any, keep: Callable[[Any], T], list_accept: str = _JSON, watch_accept: str = _JSON
    ) -> None:
        self.keep = keep
        self.list_accept = list_accept
        self.watch_accept = watch_accept
        self._one = msgspec.json.Decoder(wire)
        self._many = msgspec.json.Decoder(list[wire])
        document = msgspec.defstruct(
            "_Document", [("metadata", ListMeta), ("items", list[wire] | None, None)], gc=False
        )
        self._document = msgspec.json.Decoder(document)

    def decode(self, text: bytes | msgspec.Raw) -> T:
        """Return what is kept of one object."""
        return self.keep(self._one.decode(text))

    def decode_items(self, text: bytes) -> list[T]:
        """Return what is kept of an array of objects."""
        return list(map(self.keep, self._many.decode(text)))

    def decode_document(self, text: bytes | bytearray) -> tuple[list[T], ListMeta]:
        """Return what is kept of a list."""
        document: Any = self._document.decode(text)
        return list(map(self.keep, document.items or ())), document.metadata


def _metadata_of(item: _Item) -> ObjectMeta:
    return item.metadata


PARTIAL = Form(
    _Item,
    _metadata_of,
    f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}",
    f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}",
)
"""Metadata alone, whatever the kind."""


_OPENING = re.compile(rb'"items"\s*:\s*\[')
_FIRST_KEY = re.compile(rb'\s*(\{\s*"(?:[^"\\]|\\.)*"\s*:)')


class ListDecoder(Generic[T]):
    """Decodes one page of a list from the pieces of its body, metadata alone unless another form is given.

    Items are cut off the front in slices. Where a slice may end is guessed from the text with which the first item begins,
    and is right exactly if the slice decodes: a cut inside a string or a nested object leaves JSON that does not close.
    `msgspec.DecodeError` for a body that is no list.
    """

    @overload
    def __init__(self: "ListDecoder[ObjectMeta]") -> None: ...

    @overload
    def __init__(self, form: Form[T]) -> None: ...

    def __init__(self, form: Form[Any] = PARTIAL) -> None:
        self._form = form
        self._head = b""
        self._rest = bytearray()
        self._first_key = b""

    def feed(self, piece: bytes) -> Iterator[list[T]]:
        """Yield the objects that `piece` completes, a bounded number at a time."""
        self._rest += piece
        if not self._head:
            opening = _OPENING.search(self._rest)
            if opening is None:
                if len(self._rest) > _HEAD_BYTES:
                    raise msgspec.DecodeError(f"the first {_HEAD_BYTES} bytes hold no list of items")
                return
            self._head = bytes(self._rest[: opening.end()])
            del self._rest[: opening.end()]
        while len(self._rest) >= STEP_BYTES:
            items = self._cut()
            if items is None:
                return
            yield items

    def _cut(self) -> list[T] | None:
        """Decode and remove the longest run of whole items within a step, or the first item if it is longer; None to wait."""
        if not self._first_key:
            first = _FIRST_KEY.match(self._rest)
            if first is None:
                return None
            self._first_key = first[1]
        start = self._rest.rfind(self._first_key, 1, STEP_BYTES)
        while start > 0:
            if (items := self._decode_until(start)) is not None:
                return items
            start = self._rest.rfind(self._first_key, 1, start)
        start = self._rest.find(self._first_key, STEP_BYTES)
        while start > 0:
            if (items := self._decode_until(start)) is not None:
                return items
            start = self._rest.find(self._first_key, start + 1)
        return None

    def _decode_until(self, start: int) -> list[T] | None:
        """Decode and remove what stands before `start` if it is whole items and a comma."""
        before = self._rest[:start].rstrip()
        if not before.endswith(b","):
            return None
        before[-1:] = b"]"
        try:
            items: list[T] = self._form.decode_items(b"[" + before)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return None
        del self._rest[:start]
        return items

    def finish(self) -> tuple[list[T], ListMeta]:
        """Return the remaining objects and what the list says of itself; the body has ended."""
        objects: tuple[list[T], ListMeta] = self._form.decode_document(self._head + self._rest)
        return objects


E = TypeVar("E")


class WatchDecoder(Generic[E]):
    """Decodes the lines of a watch from the pieces in which they arrive, to `WatchEvent` unless `decode` says otherwise."""

    @overload
    def __init__(self: "WatchDecoder[WatchEvent]") -> None: ...

    @overload
    def __init__(self, decode: Callable[[bytes], E | Status]) -> None: ...

    def __init__(self, decode: Callable[[bytes], Any] | None = None) -> None:
        self._rest = bytearray()
        self._decode: Callable[[bytes], Any] = decode or _decode_line

    def feed(self, piece: bytes) -> Iterator[list[E] | Status]:
        """Yield the events that `piece` completes, at most 64 at a time; an ERROR line as the Status it carries."""
        scanned = len(self._rest)
        self._rest += piece
        events: list[E] = []
        start = 0
        while (end := self._rest.find(b"\n", max(start, scanned))) >= 0:
            line = bytes(self._rest[start:end])
            start = end + 1
            if line and not line.isspace():
                event = self._decode(line)
                if isinstance(event, Status):
                    if events:
                        yield events
                    self._rest.clear()
                    yield event
                    return
                events.append(event)
                if len(events) == _WATCH_STEP:
                    yield events
                    events = []
        del self._rest[:start]
        if events:
            yield events
        if len(self._rest) > _LINE_BYTES:
            raise msgspec.DecodeError(f"a line of the watch is longer than {_LINE_BYTES} bytes")

    def finish(self) -> None:
        """Raise `msgspec.DecodeError` if the stream ended within a line."""
        if self._rest.strip():
            raise msgspec.DecodeError("the watch ended within a line")


def _decode_line(line: bytes) -> WatchEvent | Status:
    kind, raw = _split(line)
    return STATUS.decode(raw) if kind == "ERROR" else WatchEvent(kind, _OBJECT.decode(raw).metadata)


def decode_event(form: Form[T], line: bytes) -> ObjectEvent[T] | Status:
    """Return a line of a watch of whole objects."""
    kind, raw = _split(line)
    if kind == "ERROR":
        return STATUS.decode(raw)
    version = _OBJECT.decode(raw).metadata.resource_version
    return ObjectEvent(kind, None if kind == "BOOKMARK" else form.decode(raw), version)


def _split(line: bytes) -> tuple[str, msgspec.Raw]:
    decoded = _LINE.decode(line)
    if decoded.type not in {"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"}:
        raise msgspec.DecodeError(f"no such type of watch event: {decoded.type[:50]}")
    return decoded.type, decoded.object
