"""FairTurns of the event loop, counted, on a clock that passes a millisecond with each step."""

import asyncio
from collections.abc import Generator

import pytest

from adapter.scrape.schedule import TURN_SECONDS, FairTurns
from tests.support.clock import FakeClock

STEP = 0.001


class Work:
    """Steps of several namespaces that take a millisecond each, and the order in which they ran."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.turns = FairTurns(self.clock)
        self.ran: list[str] = []

    def steps(self, name: str, count: int, seconds: float = STEP) -> Generator[None, None, None]:
        for _ in range(count):
            self.clock.advance(seconds)
            self.ran.append(name)
            yield

    async def run(self, namespace: str, count: int, seconds: float = STEP) -> float:
        job = self.turns.start(namespace, self.steps(namespace, count, seconds))
        await self.turns.finish(job)
        return job.seconds


async def test_long_work_is_done_in_short_turns_between_which_everything_else_runs() -> None:
    work = Work()
    running = asyncio.create_task(work.run("hostile", 500))
    turns: list[int] = []
    while not running.done():
        before = len(work.ran)
        await asyncio.sleep(0)
        turns.append(len(work.ran) - before)

    assert sum(turns) == 500
    assert max(turns) <= TURN_SECONDS / STEP + 1, "the last step of a turn may begin just before its end"
    assert await running == pytest.approx(0.5)


async def test_a_small_namespace_does_not_wait_for_the_work_of_a_large_one() -> None:
    work = Work()
    hostile = [asyncio.create_task(work.run("hostile", 200)) for _ in range(20)]
    await asyncio.sleep(0)
    for _ in range(50):
        await asyncio.sleep(0)
    before = len(work.ran)
    await work.run("small", 3)

    assert work.ran[before:].count("hostile") <= 6
    assert not any(task.done() for task in hostile[1:])
    for task in hostile:
        task.cancel()
    await asyncio.gather(*hostile, return_exceptions=True)


async def test_a_namespace_that_was_idle_has_no_credit() -> None:
    work = Work()
    await work.run("one", 100)
    await asyncio.gather(work.run("one", 20), work.run("two", 20))

    assert 8 <= work.ran[100:120].count("two") <= 12
    both = work.ran[100:]
    await asyncio.gather(work.run("two", 30), work.run("one", 30))
    assert {both.count("one"), both.count("two")} == {20}


async def test_accounts_of_idle_namespaces_are_forgotten() -> None:
    work = Work()
    for number in range(1000):
        await work.run(f"n{number}", 1)

    assert len(work.turns._used) < 100


async def test_an_error_is_that_of_its_own_job() -> None:
    work = Work()

    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("no such thing")

    job = work.turns.start("a", failing())
    other = asyncio.create_task(work.run("a", 5))
    with pytest.raises(ValueError, match="no such thing"):
        await work.turns.finish(job)
    await other

    assert work.ran == ["a"] * 5


async def test_an_aborted_job_is_released_at_once() -> None:
    work = Work()
    steps = work.steps("a", 100)
    job = work.turns.start("a", steps)
    waiting = asyncio.create_task(work.turns.finish(job))
    await asyncio.sleep(0)
    work.turns.abort(job, ValueError("too much"))

    assert list(steps) == [], "closed"
    assert len(work.ran) < 100
    assert work.turns._queues == {}
    with pytest.raises(ValueError, match="too much"):
        await waiting


async def test_a_job_may_abort_itself_and_another_from_a_step() -> None:
    work = Work()
    other = work.turns.start("b", work.steps("b", 100))

    def aborting() -> Generator[None, None, None]:
        work.turns.abort(other, ValueError("the other"))
        work.turns.abort(job, ValueError("itself"))
        yield
        raise AssertionError("never reached")

    job = work.turns.start("a", aborting())
    with pytest.raises(ValueError, match="itself"):
        await work.turns.finish(job)
    with pytest.raises(ValueError, match="the other"):
        await work.turns.finish(other)
    assert work.turns._queues == {}


async def test_a_cancelled_job_is_done_no_further() -> None:
    work = Work()
    running = asyncio.create_task(work.run("a", 100))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    done = len(work.ran)
    await asyncio.sleep(0)

    assert len(work.ran) == done < 100
    assert work.turns._queues == {}
