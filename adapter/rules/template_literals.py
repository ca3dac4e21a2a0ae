"""What the literals of a template stand for: quoted texts, numbers and characters, by the rules of Go's ``strconv``.

Functions take the text of one token and raise ValueError with a sentence; who knows the place adds it.
"""

import math
import re

from adapter.model.go_text import quote

_INT64 = range(-(2**63), 2**63)
_ESCAPE = re.compile(
    r"\\(?:(?P<named>[abfnrtv\\'\"])|x(?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-7]{3})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8}))|\\(?s:.)"
)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL = re.compile(r"(?P<sign>[+-]?)0(?P<digits>[0-9_]+)")
_HEX_FLOAT = re.compile(r"[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?[0-9]+")
_BAD_UNDERSCORE = re.compile(r"(?<![0-9a-fA-FxX])_|_(?![0-9a-fA-F])")
_MAX_DIGITS = 400  # far beyond any 64-bit integer; Python itself refuses texts of thousands of digits


def text_value(literal: str) -> str:
    """Return the text between double quotes, escapes resolved, or between back quotes, as it is without carriage returns.

    Hexadecimal and octal escapes are bytes: those that make no UTF-8 are kept as lone surrogates.
    """
    body = literal[1:-1]
    if literal.startswith("`"):
        return body.replace("\r", "")
    if "\\" not in body:
        return body
    pieces: list[bytes] = []
    position = 0
    for match in _ESCAPE.finditer(body):
        value = _escaped(match, '"')
        pieces.append(_encode(body[position : match.start()]))
        pieces.append(bytes([value]) if match["byte"] or match["octal"] else _encode(chr(value)))
        position = match.end()
    pieces.append(_encode(body[position:]))
    return b"".join(pieces).decode("utf-8", "surrogateescape")


def number_value(literal: str) -> int | float:
    """Return an integer, a float, or the code of a character between single quotes.

    What needs more than 64 bits is refused, as is a whole number so written that only a float could hold it.
    """
    if literal.startswith("'"):
        return _character(literal)
    integer = _integer(literal) if len(literal) <= _MAX_DIGITS else None
    if integer is not None:
        if integer not in _INT64:
            raise ValueError(f"{literal} does not fit into 64 bits")
        return integer
    number = _float(literal)
    if number is None or not math.isfinite(number):
        raise ValueError(f"{quote(literal)} is not a number")
    if not any(mark in literal for mark in ".eEpP"):
        raise ValueError(f"{literal} does not fit into 64 bits")
    return number


def _character(literal: str) -> int:
    body = literal[1:-1]
    match = _ESCAPE.match(body)
    if match and match.end() == len(body):
        return _escaped(match, "'")
    if len(body) != 1 or match:
        raise ValueError(f"{literal} is not a character, expected exactly one between the quotes")
    return ord(body)


def _escaped(match: re.Match[str], delimiter: str) -> int:
    """Return the number of the character or byte of one escape."""
    if (named := match["named"]) and named not in {'"', "'"} - {delimiter}:
        return ord(_NAMED.get(named, named))
    if octal := match["octal"]:
        value, limit = int(octal, 8), 0xFF
    elif digits := match["byte"] or match["short"] or match["long"]:
        value, limit = int(digits, 16), 0x10FFFF
    else:
        raise ValueError(f"unknown escape in {quote(match.string)}")
    if value > limit or (0xD800 <= value < 0xE000):
        raise ValueError(f"{match[0]} is no character")
    return value


def _integer(literal: str) -> int | None:
    if octal := _OCTAL.fullmatch(literal):
        literal = f"{octal['sign']}0o{octal['digits']}"
    try:
        return int(literal, 0)
    except ValueError:
        return None


def _float(literal: str) -> float | None:
    try:
        if literal.lstrip("+-")[:2] not in {"0x", "0X"}:
            return float(literal)
        digits = literal.replace("_", "")
        return (
            float.fromhex(digits)
            if _HEX_FLOAT.fullmatch(digits) and not _BAD_UNDERSCORE.search(literal)
            else None
        )
    except (ValueError, OverflowError):
        return None


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
