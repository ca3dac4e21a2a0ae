"""Waiting for a condition that no event announces."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from tests.support.processor import limited


async def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Return as soon as `condition` holds; fail the test if it does not within `seconds`."""
    async with limited(seconds):
        while not condition():  # noqa: ASYNC110 - what a server in the same loop has come to sets no event of ours
            await asyncio.sleep(0.005)


class Pauses:
    """A sleep that notes how long, and takes a hundredth of it, at most `longest`."""

    def __init__(self, longest: float = 0.0) -> None:
        self._longest = longest
        self.taken: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)
        await asyncio.sleep(min(max(0.002, seconds / 100), self._longest))


@contextlib.asynccontextmanager
async def running(*works: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Run coroutines beside the block, and cancel them at the end; an exception of theirs fails the test."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for ended in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


class Turns:
    """How often other work got its turn."""

    def __init__(self) -> None:
        self.count = 0

    async def take(self) -> None:
        """Count until cancelled."""
        while True:
            await asyncio.sleep(0)
            self.count += 1


@contextlib.asynccontextmanager
async def other_work() -> AsyncIterator[Turns]:
    """Run other work on the event loop beside the block."""
    turns = Turns()
    taking = asyncio.create_task(turns.take(), name="other work")
    try:
        await asyncio.sleep(0)
        yield turns
    finally:
        taking.cancel()
