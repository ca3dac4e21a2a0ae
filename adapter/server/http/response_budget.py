"""Memory of responses under way: one budget for all bodies, from when they are encoded until they are sent.

The first `SMALL_ANSWER` bytes of each body are not counted, so small responses are never refused. A client
that does not read its response holds its memory until another response needs it; then its connection is cut.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self, cast

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import Payload

from adapter import errors

ANSWERS_BYTES = 96 * 1024 * 1024
"""Memory for all responses that are encoded or sent, beside the small share of each."""

SMALL_ANSWER = 32 * 1024
"""Bytes of each response that are not counted."""

TAKING_SECONDS = 2.0
"""A response not sent after so long may be cut for others, if its connection waits for the client to read."""

_RESERVED = 8  # one part of so many is for documents and self-metrics alone
_UNCERTIFIED = 2  # connections without a trusted certificate take one part of so many
_PIECE = 16 * 1024  # bytes written to the connection at a time
_PIECES_AT_ONCE = 4  # after these other work may run


class ResponseConnection(Protocol):
    """A connection as the budget sees it."""

    address: str

    @property
    def is_certified(self) -> bool:
        """Whether its certificate is trusted."""

    @property
    def is_open(self) -> bool:
        """Whether it can be cut."""

    @property
    def writing_paused(self) -> bool:
        """Whether it waits for the client to read."""

    def cut(self, reason: str) -> None:
        """Abort it."""


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
        held = [each for each, since in self._sending.items() if since <= latest and _is_unread(each)]
        uncertified = [each for each in held if not each.certified]
        if uncertified:
            addresses: Counter[str] = Counter()
            for each in uncertified:
                addresses[each.connection.address] += each.counted
            address, _ = addresses.most_common(1)[0]
            held = [each for each in uncertified if each.connection.address == address]
        elif not charge.certified:
            return None
        return max(held, key=lambda each: each.counted, default=None)


def connection_of(request: web.BaseRequest) -> ResponseConnection:
    """Return the connection of a request, which is one of ours."""
    return cast("ResponseConnection", request.protocol)


def _is_unread(charge: Charge) -> bool:
    return charge.counted > 0 and charge.connection.is_open and charge.connection.writing_paused


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
