"""Fixtures that tests of the loop, and of what an owner stores, share."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.autoscaler.loop_script import LoopScript
from tests.boost.configmaps import Store
from tests.support.controller import Bench
from tests.support.waiting import running


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.close()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def script() -> AsyncIterator[LoopScript]:
    made = LoopScript()
    async with made.running:
        await made.running.enter_async_context(running(made.bench.outbox.run()))
        yield made
        made.bench.close()
