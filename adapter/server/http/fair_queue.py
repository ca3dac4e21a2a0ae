"""The order of requests on connections without a trusted certificate.

Fairness needs turns, because the event loop runs everything that is ready before it looks for input again. A
client that pipelines a hundred requests would delay all others by the time of a hundred. `FairQueue` starts a
few requests in each turn of the loop, in rotation over the addresses, so that it delays them by the time of a
few.
"""

import asyncio
from collections import deque
from collections.abc import Callable

Start = Callable[[], bool]
"""Lets a caller go on; returns False if it has left in the meantime."""


class FairQueue:
    """Admits `per_turn` callers in each turn of the event loop.

    Addresses that wait are served in rotation.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, per_turn: int) -> None:
        self._loop = loop
        self._per_turn = per_turn
        self._admitted = 0
        self._scheduled = False
        self._waiting: dict[str, deque[Start]] = {}

    @property
    def waiting(self) -> int:
        return sum(map(len, self._waiting.values()))

    def enter_now(self, address: str, start: Start) -> bool:
        """Return whether this turn has room and no other caller waits; else call `start` in a later turn."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)
        if self._admitted < self._per_turn and not self._waiting:
            self._admitted += 1
            return True
        self._waiting.setdefault(address, deque()).append(start)
        return False

    def _turn(self) -> None:
        """Begin a turn: admit those that wait. Runs in every turn until one passes without admissions."""
        self._admitted = 0
        try:
            while self._waiting and self._admitted < self._per_turn:
                address = next(iter(self._waiting))
                queue = self._waiting.pop(address)
                start = queue.popleft()
                if queue:
                    self._waiting[address] = queue  # at the end: the other addresses are first
                if start():  # which may enter another request
                    self._admitted += 1
        finally:
            self._scheduled = self._admitted > 0 or bool(self._waiting)
            if self._scheduled:
                self._loop.call_soon(self._turn)
