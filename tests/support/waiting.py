"""Waiting for a condition that no event announces."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], seconds: float = 1.5) -> None:
    """Return as soon as `condition` holds; fail the test if it does not within `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - what a server in the same loop has come to sets no event of ours
            await asyncio.sleep(0.005)
