"""What the API server sends about objects, decoded: lists and watches of PartialObjectMetadata.

What lives here: the slim records, and two decoders that take a body in the pieces in which it arrives. Not here: HTTP. The
law: no step decodes more than `STEP_BYTES` (one larger object excepted), for a list of 100,000 objects comes as one body of
100 MB when it is served from the API server's watch cache, and the event loop has other work.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

STEP_BYTES = 128 * 1024
_HEAD_BYTES = 1024 * 1024
_WATCH_STEP = 64


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


class _Item(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta


class _Document(msgspec.Struct, frozen=True, gc=False):
    metadata: ListMeta
    items: list[_Item] | None = None


class _Line(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


_ITEMS = msgspec.json.Decoder(list[_Item])
_DOCUMENT = msgspec.json.Decoder(_Document)
_LINE = msgspec.json.Decoder(_Line)
_OBJECT = msgspec.json.Decoder(_Item)
STATUS = msgspec.json.Decoder(Status)

_OPENING = re.compile(rb'"items"\s*:\s*\[')
_FIRST_KEY = re.compile(rb'\s*(\{\s*"(?:[^"\\]|\\.)*"\s*:)')


class ListDecoder:
    """Decodes one page of a list from the pieces of its body.

    Items are cut off the front in slices. Where a slice may end is guessed from the text with which the first item begins,
    and is right exactly if the slice decodes: a cut inside a string or a nested object leaves JSON that does not close.
    `msgspec.DecodeError` for a body that is no list.
    """

    def __init__(self) -> None:
        self._head = b""
        self._rest = bytearray()
        self._first_key = b""

    def feed(self, piece: bytes) -> Iterator[list[ObjectMeta]]:
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
            yield [item.metadata for item in items]

    def _cut(self) -> list[_Item] | None:
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

    def _decode_until(self, start: int) -> list[_Item] | None:
        """Decode and remove what stands before `start` if it is whole items and a comma."""
        before = self._rest[:start].rstrip()
        if not before.endswith(b","):
            return None
        before[-1:] = b"]"
        try:
            items = _ITEMS.decode(b"[" + before)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return None
        del self._rest[:start]
        return items

    def finish(self) -> tuple[list[ObjectMeta], ListMeta]:
        """Return the remaining objects and what the list says of itself; the body has ended."""
        document = _DOCUMENT.decode(self._head + self._rest)
        return [item.metadata for item in document.items or ()], document.metadata


class WatchDecoder:
    """Decodes the lines of a watch from the pieces in which they arrive."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, piece: bytes) -> Iterator[list[WatchEvent] | Status]:
        """Yield the events that `piece` completes, at most 64 at a time; an ERROR line as the Status it carries."""
        scanned = len(self._rest)
        self._rest += piece
        events: list[WatchEvent] = []
        start = 0
        while (end := self._rest.find(b"\n", max(start, scanned))) >= 0:
            line = bytes(self._rest[start:end])
            start = end + 1
            if line and not line.isspace():
                event = _decode_line(line)
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

    def finish(self) -> None:
        """Raise `msgspec.DecodeError` if the stream ended within a line."""
        if self._rest.strip():
            raise msgspec.DecodeError("the watch ended within a line")


def _decode_line(line: bytes) -> WatchEvent | Status:
    kind, raw = (decoded := _LINE.decode(line)).type, decoded.object
    if kind == "ERROR":
        return STATUS.decode(raw)
    if kind not in {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}:
        raise msgspec.DecodeError(f"no such type of watch event: {kind[:50]}")
    return WatchEvent(kind, _OBJECT.decode(raw).metadata)
