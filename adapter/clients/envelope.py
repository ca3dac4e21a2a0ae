"""The JSON of Prometheus' instant query API, decoded straight into samples.

Not here: HTTP. The law: what is not an answer raises `PrometheusError`, whatever the bytes are, and a sample without a float
value is left out and counted, never zero. As upstream, only `status: error` is an error, and warnings change nothing.
"""

import re
from typing import Annotated, NamedTuple, TypeVar

import msgspec

from adapter.clients import pieces
from adapter.errors import PrometheusError
from adapter.model.metrics import QueryResult, Sample

PIECE_BYTES = 128 * 1024
"""How much is decoded in one step: about 700 samples, 1 ms."""

DROPPED_AT_ONCE = 5_000
"""How many samples are freed in one step."""

FOREIGN_TEXT = 200
"""How many characters of a text that is not ours are kept."""

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
    infos: list[str] | None = None


_T = TypeVar("_T")

_ENVELOPE = msgspec.json.Decoder(_Envelope)
_RESULT = msgspec.json.Decoder(_Result)
_ELEMENTS = msgspec.json.Decoder(list[_Element] | None)
_POINT = msgspec.json.Decoder(_Point)


class Answer(NamedTuple):
    """A decoded answer: what was asked, and how many histograms were left out and warnings came with it."""

    result: QueryResult
    histograms: int
    warnings: int


class AnswerDecoder:
    """Decodes one answer as it arrives: `feed` a chunk, `step` until False, letting others run between steps, at last `finish`."""

    def __init__(self, most: int | None = None) -> None:
        """`most` is how many samples there may be."""
        self._most = most
        self._cutter = pieces.Cutter(pieces.VECTOR, PIECE_BYTES)
        self._samples: list[Sample] = []
        self._histograms = 0

    def feed(self, chunk: bytes) -> None:
        """Take a chunk."""
        self._cutter.feed(chunk)

    def step(self) -> bool:
        """Decode one piece of what was fed; False when that was less than a piece. Raises `PrometheusError`."""
        piece = self._cutter.take()
        if piece is None:
            return False
        self._add(_decode(_ELEMENTS, piece))
        return True

    def finish(self) -> Answer:
        """Return the answer; raises `PrometheusError` for an error of Prometheus and for what is not an answer."""
        envelope = _decode(_ENVELOPE, self._cutter.finish())
        _raise_error(envelope)
        if envelope.data == _ABSENT:
            raise PrometheusError("decode", "the answer holds no data")
        result = _decode(_RESULT, envelope.data)
        warnings = len(envelope.warnings or ()) + len(envelope.infos or ())
        if result.result_type == "vector":
            self._add(_decode(_ELEMENTS, result.result))
            return Answer(QueryResult("vector", self._samples), self._histograms, warnings)
        if result.result_type == "scalar":
            point = _decode(_POINT, result.result)
            return Answer(QueryResult("scalar", [Sample({}, _parse_value(point.text), point.time)]), 0, warnings)
        kind = shorten(result.result_type)
        raise PrometheusError("type", f"the result is a {kind}, neither vector nor scalar", kind)

    def drop(self) -> bool:
        """Let go of a piece of what was decoded, of an answer that nobody will have; False when nothing is left.

        To free a long answer at once takes as long as to decode a good part of it.
        """
        del self._samples[-DROPPED_AT_ONCE:]
        return bool(self._samples)

    def _add(self, elements: list[_Element] | None) -> None:
        for element in elements or ():
            point = element.value
            if point is not None:
                self._samples.append(Sample(element.metric, _parse_value(point.text), point.time))
            elif element.histogram != _ABSENT:
                self._histograms += 1
            else:
                raise PrometheusError("decode", "a sample has neither value nor histogram")
        if self._most is not None and len(self._samples) > self._most:
            raise PrometheusError("size", f"the answer has more than {self._most} samples")


def refuse_body(status: int, body: bytes) -> PrometheusError:
    """Return what a refusal means: Prometheus' own words where the body is its envelope, else the HTTP status."""
    try:
        _raise_error(_decode(_ENVELOPE, body))
    except PrometheusError as error:
        if error.kind != "decode":
            return error
    return PrometheusError("status", f"HTTP status {status}")


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
    """Return a sample's value; Go prints NaN, +Inf, -Inf and exponents, all of which Python reads."""
    try:
        return float(text)
    except ValueError as error:
        raise PrometheusError("decode", f"a sample's value is not a number: {shorten(text)!r}") from error
