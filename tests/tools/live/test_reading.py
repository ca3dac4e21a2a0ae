"""A method that reads once in a while, whatever becomes of those that call it."""

import asyncio

import pytest

from fastpath_tools.live import reading


class Reader:
    def __init__(self) -> None:
        self.answers: asyncio.Queue[str | Exception] = asyncio.Queue()
        self.reads: list[str] = []
        self.started = asyncio.Event()

    @reading.once
    async def read(self, name: str) -> str:
        self.reads.append(name)
        self.started.set()
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_calls_share_a_read_by_their_arguments() -> None:
    reader = Reader()
    for answer in ("one", "two"):
        reader.answers.put_nowait(answer)
    answers = await asyncio.gather(*map(reader.read, ("a", "a", "b")))
    assert answers == ["one", "one", "two"]
    assert await reader.read("a") == "one"
    assert reader.reads == ["a", "b"]


async def test_an_error_is_that_of_every_call() -> None:
    reader = Reader()
    reader.answers.put_nowait(ValueError("no"))
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            await reader.read("a")
    assert reader.reads == ["a"]


async def test_a_cancelled_caller_does_not_cancel_the_read() -> None:
    reader = Reader()
    first = asyncio.create_task(reader.read("a"))
    await reader.started.wait()
    second = asyncio.create_task(reader.read("a"))
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    reader.answers.put_nowait("one")
    assert await second == await reader.read("a") == "one"


@pytest.mark.looptime
async def test_a_result_is_kept_for_some_seconds() -> None:
    class Counter:
        reads = 0

        @reading.kept(2.0)
        async def read(self, name: str) -> str:
            self.reads += 1
            return f"{name} {self.reads}"

    counter, other = Counter(), Counter()
    shown = []
    for _ in range(4):
        shown.append((await counter.read("a"), await other.read("a")))
        await asyncio.sleep(1)
    assert shown == [("a 1", "a 1")] * 2 + [("a 2", "a 2")] * 2


async def test_arguments_without_a_hash_are_told_apart() -> None:
    class Echo:
        @reading.shared
        async def read(self, names: dict[str, int]) -> dict[str, int]:
            return names

    echo = Echo()
    first = {"a": 1}
    assert await echo.read(first) is await echo.read({"a": 1}) is first
    assert await echo.read({"a": 2}) == {"a": 2}
