"""How long the event loop is held by one step, in processor time of its thread."""

import asyncio
import contextlib
from collections.abc import Iterator
from time import thread_time

import pytest


class Steps:
    """The longest step so far, and all of them together, in seconds."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.total = 0.0

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Measure a step."""
        begun = thread_time()
        yield
        seconds = thread_time() - begun
        self.longest = max(self.longest, seconds)
        self.total += seconds


@contextlib.contextmanager
def measured() -> Iterator[Steps]:
    """Measure each callback that an event loop runs, a step of a task among them."""
    steps, run = Steps(), asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        with steps.step():
            run(handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield steps
