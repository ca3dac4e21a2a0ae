"""Numbers and text as Go's ``strconv`` reads and writes them.

Sample values are texts that ``strconv.ParseFloat`` reads. Python's `float` reads more (blanks, digits of
other scripts) and less (hexadecimal numbers), so it cannot decide what a number is. ``strconv.Quote`` is the
spelling of text that PromQL matchers, ``%q`` and API messages share.
"""

import math
import re

_DIGITS = r"[0-9](?:_?[0-9])*"
_HEX_DIGITS = r"[0-9a-f](?:_?[0-9a-f])*"
_PLAIN = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DECIMAL = re.compile(rf"[+-]?(?:{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})(?:[eE][+-]?{_DIGITS})?")
_HEXADECIMAL = re.compile(
    rf"[+-]?0x(?:_?{_HEX_DIGITS}(?:\.(?:{_HEX_DIGITS})?)?|\.{_HEX_DIGITS})p[+-]?{_DIGITS}",
    re.IGNORECASE | re.ASCII,
)
_SPECIAL = re.compile(r"[+-]?inf(?:inity)?|nan", re.IGNORECASE | re.ASCII)


def parse_float(text: str) -> float:
    """Return the number that Go reads from `text`; ValueError if Go refuses it, also as out of range.

    Underscores may separate digits. NaN has no sign, and infinities have any case.
    """
    if _PLAIN.fullmatch(text) or _DECIMAL.fullmatch(text):
        value = float(text)
    elif _HEXADECIMAL.fullmatch(text):
        try:
            value = float.fromhex(text.replace("_", ""))
        except OverflowError:
            value = math.inf
    elif _SPECIAL.fullmatch(text):
        return float(text)
    else:
        raise ValueError("not a number")
    if math.isinf(value):
        raise ValueError("out of range")
    return value


_NEEDS_ESCAPE = re.compile(r"[^ !#-\[\]-~]")
_NAMED = {
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
    '"': r"\"",
    "\\": r"\\",
}


def quote(text: str) -> str:
    """Return `text` between double quotes, escaped as Go's ``strconv.Quote`` does.

    A lone surrogate stands for a byte that was not UTF-8 (``surrogateescape``) and is written as that byte.
    """
    return f'"{_NEEDS_ESCAPE.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if named := _NAMED.get(character):
        return named
    if character.isprintable():
        return character
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
