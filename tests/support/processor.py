"""Limits that follow the processor time a test can get, not the clock of a busy machine.

A limit tells that a test hangs. On a busy machine a test that does not hang is over it as well: its threads,
and the programs that it has started, are ready to run but wait for a processor. Linux counts that wait for
each thread (the second field of `/proc/PID/task/TID/schedstat`). A limit here is longer by the waits of all
these threads, up to `MOST` times as long, so that a test that hangs ends on a busy machine too. Where the
kernel does not count, a limit is what it says.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

MOST = 6
"""How many times its seconds a limit lasts at most."""


def waits() -> dict[str, float]:
    """Return how long each thread of this process and of those below it has waited for a processor."""
    found: dict[str, float] = {}
    for process in _processes(str(os.getpid())):
        for thread in _threads(process):
            with contextlib.suppress(OSError):
                found[str(thread)] = int((thread / "schedstat").read_text().split()[1]) / 1e9
    return found


def _processes(root: str) -> Iterator[str]:
    yield root
    for thread in _threads(root):
        with contextlib.suppress(OSError):
            for child in (thread / "children").read_text().split():
                yield from _processes(child)


def _threads(process: str) -> list[Path]:
    with contextlib.suppress(OSError):
        return list(Path(f"/proc/{process}/task").iterdir())
    return []


class Limit:
    """So many seconds from now."""

    def __init__(
        self,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,  # noqa: TID251 - real time is what is bounded
        waits: Callable[[], dict[str, float]] = waits,
    ) -> None:
        self.seconds = seconds
        self._clock = clock
        self._began = clock()
        self._waits, self._waited = waits, waits()

    def left(self) -> float:
        """Return how many seconds are left, by what the threads have waited so far; 0 or less: it is over."""
        left = self._began + self.seconds - self._clock()
        if left > 0:
            return left
        before = self._waited
        withheld = sum(waited - before.get(thread, 0.0) for thread, waited in self._waits().items())
        return left + min(withheld, (MOST - 1) * self.seconds)


@contextlib.asynccontextmanager
async def limited(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError where the block takes longer than a `Limit`."""
    loop = asyncio.get_running_loop()
    limit = Limit(seconds, loop.time)
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as scope:

        def look() -> None:
            nonlocal timer
            left = limit.left()
            if left <= 0:
                scope.reschedule(loop.time())
            else:
                timer = loop.call_later(left, look)

        timer = loop.call_later(seconds, look)
        try:
            yield
        finally:
            timer.cancel()
