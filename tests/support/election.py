"""For tests of leader election: a Lease in memory with faults on demand, and clocks that follow the loop."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from adapter.errors import KubernetesError
from adapter.kubernetes.lease import KubernetesLeases, Lease, LeaseRecord

WALL = 1_700_000_000.0
_T = TypeVar("_T")


class LoopClock:
    """Both readings follow the event loop's time; `rate` is how fast this machine's crystal runs."""

    def __init__(self, rate: float = 1.0, wall: float = WALL) -> None:
        self.rate = rate
        self.shift = 0.0
        self._wall = wall

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() * self.rate

    def wall(self) -> float:
        return self._wall + self.monotonic() + self.shift


class Keeper:
    """The one place where a Lease is kept."""

    def __init__(self) -> None:
        self.record: LeaseRecord | None = None
        self.version = 0
        self.changed = asyncio.Event()

    @property
    def holder(self) -> str:
        return self.record.holder if self.record is not None else ""

    def put(self, record: LeaseRecord | None) -> None:
        self.version += 1
        self.record = record
        self.changed.set()
        self.changed = asyncio.Event()


class Line(KubernetesLeases):
    """One candidate's way to the keeper. Each fault is looked at when a call is made.

    `before` and `after` are seconds on the way there and back; `cut` lets nothing through; `deaf` loses
    answers only; `answer` is an HTTP status to refuse with.
    """

    def __init__(self, keeper: Keeper) -> None:
        self.keeper = keeper
        self.before: Callable[[], float] = lambda: 0.0
        self.after: Callable[[], float] = lambda: 0.0
        self.cut = False
        self.deaf = False
        self.answer = 0
        self.can_watch = True
        self.calls: list[str] = []

    async def fetch(self, seconds: float) -> Lease | None:
        return await self._call("fetch", seconds, self._lease)

    async def create(self, record: LeaseRecord, seconds: float) -> Lease:
        def act() -> Lease:
            if self.keeper.record is not None:
                raise KubernetesError(409, "AlreadyExists", "it exists")
            self.keeper.put(record)
            return self._sure()

        return await self._call("create", seconds, act)

    async def replace(self, lease: Lease, record: LeaseRecord, seconds: float) -> Lease:
        def act() -> Lease:
            if self.keeper.record is None:
                raise KubernetesError(404, "NotFound", "it does not exist")
            if lease.version != str(self.keeper.version):
                raise KubernetesError(409, "Conflict", "another version")
            self.keeper.put(record)
            return self._sure()

        return await self._call("replace", seconds, act)

    async def watch(self, version: str, changed: Callable[[], None]) -> None:
        if not self.can_watch:
            raise KubernetesError(403, "Forbidden", "no watch")
        seen = version
        while True:
            if self.cut:
                await asyncio.Event().wait()
            if seen != str(self.keeper.version):
                seen = str(self.keeper.version)
                changed()
            await self.keeper.changed.wait()

    def _lease(self) -> Lease | None:
        return self._sure() if self.keeper.record is not None else None

    def _sure(self) -> Lease:
        assert self.keeper.record is not None
        return Lease(self.keeper.record, str(self.keeper.version), {})

    async def _call(self, verb: str, seconds: float, act: Callable[[], _T]) -> _T:
        self.calls.append(verb)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.sleep(self.before())
                if self.cut:
                    await asyncio.Event().wait()
                if self.answer:
                    raise KubernetesError(self.answer, "Refused", "refused")
                result = act()
                await asyncio.sleep(self.after())
                if self.deaf:
                    await asyncio.Event().wait()
                return result
        except TimeoutError:
            raise KubernetesError(0, "Timeout", f"cannot {verb}: no answer") from None
