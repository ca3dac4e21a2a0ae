"""When each pod is scraped: at its interval, the pods spread evenly over it, all together no more often than allowed.

Not here: what a scrape is. The law: a target is never scraped twice at a time; what is missed is not made up; where all intervals
together ask for more scrapes a second than allowed, all of them are stretched by the same factor, and the factor is a self-metric.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from adapter.telemetry.metrics import Monitoring

Key = TypeVar("Key", bound=Hashable)

# The fraction whose multiples fill the unit interval most evenly.
_GOLDEN = 0.6180339887498949


@dataclass(slots=True, eq=False)
class _Round:
    interval: float
    due: float
    timer: asyncio.TimerHandle | None = None
    task: asyncio.Task[None] | None = field(default=None, repr=False)


class ScrapeRounds(Generic[Key]):
    """Calls `scrape(key)` for every target, over and over, while its `run` does."""

    def __init__(
        self,
        scrape: Callable[[Key], Awaitable[None]],
        monitoring: Monitoring,
        *,
        per_second: float,
        random: Callable[[], float],
    ) -> None:
        """`scrape` must not raise; `per_second` bounds the scrapes of all targets together; `random` gives numbers from 0 to 1."""
        self._scrape = scrape
        self._monitoring = monitoring
        self._per_second = per_second
        self._phase = random()  # several replicas scrape the same pods at different times
        self._rounds: dict[Key, _Round] = {}
        self._rate = 0.0
        self._group: asyncio.TaskGroup | None = None
        self.stretch = 1.0
        """What every interval is multiplied by; 1 while no more scrapes are asked for than allowed."""

    def put(self, key: Key, interval: float) -> None:
        """Have a target scraped each `interval` seconds; one that is known keeps its phase."""
        known = self._rounds.get(key)
        if known is not None:
            self._rate -= 1 / known.interval
            known.interval = interval
        else:
            self._phase = (self._phase + _GOLDEN) % 1.0
            self._rounds[key] = _Round(interval, self._phase)  # the phase becomes a time when it is planned
        self._rate += 1 / interval
        self._restretch()
        if known is None and self._group is not None:
            self._plan_first(key, self._rounds[key])

    def drop(self, key: Key) -> None:
        """Scrape a target no more; a scrape under way is given up."""
        gone = self._rounds.pop(key, None)
        if gone is None:
            return
        self._rate -= 1 / gone.interval
        self._restretch()
        if gone.timer is not None:
            gone.timer.cancel()
        if gone.task is not None:
            gone.task.cancel()

    async def run(self) -> None:
        """Scrape for ever."""
        try:
            async with asyncio.TaskGroup() as self._group:
                for key, planned in self._rounds.items():
                    self._plan_first(key, planned)
                await asyncio.get_running_loop().create_future()
        finally:
            self._group = None
            for planned in self._rounds.values():
                if planned.timer is not None:
                    planned.timer.cancel()

    def _restretch(self) -> None:
        if not self._rounds:
            self._rate = 0.0  # rounding errors do not add up for ever
        self.stretch = max(1.0, self._rate / self._per_second)
        self._monitoring.scrape_stretch.set(self.stretch)
        self._monitoring.scrape_targets.set(len(self._rounds))

    def _plan_first(self, key: Key, planned: _Round) -> None:
        loop = asyncio.get_running_loop()
        planned.due = loop.time() + (planned.due % 1.0) * planned.interval * self.stretch
        planned.timer = loop.call_at(planned.due, self._begin, key, planned)

    def _begin(self, key: Key, planned: _Round) -> None:
        """Start a scrape, unless the last one has not ended, and plan the next."""
        assert self._group is not None
        loop = asyncio.get_running_loop()
        interval = planned.interval * self.stretch
        missed = max(0.0, (loop.time() - planned.due) // interval)  # a timer may be early by a clock's tick
        planned.due += (missed + 1) * interval
        planned.timer = loop.call_at(planned.due, self._begin, key, planned)
        if planned.task is None or planned.task.done():
            planned.task = self._group.create_task(self._call(key), name="scrape")

    async def _call(self, key: Key) -> None:
        await self._scrape(key)
