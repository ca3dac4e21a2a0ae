"""A scaler whose clock may be wrong lowers no count and no floor, and says so."""

from typing import Any

from adapter.autoscaler.decide.memory import CLOCK_IN_DOUBT
from adapter.model.autoscaling import status
from adapter.model.autoscaling.status import ABLE_TO_SCALE
from tests.autoscaler.test_boost import BoostBench
from tests.support.controller import Bench

DOUBT = "the clock is wrong"
WHY = f"{DOUBT}: no count is lowered, and no floor is set"
NO_WINDOW: dict[str, Any] = {"scaleDown": {"stabilizationWindowSeconds": 0}}
SHORT: dict[str, Any] = {"scaleDown": {"stabilizationWindowSeconds": 20}}


def able(bench: Bench) -> tuple[str, str | None, str | None]:
    condition = status.find(bench.last().status.conditions, ABLE_TO_SCALE)
    assert condition is not None
    return condition.status, condition.reason, condition.message


async def test_no_count_falls_and_the_condition_and_one_event_say_why(bench: Bench) -> None:
    bench.doubt = DOUBT
    await bench.begin_with(2, replicas=20, behavior=NO_WINDOW)
    await bench.steps(400)
    assert bench.server.writes == []
    assert able(bench) == ("False", CLOCK_IN_DOUBT, WHY)
    assert [(event.type, event.reason, event.message) for event in bench.server.events] == [
        ("Warning", CLOCK_IN_DOUBT, WHY)
    ]
    assert f"2 is not written: {WHY}" in [step.text() for step in bench.last().trace]
    bench.doubt = ""
    await bench.step(1)
    assert bench.server.writes == [("web", 2)]


async def test_the_window_begins_when_the_doubt_ends(bench: Bench) -> None:
    """What was asked for meanwhile may come from values of another time."""
    bench.doubt = DOUBT
    await bench.begin_with(2, replicas=20, behavior=SHORT)
    await bench.steps(60)
    assert able(bench)[1] == CLOCK_IN_DOUBT, "also while the window holds the count"
    bench.doubt = ""
    await bench.steps(19)
    assert bench.server.writes == []
    await bench.steps(2)
    assert bench.server.writes == [("web", 2)]


async def test_nor_does_a_lower_maximum_lower_it(bench: Bench) -> None:
    bench.doubt = DOUBT
    await bench.begin_with(30, replicas=30, maxReplicas=20)
    assert bench.server.writes == []
    assert able(bench)[1] == CLOCK_IN_DOUBT


async def test_a_doubt_that_begins_while_a_write_waits_stops_it(bench: Bench) -> None:
    acquire = bench.server.acquire

    async def doubted(target: Any) -> None:
        bench.doubt = DOUBT
        await acquire(target)

    bench.server.acquire = doubted  # type: ignore[method-assign]
    await bench.begin_with(2, replicas=20, behavior=NO_WINDOW)
    assert bench.server.writes == []


async def test_a_floor_is_neither_lowered_nor_set() -> None:
    """It carries its end as a time, which others read by clocks of their own."""
    bench = BoostBench()
    await bench.begin_boosted(8)
    before = bench.floors.entries["uid-1"]
    bench.doubt = DOUBT
    bench.clock.skew -= 3600
    bench.want(20)
    await bench.steps(700)
    assert bench.floors.entries == {"uid-1": before}
    assert bench.server.writes == [("web", 8)]
    assert bench.reasons()[-1:] == [CLOCK_IN_DOUBT]
    bench.doubt = ""
    bench.clock.skew += 3600
    await bench.step(1)
    assert bench.server.writes[-1:] == [("web", 20)] or bench.floors.entries["uid-1"].replicas > 8
