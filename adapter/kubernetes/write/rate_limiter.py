"""Limits the rate of the scaler's writes, and orders them: floors, Scales, statuses, events.

The limiter is a queue in front of a token bucket. A write waits while one of a higher priority waits. Within
a kind slots are shared fairly (`model.fairness`): round-robin over namespaces, then over objects, so that the
writes of a tenant with many autoscalers delay those of another by one slot each. A task that stops waiting
gives its token back. The lease is not renewed through this queue: a leader that cannot renew in time may not
write at all.
"""

import asyncio
import enum
import functools

from adapter.model.clock import Clock
from adapter.model.fairness import Turns
from adapter.telemetry.metrics import WRITE_KINDS, Monitoring


class WriteKind(enum.IntEnum):
    """A kind of write; a lower number has priority."""

    FLOOR = 0
    SCALE = 1
    STATUS = 2
    EVENT = 3

    @property
    def label(self) -> str:
        """The label value in metrics."""
        return WRITE_KINDS[self]


class WriteRateLimiter:
    """Allows `rate` writes a second (``--kube-api-write-qps``), and a burst of one second's worth."""

    def __init__(self, rate: float, clock: Clock, monitoring: Monitoring) -> None:
        for kind in (WriteKind.FLOOR, WriteKind.SCALE):
            monitoring.write_queue.labels(kind.label).set_function(functools.partial(self.waiting, kind))
        self._rate = rate
        self._depth = max(1.0, rate)
        self._clock = clock
        self._tokens = self._depth
        self._counted = clock.monotonic()
        self._paused_until = [self._counted] * len(WriteKind)
        self._waiting: tuple[Turns[asyncio.Future[None]], ...] = tuple(Turns() for _ in WriteKind)
        self._timer: asyncio.TimerHandle | None = None

    def pause(self, seconds: float, kind: WriteKind = WriteKind.SCALE) -> None:
        """Delay writes of a kind and of the kinds with a lower priority, because the API server asked for it.

        A 429 for an event must not delay a Scale.
        """
        until = self._clock.monotonic() + seconds
        for each in range(kind, len(WriteKind)):
            self._paused_until[each] = max(self._paused_until[each], until)

    def waiting(self, kind: WriteKind) -> int:
        """Return how many writes of a kind wait."""
        return len(self._waiting[kind])

    async def acquire(self, kind: WriteKind, namespace: str = "", name: str = "") -> None:
        """Wait until the caller may make one write of that kind, about the object of that name."""
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
        """Grant the slots that are free, and set a timer for the next one."""
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
