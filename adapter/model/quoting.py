"""Text as a double-quoted Go string literal, the one spelling that PromQL matchers, Go's ``%q`` and API messages share.

Only writing lives here; reading literals belongs to the template parser. The law is Go's ``strconv.Quote``.
"""

import re

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
