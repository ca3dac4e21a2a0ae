"""Bounds on the memory of request heads and of responses, for all connections of a server together.

A head in memory is a multiple of its size on the wire: raw bytes and text of every header, up to four bytes
for each character of text, and objects for each header however short it is. A connection has one head at a
time: what arrives behind a request waits as it came until the request is answered. So the number of
connections without a trusted certificate and the limits on their heads bound what these take. With a trusted
certificate a head may be so long that the product would be gigabytes. There the long heads share a budget,
and when it is exceeded the connection with the longest head is cut.

Responses count from when they are encoded until they are sent: a client that does not read its response holds
its memory until another response needs it. Each has a small share that does not count. When the budget is
exceeded a connection is cut: without a trusted certificate first, and of these the largest of the address
that takes the most. So a flood cuts its own connections.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from adapter import errors

BYTE_WEIGHT = 5
"""Bytes of memory for each byte of a head: the raw byte, and a character of text, which takes four where one
is outside the BMP."""

HEADER_WEIGHT = 256
"""Bytes of memory for each line of a head beside its text; measured 170 with headers of three bytes."""

SMALL_HEAD = 16 * 1024
"""Memory of a head that does not count among the long ones. A request with a service account's token takes
about that much."""

LONG_HEADS_BYTES = 32 * 1024 * 1024
"""Memory for all long heads on connections with a trusted certificate."""

ANSWERS_BYTES = 96 * 1024 * 1024
"""Memory for all responses that are encoded or sent, beside the small share of each."""

SMALL_ANSWER = 32 * 1024
"""Bytes of each response that are not counted."""

TAKING_SECONDS = 2.0
"""A response that is not sent after this many seconds may be cut for others, if its client does not read."""

RESERVED = 8  # an eighth of the budget is for documents and self-metrics alone
_UNCERTIFIED = 2  # connections without a trusted certificate take half of the budget at most


class HeadLimits(NamedTuple):
    line: int
    """Bytes of the request line, and of each header."""
    headers: int
    total: int
    """Bytes of the request line and all headers together."""
    seconds: float
    """Time from the first byte to the last, and from the handshake to the first whole head."""

    @property
    def memory(self) -> int:
        """The memory of one head at most."""
        return weigh_head(self.total, self.headers + 2)


def weigh_head(size: int, lines: int) -> int:
    """Return the memory of a head of `size` bytes in so many lines."""
    return BYTE_WEIGHT * size + HEADER_WEIGHT * lines


UNCERTIFIED_HEADS = HeadLimits(line=24 * 1024, headers=100, total=32 * 1024, seconds=8.0)
"""Without a trusted certificate: room for long bearer tokens and selectors."""

CERTIFIED_HEADS = HeadLimits(line=64 * 1024, headers=4096, total=1024 * 1024, seconds=32.0)
"""With a trusted certificate: a front proxy forwards long selectors, and users in hundreds of groups. 1 MiB
and 32 s are Go's limits."""


class BoundedConnection(Protocol):
    """A connection as the budgets see it. Its certificate is trusted if it `is_certified`."""

    address: str
    is_certified: bool

    @property
    def is_open(self) -> bool:
        """Whether it can be cut."""

    @property
    def writing_paused(self) -> bool:
        """Whether it waits for the client to read."""

    def cut(self, reason: str) -> None:
        """Abort it."""


class LongHeads:
    """Bounds the memory of long heads to `most` bytes, by cutting the connection with the longest."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[BoundedConnection, int] = {}

    def hold(self, connection: BoundedConnection, weight: int) -> None:
        """Count a head of a connection until `release`, unless a longer one counts already."""
        self._held[connection] = max(weight, self._held.get(connection, 0))
        while sum(self._held.values()) > self._most:
            longest = max(self._held, key=self._held.__getitem__)
            del self._held[longest]
            longest.cut("memory")

    def release(self, connection: BoundedConnection) -> None:
        self._held.pop(connection, None)


class Charge:
    """The memory of one response in the budget, until `close`.

    `is_page` is for responses that are not about metrics.
    """

    __slots__ = ("_budget", "_closed", "certified", "connection", "counted", "is_page", "size")

    def __init__(
        self, budget: "ResponseBudget", connection: BoundedConnection, *, is_page: bool = False
    ) -> None:
        self._budget = budget
        self._closed = False
        self.connection = connection
        self.certified = connection.is_certified
        self.is_page = is_page
        self.size = 0
        self.counted = 0
        """Bytes beyond the small share."""

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
            if self.size:
                self.resize(0)
                self._budget.forget(self)
            self._closed = True


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

    def send(self, connection: BoundedConnection, body: bytes, *, is_page: bool) -> Charge:
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
                raise errors.TooManyRequestsError("responses")
            chosen.close()
            chosen.connection.cut("unread")
        charge.counted = counted
        self.used += more
        if not charge.certified:
            self._uncertified += more

    def forget(self, charge: Charge) -> None:
        self._sending.pop(charge, None)

    def _fits(self, charge: Charge, more: int) -> bool:
        most = self._most if charge.is_page else self._most - self._most // RESERVED
        if not charge.certified and self._uncertified + more > most // _UNCERTIFIED:
            return False
        return self.used + more <= most

    def _choose(self, charge: Charge) -> Charge | None:
        """Return the response to cut for another, None where all are being read, or may not be cut for it."""
        latest = self._now() - TAKING_SECONDS
        unread = [
            sent
            for sent, since in self._sending.items()
            if since <= latest
            and sent.counted > 0
            and sent.connection.is_open
            and sent.connection.writing_paused
        ]
        totals: Counter[str] = Counter()
        for sent in unread:
            if not sent.certified:
                totals[sent.connection.address] += sent.counted
        if totals:
            most, _ = totals.most_common(1)[0]
            unread = [sent for sent in unread if not sent.certified and sent.connection.address == most]
        elif not charge.certified:
            return None
        return max(unread, key=lambda sent: sent.counted, default=None)
