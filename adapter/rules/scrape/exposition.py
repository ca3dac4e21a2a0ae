"""The samples of a few wanted series in a body of Prometheus' text format or of OpenMetrics.

A body has hundreds of lines and one wanted family: names are searched for as bytes at the beginnings of
lines, and only lines that bear one are read. Faults in other lines are not noticed; a fault in a line that is
read makes the whole body unreadable, as it does in Prometheus.

What `prometheus_client` and Prometheus both read is read to the same values; anything else is an
`ExpositionError` and never another exception. Labels stay bytes until they are needed. The pod chooses how
large its body is, so a body is read in steps between which other work can run.
"""

import math
import re
from collections.abc import Collection, Generator

import msgspec

from adapter.errors import ExpositionError, ExposureLimitError
from adapter.rules import matchers

# Possessive throughout: whoever wrote the body does not choose how long it is looked at.
_QUOTED = rb'"(?:[^"\\\n]++|\\.)*+"'
# What follows a name: labels in braces, a value, perhaps a time. A value ends where white space does.
_HEAD = rb'(?:[ \t]*+\{([^"}\n]*+(?:' + _QUOTED + rb'[^"}\n]*+)*+)\})?+[ \t]*+([^ \t\n{]++)'
_TEXT_SAMPLE = re.compile(_HEAD + rb"(?:[ \t]++(-?[0-9]{1,18}+))?[ \t\r]*+$", re.MULTILINE)
_OPENMETRICS_SAMPLE = re.compile(
    _HEAD + rb"(?:[ \t]++([^ \t\n#]++))?(?: # \{[^\n]*+)?[ \t\r]*+$", re.MULTILINE
)
# Lines that begin with white space or with a brace (a name in quotes, inside the braces): legal and rare.
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
"""Samples that are taken of one body unless told otherwise."""

MAX_LINE_BYTES = 16 * 1024
"""Bytes that the line of a wanted sample may have behind the name."""

STEP_BYTES = 64 * 1024
STEP_SAMPLES = 200
STEP_LABEL_BYTES = 16 * 1024
"""What a step reads before it ends: bytes of a body, wanted samples, bytes of labels that are parsed."""


class Exposed(msgspec.Struct, frozen=True, gc=False):
    """One sample as it was exposed.

    `labels` are as they stand between the braces; `time` is what the sample itself gives (epoch seconds),
    None for the time of the scrape. The value may be NaN or infinite.
    """

    name: str
    labels: bytes
    value: float
    time: float | None


def is_openmetrics(content_type: str) -> bool:
    """Whether a Content-Type is that of OpenMetrics; everything else is read as the text format, as Prometheus 2 does."""
    return content_type.partition(";")[0].strip().lower() == "application/openmetrics-text"


def parse(
    body: bytes, names: Collection[str], *, openmetrics: bool = False, limit: int = MAX_SAMPLES
) -> list[Exposed]:
    """Return the samples of the series called `names`; the samples of one name are in the order of the body.

    A series that stands twice is returned twice. Raises ExpositionError for a line that is wanted and cannot
    be read, for more than `limit` of them, and for a body of OpenMetrics without its end mark, which was cut
    short.
    """
    found: list[Exposed] = []
    for _ in read(body, names, found, openmetrics=openmetrics, limit=limit):
        pass
    return found


def read(
    body: bytes,
    names: Collection[str],
    found: list[Exposed],
    *,
    openmetrics: bool = False,
    limit: int = MAX_SAMPLES,
) -> Generator[None, None, None]:
    """Add to `found` what `parse` returns; yield after each step, which is about a millisecond's work at most."""
    end = _find_end(body) if openmetrics else len(body)
    pattern = _OPENMETRICS_SAMPLE if openmetrics else _TEXT_SAMPLE
    start = 0
    while start < end:
        stop = end if end - start <= STEP_BYTES else body.find(b"\n", start + STEP_BYTES, end)
        stop = end if stop < 0 else stop
        part = _Part(body, start, b"\n" + body[start:stop], pattern, found, limit, openmetrics=openmetrics)
        if _ODD_LINE.search(part.text):
            part.text = _INDENT.sub(b"\n", part.text)
            yield from part.find_quoted(names)
        for name in names:
            yield from part.find_named(name)
        start = stop + 1
        yield


class _Part:
    """A part of a body, from the beginning of a line to the end of one. `text` begins with a line break."""

    def __init__(
        self,
        body: bytes,
        start: int,
        text: bytes,
        pattern: re.Pattern[bytes],
        found: list[Exposed],
        limit: int,
        *,
        openmetrics: bool,
    ) -> None:
        self.text = text
        self._body = body
        self._start = start
        self._pattern = pattern
        self._found = found
        self._limit = limit
        self._openmetrics = openmetrics

    def find_named(self, name: str) -> Generator[None, None, None]:
        """Add the samples of one name."""
        text = self.text
        needle = b"\n" + name.encode("utf-8", "surrogatepass")
        length = len(needle)
        at = text.find(needle)
        while at >= 0:
            after = at + length
            if text[after : after + 1] in _AFTER:
                sample = self._match(after, at)
                after = self._take(sample, name, sample[1] or b"")
                if len(self._found) % STEP_SAMPLES == 0:
                    yield
            at = text.find(needle, after)

    def find_quoted(self, names: Collection[str]) -> Generator[None, None, None]:
        """Add the samples whose names stand in quotes inside the braces."""
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
        """Return the sample that goes on at `after`, in the line that begins behind `at`."""
        if (
            self.text.find(b"\n", after, after + MAX_LINE_BYTES) < 0
            and len(self.text) - after > MAX_LINE_BYTES
        ):
            raise ExposureLimitError(
                f"a line is longer than {MAX_LINE_BYTES} bytes: {_shown(self.text[at + 1 :][:300])}"
            )
        sample = self._pattern.match(self.text, after)
        if sample is None:
            raise self._unreadable(at, "not a sample")
        return sample

    def _take(self, sample: re.Match[bytes], name: str, labels: bytes) -> int:
        """Add a sample; return where it ends."""
        self._found.append(Exposed(name, labels, self._value(sample), self._time(sample)))
        if len(self._found) > self._limit:
            raise ExposureLimitError(f"there are more than {self._limit} samples of {name}")
        return sample.end()

    def _value(self, sample: re.Match[bytes]) -> float:
        written = sample[2]
        try:
            if b"_" not in written:  # Python reads 1_000, Prometheus does not
                return float(written)
        except ValueError:
            pass
        raise self._unreadable(sample.start(), "not a value")

    def _time(self, sample: re.Match[bytes]) -> float | None:
        """Return the time of a sample in seconds; the text format has milliseconds."""
        written = sample[3]
        if written is None:
            return None
        if not self._openmetrics:
            return int(written) / 1000
        try:
            time = float(written) if b"_" not in written else math.nan
        except ValueError:
            time = math.nan
        if math.isfinite(time):
            return time
        raise self._unreadable(sample.start(), "not a time")

    def _unreadable(self, at: int, what: str) -> ExpositionError:
        """Return the error about the line that begins behind the line break `at` or in which `at` lies."""
        text = self.text
        start = at if text[at : at + 1] == b"\n" else text.rfind(b"\n", 0, at)
        end = text.find(b"\n", start + 1)
        line = text[start + 1 : end if end >= 0 else len(text)]
        number = self._body.count(b"\n", 0, self._start) + text.count(b"\n", 0, start + 1)
        return ExpositionError(f"line {number}: {what}: {_shown(line)}")


def parse_labels(labels: bytes) -> dict[str, str]:
    """Return the labels that stand between braces, empty values included; a name in quotes among them is the series' and left out.

    Raises ExpositionError.
    """
    return _terms(labels)[1]


def _terms(labels: bytes) -> tuple[str | None, dict[str, str]]:
    """Return the name among the labels, None where there is none, and the labels."""
    name = None
    found: dict[str, str] = {}
    at = 0
    while not _REST.match(labels, at):
        term = _TERM.match(labels, at)
        if term is None or (term[1] is not None and term[3] is None):
            raise ExpositionError(f"labels cannot be read: {_shown(labels)}")
        key = term[1].decode("ascii") if term[1] is not None else _unquote(term[2])
        if term[3] is not None and key not in found and key != "__name__":
            found[key] = _unquote(term[3])
        elif term[3] is None and name is None:
            name = key
        else:
            raise ExpositionError(f"a label is given twice: {_shown(labels)}")
        at = term.end()
    return name, found


def _unquote(quoted: bytes) -> str:
    try:
        text = quoted[1:-1].decode("utf-8")
    except UnicodeDecodeError as error:
        raise ExpositionError(f"labels are not UTF-8: {_shown(quoted)}") from error
    return _ESCAPE.sub(lambda escape: _UNESCAPED[escape[1]], text) if "\\" in text else text


def _find_end(body: bytes) -> int:
    """Return where an OpenMetrics body ends: at its end mark, which has to be its last line."""
    end = len(body) - body.endswith(b"\n") - len(_END)
    if end < 0 or not body.startswith(_END, end) or (end and body[end - 1 : end] != b"\n"):
        raise ExpositionError("the body does not end with # EOF: it was cut short")
    return end


def _shown(text: bytes) -> str:
    return matchers.shorten(ascii(text[:300].decode("utf-8", "replace"))[1:-1])
