"""Floors of forecasts in the loop: what is written, what a boosted HPA reads, and changes of leader."""

import pytest

from tests.autoscaler.test_schedules import HPA, OWN, ScheduleBench, window
from tests.support.controller import shown_document
from tests.support.scaling import pods


@pytest.fixture
def bench() -> ScheduleBench:
    return ScheduleBench()


async def test_an_autoscaler_has_the_floor_while_there_is_one(bench: ScheduleBench) -> None:
    bench.want(3)
    bench.own(3)
    await bench.step()
    bench.forecasts[OWN] = 12
    await bench.step(15)
    assert bench.counts() == [12]
    shown = shown_document(bench.controller)
    assert "a forecast of 12 allows 12 to 20" in [step for each in shown["journal"] for step in each["trace"]]
    assert [
        each["message"] for each in shown["status"]["conditions"] if each["type"] == "ForecastActive"
    ] == ["minReplicas 12 by the forecast"]
    bench.pods.pods["app=web"] = pods(12)
    bench.forecasts.clear()
    await bench.steps(30, 10)
    assert bench.counts() == [12]
    await bench.steps(3, 10)
    assert bench.counts() == [12, 3]


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


async def test_the_next_leader_withdraws_a_floor_only_when_it_decides(bench: ScheduleBench) -> None:
    bench.want(3)
    bench.forecasts[HPA] = 12
    bench.boost(replicas=3)
    await bench.steps(70, 10)
    published = bench.floors.entries["uid-1"]
    assert not published.replicas
    bench.controller.close()
    bench.start()
    bench.forecasts.clear()
    bench.schedules.synced = False
    bench.boost(published=published)
    await bench.step(15)
    assert bench.floor() == 12
    bench.schedules.synced = True
    await bench.steps(3, 15)
    assert bench.floor() == 0


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
