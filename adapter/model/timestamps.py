"""Instants and durations in whole nanoseconds, read from API text.

Integers and not floats, because rules compare instants strictly: 15.000 s ago and 14.999 s ago give different
decisions. Mirrors Go's ``time.RFC3339`` and ``time.ParseDuration`` as apimachinery's Time and Duration use
them.
"""

import datetime as dt
import re
from functools import lru_cache

from adapter.model import durations
from adapter.model.go_text import quote

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


_CACHED_LENGTH = 64
"""Characters of a text whose result may be cached: the author of an object chooses the length."""


def read_instant(text: str) -> Instant:
    """Return the instant of an RFC 3339 text with or without fraction; else ValueError with a sentence."""
    return _read_instant(text) if len(text) <= _CACHED_LENGTH else Instant(read_nanoseconds(text))


@lru_cache(maxsize=65536)
def _read_instant(text: str) -> Instant:
    return Instant(read_nanoseconds(text))


def read_nanoseconds(text: str) -> int:
    """Return the instant as a plain integer, which the garbage collector does not track."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError(f"{quote(text)} is no RFC 3339 time such as 2026-01-31T12:00:00.5Z")
    year, month, day, hour, minute, second = map(int, match.group(1, 2, 3, 4, 5, 6))
    fraction, sign, zone_hour, zone_minute = match.group(7, 8, 9, 10)
    zone = int(zone_hour) * 60 + int(zone_minute) if sign else 0
    try:
        days = dt.date(year, month, day).toordinal() - _EPOCH
    except ValueError as error:
        raise ValueError(f"{quote(text)} is no RFC 3339 time: {error}") from None
    if hour > 23 or minute > 59 or second > 59 or zone > 24 * 60:
        raise ValueError(f"{quote(text)} is no RFC 3339 time: hour, minute, second or zone is out of range")
    seconds = days * 86_400 + hour * 3_600 + minute * 60 + second - (zone if sign != "-" else -zone) * 60
    return seconds * SECOND + int((fraction or "0")[:9].ljust(9, "0"))


def read_span(text: str) -> Span:
    """Return the length of a Go duration such as ``17.068s``; ValueError with Go's sentence otherwise."""
    return _read_span(text) if len(text) <= _CACHED_LENGTH else _parse_span(text)


@lru_cache(maxsize=4096)
def _read_span(text: str) -> Span:
    return _parse_span(text)


def _parse_span(text: str) -> Span:
    return Span(round(durations.parse_go_duration(text) * SECOND))


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
    return durations.format_go_duration(span / SECOND)
