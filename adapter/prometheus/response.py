"""Decodes Prometheus' JSON while it arrives: an answer is split into pieces, and each is decoded to samples.

A long answer is never decoded in one step, so other requests run in between, and the JSON text is never in
memory as a whole. As upstream, only ``status: error`` is an error. An engine that leaves data out says so in
a warning, which is part of the result: Thanos and Prometheus with remote read in `warnings`, a cluster of
VictoriaMetrics in `isPartial`.

How a text is split without parsing it: in a JSON string a quote is preceded by a backslash, so the quote of
``},{"`` opens or closes a string. A closing quote is followed by a comma, a colon, a bracket or a blank,
never by a letter. So ``},{"`` and a letter is structure: an object ends, and another begins whose first key
starts with that letter. Prometheus, Thanos, Cortex, Mimir and VictoriaMetrics print no blanks, and begin an
element of a vector with ``metric``; labels begin with a letter or an underscore. A text in which no boundary
can be proved stays one piece.
"""

import re
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from adapter.errors import PrometheusError
from adapter.model import go_text
from adapter.model.metrics import HISTOGRAM, QueryResult, Sample
from adapter.prometheus import endpoint

PIECE_BYTES = 16 * 1024
"""How much is decoded in one step: about 90 samples, 0.3 to 0.8 ms."""

DROPPED_AT_ONCE = 5_000
"""How many samples are freed in one step."""

FOREIGN_TEXT = 200
"""Length to which foreign text is cut."""

WARNINGS_KEPT = 3
"""How many warnings of an answer are kept; all are counted."""

WHOLE_GROWTH = 16
"""How much larger than its JSON a text may become that is decoded in one step."""

READABLE_STATUSES = frozenset({400, 422, 503, *range(200, 300)})
"""The HTTP statuses whose bodies are decoded, as upstream."""

_SAMPLE_BYTES = 350
_LABEL_BYTES = 60
"""Estimated bytes of a decoded sample and of each of its labels, beside their texts."""

_LONGEST_HEAD = 1024
_PARTIAL = "isPartial: some storage nodes did not answer"
_KINDS = {"bad_data": "query", "execution": "query", "timeout": "timeout"}
_CONTROL = re.compile(r"[^\x20-\x7e\xa0-\uffff]+")
_AFTER_QUOTE = re.compile(rb"[A-Za-z_]")
_ABSENT = msgspec.Raw(b"null")

# Years 1 to 9999, which our own answers can express.
_Time = Annotated[float, msgspec.Meta(ge=-62_135_596_800, lt=253_402_300_800)]


class _Point(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    time: _Time
    text: str


class _Histogram(msgspec.Struct, array_like=True, forbid_unknown_fields=True, gc=False):
    time: _Time
    value: msgspec.Raw


class _Element(msgspec.Struct, gc=False):
    metric: dict[str, str]
    value: _Point | None = None
    histogram: msgspec.Raw = _ABSENT


class _Result(msgspec.Struct, rename="camel", gc=False):
    result_type: str
    result: msgspec.Raw


class _Envelope(msgspec.Struct, rename="camel", gc=False):
    status: str = ""
    data: msgspec.Raw = _ABSENT
    error_type: str = ""
    error: str = ""
    warnings: list[str] | None = None
    is_partial: bool = False


_T = TypeVar("_T")

_ENVELOPE = msgspec.json.Decoder(_Envelope)
_RESULT = msgspec.json.Decoder(_Result)
_ELEMENTS = msgspec.json.Decoder(list[_Element] | None)
_POINT = msgspec.json.Decoder(_Point)
_HISTOGRAM = msgspec.json.Decoder(_Histogram)


class ArrayShape(NamedTuple):
    """The form of an answer: `head` matches up to the array's bracket, `boundary` begins with ``},{"``."""

    head: re.Pattern[bytes]
    boundary: bytes


_HEAD = rb'\{"status":"success",(?:"[A-Za-z]+":(?:true|false),)*"data":'
VECTOR = ArrayShape(re.compile(_HEAD + rb'\{"resultType":"vector","result":\['), b'},{"metric":')
SERIES = ArrayShape(re.compile(_HEAD + rb"\["), b'},{"')


class Splitter:
    """Takes the chunks of an answer, and returns pieces that are JSON arrays of complete elements.

    Pieces have about `size` bytes, and every byte is in exactly one. `finish` returns what is in no piece: a
    complete answer of the same form with the last elements in its array. An answer of another shape is
    returned there as a whole.
    """

    def __init__(self, shape: ArrayShape, size: int) -> None:
        self._shape = shape
        self._size = size
        self.buffer = bytearray()
        self._head: bytes | None = None
        self._whole = False

    def feed(self, chunk: bytes) -> None:
        self.buffer += chunk
        if self._head is None and not self._whole:
            head = self._shape.head.match(self.buffer)
            if head is not None:
                self._head = bytes(head.group())
                del self.buffer[: head.end()]
            else:
                self._whole = len(self.buffer) > _LONGEST_HEAD

    def take(self) -> bytes | None:
        """Return the next piece, None until more is fed."""
        if self._head is None or len(self.buffer) < self._size:
            return None
        end = self._last_boundary(2 * self._size)
        if end < 0:  # one element is longer than a piece
            end = self._last_boundary(len(self.buffer))
            if end < 0:
                return None
        piece = b"[%b]" % bytes(self.buffer[: end + 1])
        del self.buffer[: end + 2]
        return piece

    def finish(self) -> bytes:
        return (self._head or b"") + bytes(self.buffer)

    def _last_boundary(self, end: int) -> int:
        boundary = self._shape.boundary
        while (place := self.buffer.rfind(boundary, 0, end)) >= 0:
            if _AFTER_QUOTE.match(self.buffer, place + 4):
                return place
            end = place + 3
        return -1


class ResponseDecoder:
    """Decodes one answer: `feed` a chunk, `step` until it returns False, and at last `finish`.

    All raise PrometheusError, of kind ``size`` beyond `most` samples or `room` bytes of memory.
    """

    def __init__(self, most: int | None = None, room: int | None = None) -> None:
        self._most = most
        self._room = room
        self._splitter = Splitter(VECTOR, PIECE_BYTES)
        self._samples: list[Sample] = []
        self._decoded = 0
        self.weight = 0
        """Estimated bytes that the answer takes now: decoded samples, and text that is not decoded yet."""
        self.warnings = 0
        """How many warnings came with the whole answer."""

    def feed(self, chunk: bytes) -> None:
        self._splitter.feed(chunk)
        self.weight = self._decoded + len(self._splitter.buffer)
        self._check_room(self.weight)

    def step(self) -> bool:
        """Decode one piece. Return False if less than a piece is left."""
        piece = self._splitter.take()
        if piece is None:
            return False
        self._add(decode(_ELEMENTS, piece), len(piece))
        return True

    def finish(self) -> QueryResult:
        """Return the decoded answer; an error that Prometheus reports is raised."""
        rest = self._splitter.finish()
        if len(rest) > 4 * PIECE_BYTES:  # a text that could not be split
            self._check_room(self._decoded + WHOLE_GROWTH * len(rest))
        envelope = decode(_ENVELOPE, rest)
        _raise_error(envelope)
        if envelope.data == _ABSENT:
            raise PrometheusError("decode", "the answer holds no data")
        result = decode(_RESULT, envelope.data)
        every = [*([_PARTIAL] if envelope.is_partial else ()), *(envelope.warnings or ())]
        self.warnings = len(every)
        warnings = tuple(shorten(text) for text in every[:WARNINGS_KEPT])
        if result.result_type == "vector":
            self._add(decode(_ELEMENTS, result.result), len(rest))
            return QueryResult("vector", self._samples, warnings)
        if result.result_type == "scalar":
            self._add([_Element({}, decode(_POINT, result.result))], len(rest))
            return QueryResult("scalar", self._samples, warnings)
        kind = shorten(result.result_type)
        raise PrometheusError("type", f"the result is a {kind}, neither vector nor scalar", kind)

    def drop(self) -> bool:
        """Free some of the samples of a refused answer; return False if none is left.

        To free all in one step takes as long as to decode a good part of them.
        """
        del self._samples[-DROPPED_AT_ONCE:]
        return bool(self._samples)

    def _add(self, elements: list[_Element] | None, size: int) -> None:
        """Take in the elements of a piece of `size` bytes."""
        labels = 0
        for element in elements or ():
            point = element.value
            if point is not None:
                time = point.time
                try:
                    value = go_text.parse_float(point.text)
                except ValueError as error:
                    text = f"a sample's value is {error}: {shorten(repr(point.text))}"
                    raise PrometheusError("decode", text) from error
            elif element.histogram != _ABSENT:
                value, time = HISTOGRAM, decode(_HISTOGRAM, element.histogram).time
            else:
                raise PrometheusError("decode", "a sample has neither value nor histogram")
            self._samples.append(Sample(element.metric, value, time))
            labels += len(element.metric)
        self._decoded += size + _SAMPLE_BYTES * len(elements or ()) + _LABEL_BYTES * labels
        if self._most is not None and len(self._samples) > self._most:
            raise PrometheusError("size", f"the answer has more than {self._most} samples")
        self.weight = self._decoded + len(self._splitter.buffer)
        self._check_room(self._decoded)

    def _check_room(self, weight: int) -> None:
        if self._room is not None and weight > self._room:
            raise too_large(self._room)


def too_large(room: int) -> PrometheusError:
    """Return the error for an answer that takes more than `room` bytes of memory."""
    return PrometheusError("size", f"the answer takes more than {room} bytes (--prometheus-max-answer-bytes)")


def explain_refusal(status: int, body: bytes) -> PrometheusError:
    """Return Prometheus' own error if the body is its envelope, otherwise one about the HTTP status."""
    try:
        _raise_error(decode(_ENVELOPE, body))
    except PrometheusError as error:
        if error.kind != "decode":
            return error
    return PrometheusError("status", endpoint.explain_status(status, body))


def shorten(text: str) -> str:
    """Return foreign text fit for a log: one line, no control characters, at most 200 characters."""
    plain = _CONTROL.sub(" ", text).strip()
    return plain if len(plain) <= FOREIGN_TEXT else f"{plain[: FOREIGN_TEXT - 3]}..."


def _raise_error(envelope: _Envelope) -> None:
    if envelope.status == "error":
        text = shorten(f"{envelope.error_type}: {envelope.error}")
        raise PrometheusError(_KINDS.get(envelope.error_type, "status"), text)


def decode(decoder: msgspec.json.Decoder[_T], text: bytes | msgspec.Raw) -> _T:
    """Decode a text that Prometheus sent. Raises PrometheusError."""
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors, as is bad UTF-8
        raise PrometheusError("decode", shorten(f"not an answer of Prometheus: {error}")) from error
