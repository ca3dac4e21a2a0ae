"""When pods are scraped, in fake time."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapter.scrape.schedule import ScrapeSchedule
from adapter.telemetry.metrics import Monitoring

pytestmark = pytest.mark.looptime


class Rounds:
    """Rounds whose scrapes take `seconds`, or as long as a test says, and are remembered with their times."""

    def __init__(self, per_second: float) -> None:
        self.monitoring = Monitoring()
        self.schedule: ScrapeSchedule[str] = ScrapeSchedule(
            self._scrape, self.monitoring, per_second=per_second, random=lambda: 0.25
        )
        self.begun: list[tuple[str, float]] = []
        self.given_up: list[str] = []
        self.seconds = 0.0
        self.start = asyncio.get_running_loop().time()

    async def _scrape(self, key: str) -> None:
        self.begun.append((key, asyncio.get_running_loop().time() - self.start))
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.given_up.append(key)
            raise

    def times(self, key: str) -> list[float]:
        return [time for begun, time in self.begun if begun == key]

    def metric(self, name: str) -> float | None:
        return self.monitoring.registry.get_sample_value(f"fastpath_scrape_{name}")


@asynccontextmanager
async def running(per_second: float = 2000, *, started: bool = True) -> AsyncIterator[Rounds]:
    made = Rounds(per_second)
    task = asyncio.create_task(made.schedule.run())
    if started:
        await asyncio.sleep(0)
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_each_at_its_interval() -> None:
    async with running() as here:
        here.schedule.put("quick", 1)
        here.schedule.put("slow", 10)
        await asyncio.sleep(30)

        quick, slow = here.times("quick"), here.times("slow")
        assert len(quick) == 30
        assert [later - earlier for earlier, later in itertools.pairwise(quick)] == pytest.approx([1] * 29)
        assert [later - earlier for earlier, later in itertools.pairwise(slow)] == pytest.approx([10, 10])
        assert (here.metric("targets"), here.metric("interval_stretch_ratio")) == (2, 1)


async def test_the_first_within_one_interval_spread_evenly() -> None:
    async with running() as here:
        for number in range(100):
            here.schedule.put(f"pod-{number}", 1)
        await asyncio.sleep(0.9999)

        assert len(here.begun) == 100
        per_tenth = Counter(int(time * 10) for _, time in here.begun)
        assert set(per_tenth.values()) <= {8, 9, 10, 11, 12}
        times = sorted(time for _, time in here.begun)
        assert max(later - earlier for earlier, later in itertools.pairwise(times)) < 0.03


async def test_what_is_put_before_the_start_is_scraped_from_then_on() -> None:
    async with running(started=False) as here:
        here.schedule.put("pod", 1)
        await asyncio.sleep(5)

        assert len(here.times("pod")) == 5


async def test_beyond_the_limit_all_intervals_are_stretched_alike() -> None:
    async with running(per_second=10) as here:
        for number in range(10):
            here.schedule.put(f"quick-{number}", 0.5)
        for number in range(10):
            here.schedule.put(f"slow-{number}", 1)
        assert here.metric("interval_stretch_ratio") == here.schedule.stretch == 3
        await asyncio.sleep(18)

        assert len(here.begun) == pytest.approx(180, abs=15)
        assert len(here.times("quick-0")) == pytest.approx(12, abs=1)
        assert len(here.times("slow-0")) == pytest.approx(6, abs=1)

        for number in range(10):
            here.schedule.drop(f"quick-{number}")
        assert here.metric("interval_stretch_ratio") == here.schedule.stretch == 1
        here.begun.clear()
        await asyncio.sleep(10)
        assert len(here.times("slow-0")) == pytest.approx(8, abs=2)
        assert here.times("quick-0") == []


async def test_another_interval_takes_effect_and_keeps_the_phase() -> None:
    async with running() as here:
        here.schedule.put("pod", 1)
        await asyncio.sleep(2)
        here.schedule.put("pod", 1)
        here.schedule.put("pod", 5)
        await asyncio.sleep(20)

        times = here.times("pod")
        assert [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)] == [1, 1, 5, 5, 5]
        assert here.metric("targets") == 1


async def test_a_target_put_many_times_counts_once_and_by_its_last_interval() -> None:
    async with running(per_second=0.05, started=False) as here:
        for interval in [5, 10] * 10:
            here.schedule.put("pod", interval)
        assert here.schedule.stretch == pytest.approx(2)


async def test_a_scrape_that_lasts_is_not_joined_by_another_and_nothing_is_made_up() -> None:
    async with running() as here:
        here.seconds = 2.5
        here.schedule.put("pod", 1)
        await asyncio.sleep(10)

        times = here.times("pod")
        assert [round(later - earlier, 3) for earlier, later in itertools.pairwise(times)] == [3, 3, 3]


async def test_what_a_blocked_loop_missed_is_not_made_up() -> None:
    async with running() as here:
        here.schedule.put("pod", 1)
        await asyncio.sleep(1)
        planned = here.schedule._timers["pod"]
        first = planned.due
        planned.due -= 7.5  # as if the loop had been busy for that long
        here.begun.clear()
        await asyncio.sleep(3)

        assert len(here.begun) == 3
        assert (planned.due - first) % 1 == pytest.approx(0.5), "the phase is kept"


async def test_dropped_at_once_even_while_it_is_scraped() -> None:
    async with running() as here:
        here.seconds = 0.9
        here.schedule.put("pod", 1)
        await asyncio.sleep(1)
        assert len(here.begun) == 1
        here.schedule.drop("pod")
        here.schedule.drop("never known")
        await asyncio.sleep(5)

        assert len(here.begun) == 1
        assert here.given_up == ["pod"]
        assert here.metric("targets") == 0


async def test_dropped_before_the_start_it_is_never_scraped() -> None:
    async with running(started=False) as here:
        here.schedule.put("pod", 1)
        here.schedule.drop("pod")
        await asyncio.sleep(3)

        assert here.begun == []


async def test_nothing_is_scraped_after_the_end() -> None:
    async with running() as here:
        here.schedule.put("pod", 1)
        await asyncio.sleep(1)
    here.schedule.put("late", 1)
    count = len(here.begun)
    await asyncio.sleep(5)

    assert len(here.begun) == count


async def test_nothing_begins_while_the_last_scrapes_end() -> None:
    """A scrape may take a while to end; the timers of other targets are due meanwhile."""
    begun, ended = asyncio.Event(), []

    async def scrape(key: str) -> None:
        begun.set()
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.sleep(5)
            ended.append(key)

    schedule: ScrapeSchedule[str] = ScrapeSchedule(scrape, Monitoring(), per_second=2000, random=lambda: 0.25)
    task = asyncio.create_task(schedule.run())
    for key in ("slow", "due"):
        schedule.put(key, 4)
    await begun.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert len(ended) == 1
