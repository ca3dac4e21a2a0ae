"""Text of messages. In what others chose, whatever acts on a terminal or hides in it becomes an escape.

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
    return "\n".join(map(escape, text.split("\n")))


def join(lines: Iterable[str]) -> str:
    """Return lines as a text; a line break within one is an escape."""
    return "".join(f"{escape(line)}\n" for line in lines)


def counted(number: int, one: str, several: str) -> str:
    """Return a number with its noun."""
    return f"{number} {one if number == 1 else several}"


def listed(texts: Iterable[str]) -> str:
    """Return the first five texts, and how many more there are."""
    every = list(texts)
    more = f" and {len(every) - 5} more" if len(every) > 5 else ""
    return f"{', '.join(every[:5])}{more}"


def _written(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[place : place + 2].hex()}" for place in range(0, len(units), 2))
