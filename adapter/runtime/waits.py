"""Waits that end in time."""

import asyncio
import contextlib


async def wait_for(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event at most so many seconds, None for no limit; return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
