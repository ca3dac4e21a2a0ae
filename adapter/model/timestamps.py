"""Instants and durations as API objects, flags and files write them.

API objects have `Instant` and `Span`, whole nanoseconds: integers and not floats, because rules compare
instants strictly (15.000 s ago and 14.999 s ago give different decisions). Flags and files have seconds, in
Go's form (``1h30m``, ``1.5s``) or in Prometheus' form (``1d12h``).

Go counts in 64-bit nanoseconds and Prometheus in 64-bit milliseconds, so a duration that upstream refuses as
too long is refused here. Mirrors Go's ``time.RFC3339``, ``time.ParseDuration`` and ``Duration.String``, and
``ParseDuration`` of prometheus/common.
"""

import datetime as dt
import re

from adapter.model.go_text import quote
from adapter.model.memo import remember_short

SECOND = 1_000_000_000

_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_EPOCH = dt.date(1970, 1, 1).toordinal()


class Instant(int):
    """Nanoseconds since 1970-01-01T00:00:00Z."""

    __slots__ = ()


class FineInstant(Instant):
    """An instant that is written with nanoseconds."""

    __slots__ = ()


class Span(int):
    """A length of time in nanoseconds."""

    __slots__ = ()


NEVER = Instant((dt.date(1, 1, 1).toordinal() - _EPOCH) * 86_400 * SECOND)
"""Go's zero time, 0001-01-01T00:00:00Z, the value of an absent time in comparisons."""


@remember_short(65536)
def read_instant(text: str) -> Instant:
    """Return the instant of an RFC 3339 text with or without fraction; else ValueError with a sentence."""
    return Instant(read_nanoseconds(text))


def read_nanoseconds(text: str) -> int:
    """Return the instant as a plain integer, which the garbage collector does not track."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{quote(text)} is not an RFC 3339 time such as 2026-01-31T12:00:00.5Z")
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    fraction, sign, zone_hour, zone_minute = match.group(7, 8, 9, 10)
    zone = int(zone_hour) * 60 + int(zone_minute) if sign else 0
    try:
        days = dt.date(year, month, day).toordinal() - _EPOCH
    except ValueError as error:
        raise ValueError(f"{quote(text)} is not an RFC 3339 time: {error}") from None
    if hour > 23 or minute > 59 or second > 59 or zone > 24 * 60:
        raise ValueError(f"{quote(text)} is not an RFC 3339 time: hour, minute, second or zone out of range")
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - (zone if sign != "-" else -zone) * 60
    return seconds * SECOND + int((fraction or "0")[:9].ljust(9, "0"))


@remember_short(4096)
def read_span(text: str) -> Span:
    """Return the length of a Go duration such as ``17.068s``; ValueError with Go's sentence otherwise."""
    return Span(round(parse_go_duration(text) * SECOND))


def span_of(seconds: float) -> Span:
    """Return a finite number of seconds as nanoseconds."""
    return Span(round(seconds * SECOND))


def write_instant(instant: int) -> str:
    """Return an instant as in API objects: RFC 3339 in UTC, truncated to whole seconds."""
    days, seconds = divmod(instant // SECOND, 86_400)
    day = dt.date.fromordinal(days + _EPOCH)
    minutes, second = divmod(seconds, 60)
    return f"{day.isoformat()}T{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}Z"


def write_fine_instant(instant: int) -> str:
    """Return an instant as RFC 3339 in UTC with nine decimals."""
    return f"{write_instant(instant)[:-1]}.{instant % SECOND:09d}Z"


def write_span(span: int) -> str:
    """Return a length of time as Go writes it: ``1m0s``, ``100ms``."""
    return format_go_duration(span / SECOND)


_LIMIT = 2**63
_DIGITS_LIMIT = 19

_GO_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek letter mu
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_GO_TERM = re.compile(r"(?=\.?[0-9])(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?(?P<unit>[^.0-9]*)")

_PROMETHEUS_UNITS = {
    "y": 365 * 86_400_000,
    "w": 7 * 86_400_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
    "ms": 1,
}
_PROMETHEUS = re.compile("".join(f"(?:(?P<{unit}>[0-9]+){unit})?" for unit in _PROMETHEUS_UNITS))


def parse_go_duration(text: str) -> float:
    """Return the seconds of a Go duration: ``0``, or an optional sign and numbers with ``ns us µs ms s m h``.

    Raise ValueError with Go's own sentence.
    """
    negative = text.startswith("-")
    unsigned = text[1:] if text.startswith(("-", "+")) else text
    if unsigned == "0":
        return 0.0
    invalid = f"time: invalid duration {_quote(text)}"
    if not unsigned:
        raise ValueError(invalid)
    total, position = 0, 0
    while position < len(unsigned):
        match = _GO_TERM.match(unsigned, position)
        if match is None:
            raise ValueError(invalid)
        whole, fraction, unit = match["whole"], match["fraction"] or "", match["unit"]
        count = _natural(whole)
        if count > _LIMIT:
            raise ValueError(invalid)
        if not unit:
            raise ValueError(f"time: missing unit in duration {_quote(text)}")
        if unit not in _GO_UNITS:
            raise ValueError(f"time: unknown unit {_quote(unit)} in duration {_quote(text)}")
        total += count * _GO_UNITS[unit] + _fraction(fraction, _GO_UNITS[unit])
        position = match.end()
        if total > _LIMIT:
            raise ValueError(invalid)
    if total == _LIMIT and not negative:
        raise ValueError(invalid)
    return (-total if negative else total) / SECOND


def format_go_duration(seconds: float) -> str:
    """Return `seconds` as Go prints a duration: ``1h0m0s``, ``1.5s``, ``250ms``, ``0s``; finite."""
    sign = "-" if seconds < 0 else ""
    whole, fraction = divmod(abs(seconds), 1)
    count = int(whole) * SECOND + round(fraction * SECOND)
    if count == 0:
        return "0s"
    for unit, size in (("ns", 1), ("\u00b5s", 1_000), ("ms", 1_000_000)):
        if count < size * 1_000:
            return f"{sign}{_decimal(count, size)}{unit}"
    minutes, rest = divmod(count, 60 * SECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, SECOND)}s"
    if hours:
        text = f"{hours}h{minutes}m{text}"
    elif minutes:
        text = f"{minutes}m{text}"
    return sign + text


def parse_prometheus_duration(text: str) -> float:
    """Return the seconds of a Prometheus duration: ``0``, or numbers with ``y w d h m s ms``.

    Each unit occurs at most once, in this order. A year is 365 days. Raise ValueError with the sentence of
    prometheus/common.
    """
    if text == "0":
        return 0.0
    if not text:
        raise ValueError("empty duration string")
    match = _PROMETHEUS.fullmatch(text)
    if match is None:
        raise ValueError(f"not a valid duration string: {quote(text)}")
    total = sum(
        _natural(count) * _PROMETHEUS_UNITS[unit] for unit, count in match.groupdict(default="0").items()
    )
    if total * 1_000_000 >= _LIMIT:
        raise ValueError("duration out of range")
    return total / 1_000


def _natural(digits: str) -> int:
    """Return the number. Beyond 64 bits any too large number: `int` refuses very long texts."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= _DIGITS_LIMIT else _LIMIT + 1


def _fraction(digits: str, unit: int) -> int:
    """Return the nanoseconds of the digits after the point, in floating point with as many digits as Go."""
    numerator, scale = 0, 1.0
    for digit in digits:
        if numerator > (_LIMIT - 1) // 10 or numerator * 10 + int(digit) > _LIMIT:
            break
        numerator = numerator * 10 + int(digit)
        scale *= 10
    return int(numerator * (unit / scale))


def _decimal(count: int, size: int) -> str:
    """Return count / size without needless digits; `size` is a power of ten."""
    whole, rest = divmod(count, size)
    digits = f"{rest:0{len(str(size)) - 1}d}".rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)


def _quote(text: str) -> str:
    """Return `text` quoted as package time does: every byte outside printable ASCII becomes a number."""
    quoted = (
        f"\\{chr(byte)}" if byte in b'"\\' else chr(byte) if 0x20 <= byte < 0x80 else f"\\x{byte:02x}"
        for byte in text.encode("utf-8", "surrogateescape")
    )
    return f'"{"".join(quoted)}"'
