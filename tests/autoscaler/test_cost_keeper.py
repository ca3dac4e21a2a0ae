"""Costs that are late or move, and samples by which pods are ranked: what `scripts/idle` does not show."""

import asyncio

import pytest

from adapter.autoscaler.controller.cost_keeper import CostKeeper
from adapter.autoscaler.decide.observation import PodsReading
from tests.autoscaler.loop_script import LoopScript
from tests.support.waiting import running


def costs(script: LoopScript) -> list[str]:
    """Return the costs that were written, and which were taken back."""
    return [line.removeprefix("cost of ") for line in script.bench.server.log if line.startswith("cost")]


@pytest.mark.looptime
async def test_costs_that_are_late_are_not_waited_for(
    script: LoopScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CostKeeper, "at_once", 1)
    bench = script.bench
    bench.start()
    async with running(bench.outbox.run()):
        await script.idle()
        script.hold("costs")
        script.want("3")
        await bench.step(1)
        while not bench.server.writes:
            await bench.step()
            await asyncio.sleep(0.1)
        await script.free("costs")
        await script.run("3")
        assert costs(script) == ["a -5"]


async def test_a_load_that_swings_moves_marks_every_two_seconds_at_most(script: LoopScript) -> None:
    await script.idle_hpa()
    await script.run("50")
    for turn in range(12):
        busy, idle = ("ab", "cd") if turn % 2 else ("cd", "ab")
        # far enough apart that the mean of three samples follows each one
        moved = dict.fromkeys(busy, 10 ** (turn + 5)) | dict.fromkeys(idle, 1)
        script.bench.show("connections", PodsReading(moved))
        await script.run("2", "0.5")
    assert 4 < len(costs(script)) <= 2 + 6 * 4


@pytest.mark.parametrize("is_old", [False, True])
async def test_what_counts_is_the_age_of_the_metric_that_ranks(script: LoopScript, *, is_old: bool) -> None:
    """A metric that has no new sample for minutes does not keep pods from being ranked by another one."""
    await shrink_natively(script)
    queue, connections = script.bench.sources.opened
    script.want("1")
    for second in range(50):
        now = script.bench.clock.wall() - 0.1
        times = (now, now - second - 1) if is_old else (now - second - 1, now)
        queue.sampled, connections.sampled = (int(time * 1e9) for time in times)
        await script.step("1")
    assert costs(script)[2:] == ([] if is_old else ["c -3"])


async def test_samples_count_after_the_clock_was_set_back(script: LoopScript) -> None:
    await shrink_natively(script)
    await script.run("2")
    script.clock("-3600")
    script.want("1")
    for _ in range(60):
        for source in script.bench.sources.opened:
            source.sampled = int(script.bench.clock.wall() * 1e9)
        await script.step("1")
    assert costs(script)[2:] == ["c -3"]


async def shrink_natively(script: LoopScript) -> None:
    """Have an HPA remove the pods a and b."""
    await script.idle_hpa()
    await script.run("50")
    script.set("web", "3", "kube-controller-manager")
    script.pods("web", *"cde")
