"""A value that several readers share."""

import asyncio

import pytest

from adapter.errors import RunError
from fastpath_tools.ui.renewed import Renewed


class Slow:
    """Takes `seconds` to read; fails as often as `failures` says."""

    def __init__(self, seconds: float = 0.0, failures: int = 0) -> None:
        self.seconds = seconds
        self.failures = failures
        self.reads = 0

    async def read(self) -> int:
        self.reads += 1
        await asyncio.sleep(self.seconds)
        if self.failures:
            self.failures -= 1
            raise RunError("no")
        return self.reads


@pytest.mark.looptime
async def test_readers_share_a_read_and_its_value_for_a_second() -> None:
    value = Renewed(Slow(0.3).read)
    assert await asyncio.gather(*(value.get() for _ in range(3))) == [1, 1, 1]
    await asyncio.sleep(0.9)
    assert await value.get() == 1
    await asyncio.sleep(0.2)
    assert await value.get() == 2


@pytest.mark.looptime
@pytest.mark.parametrize(("rest", "due"), [(1.0, 3.0), (4.0, 12.0)])
async def test_it_rests_longer_where_reading_takes_longer(rest: float, due: float) -> None:
    value = Renewed(Slow(3.0).read, rest=rest)
    await value.get()
    assert value.remaining == pytest.approx(due)


@pytest.mark.looptime
async def test_an_error_is_raised_and_the_next_one_reads_again() -> None:
    value = Renewed(Slow(failures=1).read)
    with pytest.raises(RunError):
        await value.get()
    assert await value.get() == 2


@pytest.mark.looptime
async def test_a_reader_that_leaves_does_not_keep_others_waiting() -> None:
    slow = Slow(3.0)
    value = Renewed(slow.read)
    first = asyncio.create_task(value.get())
    await asyncio.sleep(1)
    second = asyncio.create_task(value.get())
    await asyncio.sleep(1)
    first.cancel()
    assert await second == 2
