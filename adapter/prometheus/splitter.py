"""Cuts a long JSON answer of Prometheus into pieces while it arrives, so that no step decodes, or holds, all of it.

Not here: decoding. The law: every byte is in exactly one piece, and a cut is only made where the text itself proves that
one element of the outer array ends and the next begins; where that cannot be seen there is one piece, the whole.

The proof: in a JSON string a quote is preceded by a backslash, so the quote of ``},{"`` opens or closes a string. What
follows a closing quote is a comma, a colon, a bracket or a blank, never a letter. So ``},{"`` and a letter is structure: an
object ends, and another begins whose first key starts with that letter. Prometheus, Thanos, Cortex, Mimir and
VictoriaMetrics print no blanks and begin an element of a vector with ``metric``; labels begin with a letter or underscore.
"""

import re
from typing import NamedTuple

_LONGEST_HEAD = 1024
_AFTER_QUOTE = re.compile(rb"[A-Za-z_]")


class Shape(NamedTuple):
    """What the answer looks like: `head` matches from its first byte up to the array's bracket, `boundary` begins with ``},{"``."""

    head: re.Pattern[bytes]
    boundary: bytes


VECTOR = Shape(
    re.compile(
        rb'\{"status":"success",(?:"[A-Za-z]+":(?:true|false),)*"data":\{"resultType":"vector","result":\['
    ),
    b'},{"metric":',
)
SERIES = Shape(re.compile(rb'\{"status":"success",(?:"[A-Za-z]+":(?:true|false),)*"data":\['), b'},{"')


class Cutter:
    """Takes the chunks of one answer and gives pieces that are JSON arrays of whole elements, and at the end the rest.

    Pieces are of about `size` bytes. `finish` returns what is not in a piece: a complete answer of the same form, with the
    last elements in its array. An answer that is not of the shape is returned there whole.
    """

    def __init__(self, shape: Shape, size: int) -> None:
        self._shape = shape
        self._size = size
        self._buffer = bytearray()
        self._head: bytes | None = None
        self._whole = False

    @property
    def held(self) -> int:
        """Return how many bytes are fed and not taken."""
        return len(self._buffer)

    def feed(self, chunk: bytes) -> None:
        """Take a chunk of the answer."""
        self._buffer += chunk
        if self._head is None and not self._whole:
            found = self._shape.head.match(self._buffer)
            if found is not None:
                self._head = bytes(found.group())
                del self._buffer[: found.end()]
            else:
                self._whole = len(self._buffer) > _LONGEST_HEAD

    def take(self) -> bytes | None:
        """Return the next piece, None when there is none before more is fed."""
        if self._head is None or len(self._buffer) < self._size:
            return None
        end = self._last_boundary(2 * self._size)
        if end < 0:  # one element longer than a piece
            end = self._last_boundary(len(self._buffer))
            if end < 0:
                return None
        piece = b"[%b]" % bytes(self._buffer[: end + 1])
        del self._buffer[: end + 2]
        return piece

    def finish(self) -> bytes:
        """Return the rest, as an answer of its own."""
        return (self._head or b"") + bytes(self._buffer)

    def _last_boundary(self, end: int) -> int:
        boundary = self._shape.boundary
        while (found := self._buffer.rfind(boundary, 0, end)) >= 0:
            if _AFTER_QUOTE.match(self._buffer, found + 4):
                return found
            end = found + 3
        return -1
