"""Schedules in the loop: boundaries, changes of leader, schedules that are edited, clocks that are set."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from adapter.autoscaler.decide.boost import Boost
from adapter.autoscaler.follower import TargetFollowers
from adapter.autoscaler.interfaces import BoundsUntil, ForecastBound, Forecasts, Key, NoForecasts
from adapter.autoscaler.loop import Controller
from adapter.autoscaler.snapshot import AutoscalerContext
from adapter.bounds.schedule.windows import Schedule
from adapter.bounds.timeline import BoundsTimeline
from adapter.errors import NotSyncedError
from adapter.model.autoscaling.fastpath_autoscaler import BOOST
from adapter.model.autoscaling.floor import Floor, floor_of
from adapter.model.ready_times import UNKNOWN, PodStart
from adapter.model.timestamps import SECOND
from tests.support.controller import LIVE, QUEUE, Bench, HandClock, fpa
from tests.support.scaling import NOW, pods
from tests.support.schedules import schedule

HPA, OWN = Key("default", "web", is_native=True), Key("default", "web")
BEHAVIOR: dict[str, Any] = {"behavior": {}}
ON = Boost(BOOST, digest="one")
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

    def bounds_of(self, key: Key, now: int, lead: int) -> BoundsUntil:
        if not self.computed:
            raise NotSyncedError("the bounds of its schedules are being computed")
        timeline, instant = BoundsTimeline(self.by_key.get(key, ()), excess=self.excess), now // SECOND
        return BoundsUntil(timeline.at(instant, lead), timeline.next_change(instant, lead) * SECOND)


class HandFloors:
    """What is published by uid."""

    def __init__(self) -> None:
        self.entries: dict[str, Floor] = {}

    async def publish(self, entry: Floor) -> None:
        self.entries[entry.uid] = entry

    def want(self, uid: str, entry: Floor | None) -> None:
        if entry is None:
            self.entries.pop(uid, None)
        else:
            self.entries[uid] = entry


class HandForecasts(NoForecasts):
    """What the bench says of forecasts."""

    def __init__(self, bench: "ScheduleBench") -> None:
        self._bench = bench

    def bound_of(self, key: Key) -> ForecastBound:
        return ForecastBound(self._bench.forecasts.get(key, 0), self._bench.controller.now() + 3600 * SECOND)


class ScheduleBench(Bench):
    """A controller with schedules and forecasts."""

    def __init__(self) -> None:
        self.schedules = HandSchedules()
        self.forecasts: dict[Key, int] = {}
        """The minimums of forecasts, set by hand."""
        self.forecasting: Forecasts = HandForecasts(self)
        self.floors = HandFloors()
        super().__init__()

    def start(self) -> Controller:
        """Return a controller as after a start."""
        context = AutoscalerContext(
            TargetFollowers(self.server, self.pods),  # type: ignore[arg-type]
            self.rivals,  # type: ignore[arg-type]
            self.sources,  # type: ignore[arg-type]
            LIVE,
            self.schedules,
            self.forecasting,
        )
        self.controller = Controller(
            context,
            self.server,
            self.clock,
            self.monitoring,
            self.journal,
            random=lambda: 0.0,
            floors=self.floors,  # type: ignore[arg-type]  # set by hand
        )
        return self.controller

    def own(self, replicas: int | None = None, **spec: Any) -> None:
        self.put(fpa(QUEUE, **BEHAVIOR, **spec), replicas)

    def boosted(self, replicas: int | None = None, published: Floor | None = None, **spec: Any) -> None:
        if replicas is not None:
            self.server.set("web", replicas)
            self.pods.pods["app=web"] = pods(20)
        autoscaler = fpa(QUEUE, mode=BOOST, **BEHAVIOR, **spec)
        native = type(autoscaler)(
            "autoscaling/v2", "HorizontalPodAutoscaler", autoscaler.metadata, autoscaler.spec
        )
        self.controller.put(native, ON, published)

    def floor(self) -> int:
        """Return what the HPA reads now."""
        return floor_of(self.floors.entries.get("uid-1"), round(self.clock.wall() * SECOND), 100)

    def counts(self) -> list[int]:
        return [replicas for _, replicas in self.server.writes]


@pytest.fixture
def bench() -> ScheduleBench:
    return ScheduleBench()


async def test_an_autoscaler_has_the_floor_in_its_window_and_waits_at_its_end(bench: ScheduleBench) -> None:
    bench.want(3)
    bench.schedules.by_key = {OWN: (window("13:01", "13:11"),)}
    bench.own(3)
    await bench.step()
    assert bench.counts() == []
    for _ in range(60):
        await bench.step(1)
    assert bench.counts() == [12]
    bench.pods.pods["app=web"] = pods(12)
    for _ in range(600):
        await bench.step(1)
    assert bench.counts() == [12]
    for _ in range(299):
        await bench.step(1)
    assert bench.counts() == [12]
    for _ in range(3):
        await bench.step(1)
    assert bench.counts() == [12, 3]


class LoopClock(HandClock):
    """Both clocks, as the time of the event loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return self.monotonic() + self.skew


@pytest.mark.looptime
async def test_a_boundary_is_exact(bench: ScheduleBench) -> None:
    """Between two decisions, which are a minute apart, and after the clock was set at its next look."""
    clock = bench.clock = LoopClock()
    clock.skew = NOON + 0.25 - clock.monotonic()
    bench.want(3)
    bench.schedules.by_key = {OWN: (window("13:00:31", "14:00"), window("15:00", "16:00", 15))}
    bench.start()
    bench.own(3, syncPeriod="60s")
    task = asyncio.create_task(bench.controller.run())
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


async def test_a_boosted_hpa_is_raised_and_reads_its_floor_until_the_window_ends(
    bench: ScheduleBench,
) -> None:
    bench.want(3)
    bench.schedules.by_key = {HPA: (window("13:01", "14:00"),)}
    bench.boosted(3)
    for _ in range(61):
        await bench.step(1)
    assert bench.counts() == [12]
    for _ in range(900):
        await bench.step(1)
    assert bench.floor() == 12  # the raise itself is no longer held
    assert bench.floors.entries["uid-1"].scheduled_until == (NOON + 3600) * SECOND
    for _ in range(3600 - 961):
        await bench.step(1)
    assert (bench.floor(), bench.floors.entries) == (0, {})
    assert bench.counts() == [12]  # the HPA goes back by itself


async def test_while_no_scaler_runs_the_floor_stays_until_its_window_ends(bench: ScheduleBench) -> None:
    bench.want(3)
    bench.schedules.by_key = {HPA: (window("12:00", "14:00"),)}
    bench.boosted(3)
    await bench.step()
    bench.controller.close()
    bench.clock.seconds += 3599
    assert bench.floor() == 12
    bench.clock.seconds += 1
    assert bench.floor() == 0


async def test_a_boundary_while_no_scaler_runs_is_made_up_for(bench: ScheduleBench) -> None:
    bench.want(3)
    bench.schedules.by_key = {OWN: (window("13:30", "14:00"),)}
    bench.own(3)
    await bench.step()
    bench.controller.close()
    bench.clock.seconds += 2400
    bench.start()
    bench.own()
    await bench.step()
    assert bench.counts() == [12]


async def test_a_change_of_leader_in_a_window(bench: ScheduleBench) -> None:
    """The next one knows the floor from the ConfigMap, and publishes nothing else before it knows more."""
    bench.want(3)
    bench.schedules.by_key = {HPA: (window("12:00", "14:00"),)}
    bench.boosted(3)
    for _ in range(700):
        await bench.step(1)
    published = bench.floors.entries["uid-1"]
    bench.controller.close()
    bench.start()
    bench.schedules.synced = False
    bench.boosted(published=published)
    await bench.step(1)
    assert bench.floor() == 12  # not decided before the schedules are known
    bench.schedules.synced = True
    for _ in range(10):
        await bench.step(1)
    assert (bench.floor(), bench.counts()) == (12, [12])


async def test_an_own_autoscaler_shrinks_by_no_change_of_leader(bench: ScheduleBench) -> None:
    bench.want(3)
    bench.schedules.by_key = {OWN: (window("12:00", "13:10"),)}
    bench.own(3)
    await bench.step()
    bench.controller.close()
    bench.clock.seconds += 700
    bench.start()
    bench.own()
    for _ in range(298):
        await bench.step(1)
    assert bench.counts() == [12]


@pytest.mark.parametrize("after", [(), (window("12:00", "14:00", 6),)])
async def test_a_schedule_that_is_deleted_or_edited_in_its_window(
    bench: ScheduleBench, after: tuple[Schedule, ...]
) -> None:
    bench.want(3)
    bench.schedules.by_key = {OWN: (window("12:00", "14:00"),)}
    bench.own(3)
    for _ in range(400):
        await bench.step(1)
    bench.pods.pods["app=web"] = pods(12)
    bench.schedules.by_key = {OWN: after}
    for _ in range(299):
        await bench.step(1)
    assert bench.counts() == [12]
    for _ in range(3):
        await bench.step(1)
    assert bench.counts() == [12, 6 if after else 3]


@pytest.mark.parametrize("hours", [-3, 3])
async def test_a_clock_that_is_set_moves_the_windows_and_shrinks_nothing_at_once(
    bench: ScheduleBench, hours: int
) -> None:
    bench.want(3)
    bench.schedules.by_key = {OWN: (window("12:00", "14:00"),)}
    bench.own(3)
    for _ in range(400):
        await bench.step(1)
    bench.pods.pods["app=web"] = pods(12)
    bench.clock.skew += hours * 3600
    for _ in range(298):
        await bench.step(1)
    assert bench.counts() == [12]
    for _ in range(4):
        await bench.step(1)
    assert bench.counts() == [12, 3]


@pytest.mark.parametrize(("seconds", "lead"), [([], 0), ([40] * 10, 42), ([40] * 9 + [55], 57), ([900], 600)])
async def test_a_floor_begins_early_by_the_time_that_pods_take(
    bench: ScheduleBench, seconds: list[int], lead: int
) -> None:
    bench.want(3)
    bench.schedules.by_key = {OWN: (window("13:20", "14:00", ready="ByStart"),)}
    bench.own(3)
    await bench.step()
    state = bench.controller.find(OWN)
    assert state is not None
    for each in seconds:
        state.ledger.note(PodStart(UNKNOWN, UNKNOWN, UNKNOWN, each * 1000))
    assert state.lead == lead
    for _ in range(1200 - lead - 1):
        await bench.step(1)
    assert bench.counts() == []
    await bench.step(1)
    assert bench.counts() == [12]
    if lead:
        (made,) = [each for each in bench.last().status.conditions if each.type == "ScheduleActive"]
        assert (made.status, made.reason) == ("True", "WindowAhead")


async def test_at_zero_an_hpa_reads_no_floor(bench: ScheduleBench) -> None:
    bench.want(0)
    bench.schedules.by_key = {HPA: (window("12:00", "14:00"),)}
    bench.boosted(0)
    await bench.step()
    assert (bench.floor(), bench.counts()) == (0, [])


async def test_a_floor_wakes_an_own_zero_without_any_value(bench: ScheduleBench) -> None:
    bench.want(0)
    bench.schedules.by_key = {OWN: (window("13:10", "14:00"),)}
    bench.own(1, minReplicas=0)
    for _ in range(400):
        await bench.step(1)
    assert bench.counts() == [0]
    bench.want(None)
    for _ in range(202):
        await bench.step(1)
    assert bench.counts() == [0, 12]


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
    for _ in range(3):
        await bench.step(300)
    assert bench.counts() == []
    bench.schedules.computed = True
    await bench.step(1)
    for _ in range(60):
        await bench.step(10)
    assert bench.counts() == [3]


async def test_too_many_schedules_hold_the_count(bench: ScheduleBench) -> None:
    """Their floors are not known: metrics raise the count, and nothing lowers it, until they fit."""
    bench.schedules.by_key = {OWN: (window("00:00", "24:00", 5),)}
    bench.schedules.excess = "12 FastPathSchedules select it"
    bench.want(3)
    bench.own(10)
    for _ in range(3):
        await bench.step(600)
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
    for _ in range(3):
        await bench.step(600)
    assert bench.counts() == [12]
    bench.schedules.excess = ""
    await bench.step(1)
    for _ in range(60):
        await bench.step(10)
    assert bench.counts() == [12, 5]


async def test_too_many_schedules_hold_the_count_of_a_boosted_hpa(bench: ScheduleBench) -> None:
    bench.schedules.excess = "12 FastPathSchedules select it"
    bench.want(3)
    bench.boosted(10)
    for _ in range(3):
        await bench.step(60)
    assert bench.floor() == 10
    bench.schedules.excess = ""
    await bench.step(60)
    assert bench.floor() == 0


async def test_too_many_schedules_wake_nothing(bench: ScheduleBench) -> None:
    bench.schedules.excess = "12 FastPathSchedules select it"
    bench.want(0)
    bench.own(0)
    for _ in range(3):
        await bench.step(600)
    assert bench.counts() == []
