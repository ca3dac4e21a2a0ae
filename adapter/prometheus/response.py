"""The JSON of Prometheus' instant query API, decoded straight into samples.

What is not an answer raises `PrometheusError`, whatever the bytes are. As upstream, only `status: error` is
an error. Warnings are carried in the result, because an engine that leaves data out says so there: Thanos and
Prometheus with remote read in `warnings`, a VictoriaMetrics cluster in `isPartial`. What follows from a
warning is decided by `querycache`.
"""

import re
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from adapter.errors import PrometheusError
from adapter.model import go_text
from adapter.model.metrics import HISTOGRAM, QueryResult, Sample
from adapter.prometheus import hints, splitter

PIECE_BYTES = 128 * 1024
"""How much is decoded in one step: about 700 samples, 1 ms."""

DROPPED_AT_ONCE = 5_000
"""How many samples are freed in one step."""

FOREIGN_TEXT = 200
"""How many characters of a text that is not ours are kept."""

WARNINGS_KEPT = 3
"""How many warnings of an answer are kept; the others are only counted."""

WHOLE_GROWTH = 16
"""How much larger than its JSON a part of an answer may become while it is decoded in one step."""

_SAMPLE_BYTES, _LABEL_BYTES = (
    350,
    60,
)  # what a decoded sample takes, and each of its labels, beside their texts
_PARTIAL = "isPartial: some storage nodes did not answer"

ENVELOPE_STATUSES = frozenset({400, 422, 503, *range(200, 300)})
"""The HTTP statuses whose bodies are read, as upstream."""

_KINDS = {"bad_data": "query", "execution": "query", "timeout": "timeout"}
_CONTROL = re.compile(r"[^\x20-\x7e\xa0-\uffff]+")


_ABSENT = msgspec.Raw(b"null")


# Years 1 to 9999, which is what an answer of ours can say.
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


class Answer(NamedTuple):
    """A decoded answer and the number of warnings that came with it."""

    result: QueryResult
    warnings: int = 0


class AnswerDecoder:
    """Decodes one answer as it arrives: `feed` a chunk, `step` until False, letting others run between steps, at last `finish`."""

    def __init__(self, most: int | None = None, room: int | None = None) -> None:
        """`most` is how many samples there may be, `room` how many bytes of memory the answer may take."""
        self._most = most
        self._room = room
        self._cutter = splitter.Cutter(splitter.VECTOR, PIECE_BYTES)
        self._samples: list[Sample] = []
        self._decoded = 0

    @property
    def weight(self) -> int:
        """Return about how many bytes of memory the answer takes: decoded samples, and text that is not decoded."""
        return self._decoded + self._cutter.held

    def feed(self, chunk: bytes) -> None:
        """Take a chunk. Like `step` and `finish` it raises `PrometheusError` ``size`` when there is no room."""
        self._cutter.feed(chunk)
        self._check_room(self.weight)

    def step(self) -> bool:
        """Decode one piece of what was fed; False when that was less than a piece. Raises `PrometheusError`."""
        piece = self._cutter.take()
        if piece is None:
            return False
        self._add(_decode(_ELEMENTS, piece), len(piece))
        return True

    def finish(self) -> Answer:
        """Return the answer; raises `PrometheusError` for an error of Prometheus and for what is not an answer."""
        rest = self._cutter.finish()
        if len(rest) > 4 * PIECE_BYTES:  # a text that could not be cut into pieces
            self._check_room(self._decoded + WHOLE_GROWTH * len(rest))
        envelope = _decode(_ENVELOPE, rest)
        _raise_error(envelope)
        if envelope.data == _ABSENT:
            raise PrometheusError("decode", "the answer holds no data")
        result = _decode(_RESULT, envelope.data)
        said = [*([_PARTIAL] if envelope.is_partial else ()), *(envelope.warnings or ())]
        warnings = tuple(shorten(text) for text in said[:WARNINGS_KEPT])
        if result.result_type == "vector":
            self._add(_decode(_ELEMENTS, result.result), len(rest))
            return Answer(QueryResult("vector", self._samples, warnings), len(said))
        if result.result_type == "scalar":
            point = _decode(_POINT, result.result)
            sample = Sample({}, _parse_value(point.text), point.time)
            return Answer(QueryResult("scalar", [sample], warnings), len(said))
        kind = shorten(result.result_type)
        raise PrometheusError("type", f"the result is a {kind}, neither vector nor scalar", kind)

    def drop(self) -> bool:
        """Free a part of the decoded samples of an answer that is refused; False when nothing is left.

        To free a long answer in one step takes as long as to decode a good part of it.
        """
        del self._samples[-DROPPED_AT_ONCE:]
        return bool(self._samples)

    def _add(self, elements: list[_Element] | None, size: int) -> None:
        """Take in the elements of a piece of `size` bytes."""
        labels = 0
        for element in elements or ():
            point = element.value
            if point is not None:
                self._samples.append(Sample(element.metric, _parse_value(point.text), point.time))
            elif element.histogram != _ABSENT:
                self._samples.append(Sample(element.metric, HISTOGRAM, _time_of(element.histogram)))
            else:
                raise PrometheusError("decode", "a sample has neither value nor histogram")
            labels += len(element.metric)
        self._decoded += size + _SAMPLE_BYTES * len(elements or ()) + _LABEL_BYTES * labels
        if self._most is not None and len(self._samples) > self._most:
            raise PrometheusError("size", f"the answer has more than {self._most} samples")
        self._check_room(self._decoded)

    def _check_room(self, weight: int) -> None:
        if self._room is not None and weight > self._room:
            raise too_large(self._room)


def too_large(room: int) -> PrometheusError:
    """Return the error for an answer that takes more than `room` bytes of memory."""
    return PrometheusError("size", f"the answer takes more than {room} bytes (--prometheus-max-answer-bytes)")


def refuse_body(status: int, body: bytes) -> PrometheusError:
    """Return what a refusal means: Prometheus' own words where the body is its envelope, else the HTTP status."""
    try:
        _raise_error(_decode(_ENVELOPE, body))
    except PrometheusError as error:
        if error.kind != "decode":
            return error
    return PrometheusError("status", hints.of_status(status, body))


def _raise_error(envelope: _Envelope) -> None:
    if envelope.status == "error":
        text = shorten(f"{envelope.error_type}: {envelope.error}")
        raise PrometheusError(_KINDS.get(envelope.error_type, "status"), text)


def shorten(text: str) -> str:
    """Return foreign text fit for a log: one line, no control characters, at most 200 characters."""
    plain = _CONTROL.sub(" ", text).strip()
    return plain if len(plain) <= FOREIGN_TEXT else f"{plain[: FOREIGN_TEXT - 3]}..."


def _decode(decoder: msgspec.json.Decoder[_T], text: bytes | msgspec.Raw) -> _T:
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError) as error:  # msgspec's own errors are ValueErrors, as is bad UTF-8
        raise PrometheusError("decode", shorten(f"not an answer of Prometheus: {error}")) from error


def _parse_value(text: str) -> float:
    """Return a sample's value, as the clients of Prometheus that are written in Go read it."""
    try:
        return go_text.parse_float(text)
    except ValueError as error:
        raise PrometheusError("decode", f"a sample's value is {error}: {shorten(repr(text))}") from error


def _time_of(histogram: msgspec.Raw) -> float:
    return _decode(_HISTOGRAM, histogram).time
