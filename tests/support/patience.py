"""An event loop for long scenarios: its time stands still while the machine is busy with other work.

Time passes as on the wall while the loop runs, but never more than `STEP` between two reads of it. So a
process that cannot run for a second loses a few milliseconds, and all that runs in the loop, servers and
clients, agrees.
"""

import asyncio
import selectors
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

STEP = 0.005
_T = TypeVar("_T")


class _Selector(selectors.DefaultSelector):
    """Waits a step at most, so that time which passes in waiting is not taken for time that was lost."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(STEP / 2 if timeout is None else min(timeout, STEP / 2))


class PatientLoop(asyncio.SelectorEventLoop):
    """See above."""

    def __init__(self) -> None:
        self._passed = 0.0
        self._looked = time.perf_counter()
        super().__init__(_Selector())

    def time(self) -> float:
        """Return how many seconds the loop has lived."""
        now = time.perf_counter()
        self._passed += min(now - self._looked, STEP)
        self._looked = now
        return self._passed


def run(scenario: Coroutine[Any, Any, _T]) -> _T:
    """Run a scenario to its end in a loop of its own."""
    with asyncio.Runner(loop_factory=PatientLoop) as runner:
        return runner.run(scenario)
