"""Long computations on the event loop: they run in steps, and other work runs in between."""

import asyncio
from typing import TypeVar

from adapter.model.steps import Steps

_T = TypeVar("_T")


async def run_steps(steps: Steps[_T]) -> _T:
    """Run a computation to its end and return its result; other work runs between its steps."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: _T = end.value
            return result
        await asyncio.sleep(0)
