"""Limits follow the processor time that a test can get."""

import asyncio
import os
import subprocess
import sys
import time

import pytest

from tests.support import processor


def test_a_limit_is_longer_by_what_its_threads_have_waited_for_a_processor() -> None:
    now, waited = 100.0, {"old": 7.0}
    limit = processor.Limit(10.0, lambda: now, lambda: dict(waited))
    now = 109.0
    assert limit.left() == 1.0
    now = 111.0
    assert limit.left() == -1.0, "nothing has waited since"
    waited |= {"old": 9.0, "new": 0.5}
    assert limit.left() == 1.5
    waited["new"] = 1e6
    assert limit.left() == pytest.approx(10.0 * processor.MOST - 11.0), "a test that hangs ends"


@pytest.mark.integration
def test_a_program_that_waits_for_a_processor_is_seen() -> None:
    """Two programs that never rest have one processor between them."""
    one = {min(os.sched_getaffinity(0))}
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for program in programs:
            os.sched_setaffinity(program.pid, one)
        before = sum(processor.waits().values())
        while sum(processor.waits().values()) < before + 0.2:
            time.sleep(0.02)
    finally:
        for program in programs:
            program.kill()
            program.wait()


async def test_a_block_within_its_limit_goes_on_and_one_over_it_ends() -> None:
    async with processor.limited(30.0):
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        async with processor.limited(0.01):
            await asyncio.Event().wait()
