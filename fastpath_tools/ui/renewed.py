"""A value that several readers share, and that is read again when it is due."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")

SECONDS = 1.0
"""How old a value becomes, at least."""


class Renewed(Generic[T]):
    """Reads a value when one is asked for and the last one is too old; those that wait share the read.

    Between two reads it rests for a second, and at least for `rest` times as long as reading took. An error
    is raised to one reader, and the next one reads again.
    """

    def __init__(self, read: Callable[[], Awaitable[T]], *, rest: float = 1.0) -> None:
        self._read = read
        self._rest = rest
        self._lock = asyncio.Lock()
        self._value: T | None = None
        self._due = -math.inf

    async def get(self) -> T:
        async with self._lock:
            if self._value is None or self.remaining <= 0:
                now = asyncio.get_running_loop().time
                start = now()
                self._value = await self._read()
                self._due = now() + max(SECONDS, self._rest * (now() - start))
            return self._value

    @property
    def remaining(self) -> float:
        """Return in how many seconds it is due."""
        return self._due - asyncio.get_running_loop().time()
