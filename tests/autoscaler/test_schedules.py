"""Schedules and forecasts in the loop: boundaries, clocks that are set, and what a boosted HPA reads."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from adapter.autoscaler.interfaces import ForecastBound, Key
from adapter.bounds.schedule.documents import ScheduleDocument
from adapter.bounds.schedule.windows import Schedule
from adapter.bounds.timeline import Bounds, BoundsTimeline, Lead
from adapter.errors import NotSyncedError
from adapter.model.autoscaling.floor import floor_of
from adapter.model.ready_times import UNKNOWN, PodStart
from adapter.model.timestamps import SECOND
from tests.autoscaler.test_boost import ON, BoostBench
from tests.support.controller import QUEUE, HandClock, NoForecasts, fpa
from tests.support.scaling import NOW, pods
from tests.support.schedules import schedule

HPA, OWN = Key("default", "web", is_native=True), Key("default", "web")
BEHAVIOR: dict[str, Any] = {"behavior": {}}
NOON = NOW // SECOND  # 2026-11-20T12:00:00Z, 13:00 in Berlin


def window(begin: str, end: str, least: int = 12, **spec: Any) -> Schedule:
    return schedule({"name": "lunch", "from": begin, "to": end, "minReplicas": least}, **spec).schedule


class HandSchedules:
    """Schedules by autoscaler, set by hand."""

    def __init__(self) -> None:
        self.synced = True
        self.computed = True
        self.by_key: Mapping[Key, tuple[Schedule, ...]] = {}
        self.excess = ""

    def applied(self, key: Key) -> tuple[ScheduleDocument, ...]:
        return ()

    def bounds_of(self, key: Key, now: int, lead: Lead) -> tuple[Bounds, int | None]:
        if not (self.computed and self.synced):
            raise NotSyncedError("the bounds of its schedules are being computed")
        timeline, instant = BoundsTimeline(self.by_key.get(key, ()), excess=self.excess), now // SECOND
        return timeline.at(instant, lead), timeline.next_change(instant, lead) * SECOND

    def bounds_ahead(self, key: Key, now: int, until: int, lead: Lead) -> Sequence[tuple[int, Bounds]]:
        timeline = BoundsTimeline(self.by_key.get(key, ()))
        if not self.computed:
            return ()
        timeline.at(now // SECOND, lead)
        changes = timeline.changes(now // SECOND, until // SECOND, lead)
        return [(at * SECOND, bounds) for at, bounds in changes]


class HandForecasts(NoForecasts):
    """What the bench says of forecasts."""

    def __init__(self, bench: "ScheduleBench") -> None:
        self._bench = bench

    def bound_of(self, key: Key) -> ForecastBound:
        return ForecastBound(
            self._bench.forecasts.get(key, 0), self._bench.controller.loop.clock.time_of_day() + 3600 * SECOND
        )


class ScheduleBench(BoostBench):
    """A controller with schedules and forecasts."""

    def __init__(self) -> None:
        self.schedules: HandSchedules = HandSchedules()  # type: ignore[assignment]  # a fake
        self.forecasts: dict[Key, int] = {}
        """The minimums of forecasts, set by hand."""
        self.forecasting = HandForecasts(self)
        super().__init__()

    def own(self, replicas: int | None = None, **spec: Any) -> None:
        self.put(fpa(QUEUE, **BEHAVIOR, **spec), replicas)

    def scheduled(self, key: Key, *windows: Schedule, **spec: Any) -> None:
        """Put an autoscaler of 3 replicas, which its metric wants too, with windows."""
        self.want(3)
        self.schedules.by_key = {key: windows}
        if key.is_native:
            self.boost(ON, 3, **spec)
        else:
            self.own(3, **spec)

    def start_in(self, *seconds: int) -> None:
        """Have pods be Ready after so many seconds."""
        for each in seconds:
            self.state.target.ledger.note(PodStart(UNKNOWN, UNKNOWN, UNKNOWN, each * 1000))

    def early(self) -> int:
        return len(self.state.bounds.now.early)

    def floor(self) -> int:
        """Return what the HPA reads now."""
        return floor_of(self.floors.entries.get("uid-1"), round(self.clock.wall() * SECOND), 100)

    def counts(self) -> list[int]:
        return [replicas for _, replicas in self.server.writes]


@pytest.fixture
def bench() -> ScheduleBench:
    return ScheduleBench()


async def test_an_autoscaler_has_the_floor_in_its_window_and_waits_at_its_end(bench: ScheduleBench) -> None:
    bench.scheduled(OWN, window("13:01", "13:11"))
    await bench.step()
    assert bench.counts() == []
    await bench.steps(60)
    assert bench.counts() == [12]
    bench.pods.pods["app=web"] = pods(12)
    await bench.steps(600)
    assert bench.counts() == [12]
    await bench.steps(299)
    assert bench.counts() == [12]
    await bench.steps(3)
    assert bench.counts() == [12, 3]


class HandLoopClock(HandClock):
    """Both clocks, as the time of the event loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.monotonic() + self.skew


@pytest.mark.looptime
async def test_a_boundary_is_exact(bench: ScheduleBench) -> None:
    """Between two decisions, which are a minute apart, and after the clock was set at its next look."""
    clock = bench.clock = HandLoopClock()
    clock.skew = NOON + 0.25 - clock.monotonic()
    bench.want(3)
    bench.schedules.by_key = {OWN: (window("13:00:31", "14:00"), window("15:00", "16:00", 15))}
    bench.start()
    bench.own(3, syncPeriod="60s")
    task = asyncio.create_task(bench.controller.loop.run())
    await asyncio.sleep(30.7499)
    assert bench.counts() == []
    await asyncio.sleep(0.0002)
    assert bench.counts() == [12]
    bench.pods.pods["app=web"] = pods(12)
    bench.server.tell("web")
    await asyncio.sleep(10)
    clock.skew += 2 * 3600
    await asyncio.sleep(1)
    assert bench.counts() == [12, 15]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(("seconds", "lead"), [([], 0), ([40] * 9 + [55], 84)])
async def test_a_floor_begins_early_by_the_time_that_its_last_pod_takes(
    bench: ScheduleBench, seconds: list[int], lead: int
) -> None:
    """Of the 11 pods of this raise, that is longer than the slowest of ten."""
    bench.scheduled(OWN, window("13:20", "14:00", ready="ByStart"))
    await bench.step()
    bench.start_in(*seconds)
    assert bench.state.lead.of_raise(0, 12) == lead
    await bench.steps(1200 - lead - 1)
    assert bench.counts() == []
    await bench.step(1)
    assert bench.counts() == [12]
    if lead:
        (made,) = [each for each in bench.last().status.conditions if each.type == "ScheduleActive"]
        assert (made.status, made.reason) == ("True", "WindowAhead")


async def test_pods_that_are_ready_sooner_end_no_floor_that_is_early(bench: ScheduleBench) -> None:
    bench.scheduled(OWN, window("13:20", "14:00", ready="ByStart"))
    bench.start_in(*[40] * 10)
    await bench.steps(1200 - 42)
    assert bench.early() == 1
    bench.start_in(*[5] * 50)
    for _ in range(41):
        await bench.step(1)
        assert bench.state.bounds.now.min == 12
    await bench.step(1)
    assert bench.state.bounds.now.windows == ("shop/office lunch",)


async def test_nothing_is_decided_before_the_schedules_are_known(bench: ScheduleBench) -> None:
    bench.want(8)
    bench.schedules.synced = False
    bench.own(3)
    await bench.step(1)
    assert bench.counts() == []
    bench.schedules.synced = True
    await bench.step(1)
    assert bench.counts() == [7]


async def test_nothing_is_decided_while_bounds_are_computed(bench: ScheduleBench) -> None:
    bench.want(3)
    bench.schedules.computed = False
    bench.own(10)
    await bench.steps(3, 300)
    assert bench.counts() == []
    bench.schedules.computed = True
    await bench.step(1)
    await bench.steps(60, 10)
    assert bench.counts() == [3]


async def test_too_many_schedules_hold_the_count(bench: ScheduleBench) -> None:
    """Their floors are not known: metrics raise the count, and nothing lowers it, until they fit."""
    bench.schedules.by_key = {OWN: (window("00:00", "24:00", 5),)}
    bench.schedules.excess = "12 FastPathSchedules select it"
    bench.want(3)
    bench.own(10)
    await bench.steps(3, 600)
    assert bench.counts() == []
    condition = next(each for each in bench.last().status.conditions if each.type == "ScheduleActive")
    assert (condition.status, condition.reason) == ("True", "TooManyWindows")
    assert condition.message == (
        "minReplicas 10, maxReplicas 20: shop/office lunch; 12 FastPathSchedules select it"
    )
    bench.want(12)
    await bench.step(1)
    assert bench.counts() == [12]
    bench.pods.pods["app=web"] = pods(12)
    bench.want(3)
    await bench.steps(3, 600)
    assert bench.counts() == [12]
    bench.schedules.excess = ""
    await bench.step(1)
    await bench.steps(60, 10)
    assert bench.counts() == [12, 5]


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
