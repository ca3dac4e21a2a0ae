"""Cuts JSON down to a nesting that decoders accept.

msgspec decodes and skips nested JSON by recursion, and raises RecursionError at some 1,000 levels. The API
server stores up to 10,000 in a custom resource that preserves unknown fields. What is read of an object lies
near its top, so an object is read without its depths.
"""

import re

LEVELS = 100
"""Objects and arrays that are nested deeper than this become ``null``, but for one level without others."""

_TEXT = rb'[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+"'
_TO_BRACKET = re.compile(rb"(?:%b|[\[{](?:%b)*+[\]}])*+(?:([\[{])|[\]}])" % (_TEXT, _TEXT), re.DOTALL)
"""Text up to the next bracket. A pair of brackets without others inside belongs to the text."""


class Pruner:
    """Copies a stream of JSON without what is nested deeper than `LEVELS`; the time is linear."""

    def __init__(self) -> None:
        self._depth = 0
        self._left = b""

    def feed(self, piece: bytes | bytearray) -> bytes:
        """Return what is known to be kept; the text after the last bracket waits for more."""
        text = self._left + piece
        kept: list[bytes] = []
        depth, start, end = self._depth, 0, 0
        while (bracket := _TO_BRACKET.match(text, end)) is not None:
            end = bracket.end()
            if bracket.lastindex is not None:
                depth += 1
                if depth == LEVELS + 1:
                    kept += [text[start : end - 1], b"null"]
            else:
                depth -= 1
                if depth == LEVELS:
                    start = end
        if depth <= LEVELS:
            kept.append(text[start:end])
        self._depth, self._left = depth, text[end:]
        return b"".join(kept)

    def finish(self) -> bytes:
        """Return the text after the last bracket."""
        return self._left


def prune(text: bytes) -> bytes:
    pruner = Pruner()
    return pruner.feed(text) + pruner.finish()
