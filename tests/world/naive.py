"""A naive booster: a second writer that raises a Scale without a word to the HorizontalPodAutoscaler.

It is the control of every test of boosting: a test that shows no reversal beside it shows nothing.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection

MANAGER = "naive"


async def boost(
    names: Collection[str],
    need: Callable[[str], float],
    most: int,
    read: Callable[[str], int],
    write: Callable[[str, int], Awaitable[None]],
) -> None:
    """Look at the need of targets all the time, and raise them at once to at most `most`, until cancelled."""
    while True:
        for name in names:
            count = min(most, math.ceil(need(name)))
            if count > read(name) * 1.1:
                await write(name, count)
        await asyncio.sleep(0.2)
