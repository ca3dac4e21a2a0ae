"""Budgets for the memory of request heads and of responses, each shared by all connections of a server.

A limit for each head does not bound the memory of a server, since a client can open many connections and
leave a long head unfinished on each. A head in memory is a multiple of its size on the wire: raw bytes and
text of every header, up to four bytes for each character of text, and objects for each header however short
it is. Heads are therefore weighed by bytes and by headers, from the first byte of a head until its request is
answered. Responses count from when they are encoded until they are sent: a client that does not read its
response holds its memory until another response needs it.

Every connection owns a small share of each budget, enough for a usual request and its response. Beyond that a
budget belongs to the connections that need it, and when it is exceeded a connection is cut: without a trusted
certificate first, and of these the largest of the address that takes the most. So a flood cuts its own
connections.
"""

import asyncio
import itertools
from collections import Counter, deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self, TypeVar, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.payload import Payload
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from adapter import errors

BYTE_WEIGHT = 5
"""Bytes of memory for each byte of a head: the raw byte, and a character of text, which takes four where one
is outside the BMP."""

HEADER_WEIGHT = 256
"""Bytes of memory for each line of a head beside its text; measured 170 with headers of three bytes."""

HEADS_BYTES = 64 * 1024 * 1024
"""Memory for the heads of all connections together: unfinished, queued, and of requests being answered."""

SMALL_HEADS = 16 * 1024
"""Memory for heads that each connection owns: none is cut for less. A request with a service account's token
takes about that much."""

ANSWERS_BYTES = 96 * 1024 * 1024
"""Memory for all responses that are encoded or sent, beside the small share of each."""

SMALL_ANSWER = 32 * 1024
"""Bytes of each response that are not counted."""

TAKING_SECONDS = 2.0
"""A response that is not sent after this many seconds may be cut for others, if its client does not read."""

_RESERVED = 8  # an eighth of the budget is for documents and self-metrics alone
_UNCERTIFIED = 2  # connections without a trusted certificate take half of the budget at most
_PIECE = 16 * 1024  # bytes written to the connection at a time
_PIECES_AT_ONCE = 4  # after these other work may run


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


UNCERTIFIED_HEADS = HeadLimits(line=24 * 1024, headers=100, total=32 * 1024, seconds=8.0, queued=2)
"""Without a trusted certificate: room for long bearer tokens and selectors."""

CERTIFIED_HEADS = HeadLimits(line=64 * 1024, headers=4096, total=1024 * 1024, seconds=32.0, queued=32)
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


class _Connection(Protocol):
    address: str

    @property
    def is_certified(self) -> bool:
        """Whether its certificate is trusted."""

    @property
    def is_open(self) -> bool:
        """Whether it can be cut."""


class HeadConnection(_Connection, Protocol):
    """A connection as the budget of heads sees it."""

    heads: HeadAccount


class ResponseConnection(_Connection, Protocol):
    """A connection as the budget of responses sees it."""

    @property
    def writing_paused(self) -> bool:
        """Whether it waits for the client to read."""

    def cut(self, reason: str) -> None:
        """Abort it."""


_Held = TypeVar("_Held")


def _largest(held: Sequence[tuple[_Held, str, int]]) -> _Held:
    """Return the largest entry of the address that takes the most; an entry has its holder first."""
    totals: Counter[str] = Counter()
    for _, address, size in held:
        totals[address] += size
    most, _ = totals.most_common(1)[0]
    return max((entry for entry in held if entry[1] == most), key=lambda entry: entry[2])[0]


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
        self._excess: dict[HeadConnection, int] = {}
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
        held = [(each, each.address, excess) for each, excess in self._excess.items() if each.is_open]
        uncertified = [entry for entry in held if not entry[0].is_certified]
        if uncertified:
            return _largest(uncertified)
        if sum(excess for _, _, excess in held) <= self._most:
            return None
        return max(held, key=lambda entry: entry[2])[0]


def _measure(message: RawRequestMessage) -> tuple[int, int]:
    """Return the bytes and lines of a head on the wire, except for blanks that the parser strips."""
    headers = message.raw_headers
    text = sum(map(len, itertools.chain.from_iterable(headers)))
    # "METHOD PATH HTTP/1.1\r\n", "NAME: VALUE\r\n" for each header, "\r\n"
    return len(message.method) + len(message.path) + 14 + text + 4 * len(headers), len(headers) + 2


class Charge:
    """The memory of one response in the budget, until `close`.

    `is_page` is for responses that are not about metrics.
    """

    __slots__ = ("_budget", "_closed", "certified", "connection", "counted", "is_page", "size")

    def __init__(
        self, budget: "ResponseBudget", connection: ResponseConnection, *, is_page: bool = False
    ) -> None:
        self._budget = budget
        self._closed = False
        self.connection = connection
        self.certified = connection.is_certified
        self.is_page = is_page
        self.size = 0
        self.counted = 0
        """Bytes beyond the small share."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def resize(self, size: int) -> None:
        """Count `size` bytes from now on. On TooManyRequestsError the old size still counts."""
        counted = 0 if self._closed else max(0, size - SMALL_ANSWER)
        if counted != self.counted:
            self._budget.change(self, counted)
        self.size = size

    def grow(self, size: int) -> None:
        """Count `size` bytes more. Raises TooManyRequestsError."""
        self.resize(self.size + size)

    def close(self) -> None:
        if not self._closed:
            self.resize(0)
            self._closed = True
            self._budget.forget(self)


class ResponseBudget:
    """Bounds the memory of responses under way to `most` bytes.

    A response that does not fit is refused, unless connections whose clients have not read for
    `TAKING_SECONDS` can be cut for it. Those without a trusted certificate go first: of the address that
    takes the most, the largest. They share half of the budget, and no connection with a certificate is cut
    for them.
    """

    def __init__(self, most: int, now: Callable[[], float]) -> None:
        self._most = most
        self._now = now
        self._uncertified = 0
        self._sending: dict[Charge, float] = {}
        self.used = 0

    def send(self, connection: ResponseConnection, body: bytes, *, is_page: bool) -> Charge:
        """Return the charge of a body that is now being sent. Raises TooManyRequestsError."""
        charge = Charge(self, connection, is_page=is_page)
        charge.resize(len(body))
        self._sending[charge] = self._now()
        return charge

    def change(self, charge: Charge, counted: int) -> None:
        """Count another size of a charge; cut connections for it if needed. Raises TooManyRequestsError."""
        more = counted - charge.counted
        while more > 0 and not self._fits(charge, more):
            chosen = self._choose(charge)
            if chosen is None:
                raise errors.TooManyRequestsError("answers")
            chosen.close()
            chosen.connection.cut("unread")
        charge.counted = counted
        self.used += more
        if not charge.certified:
            self._uncertified += more

    def forget(self, charge: Charge) -> None:
        self._sending.pop(charge, None)

    def _fits(self, charge: Charge, more: int) -> bool:
        most = self._most if charge.is_page else self._most - self._most // _RESERVED
        if not charge.certified and self._uncertified + more > most // _UNCERTIFIED:
            return False
        return self.used + more <= most

    def _choose(self, charge: Charge) -> Charge | None:
        """Return the response to cut for another, None where all are being read, or may not be cut for it."""
        latest = self._now() - TAKING_SECONDS
        held = [
            each
            for each, since in self._sending.items()
            if since <= latest
            and each.counted > 0
            and each.connection.is_open
            and each.connection.writing_paused
        ]
        uncertified = [(each, each.connection.address, each.counted) for each in held if not each.certified]
        if uncertified:
            return _largest(uncertified)
        return max(held, key=lambda each: each.counted, default=None) if charge.certified else None


def connection_of(request: web.BaseRequest) -> ResponseConnection:
    """Return the connection of a request, which is one of ours."""
    return cast("ResponseConnection", request.protocol)


class LargeBody(Payload):
    """A body that is written in pieces, as the client reads them.

    So the TLS layer and the transport hold no copy of the whole. `charge` is closed at the end of the
    response.
    """

    def __init__(self, body: bytes, charge: Charge, *, content_type: str) -> None:
        super().__init__(body, content_type=content_type)
        self._size = len(body)
        self.charge = charge

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        body: bytes = self._value
        return body.decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        view = memoryview(self._value)
        for number, start in enumerate(range(0, len(view), _PIECE), 1):
            await writer.write(view[start : start + _PIECE])
            await writer.drain()
            if number % _PIECES_AT_ONCE == 0:
                await asyncio.sleep(0)
