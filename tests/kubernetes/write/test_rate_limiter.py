"""The budget of writes: how many a second, and who goes first."""

import asyncio
import contextlib
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterable

import pytest

from adapter.kubernetes.write.writer import WriteKind, WriteRateLimiter
from adapter.telemetry.metrics import Monitoring
from tests.support.clock import LoopClock

pytestmark = pytest.mark.looptime


def build(rate: float = 10.0) -> tuple[WriteRateLimiter, Monitoring]:
    monitoring = Monitoring()
    return WriteRateLimiter(rate, LoopClock(), monitoring), monitoring


def now() -> float:
    return asyncio.get_running_loop().time()


class AskedTurns:
    """Turns asked for together, and in which order and when they came."""

    def __init__(self, budget: WriteRateLimiter, *kinds: WriteKind) -> None:
        self.came: list[tuple[str, float]] = []
        self.tasks = [asyncio.create_task(self._take(budget, kind)) for kind in kinds]

    async def _take(self, budget: WriteRateLimiter, kind: WriteKind) -> None:
        await budget.acquire(kind)
        self.came.append((kind.label, round(now(), 3)))

    async def all(self) -> list[tuple[str, float]]:
        await asyncio.gather(*self.tasks)
        return self.came


async def spend(budget: WriteRateLimiter, count: int) -> None:
    for _ in range(count):
        await budget.acquire(WriteKind.EVENT)


async def test_a_seconds_worth_goes_at_once_then_it_is_the_rate() -> None:
    budget, _ = build()
    came = await AskedTurns(budget, *[WriteKind.SCALE] * 25).all()
    assert [at for _, at in came[:10]] == [0.0] * 10
    assert [at for _, at in came[10:]] == pytest.approx([0.1 * n for n in range(1, 16)], abs=0.01)


async def test_floor_before_scale_before_status_before_event() -> None:
    budget, _ = build()
    await spend(budget, 10)
    kinds = (
        WriteKind.EVENT,
        WriteKind.STATUS,
        WriteKind.EVENT,
        WriteKind.SCALE,
        WriteKind.STATUS,
        WriteKind.SCALE,
        WriteKind.FLOOR,
    )
    came = await AskedTurns(budget, *kinds).all()
    assert [kind for kind, _ in came] == ["floor", "scale", "scale", "status", "status", "event", "event"]


@pytest.mark.parametrize(
    ("moment", "turns"),
    [(0.05, 0), (1.0, 0), (1.0, 1)],
    ids=["while it waits", "just before it is granted", "as it is granted"],
)
async def test_the_slot_of_a_cancelled_write_goes_to_the_next(moment: float, turns: int) -> None:
    budget, _ = build(1.0)
    await spend(budget, 1)
    asked = AskedTurns(budget, WriteKind.SCALE, WriteKind.STATUS)
    for _ in range(turns):
        await asyncio.sleep(0)
    asyncio.get_running_loop().call_later(moment, asked.tasks[0].cancel)
    await asyncio.wait(asked.tasks)
    assert asked.came == [("status", 1.0)]


async def test_a_shorter_pause_does_not_end_a_longer_one() -> None:
    budget, _ = build()
    budget.pause(10.0)
    budget.pause(1.0)
    assert await AskedTurns(budget, WriteKind.SCALE).all() == [("scale", 10.0)]


async def test_a_pause_for_events_keeps_no_scale_waiting() -> None:
    budget, _ = build()
    budget.pause(3.0, WriteKind.STATUS)
    came = await AskedTurns(budget, WriteKind.EVENT, WriteKind.STATUS, WriteKind.SCALE).all()
    assert came == [("scale", 0.0), ("status", 3.0), ("event", 3.0)]


async def test_who_is_paused_does_not_hold_up_who_comes_before() -> None:
    budget, _ = build()
    await spend(budget, 10)
    budget.pause(3.0, WriteKind.EVENT)
    came = await AskedTurns(budget, WriteKind.EVENT, *[WriteKind.SCALE] * 3).all()
    assert [kind for kind, _ in came] == ["scale", "scale", "scale", "event"]
    assert [at for _, at in came] == pytest.approx([0.1, 0.2, 0.3, 3.0], abs=0.01)


async def test_a_rate_below_one() -> None:
    budget, _ = build(0.5)
    came = await AskedTurns(budget, *[WriteKind.SCALE] * 3).all()
    assert [at for _, at in came] == pytest.approx([0.0, 2.0, 4.0], abs=0.01)


async def test_the_queue_is_a_metric() -> None:
    budget, monitoring = build()
    asked = AskedTurns(budget, *[WriteKind.SCALE] * 14)
    await asyncio.sleep(0)

    def waiting() -> float | None:
        return monitoring.registry.get_sample_value("fastpath_write_queue_length", {"type": "scale"})

    assert waiting() == 4
    await asked.all()
    assert waiting() == 0


@pytest.mark.parametrize("namespace", ["victim", "greedy"], ids=["another namespace", "another object"])
async def test_many_writes_delay_one_of_another_namespace_or_object_by_one_turn(namespace: str) -> None:
    budget, _ = build()
    await spend(budget, 10)
    greedy = [asyncio.create_task(budget.acquire(WriteKind.SCALE, "greedy", "often")) for _ in range(1000)]
    await asyncio.sleep(1.05)
    start = now()
    await budget.acquire(WriteKind.SCALE, namespace, "web")

    assert now() - start <= 0.3
    for each in greedy:
        each.cancel()
    await asyncio.gather(*greedy, return_exceptions=True)
    assert not budget._waiting[WriteKind.SCALE]


# --- no kind keeps another from being written ---------------------------------------------------------------


@contextlib.asynccontextmanager
async def saturated(
    budget: WriteRateLimiter, kinds: Iterable[WriteKind]
) -> AsyncIterator[Counter[WriteKind]]:
    """Have writes of each kind wait without end, and count those that go."""
    went: Counter[WriteKind] = Counter()

    async def write(kind: WriteKind, name: str) -> None:
        while True:
            await budget.acquire(kind, "greedy", name)
            went[kind] += 1

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(write(kind, f"web-{n}")) for kind in kinds for n in range(20)]
        yield went
        for task in tasks:
            task.cancel()


@pytest.mark.parametrize(
    ("kind", "busy"), list(itertools.permutations(WriteKind, 2)), ids=lambda kind: kind.label
)
async def test_a_kind_gets_a_tenth_of_the_slots_while_another_has_no_end(
    kind: WriteKind, busy: WriteKind
) -> None:
    budget, _ = build()
    async with saturated(budget, [busy]):
        await asyncio.sleep(5)
        for _ in range(10):
            began = now()
            await budget.acquire(kind, "victim", "web")
            assert now() - began < 1.11  # 10 slots a second


async def test_a_slot_in_which_nothing_is_written_goes_to_the_next() -> None:
    budget, _ = build()
    await spend(budget, 10)

    async def decide_again(name: str) -> None:
        while True:
            await budget.acquire(WriteKind.SCALE, "greedy", name)
            await asyncio.sleep(0)
            budget.give_back()
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(decide_again(f"web-{number}")) for number in range(200)]
        await asyncio.sleep(1)
        began = now()
        await budget.acquire(WriteKind.EVENT)
        assert now() - began < 0.2
        for task in tasks:
            task.cancel()
