"""Text that others chose, for a terminal: whatever acts on it, or hides in it, becomes a visible escape.

Control characters move the cursor and forge lines, overrides of direction turn a name around, and characters
without width hide. The escapes are those of JSON, so that JSON keeps its values.
"""

from collections.abc import Iterable

_NAMED = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escape(text: str) -> str:
    """Return a text on one line, printable as a whole."""
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else _NAMED.get(sign) or _written(sign) for sign in text)


def escape_lines(text: str) -> str:
    """Return a text with its lines as they are."""
    return "\n".join(map(escape, text.split("\n")))


def join(lines: Iterable[str]) -> str:
    """Return lines as a text; a line break within one is an escape."""
    return "".join(f"{escape(line)}\n" for line in lines)


def _written(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
