"""How often the scaler writes, and which write goes first: one budget for all kinds of writes.

A queue in front of a token bucket. No write goes while one of a higher class waits. Within a class turns
are fair (`model.fairness`): round-robin over namespaces, then over objects, so the writes of a tenant with
many autoscalers delay those of another by one turn each. A task that stops waiting takes nothing. The lease
has no place in the queue: a leader that cannot renew in time may not write at all.
"""

import asyncio
import enum
import functools

from adapter.model.clock import Clock
from adapter.model.fairness import Turns
from adapter.telemetry.metrics import WRITE_KINDS, Monitoring


class Kind(enum.IntEnum):
    """What is written; the lower goes first."""

    FLOOR = 0
    SCALE = 1
    STATUS = 2
    EVENT = 3

    @property
    def label(self) -> str:
        """Return the word of metrics."""
        return WRITE_KINDS[self]


class WriteBudget:
    """`rate` writes a second (``--kube-api-write-qps``); after a pause a second's worth at once."""

    def __init__(self, rate: float, clock: Clock, monitoring: Monitoring) -> None:
        for kind in (Kind.FLOOR, Kind.SCALE):
            monitoring.write_queue.labels(kind.label).set_function(functools.partial(self.waiting, kind))
        self._rate = rate
        self._depth = max(1.0, rate)
        self._clock = clock
        self._tokens = self._depth
        self._counted = clock.monotonic()
        self._paused_until = [self._counted] * len(Kind)
        self._waiting: tuple[Turns[asyncio.Future[None]], ...] = tuple(Turns() for _ in Kind)
        self._timer: asyncio.TimerHandle | None = None

    def pause(self, seconds: float, kind: Kind = Kind.SCALE) -> None:
        """Let nobody of that kind, and of those behind it, go for so long: the API server has asked for it.

        What the server does not want to hear of events must not keep a Scale waiting.
        """
        until = self._clock.monotonic() + seconds
        for each in range(kind, len(Kind)):
            self._paused_until[each] = max(self._paused_until[each], until)

    def waiting(self, kind: Kind) -> int:
        """Return how many wait for their turn."""
        return len(self._waiting[kind])

    async def turn(self, kind: Kind, namespace: str = "", name: str = "") -> None:
        """Return when it is the caller's turn to make one write of that kind, about the object of that name."""
        queue = self._waiting[kind]
        place = asyncio.get_running_loop().create_future()
        queue.add(namespace, name, place)
        self._serve()
        try:
            if not place.done():
                await place
        except asyncio.CancelledError:
            if place.cancelled():
                queue.discard(namespace, name, place)
            else:
                self._tokens = min(self._depth, self._tokens + 1)
            self._serve()
            raise

    def _serve(self) -> None:
        """Let go whoever may, and wake up when the next one may."""
        now = self._clock.monotonic()
        self._tokens = min(self._depth, self._tokens + (now - self._counted) * self._rate)
        self._counted = now
        open_now = [
            queue for queue, until in zip(self._waiting, self._paused_until, strict=True) if now >= until
        ]
        while self._tokens >= 1 and (queue := next(filter(None, open_now), None)) is not None:
            namespace, name, place = queue.next()
            queue.discard(namespace, name, place)
            if not place.done():
                place.set_result(None)
                self._tokens -= 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if any(self._waiting):
            pauses = [until for queue, until in zip(self._waiting, self._paused_until, strict=True) if queue]
            wait = max(min(pauses) - now, (1 - self._tokens) / self._rate, 0.001)
            self._timer = asyncio.get_running_loop().call_later(wait, self._serve)
