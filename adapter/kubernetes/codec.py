"""Decoders for the lists and watches of the API server: a codec says what is kept of an object.

A list of 100,000 objects served from the API server's watch cache is one body of about 100 MB. Decoding it in
one step would stop the event loop for seconds, so `ListDecoder` takes the body in the pieces in which it
arrives and decodes at most `STEP_BYTES` a step (or one object, where that is larger). Of each object a codec
keeps a few fields; the rest of its JSON is skipped, not built.

Objects are written by many. One that cannot be decoded or kept is `Unreadable`, and the others of its list or
watch are read all the same. docs/decisions/unreadable-objects.md says what such an object means.
"""

import contextlib
import copy
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from adapter.kubernetes import heads, nesting
from adapter.kubernetes.heads import Keeps, WithMetadata
from adapter.kubernetes.nesting import Pruner

UNREADABLE = (msgspec.MsgspecError, RecursionError)
"""Exceptions of decoding. msgspec raises RecursionError for JSON that is nested deeper than its limit; the
API server stores ten times that depth.
"""

STEP_BYTES = 128 * 1024
_HEAD_BYTES = 1024 * 1024
WATCH_STEP = 64
_REASON_LENGTH = 200
OBJECT_BYTES = 16 * 1024 * 1024  # etcd limits an object to a tenth of this


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


class Unreadable(msgspec.Struct, frozen=True, gc=False):
    """An object that could not be decoded or kept. `raw` is its JSON, `reason` is printable ASCII."""

    namespace: str
    name: str
    resource_version: str
    raw: bytes
    reason: str


class WatchEvent(NamedTuple, Generic[T]):
    """An event of type ``ADDED``, ``MODIFIED``, ``DELETED``, or ``BOOKMARK``, which has no object."""

    type: str
    object: T | Unreadable | None
    version: str


class _Identity(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""


class _ObjectDocument(msgspec.Struct, frozen=True, gc=False):
    metadata: ListMeta
    items: msgspec.Raw = msgspec.Raw(b"null")


class _EventLine(msgspec.Struct, frozen=True, gc=False):
    type: str
    object: msgspec.Raw


_DOCUMENT = msgspec.json.Decoder(_ObjectDocument)
_EVENT_LINE = msgspec.json.Decoder(_EventLine)
_IDENTIFIED = msgspec.json.Decoder(WithMetadata[_Identity])
_RAW_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])
STATUS = msgspec.json.Decoder(Status)

_JSON = "application/json"


class ObjectCodec(Generic[T]):
    """Decodes the objects of a kind to what is kept of them.

    `wire` is the msgspec type that an object is decoded to; `keep` turns that into the kept value. If one of
    them raises any exception, the object is `Unreadable`; one without a name fails the whole list or watch.

    `list_accept` and `watch_accept` are the media types to request. `version_of` reads the resourceVersion
    from a decoded object; without it each watch event is decoded a second time for that.
    `step_bytes` is for kinds of which more than names are read: so many bytes are decoded at once.
    Only objects of the namespaces that `keeps` are decoded, without it all.
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
        self.keeps: Keeps | None = None
        self._step_bytes = step_bytes
        self._version_of = version_of
        self.list_accept = list_accept
        self.watch_accept = watch_accept
        self._one = msgspec.json.Decoder(wire)
        self._many = msgspec.json.Decoder(list[wire])

    @property
    def step_bytes(self) -> int:
        return self._step_bytes or STEP_BYTES

    def keeping(self, keeps: Keeps) -> "ObjectCodec[T]":
        """Return a codec that leaves out the objects of other namespaces."""
        codec = copy.copy(self)
        codec.keeps = keeps
        return codec

    def decode(self, text: bytes | msgspec.Raw) -> T:
        return self.keep(self._one.decode(text))

    def decode_items(self, text: bytes, lose: Callable[[Unreadable], None]) -> list[T]:
        """Decode a JSON array; `lose` is called with the objects that are unreadable.

        RecursionError if it is nested too deep, `msgspec.DecodeError` if it is no array.
        """
        if self.keeps is not None:
            raws = _RAW_ITEMS.decode(text)
            items = [self._read(raw) for raw in raws if not heads.is_other(heads.read_head(raw), self.keeps)]
        else:
            try:
                return list(map(self.keep, self._many.decode(text)))
            except Exception:  # noqa: BLE001 - whatever it is, it is the fault of one object
                items = list(map(self._read, _RAW_ITEMS.decode(text)))
        kept: list[T] = []
        for item in items:
            if isinstance(item, Unreadable):
                lose(item)
            else:
                kept.append(item)
        return kept

    def _read(self, raw: msgspec.Raw) -> T | Unreadable:
        try:
            return self.decode(raw)
        except RecursionError:  # just short of the nesting that fails the whole list
            raw = msgspec.Raw(nesting.prune(bytes(raw)))
        except Exception as error:  # noqa: BLE001 - the others are read whatever it is
            return _mark(raw, error)
        try:
            return self.decode(raw)
        except Exception as error:  # noqa: BLE001 - as above
            return _mark(raw, error)

    def decode_event(self, line: bytes) -> WatchEvent[T] | Status:
        """Decode a line of a watch; an ERROR event is the Status that it carries.

        With `keeps`, an event of another namespace is one without an object.
        """
        keeps = self.keeps
        head = None if keeps is None else heads.read_event_head(line)
        if heads.is_other(head, keeps):
            return WatchEvent("BOOKMARK", None, head.resource_version)
        event = _EVENT_LINE.decode(line)
        if event.type not in _EVENT_TYPES:
            raise msgspec.DecodeError(f"unknown type of watch event: {event.type[:50]}")
        if event.type == "ERROR":
            return STATUS.decode(event.object)
        if event.type == "BOOKMARK":
            return WatchEvent(event.type, None, heads.OBJECT.decode(event.object).metadata.resource_version)
        if keeps is not None and head is None:
            head = heads.read_head(event.object)
            if heads.is_other(head, keeps):
                return WatchEvent("BOOKMARK", None, head.resource_version)
        if self._version_of is not None:
            with contextlib.suppress(Exception):  # then the object is read with more care
                decoded = self._one.decode(event.object)
                return WatchEvent(event.type, self.keep(decoded), self._version_of(decoded))
        version = heads.OBJECT.decode(event.object).metadata.resource_version
        return WatchEvent(event.type, self._read(event.object), version)


def _mark(raw: msgspec.Raw, error: Exception) -> Unreadable:
    identity = _IDENTIFIED.decode(raw).metadata
    return Unreadable(
        identity.namespace, identity.name, identity.resource_version, bytes(raw), describe(error)
    )


def _refuse(lost: Unreadable) -> None:
    raise msgspec.ValidationError(f"{lost.namespace}/{lost.name} cannot be read: {lost.reason}")


def describe(error: Exception) -> str:
    """Return what an exception says. Its text may be that of the object."""
    text = ascii(str(error))[1:-1][:_REASON_LENGTH]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


_EVENT_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


PARTIAL_METADATA: ObjectCodec[PartialMetadata] = ObjectCodec(
    WithMetadata[PartialMetadata],
    operator.attrgetter("metadata"),
    f"{_JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}",
    f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}",
    version_of=operator.attrgetter("metadata.resource_version"),
)
"""Names and labels of objects of any kind. The server is asked to send metadata only."""


_OPENING = re.compile(rb'"items"\s*:\s*\[')
_FIRST_KEY = re.compile(rb'\s{0,64}+(\{\s{0,64}+"(?:[^"\\]|\\.){0,256}+"\s{0,64}+:)')
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


class ListDecoder(Generic[T]):
    """Decodes one page of a list from the pieces of its body.

    Raises `msgspec.DecodeError` for a body that is not a list. `lose` is called with each unreadable object;
    without it the list fails.

    Items are cut off the front in slices. The end of a slice is a guess: the text with which the first item
    begins occurs there too. The guess is right exactly if the slice decodes, because a cut inside a nested
    object leaves unbalanced JSON (that text cannot occur inside a string, where quotes are escaped). After a
    wrong guess brackets are counted, each byte once: an object may contain that text a hundred thousand
    times. After an object that is nested too deep, the rest of the page is read without its depths.
    """

    def __init__(self, codec: ObjectCodec[T], lose: Callable[[Unreadable], None] | None = None) -> None:
        self._codec = codec
        self._lose = lose or _refuse
        self._head = b""
        self._rest = bytearray()
        self._first_key = b""
        self._pruner: Pruner | None = None
        self._counted = 0  # bytes of the rest in which brackets were counted
        self._depth = 0
        self._boundary = 0  # the last one in these bytes, 0 for none

    def feed(self, piece: bytes) -> Iterator[list[T]]:
        """Yield the objects that `piece` completes, in batches of bounded size."""
        self._rest += piece if self._pruner is None else self._pruner.feed(piece)
        if not self._head:
            opening = _OPENING.search(self._rest)
            if opening is None:
                if len(self._rest) > _HEAD_BYTES:
                    raise msgspec.DecodeError(f"the first {_HEAD_BYTES} bytes contain no list of items")
                return
            self._head = bytes(self._rest[: opening.end()])
            del self._rest[: opening.end()]
        while len(self._rest) >= self._codec.step_bytes:
            try:
                items = self._cut()
            except RecursionError:
                self._prune()
                yield []
                continue
            if items is None:
                break
            yield items
        if len(self._rest) > OBJECT_BYTES:
            raise msgspec.DecodeError(f"an object of the list is longer than {OBJECT_BYTES} bytes")

    def _prune(self) -> None:
        """Read the rest of the page without its depths; RecursionError if that is done already."""
        if self._pruner is not None:
            raise RecursionError
        self._pruner = Pruner()
        self._rest = bytearray(self._pruner.feed(self._rest))
        self._counted = self._depth = self._boundary = 0

    def _cut(self) -> list[T] | None:
        """Decode and remove the items within a step, or a longer one; None if more bytes are needed."""
        if not self._first_key:
            first = _FIRST_KEY.match(self._rest)
            if first is None:
                return None
            self._first_key = first[1]
            del self._rest[: first.start(1)]
        start = self._rest.rfind(self._first_key, 1, self._codec.step_bytes)
        items = self._decode_until(start) if start > 0 else None
        if items is None and (start := self._find_boundary()) > 0:
            items = self._decode_until(start)
            if items is None:
                raise msgspec.DecodeError("an item of the list is not JSON")
        return items

    def _find_boundary(self) -> int:
        """Return where an item begins, the last place within a step or the first beyond it, 0 if unknown."""
        step = self._codec.step_bytes
        while self._boundary == 0 or self._counted < step:
            start = self._rest.find(self._first_key, self._counted + 1)
            if start < 0:
                break
            text = _STRING.sub(b"", self._rest[self._counted : start])
            self._depth += text.count(b"{") + text.count(b"[") - text.count(b"}") - text.count(b"]")
            self._counted = start
            if self._depth == 0 and (self._boundary == 0 or start < step):
                self._boundary = start
        return self._boundary

    def _decode_until(self, start: int) -> list[T] | None:
        """Decode and remove what precedes `start` if that is whole items and a comma."""
        before = self._rest[:start].rstrip()
        if not before.endswith(b","):
            return None
        before[-1:] = b"]"
        try:
            items = self._codec.decode_items(b"[" + before, self._lose)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return None
        del self._rest[:start]
        self._counted = self._depth = self._boundary = 0
        return items

    def finish(self) -> tuple[list[T], ListMeta]:
        """Return the remaining objects and the metadata of the list, at the end of the body."""
        try:
            return self._decode_rest()
        except RecursionError:
            self._prune()
            return self._decode_rest()

    def _decode_rest(self) -> tuple[list[T], ListMeta]:
        left = b"" if self._pruner is None else self._pruner.finish()
        document = _DOCUMENT.decode(self._head + self._rest + left)
        items, meta = bytes(document.items), document.metadata
        return [] if items == b"null" else self._codec.decode_items(items, self._lose), meta


class WatchDecoder(Generic[T]):
    """Decodes the lines of a watch from the pieces in which they arrive."""

    def __init__(self, codec: ObjectCodec[T]) -> None:
        self._rest = bytearray()
        self._codec = codec

    def feed(self, piece: bytes) -> Iterator[list[WatchEvent[T]] | Status]:
        """Yield the events that `piece` completes; an ERROR is its Status, the last.

        At most 64 are yielded at a time, and less of large objects. A batch is empty while a line that is
        nested too deep is cut down.
        """
        scanned = len(self._rest)
        self._rest += piece
        events: list[WatchEvent[T]] = []
        start = size = 0
        while (end := self._rest.find(b"\n", max(start, scanned))) >= 0:
            line = bytes(self._rest[start:end])
            start = end + 1
            if line and not line.isspace():
                try:
                    event = self._codec.decode_event(line)
                except RecursionError:
                    pruner, pruned = Pruner(), []
                    for at in range(0, len(line), STEP_BYTES):
                        pruned.append(pruner.feed(line[at : at + STEP_BYTES]))
                        yield []
                    event = self._codec.decode_event(b"".join([*pruned, pruner.finish()]))
                if isinstance(event, Status):
                    if events:
                        yield events
                    self._rest.clear()
                    yield event
                    return
                events.append(event)
                size += len(line)
                if len(events) == WATCH_STEP or size >= self._codec.step_bytes:
                    yield events
                    events, size = [], 0
        del self._rest[:start]
        if events:
            yield events
        if len(self._rest) > OBJECT_BYTES:
            raise msgspec.DecodeError(f"a line of the watch is longer than {OBJECT_BYTES} bytes")

    def finish(self) -> None:
        """Raise `msgspec.DecodeError` if the stream ended within a line."""
        if self._rest.strip():
            raise msgspec.DecodeError("the watch ended within a line")
