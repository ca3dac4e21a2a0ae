"""Memory of request heads: limits of one head, account of a connection, one budget for all.

A limit for each head does not bound the memory of a server, since a client can open many connections and
leave a long head unfinished on each. So all heads share a budget. A head in memory is a multiple of its size
on the wire: raw bytes and text of every header, up to four bytes for each character of text, and objects for
each header however short it is. Heads are therefore weighed by bytes and by headers, from the first byte of a
head until its request is answered.

Every connection owns a small share of the budget, enough for a usual request. Beyond that the budget belongs
to the connections that need it, and when it is exceeded a connection is cut: without a trusted certificate
first, and of these the largest of the address that takes the most. So a flood of large heads cuts its own
connections.
"""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

BYTE_WEIGHT = 5
"""Bytes of memory for each byte of a head: the raw byte, and a character of text, which takes four where one
is outside the BMP."""

HEADER_WEIGHT = 256
"""Bytes of memory for each line of a head beside its text; measured 170 with headers of three bytes."""

HEADS_BYTES = 64 * 1024 * 1024
"""Memory for the heads of all connections together: unfinished, queued, and of requests being answered."""

SMALL_HEADS = 16 * 1024
"""Memory for heads that each connection owns: none is cut for less.

A request with a service account's token takes about
that much."""


class HeadLimits(NamedTuple):
    """Limits on the head of a request, and on the requests that are parsed ahead."""

    line: int
    """Bytes of the request line, and of each header."""
    headers: int
    total: int
    """Bytes of the request line and all headers together."""
    seconds: float
    """Time from the first byte to the last, and from the handshake to the first whole head."""
    queued: int
    """Requests that are parsed before the one in front of them is answered; the rest is not read."""


UNCERTIFIED = HeadLimits(line=24 * 1024, headers=100, total=32 * 1024, seconds=8.0, queued=2)
"""Without a trusted certificate: room for long bearer tokens and selectors."""

CERTIFIED = HeadLimits(line=64 * 1024, headers=4096, total=1024 * 1024, seconds=32.0, queued=32)
"""With a trusted certificate: a front proxy forwards long selectors, and users in hundreds of groups. 1 MiB
and 32 s are Go's limits."""

Parsed = tuple[Any, StreamReader]
"""A message of aiohttp's parser, which is a request or an error, and its body."""


class HeadAccount:
    """The heads of one connection: those of requests not answered yet, and an unfinished one."""

    __slots__ = ("_body", "_body_bytes", "_is_paused", "_lines", "_requests", "_whole", "unfinished")

    def __init__(self) -> None:
        self.unfinished = 0
        """Bytes after the last whole request that are not its body: the start of a head, or unparsed
        requests."""
        self._lines = 0
        self._is_paused = False
        self._requests: deque[int] = deque()
        self._whole = 0  # the sum of these
        self._body: StreamReader | None = None
        self._body_bytes = 0

    @property
    def weight(self) -> int:
        """The memory of all its heads, in bytes."""
        begun = self.unfinished
        if begun and not self._is_paused:  # else the parser keeps it as it came
            begun = BYTE_WEIGHT * begun + HEADER_WEIGHT * self._lines
        return begun + self._whole

    def receive(self, data: bytes, parsed: Sequence[Parsed], *, is_paused: bool) -> int:
        """Note received bytes, and the requests they completed; return the bytes of the largest head.

        With `is_paused` the parser has as many requests queued as it may, and keeps the rest as it came.
        """
        self._is_paused = is_paused
        is_between = not self.unfinished and self._body is None and not is_paused
        if is_between and len(parsed) == 1 and data.endswith(b"\r\n\r\n"):
            message, body = parsed[0]
            if body is EMPTY_PAYLOAD and isinstance(message, RawRequestMessage):
                self._add(len(data), data.count(b"\n"))  # the usual case: one request, in one piece
                return len(data)
        return self._receive_pieces(data, parsed)

    def answered(self) -> None:
        """Note that the oldest request was answered."""
        if self._requests:
            self._whole -= self._requests.popleft()

    def drop(self, *, keep_first: bool) -> None:
        """Release all heads, with `keep_first` all but that of the request being answered."""
        while len(self._requests) > keep_first:
            self._whole -= self._requests.pop()
        self.unfinished = self._lines = 0
        self._body = None

    def _add(self, size: int, lines: int) -> None:
        weight = BYTE_WEIGHT * size + HEADER_WEIGHT * lines
        self._requests.append(weight)
        self._whole += weight

    def _receive_pieces(self, data: bytes, parsed: Sequence[Parsed]) -> int:
        """Note bytes that end anywhere; the rest after whole heads and bodies starts another head."""
        largest = 0
        begun = self.unfinished + len(data)
        if self._body is not None:
            begun -= self._take_body(self._body)
        for message, body in parsed:
            if not isinstance(message, RawRequestMessage):  # an error: the rest is not parsed
                self._requests.append(0)
                self.unfinished = self._lines = 0
                return largest
            size, lines = _measure(message)
            largest = max(largest, size)
            begun -= size
            self._add(size, lines)
            self._body = None
            if body is not EMPTY_PAYLOAD:
                self._body, self._body_bytes = body, 0
                begun -= self._take_body(body)
        if parsed and data and not self._is_paused:
            begun = min(begun, len(data))
        if self._body is None and not self._is_paused and data.endswith(b"\r\n\r\n"):
            begun = 0  # nothing is left, though stripped blanks around values may leave a rest
        self.unfinished = begun = max(0, begun)
        if begun <= len(data):  # it began in this piece, or there is nothing
            self._lines = data.count(b"\n", len(data) - begun)
        else:
            self._lines = min(begun, self._lines + data.count(b"\n"))
        return largest if self._is_paused else max(largest, self.unfinished)

    def _take_body(self, body: StreamReader) -> int:
        """Return how many bytes of a body arrived since the last call.

        They count until the request is answered.
        """
        came = body.total_bytes - self._body_bytes
        self._body_bytes += came
        if self._requests:
            self._requests[-1] += came
            self._whole += came
        if body.is_eof():
            self._body = None
        return came


class HeadConnection(Protocol):
    """A connection as the budget sees it."""

    heads: HeadAccount
    address: str

    @property
    def is_certified(self) -> bool:
        """Whether its certificate is trusted."""

    @property
    def is_open(self) -> bool:
        """Whether it can be cut."""


class HeadBudget:
    """Bounds the memory of the heads of all connections to `most` bytes, by cutting connections.

    Connections below their own share are never cut. Of those without a trusted certificate the largest of the
    address that takes the most is cut first. Connections with one are cut only where they alone exceed the
    budget.
    """

    def __init__(self, most: int, connections: int, cut: Callable[[Any], None]) -> None:
        """Take the number of connections, each of which owns its share of `most`."""
        self._most = max(0, most - connections * SMALL_HEADS)
        self._cut = cut
        self._excess: dict[Any, int] = {}
        self._used = 0

    def note(self, connection: HeadConnection) -> None:
        """Account for a connection whose heads have changed, and cut connections beyond the budget."""
        excess = connection.heads.weight - SMALL_HEADS
        if excess <= 0 and not self._excess:
            return
        before = self._excess.get(connection, 0)
        if excess <= 0:
            if before:
                del self._excess[connection]
                self._used -= before
            return
        self._excess[connection] = excess
        self._used += excess - before
        while self._used > self._most and (chosen := self._choose()) is not None:
            self._cut(chosen)

    def _choose(self) -> HeadConnection | None:
        """Return the connection to cut, None where only requests of closed connections are left."""
        held: list[tuple[HeadConnection, int]] = [
            (each, excess) for each, excess in self._excess.items() if each.is_open
        ]
        addresses: Counter[str] = Counter()
        for each, excess in held:
            if not each.is_certified:
                addresses[each.address] += excess
        if addresses:
            address, _ = addresses.most_common(1)[0]
            held = [pair for pair in held if not pair[0].is_certified and pair[0].address == address]
        elif sum(excess for _, excess in held) <= self._most:
            return None
        return max(held, key=lambda pair: pair[1])[0]


def _measure(message: RawRequestMessage) -> tuple[int, int]:
    """Return the bytes and lines of a head on the wire, except for blanks that the parser strips."""
    headers = message.raw_headers
    text = sum(map(len, itertools.chain.from_iterable(headers)))
    # "METHOD PATH HTTP/1.1\r\n", "NAME: VALUE\r\n" for each header, "\r\n"
    return len(message.method) + len(message.path) + 14 + text + 4 * len(headers), len(headers) + 2
