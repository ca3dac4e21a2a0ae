"""The samples of a few wanted series in a body of Prometheus' text format or of OpenMetrics.

A body has hundreds of lines and one wanted family. Therefore names are searched as bytes at the beginnings of
lines, and only lines with a wanted name are parsed. Errors in other lines are not noticed; an error in a
parsed line makes the whole body unreadable, as in Prometheus.

What `prometheus_client` and Prometheus both accept has the same values here; anything else is an
`ExpositionError`. Labels stay bytes until they are needed. The pod chooses how large its body is, so a body
is read in steps between which other tasks can run.
"""

import math
import re
from collections.abc import Collection, Generator
from dataclasses import dataclass

import msgspec

from adapter.errors import ExpositionError, ExposureLimitError
from adapter.rules import matchers

# Possessive quantifiers throughout: no body makes the matching take long.
_QUOTED = rb'"(?:[^"\\\n]++|\\.)*+"'
# After a name: labels in braces, a value without white space, and an optional time.
_HEAD = rb'(?:[ \t]*+\{([^"}\n]*+(?:' + _QUOTED + rb'[^"}\n]*+)*+)\})?+[ \t]*+([^ \t\n{]++)'
_TEXT_SAMPLE = re.compile(_HEAD + rb"(?:[ \t]++(-?[0-9]{1,18}+))?[ \t\r]*+$", re.MULTILINE)
_OPENMETRICS_SAMPLE = re.compile(
    _HEAD + rb"(?:[ \t]++([^ \t\n#]++))?(?: # \{[^\n]*+)?[ \t\r]*+$", re.MULTILINE
)
# Lines that begin with white space, or with a brace (a quoted name inside the braces): legal and rare.
_ODD_LINE = re.compile(rb"\n[ \t{]")
_INDENT = re.compile(rb"\n[ \t]+")
_END = b"# EOF"
_AFTER = (b" ", b"\t", b"{", b"\n", b"")
_TERM = re.compile(
    rb"[ \t]*+(?:([A-Za-z_][A-Za-z0-9_]*+)|("
    + _QUOTED
    + rb"))[ \t]*+(?:=[ \t]*+("
    + _QUOTED
    + rb"))?+[ \t]*+(?:,|\Z)"
)
_REST = re.compile(rb"[ \t]*+\Z")
_ESCAPE = re.compile(r'\\([\\n"])')
_UNESCAPED = {"\\": "\\", "n": "\n", '"': '"'}

MAX_SAMPLES = 2000
"""Default bound on the samples of one body."""

MAX_LINE_BYTES = 16 * 1024
"""Bound on the line of a wanted sample after its name."""

STEP_BYTES = 64 * 1024
STEP_SAMPLES = 200
STEP_LABEL_BYTES = 16 * 1024
"""What a step reads: bytes of a body, wanted samples, bytes of parsed labels."""


class Exposed(msgspec.Struct, frozen=True, gc=False):
    """One sample as exposed.

    `labels` is the text between the braces; `time` is the sample's own (epoch seconds), None for the time
    of the scrape. The value may be NaN or infinite.
    """

    name: str
    labels: bytes
    value: float
    time: float | None


def is_openmetrics(content_type: str) -> bool:
    """Whether a Content-Type is that of OpenMetrics; any other is the text format, as in Prometheus 2."""
    return content_type.partition(";")[0].strip().lower() == "application/openmetrics-text"


def read(
    body: bytes,
    names: Collection[str],
    samples: list[Exposed],
    *,
    openmetrics: bool = False,
    limit: int = MAX_SAMPLES,
) -> Generator[None, None, None]:
    """Add the samples of the series called `names`, those of one name in the order of the body.

    A series that occurs twice is added twice. Yields after each step of at most about a millisecond. Raises
    ExpositionError for a wanted line that cannot be read, for more than `limit` samples, and for a truncated
    body of OpenMetrics, without its end mark.
    """
    end = _find_end(body) if openmetrics else len(body)
    part = _LinePart(body, _OPENMETRICS_SAMPLE if openmetrics else _TEXT_SAMPLE, samples, limit)
    while part.start < end:
        start = part.start
        stop = end if end - start <= STEP_BYTES else body.find(b"\n", start + STEP_BYTES, end)
        stop = end if stop < 0 else stop
        part.text = b"\n" + body[start:stop]
        if _ODD_LINE.search(part.text):
            part.text = _INDENT.sub(b"\n", part.text)
            yield from part.find_quoted(names)
        for name in names:
            yield from part.find_named(name)
        part.start = stop + 1
        yield


@dataclass(slots=True)
class _LinePart:
    """Some complete lines of a body, from `start` on. `text` begins with a line break."""

    body: bytes
    pattern: re.Pattern[bytes]
    samples: list[Exposed]
    limit: int
    start: int = 0
    text: bytes = b""

    def find_named(self, name: str) -> Generator[None, None, None]:
        text = self.text
        needle = b"\n" + name.encode("utf-8", "surrogatepass")
        length = len(needle)
        at = text.find(needle)
        while at >= 0:
            after = at + length
            if text[after : after + 1] in _AFTER:
                sample = self._match(after, at)
                after = self._take(sample, name, sample[1] or b"")
                if len(self.samples) % STEP_SAMPLES == 0:
                    yield
            at = text.find(needle, after)

    def find_quoted(self, names: Collection[str]) -> Generator[None, None, None]:
        """Add the samples whose names are quoted inside the braces."""
        at = self.text.find(b"\n{")
        since = lines = 0
        while at >= 0:
            sample = self._match(at + 1, at)
            name, _ = _terms(sample[1] or b"")
            if name is None:
                raise self._unreadable(at, "a sample without a name")
            after = self._take(sample, name, sample[1]) if name in names else sample.end()
            lines += 1
            if after - since > STEP_LABEL_BYTES or lines == STEP_SAMPLES:
                since, lines = after, 0
                yield
            at = self.text.find(b"\n{", after)

    def _match(self, after: int, at: int) -> re.Match[bytes]:
        """Match the rest of a sample at `after`, in the line that begins after the line break `at`."""
        if (
            self.text.find(b"\n", after, after + MAX_LINE_BYTES) < 0
            and len(self.text) - after > MAX_LINE_BYTES
        ):
            raise ExposureLimitError(
                f"a line is longer than {MAX_LINE_BYTES} bytes: {_shown(self.text[at + 1 :][:300])}"
            )
        sample = self.pattern.match(self.text, after)
        if sample is None:
            raise self._unreadable(at, "not a sample")
        return sample

    def _take(self, sample: re.Match[bytes], name: str, labels: bytes) -> int:
        time = None if sample[3] is None else self._time(sample)
        self.samples.append(Exposed(name, labels, self._number(sample, 2, "not a value"), time))
        if len(self.samples) > self.limit:
            raise ExposureLimitError(f"there are more than {self.limit} samples of {name}")
        return sample.end()

    def _number(self, sample: re.Match[bytes], group: int, what: str) -> float:
        written = sample[group]
        try:
            if b"_" not in written:  # Python reads 1_000, Prometheus does not
                return float(written)
        except ValueError:
            pass
        raise self._unreadable(sample.start(), what)

    def _time(self, sample: re.Match[bytes]) -> float:
        """Return the time of a sample in seconds; in the text format it is in milliseconds."""
        if self.pattern is _TEXT_SAMPLE:
            return int(sample[3]) / 1000
        time = self._number(sample, 3, "not a time")
        if math.isfinite(time):
            return time
        raise self._unreadable(sample.start(), "not a time")

    def _unreadable(self, at: int, what: str) -> ExpositionError:
        """Return the error about the line at `at`, which may be the line break before it."""
        text = self.text
        start = at if text[at : at + 1] == b"\n" else text.rfind(b"\n", 0, at)
        end = text.find(b"\n", start + 1)
        line = text[start + 1 : end if end >= 0 else len(text)]
        number = self.body.count(b"\n", 0, self.start) + text.count(b"\n", 0, start + 1)
        return ExpositionError(f"line {number}: {what}: {_shown(line)}")


def parse_labels(labels: bytes) -> dict[str, str]:
    """Return the labels between the braces, empty values included, without a quoted series name.

    Raises ExpositionError.
    """
    return _terms(labels)[1]


def _terms(labels: bytes) -> tuple[str | None, dict[str, str]]:
    """Return the quoted series name, if any, and the labels."""
    name = None
    values: dict[str, str] = {}
    at = 0
    while not _REST.match(labels, at):
        term = _TERM.match(labels, at)
        if term is None or (term[1] is not None and term[3] is None):
            raise ExpositionError(f"labels cannot be read: {_shown(labels)}")
        key = term[1].decode("ascii") if term[1] is not None else _unquote(term[2])
        if term[3] is not None and key not in values and key != "__name__":
            values[key] = _unquote(term[3])
        elif term[3] is None and name is None:
            name = key
        else:
            raise ExpositionError(f"a label is given twice: {_shown(labels)}")
        at = term.end()
    return name, values


def _unquote(quoted: bytes) -> str:
    try:
        text = quoted[1:-1].decode("utf-8")
    except UnicodeDecodeError as error:
        raise ExpositionError(f"labels are not UTF-8: {_shown(quoted)}") from error
    return _ESCAPE.sub(lambda escape: _UNESCAPED[escape[1]], text) if "\\" in text else text


def _find_end(body: bytes) -> int:
    """Return the offset of the end mark of an OpenMetrics body, which must be its last line."""
    end = len(body) - body.endswith(b"\n") - len(_END)
    if end < 0 or not body.startswith(_END, end) or (end and body[end - 1 : end] != b"\n"):
        raise ExpositionError("the body does not end with # EOF: it is truncated")
    return end


def _shown(text: bytes) -> str:
    return matchers.shorten(ascii(text[:300].decode("utf-8", "replace"))[1:-1])
