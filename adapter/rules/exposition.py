"""The samples of a few wanted series in a body of Prometheus' text format or of OpenMetrics.

A body has hundreds of lines and one family that somebody asked for: names are searched for as bytes at the beginnings of lines, and
only lines that bear one are read. What is wrong in other lines is not noticed; what is wrong in a line that is read makes the whole
body unreadable, as it does in Prometheus.

The law: what `prometheus_client` and Prometheus both read is read to the same values; anything else is an `ExpositionError` and never
another exception. Nothing is made of the values here; labels are left as they stand until somebody needs them.
"""

import math
import re
from collections.abc import Collection
from typing import NamedTuple

from adapter.errors import ExpositionError
from adapter.rules import matchers

# Possessive throughout: whoever wrote the body does not choose how long it is looked at.
_QUOTED = rb'"(?:[^"\\\n]++|\\.)*+"'
# What follows a name: labels in braces, a value, perhaps a time. A value ends where white space does.
_HEAD = rb'(?:[ \t]*+\{([^"}\n]*+(?:' + _QUOTED + rb'[^"}\n]*+)*+)\})?+[ \t]*+([^ \t\n{]++)'
_TEXT_SAMPLE = re.compile(_HEAD + rb"(?:[ \t]++(-?[0-9]{1,18}+))?[ \t\r]*+$", re.MULTILINE)
_OPENMETRICS_SAMPLE = re.compile(_HEAD + rb"(?:[ \t]++([^ \t\n#]++))?(?: # \{[^\n]*+)?[ \t\r]*+$", re.MULTILINE)
# Lines that begin with white space or with a brace (a name in quotes, inside the braces): legal and rare.
_ODD_LINE = re.compile(rb"\n[ \t{]")
_INDENT = re.compile(rb"\n[ \t]+")
_END = b"# EOF"
_AFTER = (b" ", b"\t", b"{", b"\n", b"")
_TERM = re.compile(
    rb"[ \t]*+(?:([A-Za-z_][A-Za-z0-9_]*+)|(" + _QUOTED + rb"))[ \t]*+(?:=[ \t]*+(" + _QUOTED + rb"))?+[ \t]*+(?:,|\Z)"
)
_REST = re.compile(rb"[ \t]*+\Z")
_ESCAPE = re.compile(r'\\([\\n"])')
_UNESCAPED = {"\\": "\\", "n": "\n", '"': '"'}


MAX_SAMPLES = 2000
"""Samples that are taken of one body unless told otherwise: a few milliseconds' work."""


class Exposed(NamedTuple):
    """One sample as it was exposed.

    `labels` are as they stand between the braces; `time` is what the sample itself gives (epoch seconds), None for the time of the
    scrape. The value may be NaN or infinite.
    """

    name: str
    labels: bytes
    value: float
    time: float | None


def is_openmetrics(content_type: str) -> bool:
    """Whether a Content-Type is that of OpenMetrics; everything else is read as the text format, as Prometheus 2 does."""
    return content_type.partition(";")[0].strip().lower() == "application/openmetrics-text"


def parse(body: bytes, names: Collection[str], *, openmetrics: bool = False, limit: int = MAX_SAMPLES) -> list[Exposed]:
    """Return the samples of the series called `names`: name by name, each one's in the order of the body.

    A series that stands twice is returned twice. Raises ExpositionError for a line that is wanted and cannot be read, for more than `limit`
    of them, and for a body of OpenMetrics without its end mark, which was cut short.
    """
    text = b"\n" + body
    if openmetrics:
        text = _until_the_end(text)
    pattern = _OPENMETRICS_SAMPLE if openmetrics else _TEXT_SAMPLE
    found: list[Exposed] = []
    if _ODD_LINE.search(text):
        text = _INDENT.sub(b"\n", text)
        _find_quoted(text, names, pattern, found, limit, openmetrics=openmetrics)
    for name in names:
        needle = b"\n" + name.encode("utf-8", "surrogatepass")
        length = len(needle)
        at = text.find(needle)
        while at >= 0:
            after = at + length
            if text[after : after + 1] in _AFTER:
                sample = pattern.match(text, after)
                if sample is None:
                    raise _unreadable(text, at, "not a sample")
                found.append(Exposed(name, sample[1] or b"", _value(sample, text), _time(sample, text, openmetrics)))
                after = sample.end()
                if len(found) > limit:
                    raise ExpositionError(f"there are more than {limit} samples of {name}")
            at = text.find(needle, after)
    return found


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


def _find_quoted(
    text: bytes,
    names: Collection[str],
    pattern: re.Pattern[bytes],
    found: list[Exposed],
    limit: int,
    *,
    openmetrics: bool,
) -> None:
    """Add the samples whose names stand in quotes inside the braces."""
    at = text.find(b"\n{")
    while at >= 0:
        sample = pattern.match(text, at + 1)
        if sample is None:
            raise _unreadable(text, at, "not a sample")
        name, _ = _terms(sample[1] or b"")
        if name is None:
            raise _unreadable(text, at, "a sample without a name")
        if name in names:
            found.append(Exposed(name, sample[1], _value(sample, text), _time(sample, text, openmetrics)))
            if len(found) > limit:
                raise ExpositionError(f"there are more than {limit} samples of {name}")
        at = text.find(b"\n{", sample.end())


def _until_the_end(text: bytes) -> bytes:
    """Return an OpenMetrics body without its end mark, which has to be its last line."""
    whole = text.removesuffix(b"\n")
    if not whole.endswith(b"\n" + _END):
        raise ExpositionError("the body does not end with # EOF: it was cut short")
    return whole.removesuffix(_END)


def _value(sample: re.Match[bytes], text: bytes) -> float:
    written = sample[2]
    try:
        if b"_" not in written:  # Python reads 1_000, nobody else does
            return float(written)
    except ValueError:
        pass
    raise _unreadable(text, sample.start(), "not a value")


def _time(sample: re.Match[bytes], text: bytes, openmetrics: bool) -> float | None:  # noqa: FBT001 - called for every line
    """Return the time of a sample in seconds; the text format has milliseconds."""
    written = sample[3]
    if written is None:
        return None
    if not openmetrics:
        return int(written) / 1000
    try:
        time = float(written) if b"_" not in written else math.nan
    except ValueError:
        time = math.nan
    if math.isfinite(time):
        return time
    raise _unreadable(text, sample.start(), "not a time")


def _unreadable(text: bytes, at: int, what: str) -> ExpositionError:
    """Return the error about the line that begins behind the line break `at` or in which `at` lies."""
    start = at if text[at : at + 1] == b"\n" else text.rfind(b"\n", 0, at)
    end = text.find(b"\n", start + 1)
    line = text[start + 1 : end if end >= 0 else len(text)]
    number = text.count(b"\n", 0, start + 1)
    return ExpositionError(f"line {number}: {what}: {_shown(line)}")


def _shown(text: bytes) -> str:
    return matchers.shorten(ascii(text[:300].decode("utf-8", "replace"))[1:-1])
