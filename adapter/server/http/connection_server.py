"""All connections of the HTTPS server: their number, which one gives way, and the order of requests.

The client certificate tells the cluster's front proxy from everything else that reaches the port. Connections
with a trusted certificate have a reserved share of all connections, and their requests start at once.
Connections without one share the rest fairly by remote address, so that a probe of the kubelet or a scrape
gets through a flood from elsewhere.

Fairness needs turns, because the event loop runs everything that is ready before it looks for input again. A
client that pipelines a hundred requests would delay all others by the time of a hundred. `FairQueue` starts a
few requests in each turn of the loop, in rotation over the addresses, so that it delays them by the time of a
few.
"""

import asyncio
import functools
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from aiohttp import web

from adapter.server.auth.client_cert import Peer
from adapter.server.http import heads
from adapter.server.http.connections import ClientConnection
from adapter.server.http.heads import HeadBudget
from adapter.telemetry import metrics

MOST_CONNECTIONS = 800
"""Connections at a time: below the 1024 files that a process may open by default, less those for
handshakes."""

MOST_UNCERTIFIED = 200
"""Connections at a time without a trusted certificate; the others are reserved for those with one."""

REQUESTS_PER_TURN = 8
"""Requests without a trusted certificate that start in one turn of the event loop, in rotation over
addresses."""


class FairQueue:
    """Admits `per_turn` callers in each turn of the event loop.

    Addresses that wait are served in rotation.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, per_turn: int) -> None:
        self._loop = loop
        self._per_turn = per_turn
        self._admitted = 0
        self._scheduled = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    async def enter(self, address: str) -> None:
        """Return when the caller may go on: at once while this turn has room and no other caller waits."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)
        if self._admitted < self._per_turn and not self._waiting:
            self._admitted += 1
            return
        admission: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(address, deque()).append(admission)
        await admission

    def _turn(self) -> None:
        """Begin a turn: admit those that wait. Runs in every turn until one passes without admissions."""
        self._admitted = 0
        while self._waiting and self._admitted < self._per_turn:
            address = next(iter(self._waiting))
            queue = self._waiting.pop(address)
            admission = queue.popleft()
            if queue:
                self._waiting[address] = queue  # at the end: the other addresses are first
            if not admission.done():  # else it was cancelled
                self._admitted += 1
                admission.set_result(None)
        self._scheduled = self._admitted > 0
        if self._scheduled:
            self._loop.call_soon(self._turn)


class ConnectionServer(web.Server):
    """aiohttp's low-level server with at most `most` connections.

    At most `most_uncertified` of them are without a trusted certificate. A new connection beyond these limits
    replaces another; see `_choose`.
    """

    def __init__(
        self,
        handler: Callable[..., Any],
        own_metrics: metrics.Monitoring,
        *,
        judge: Callable[[Peer], object],
        most: int,
        most_uncertified: int,
        head_seconds: float | None,
        unread_seconds: float,
        head_bytes: int = heads.HEADS_BYTES,
        **settings: Any,
    ) -> None:
        """`judge` gives a peer its verdict; `head_seconds` replaces the times of the limits."""
        super().__init__(self._answer)
        self._handler = handler
        self._most = most
        self._most_uncertified = most_uncertified
        self._turns = FairQueue(self._loop, REQUESTS_PER_TURN)
        self._make_connection = functools.partial(
            ClientConnection,
            self,
            loop=self._loop,
            cuts=own_metrics.connections_cut,
            budget=HeadBudget(head_bytes, most, lambda connection: connection.cut("memory")),
            judge=judge,
            head_seconds=head_seconds,
            unread_seconds=unread_seconds,
            **settings,
        )
        own_metrics.connections.set_function(lambda: len(self.open_connections()))
        own_metrics.head_bytes.set_function(
            lambda: sum(each.heads.weight for each in self.open_connections())
        )
        own_metrics.requests_waiting.set_function(lambda: self._turns.waiting)

    def __call__(self) -> web.RequestHandler:
        return self._make_connection()

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        assert isinstance(handler, ClientConnection)
        others = self.open_connections()  # without this one, which has not begun
        uncertified = sum(not each.is_certified for each in others)
        if len(others) >= self._most or (not handler.is_certified and uncertified >= self._most_uncertified):
            self._choose(handler, others).cut("flood")

    def open_connections(self) -> list[ClientConnection]:
        """Return the open connections, oldest first, without those that this side is closing."""
        return [each for each in self._connections if isinstance(each, ClientConnection) and each.is_open]

    def _choose(self, newcomer: ClientConnection, others: list[ClientConnection]) -> ClientConnection:
        """Return the connection to close: an older one, or the new one.

        Connections without a certificate are closed first: those of the address that has the most of them,
        idle ones before busy ones, then the oldest. A busy one is not closed for another of an address that
        has as many. Connections with a certificate are closed only for another with one, and only if idle.
        """
        uncertified = [each for each in others if not each.is_certified]
        if not uncertified:
            return (
                next((each for each in others if each.waits), newcomer) if newcomer.is_certified else newcomer
            )
        counts = Counter(each.address for each in uncertified)
        if not newcomer.is_certified:
            counts[newcomer.address] += 1
        chosen = min(
            uncertified, key=lambda each: (-counts[each.address], not each.waits and not each.writing_paused)
        )
        is_idle = chosen.waits or chosen.writing_paused
        if newcomer.is_certified or is_idle or counts[chosen.address] > counts[newcomer.address]:
            return chosen
        return newcomer

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        connection = request.protocol
        assert isinstance(connection, ClientConnection)
        try:
            if not connection.is_certified:
                await self._turns.enter(connection.address)
                if not connection.is_open:
                    return web.Response()  # closed in the meantime; nothing is sent
            response: web.StreamResponse = await self._handler(request)
        finally:
            connection.answered()
        connection.follow_trust(response)
        return response
