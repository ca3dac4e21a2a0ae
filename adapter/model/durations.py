"""Durations in flags and files: Go's form (``1h30m``, ``1.5s``) and Prometheus' form (``1d12h``).

Go counts in 64-bit nanoseconds and Prometheus in 64-bit milliseconds, so that a duration which upstream
refuses as too long is refused here. Mirrors Go's ``time.ParseDuration`` and ``Duration.String``, and
``ParseDuration`` of prometheus/common.
"""

import re

from adapter.model.go_text import quote

_LIMIT = 2**63
_DIGITS_LIMIT = 19
_NANOSECOND = 1_000_000_000

_GO_UNITS = {
    "ns": 1,
    "us": 1_000,
    "\u00b5s": 1_000,  # micro sign
    "\u03bcs": 1_000,  # Greek letter mu
    "ms": 1_000_000,
    "s": _NANOSECOND,
    "m": 60 * _NANOSECOND,
    "h": 3600 * _NANOSECOND,
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
    return (-total if negative else total) / _NANOSECOND


def format_go_duration(seconds: float) -> str:
    """Return `seconds` as Go prints a duration: ``1h0m0s``, ``1.5s``, ``250ms``, ``0s``; finite."""
    sign = "-" if seconds < 0 else ""
    whole, fraction = divmod(abs(seconds), 1)
    count = int(whole) * _NANOSECOND + round(fraction * _NANOSECOND)
    if count == 0:
        return "0s"
    for unit, size in (("ns", 1), ("\u00b5s", 1_000), ("ms", 1_000_000)):
        if count < size * 1_000:
            return f"{sign}{_decimal(count, size)}{unit}"
    minutes, rest = divmod(count, 60 * _NANOSECOND)
    hours, minutes = divmod(minutes, 60)
    text = f"{_decimal(rest, _NANOSECOND)}s"
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
