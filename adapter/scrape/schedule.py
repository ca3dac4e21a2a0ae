"""The schedule of scrapes: each target at its interval, with the targets spread evenly over it.

A target is never scraped twice at one time, and a missed scrape is not repeated. If all intervals together
exceed the allowed rate of scrapes, all of them are stretched by one factor, which is a self-metric.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from adapter.telemetry.metrics import Monitoring

KeyT = TypeVar("KeyT", bound=Hashable)

# The fraction whose multiples fill the unit interval most evenly.
_GOLDEN = 0.6180339887498949


@dataclass(slots=True, eq=False)
class _Timer:
    interval: float
    due: float
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class ScrapeSchedule(Generic[KeyT]):
    """Calls `scrape(key)` for every target at its interval while `run` runs."""

    def __init__(
        self,
        scrape: Callable[[KeyT], Awaitable[None]],
        monitoring: Monitoring,
        *,
        per_second: float,
        random: Callable[[], float],
    ) -> None:
        """`scrape` must not raise. `per_second` bounds the scrapes of all targets.

        `random` returns 0 to 1.
        """
        self._scrape = scrape
        self._monitoring = monitoring
        self._per_second = per_second
        self._phase = random()  # several replicas scrape the same pods at different times
        self._timers: dict[KeyT, _Timer] = {}
        self._rate = 0.0
        self._group: asyncio.TaskGroup | None = None
        self.stretch = 1.0
        """The factor of every interval; 1 while the allowed rate is not exceeded."""

    def put(self, key: KeyT, interval: float) -> None:
        """Scrape a target every `interval` seconds; a known target keeps its phase."""
        known = self._timers.get(key)
        if known is not None:
            self._rate -= 1 / known.interval
            known.interval = interval
        else:
            self._phase = (self._phase + _GOLDEN) % 1.0
            self._timers[key] = _Timer(interval, self._phase)  # the phase becomes a time in _plan_first
        self._rate += 1 / interval
        self._restretch()
        if known is None and self._group is not None:
            self._plan_first(key, self._timers[key])

    def drop(self, key: KeyT) -> None:
        """Stop scraping a target; a running scrape is cancelled."""
        gone = self._timers.pop(key, None)
        if gone is None:
            return
        self._rate -= 1 / gone.interval
        self._restretch()
        if gone.timer is not None:
            gone.timer.cancel()
        if gone.task is not None:
            gone.task.cancel()

    async def run(self) -> None:
        """Scrape until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for key, planned in self._timers.items():
                    self._plan_first(key, planned)
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            for planned in self._timers.values():
                if planned.timer is not None:
                    planned.timer.cancel()

    def _restretch(self) -> None:
        if not self._timers:
            self._rate = 0.0  # drop accumulated rounding errors
        self.stretch = max(1.0, self._rate / self._per_second)
        self._monitoring.scrape_stretch.set(self.stretch)
        self._monitoring.scrape_targets.set(len(self._timers))

    def _plan_first(self, key: KeyT, planned: _Timer) -> None:
        loop = asyncio.get_running_loop()
        planned.due = loop.time() + (planned.due % 1.0) * planned.interval * self.stretch
        planned.timer = loop.call_at(planned.due, self._begin, key, planned)

    def _begin(self, key: KeyT, planned: _Timer) -> None:
        """Start a scrape unless the last one is still running, and plan the next."""
        assert self._group is not None
        loop = asyncio.get_running_loop()
        interval = planned.interval * self.stretch
        missed = max(0.0, (loop.time() - planned.due) // interval)  # a timer may be early by a clock's tick
        planned.due += (missed + 1) * interval
        planned.timer = loop.call_at(planned.due, self._begin, key, planned)
        if planned.task is None or planned.task.done():
            planned.task = self._group.create_task(self._call(key), name="scrape")

    async def _call(self, key: KeyT) -> None:
        await self._scrape(key)
