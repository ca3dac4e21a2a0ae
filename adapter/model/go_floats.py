"""Floating-point numbers as Go reads them.

Sample values are texts that Go's `strconv.ParseFloat` wrote and that other clients of Prometheus read with
it. Python's `float` reads more (blanks, digits of other scripts) and less (hexadecimal numbers), so it cannot
decide what a number is.
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
    """Return the number that Go reads from `text`; ValueError for what Go refuses, numbers out of range included.

    Underscores may separate digits. NaN has no sign, and infinities have any case.
    """
    if _PLAIN.fullmatch(text) or _DECIMAL.fullmatch(text):
        value = float(text)
    elif _HEXADECIMAL.fullmatch(text):
        value = _from_hexadecimal(text.replace("_", ""))
    elif _SPECIAL.fullmatch(text):
        return float(text)
    else:
        raise ValueError("not a number")
    if math.isinf(value):
        raise ValueError("out of range")
    return value


def _from_hexadecimal(text: str) -> float:
    try:
        return float.fromhex(text)
    except OverflowError:
        return math.inf
