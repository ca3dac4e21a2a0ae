"""A turnstile that shares the event loop: few admissions in each turn, in rotation over addresses.

The loop runs everything that is ready before it looks for input again, so a caller with many requests delays
all others by the time of all its requests. Admissions that are spread over turns delay them by the few of one
turn.
"""

import asyncio
from collections import deque


class Turnstile:
    """Admits `per_turn` callers in each turn of the event loop. Addresses that wait are served in rotation."""

    def __init__(self, loop: asyncio.AbstractEventLoop, per_turn: int) -> None:
        self._loop = loop
        self._per_turn = per_turn
        self._admitted = 0
        self._scheduled = False
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    @property
    def waiting(self) -> int:
        """The number of callers that wait."""
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
