"""Decoders for the lists and watches of the API server: a codec says what is kept of an object.

A list of 100,000 objects served from the API server's watch cache is one body of about 100 MB. Decoding it in
one step would stop the event loop for seconds, so `ListDecoder` takes the body in the pieces in which it
arrives and decodes at most `STEP_BYTES` a step (or one object, where that is larger). Of each object a codec
keeps a few fields; the rest of its JSON is skipped, not built.
"""

import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""Exceptions of decoding. msgspec raises RecursionError for JSON that is nested deeper than its limit; the
API server stores ten times that depth.
"""

STEP_BYTES = 128 * 1024
_HEAD_BYTES = 1024 * 1024
_WATCH_STEP = 64
_LINE_BYTES = 16 * 1024 * 1024  # etcd limits an object to a tenth of this


T = TypeVar("T")


class PartialMetadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The kept part of a PartialObjectMetadata. `namespace` is "" for cluster-scoped objects."""

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    resource_version: str = ""


class ListMeta(msgspec.Struct, frozen=True, gc=False):
    """The metadata of a list. `continue_` is "" on the last page."""

    resource_version: str = msgspec.field(default="", name="resourceVersion")
    continue_: str = msgspec.field(default="", name="continue")


class Status(msgspec.Struct, frozen=True, gc=False):
    """A Status of the API machinery: the body of a refused request, and the object of an ERROR event."""

    code: int = 0
    reason: str = ""
    message: str = ""


class WatchEvent(NamedTuple, Generic[T]):
    """An event of type ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, which has no object."""

    type: str
    object: T | None
    version: str


class _MetadataOnly(msgspec.Struct, frozen=True, gc=False):
    metadata: PartialMetadata


class _VersionOnly(msgspec.Struct, frozen=True, gc=False):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Versioned(msgspec.Struct, frozen=True, gc=False):
    metadata: _VersionOnly


class _EventLine(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


_EVENT_LINE = msgspec.json.Decoder(_EventLine)
_VERSIONED = msgspec.json.Decoder(_Versioned)
STATUS = msgspec.json.Decoder(Status)

_JSON = "application/json"


class ObjectCodec(Generic[T]):
    """Decodes the objects of a kind to what is kept of them.

    `wire` is the msgspec type that an object is decoded to; `keep` turns that into the kept value, and must
    not raise. `list_accept` and `watch_accept` are the media types to request. `version_of` reads the
    resourceVersion from a decoded object; without it each watch event is decoded a second time for that.
    `step_bytes` is for kinds of which more than names are read: so many bytes are decoded at once.
    """

    def __init__(
        self,
        wire: Any,
        keep: Callable[[Any], T],
        list_accept: str = _JSON,
        watch_accept: str = _JSON,
        *,
        version_of: Callable[[Any], str] | None = None,
        step_bytes: int = 0,
    ) -> None:
        self.keep = keep
        self._step_bytes = step_bytes
        self._version_of = version_of
        self.list_accept = list_accept
        self.watch_accept = watch_accept
        self._one = msgspec.json.Decoder(wire)
        self._many = msgspec.json.Decoder(list[wire])
        document = msgspec.defstruct(
            "_Document", [("metadata", ListMeta), ("items", list[wire] | None, None)], gc=False
        )
        self._document = msgspec.json.Decoder(document)

    @property
    def step_bytes(self) -> int:
        return self._step_bytes or STEP_BYTES

    def decode(self, text: bytes | msgspec.Raw) -> T:
        return self.keep(self._one.decode(text))

    def decode_items(self, text: bytes) -> list[T]:
        return list(map(self.keep, self._many.decode(text)))

    def decode_document(self, text: bytes | bytearray) -> tuple[list[T], ListMeta]:
        document: Any = self._document.decode(text)
        return list(map(self.keep, document.items or ())), document.metadata

    def decode_event(self, line: bytes) -> WatchEvent[T] | Status:
        """Decode a line of a watch; an ERROR event is the Status that it carries."""
        event = _EVENT_LINE.decode(line)
        if event.type not in _EVENT_TYPES:
            raise msgspec.DecodeError(f"unknown type of watch event: {event.type[:50]}")
        if event.type == "ERROR":
            return STATUS.decode(event.object)
        if self._version_of is not None and event.type != "BOOKMARK":
            decoded = self._one.decode(event.object)
            return WatchEvent(event.type, self.keep(decoded), self._version_of(decoded))
        version = _VERSIONED.decode(event.object).metadata.resource_version
        return WatchEvent(
            event.type, None if event.type == "BOOKMARK" else self.decode(event.object), version
        )


_EVENT_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


PARTIAL_METADATA: ObjectCodec[PartialMetadata] = ObjectCodec(
    _MetadataOnly,
    operator.attrgetter("metadata"),
    f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}",
    f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}",
    version_of=operator.attrgetter("metadata.resource_version"),
)
"""Names and labels of objects of any kind. The server is asked to send metadata only."""


_OPENING = re.compile(rb'"items"\s*:\s*\[')
_FIRST_KEY = re.compile(rb'\s*(\{\s*"(?:[^"\\]|\\.)*"\s*:)')


class ListDecoder(Generic[T]):
    """Decodes one page of a list from the pieces of its body.

    Raises `msgspec.DecodeError` for a body that is not a list.

    Items are cut off the front in slices. The end of a slice is a guess: the text with which the first item
    begins occurs there too. The guess is right exactly if the slice decodes, because a cut inside a string or
    a nested object leaves unbalanced JSON.
    """

    def __init__(self, codec: ObjectCodec[T]) -> None:
        self._codec = codec
        self._head = b""
        self._rest = bytearray()
        self._first_key = b""

    def feed(self, piece: bytes) -> Iterator[list[T]]:
        """Yield the objects that `piece` completes, in batches of bounded size."""
        self._rest += piece
        if not self._head:
            opening = _OPENING.search(self._rest)
            if opening is None:
                if len(self._rest) > _HEAD_BYTES:
                    raise msgspec.DecodeError(f"the first {_HEAD_BYTES} bytes contain no list of items")
                return
            self._head = bytes(self._rest[: opening.end()])
            del self._rest[: opening.end()]
        while len(self._rest) >= self._codec.step_bytes:
            items = self._cut()
            if items is None:
                return
            yield items

    def _cut(self) -> list[T] | None:
        """Decode and remove the items within a step, or a longer one; None if more bytes are needed."""
        if not self._first_key:
            first = _FIRST_KEY.match(self._rest)
            if first is None:
                return None
            self._first_key = first[1]
        step = self._codec.step_bytes
        start = self._rest.rfind(self._first_key, 1, step)
        while start > 0:
            if (items := self._decode_until(start)) is not None:
                return items
            start = self._rest.rfind(self._first_key, 1, start)
        start = self._rest.find(self._first_key, step)
        while start > 0:
            if (items := self._decode_until(start)) is not None:
                return items
            start = self._rest.find(self._first_key, start + 1)
        return None

    def _decode_until(self, start: int) -> list[T] | None:
        """Decode and remove what precedes `start` if that is whole items and a comma."""
        before = self._rest[:start].rstrip()
        if not before.endswith(b","):
            return None
        before[-1:] = b"]"
        try:
            items = self._codec.decode_items(b"[" + before)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return None
        del self._rest[:start]
        return items

    def finish(self) -> tuple[list[T], ListMeta]:
        """Return the remaining objects and the metadata of the list, at the end of the body."""
        return self._codec.decode_document(self._head + self._rest)


class WatchDecoder(Generic[T]):
    """Decodes the lines of a watch from the pieces in which they arrive."""

    def __init__(self, codec: ObjectCodec[T]) -> None:
        self._rest = bytearray()
        self._codec = codec

    def feed(self, piece: bytes) -> Iterator[list[WatchEvent[T]] | Status]:
        """Yield the events that `piece` completes; an ERROR is its Status, the last.

        At most 64 are yielded at a time, and less of large objects.
        """
        scanned = len(self._rest)
        self._rest += piece
        events: list[WatchEvent[T]] = []
        start = size = 0
        while (end := self._rest.find(b"\n", max(start, scanned))) >= 0:
            line = bytes(self._rest[start:end])
            start = end + 1
            if line and not line.isspace():
                event = self._codec.decode_event(line)
                if isinstance(event, Status):
                    if events:
                        yield events
                    self._rest.clear()
                    yield event
                    return
                events.append(event)
                size += len(line)
                if len(events) == _WATCH_STEP or size >= self._codec.step_bytes:
                    yield events
                    events, size = [], 0
        del self._rest[:start]
        if events:
            yield events
        if len(self._rest) > _LINE_BYTES:
            raise msgspec.DecodeError(f"a line of the watch is longer than {_LINE_BYTES} bytes")

    def finish(self) -> None:
        """Raise `msgspec.DecodeError` if the stream ended within a line."""
        if self._rest.strip():
            raise msgspec.DecodeError("the watch ended within a line")
