"""The queue of requests without a certificate: few a turn, addresses in rotation, no cancelled ones."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.server.http.fair_queue import FairQueue


async def _enter(queue: FairQueue, address: str, number: int, admitted: list[tuple[str, int]]) -> None:
    turn = asyncio.get_running_loop().create_future()

    def start() -> bool:
        if not turn.cancelled():
            turn.set_result(None)
        return not turn.cancelled()

    if not queue.enter_now(address, start):
        await turn
    admitted.append((address, number))


@given(
    arrivals=st.lists(st.sampled_from("abc"), max_size=30),
    cancelled=st.sets(st.integers(0, 29)),
    per_turn=st.integers(1, 4),
)
def test_rotation(arrivals: list[str], cancelled: set[int], per_turn: int) -> None:
    """Connections that are not cancelled are admitted, at most `per_turn` a turn: addresses in rotation."""

    async def play() -> None:
        queue, admitted = FairQueue(asyncio.get_running_loop(), per_turn), list[tuple[str, int]]()
        tasks = [
            asyncio.create_task(_enter(queue, address, number, admitted))
            for number, address in enumerate(arrivals)
        ]
        await asyncio.sleep(0)  # all have arrived, and the first are in
        first = len(admitted)
        assert first <= per_turn
        for number in sorted(cancelled & set(range(len(arrivals)))):
            tasks[number].cancel()
        left = [pair for pair in zip(arrivals, range(len(arrivals)), strict=True) if pair[1] not in cancelled]
        expected = [pair for pair in left if pair not in admitted]
        while not all(task.done() for task in tasks):
            before = len(admitted)
            await asyncio.sleep(0)
            assert len(admitted) - before <= per_turn
        assert {pair for pair in admitted if pair[1] not in cancelled} == set(left)
        later = [pair for pair in admitted[first:] if pair in expected]
        for address in "abc":
            assert [pair for pair in later if pair[0] == address] == [
                pair for pair in expected if pair[0] == address
            ]
        assert queue.waiting == 0

    asyncio.run(play())


async def test_one_that_comes_alone_does_not_wait_for_many_of_another_address() -> None:
    queue, admitted = FairQueue(asyncio.get_running_loop(), 2), list[tuple[str, int]]()
    tasks = [asyncio.create_task(_enter(queue, "many", number, admitted)) for number in range(100)]
    await asyncio.sleep(0)
    assert queue.waiting == 98
    tasks.append(asyncio.create_task(_enter(queue, "alone", 0, admitted)))
    await asyncio.gather(*tasks)
    assert admitted.index(("alone", 0)) < 12


@pytest.mark.parametrize("turns", [1, 3])
async def test_an_empty_turn_makes_room(turns: int) -> None:
    queue = FairQueue(asyncio.get_running_loop(), 1)
    for _ in range(5):
        assert queue.enter_now("a", lambda: True)
        for _ in range(turns):
            await asyncio.sleep(0)
    assert queue.waiting == 0
    assert not queue._scheduled or turns < 2, "no callback is left in the loop"


async def test_who_has_left_takes_no_place_and_who_fails_does_not_stop_the_queue() -> None:
    queue, started = FairQueue(asyncio.get_running_loop(), 1), list[str]()
    failures = list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))

    def fail() -> bool:
        raise RuntimeError("a defect")

    def start(name: str) -> bool:
        started.append(name)
        return True

    assert queue.enter_now("a", lambda: True)
    for each in (lambda: False, fail, lambda: start("one"), lambda: start("two")):
        assert not queue.enter_now("a", each)
    for expected in ([], ["one"], ["one", "two"]):
        await asyncio.sleep(0)
        assert started == expected
    assert [str(failure) for failure in failures] == ["a defect"]
