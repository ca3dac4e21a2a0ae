"""Floors of forecasts in the loop: what is written, what a boosted HPA reads, and changes of leader."""

import pytest

from tests.autoscaler.test_schedules import HPA, ScheduleBench, window


@pytest.fixture
def bench() -> ScheduleBench:
    return ScheduleBench()


async def test_a_boosted_hpa_is_raised_and_reads_the_floor_that_is_renewed(bench: ScheduleBench) -> None:
    bench.want(3)
    bench.forecasts[HPA] = 12
    bench.boost(replicas=3)
    ends = set()
    for _ in range(130):
        await bench.step(10)
        ends.add(bench.floors.entries["uid-1"].forecast_until)
        assert bench.floor() == 12
    assert bench.counts() == [12]
    assert len(ends) in {4, 5}  # 1,300 s, renewed every 300
    bench.forecasts[HPA] = 8
    await bench.step(15)
    assert bench.floor() == 8
    bench.forecasts.clear()
    await bench.step(15)
    assert (bench.floor(), bench.floors.entries) == (0, {})
    assert bench.counts() == [12]  # the HPA goes back by itself


async def test_a_floor_that_min_replicas_covers_is_not_published(bench: ScheduleBench) -> None:
    bench.want(3)
    bench.schedules.by_key = {HPA: (window("12:00", "14:00", 2),)}
    bench.forecasts[HPA] = 1
    bench.boost(replicas=3)
    await bench.step()
    await bench.step(15)
    entry = bench.floors.entries["uid-1"]
    assert (entry.scheduled, entry.forecast) == (2, 0)
    bench.forecasts[HPA] = 2
    await bench.step(15)
    entry = bench.floors.entries["uid-1"]
    assert (entry.scheduled, entry.forecast) == (2, 2)
