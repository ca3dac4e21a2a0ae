"""Sends every write of the scaler: checks the lease fence, waits for a slot, counts outcomes.

All kinds of writes (floors, Scales, deletion costs, statuses, events) go through one `Writer`. It checks
the fence three times: when a write slot is asked for, when the write is sent, and by `transport.GuardedBody`
right before the first byte leaves.

`WriteRateLimiter` is a queue in front of a token bucket, one for the process. A write waits while one of a
higher priority waits, but each kind gets a tenth of the slots at least while it waits, so that no kind keeps
another from being written. Within a kind slots are shared fairly (`model.fairness`): round-robin over
namespaces, then over objects, so that the writes of a tenant with many autoscalers delay those of another by
one slot each. A slot in which nothing is written is given back. The lease is not renewed through this queue:
an owner that cannot renew in time may not write at all.
"""

import asyncio
import enum
import functools
from dataclasses import dataclass
from typing import Literal

from adapter import errors
from adapter.kubernetes.client import KubernetesClient, ResponseBody
from adapter.kubernetes.ownership.term import Term
from adapter.model.clock import Clock
from adapter.model.fairness import Precedence, Turns
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import SourceProblems


class WriteKind(enum.IntEnum):
    """A kind of write; a lower number has priority."""

    FLOOR = 0
    SCALE = 1
    COST = 2
    STATUS = 3
    EVENT = 4

    @property
    def label(self) -> str:
        return self.name.lower()


class WriteRateLimiter:
    """Allows `rate` writes a second (``--kube-api-write-qps``), and a burst of one second's worth."""

    def __init__(self, rate: float, clock: Clock, monitoring: Monitoring) -> None:
        self._rate = rate
        self._depth = max(1.0, rate)
        self._clock = clock
        self._tokens = self._depth
        self._counted = clock.monotonic()
        self._paused_until = [self._counted] * len(WriteKind)
        self._waiting: tuple[Turns[asyncio.Future[None]], ...] = tuple(Turns() for _ in WriteKind)
        for kind in (WriteKind.FLOOR, WriteKind.SCALE, WriteKind.COST):
            waiting = functools.partial(len, self._waiting[kind])
            monitoring.write_queue.labels(kind.label).set_function(waiting)
        self._precedence = Precedence(len(WriteKind))
        self._timer: asyncio.TimerHandle | None = None

    def pause(self, seconds: float, kind: WriteKind = WriteKind.SCALE) -> None:
        """Delay writes of a kind and of the kinds with a lower priority, because the API server asked for it.

        A 429 for an event must not delay a Scale.
        """
        until = self._clock.monotonic() + seconds
        for affected in range(kind, len(WriteKind)):
            self._paused_until[affected] = max(self._paused_until[affected], until)

    async def acquire(self, kind: WriteKind, namespace: str = "", name: str = "") -> None:
        """Wait until the caller may make one write of that kind, about the object of that name."""
        queue = self._waiting[kind]
        if self._timer is None:  # then no write waits
            now = self._clock.monotonic()
            self._refill(now)
            if self._tokens >= 1 and now >= self._paused_until[kind]:
                self._tokens -= 1
                return
        place = asyncio.get_running_loop().create_future()
        queue.add(namespace, name, place)
        self._serve()
        try:
            if not place.done():
                await place
        except asyncio.CancelledError:
            if place.cancelled():
                queue.discard(namespace, name, place)
                self._serve()
            else:
                self.give_back()
            raise

    def give_back(self) -> None:
        """Take back a slot in which nothing was written."""
        self._tokens = min(self._depth, self._tokens + 1)
        self._serve()

    def _refill(self, now: float) -> None:
        self._tokens = min(self._depth, self._tokens + (now - self._counted) * self._rate)
        self._counted = now

    def _serve(self) -> None:
        """Grant the slots that are free, and set a timer for the next one."""
        now = self._clock.monotonic()
        self._refill(now)
        is_open = [now >= until for until in self._paused_until]
        while self._tokens >= 1:
            waiting = [queue and may_go for queue, may_go in zip(self._waiting, is_open, strict=True)]
            chosen = self._precedence.choose(waiting)
            if chosen is None:
                break
            place = self._waiting[chosen].take()
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


FIELD_MANAGER = "fastpath"
"""Our name in ``metadata.managedFields``."""

WRITE_SECONDS = 5.0
"""The time limit of a write; the fence may allow less."""

PAUSE_LIMIT = 10.0
"""Cap on the Retry-After of the API server."""

_REFUSED = frozenset({400, 401, 403, 404, 405, 410, 413, 415, 422})
_LOGGED = {WriteKind.SCALE: _REFUSED - {404}, WriteKind.COST: frozenset({401, 403})}
"""Refusals that are logged here. Those of other kinds are problems of what makes the writes."""

_NEVER_SENT = frozenset({"Closed", "Unreachable"})


@dataclass(slots=True, eq=False)
class Writer:
    """Writes as the owner of one term.

    Calls raise `errors.NotLeadingError` if the lease may have been lost before the request was sent.
    """

    client: KubernetesClient
    term: Term
    limiter: WriteRateLimiter
    clock: Clock
    monitoring: Monitoring
    problems: SourceProblems

    async def acquire(self, kind: WriteKind, namespace: str = "", name: str = "") -> None:
        """Wait for the slot of one write, to be followed by `send` at once, or by `give_back`.

        Decide what to send only after this: the wait may be long. Slots are shared fairly between namespaces,
        and between the objects of one.
        """
        try:
            self.term.check()
            await self.limiter.acquire(kind, namespace, name)
        except errors.NotLeadingError:
            self._count(kind, "fenced")
            raise

    def give_back(self) -> None:
        self.limiter.give_back()

    async def send(
        self,
        kind: WriteKind,
        method: Literal["POST", "PUT", "PATCH", "DELETE"],
        path: str,
        content: bytes,
        *,
        content_type: str = "application/json",
        manager: str = FIELD_MANAGER,
    ) -> ResponseBody:
        """Write as `KubernetesClient.write` does; `errors.KubernetesError` as there.

        A Retry-After of the server delays all writes of this kind and of the kinds with a lower priority.
        """
        start = self.clock.monotonic()
        try:
            seconds = min(self.term.check(), WRITE_SECONDS)
            answer = await self.client.write(
                method,
                path,
                content,
                content_type=content_type,
                parameters={"fieldManager": manager},
                seconds=seconds,
                check=self.term.check,
            )
        except errors.NotLeadingError:
            self._count(kind, "fenced")
            self.give_back()
            raise
        except errors.KubernetesError as error:
            if error.retry_after is not None:
                self.limiter.pause(min(error.retry_after, PAUSE_LIMIT), kind)
            refused = "refused" if error.status in _REFUSED else "failed"
            self._count(kind, "conflict" if error.status == 409 else refused)
            if error.status in _LOGGED.get(kind, ()):
                namespace = path.partition("/namespaces/")[2].partition("/")[0]
                text = f"{method} {path}: {error}"
                self.problems.report(f"{kind.label}-write", "a write was refused", text, namespace)
            raise
        except asyncio.CancelledError:
            self._count(kind, "failed")
            raise
        self._count(kind, "success")
        self.monitoring.write_duration.labels(kind.label).observe(self.clock.monotonic() - start)
        return answer

    def _count(self, kind: WriteKind, outcome: str) -> None:
        self.monitoring.writes.labels(kind.label, outcome).inc()


def may_have_been_applied(error: errors.KubernetesError) -> bool:
    """Tell whether a failed write may have been applied: it was sent, and no response denies it."""
    return error.status >= 500 or (error.status == 0 and error.reason not in _NEVER_SENT)
