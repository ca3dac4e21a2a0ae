"""A live scaler publishes the minimums that a replay of the same demand computes."""

import zlib
from typing import Any

import pytest

from adapter.bounds.forecast.job import STEP
from adapter.bounds.forecast.plan import HOUR
from adapter.model.autoscaling.forecast import ADVISE, DAY, FLOOR, ForecastSettings
from adapter.model.timestamps import SECOND
from fastpath_forecast import planner
from fastpath_forecast.judge import Case
from fastpath_forecast.simulate.load import of_points
from fastpath_forecast.simulate.policies import read_policy
from fastpath_forecast.simulate.simulation import Scenario
from tests.forecast.live_forecasts import METRIC, ForecastBench, days_of_jumps, queue_metric
from tests.support.controller import fpa

HISTORY = 9 * DAY

START = 19_700 * DAY + (zlib.crc32(b"default/web") % 24) * HOUR
"""At this hour of the day the verdict on the autoscaler default/web is made."""

SPEC: dict[str, Any] = {"minReplicas": 2, "maxReplicas": 60, "forecast": {"mode": FLOOR, "history": "9d"}}


def held(values: list[float]) -> list[float]:
    """Return values that stay for an hour: decisions in between are skipped."""
    return [values[place // 60 * 60] for place in range(len(values))]


def replayed(values: list[float]) -> list[planner.DayOfMinimums]:
    """Return the days of minimums that a replay of the values computes."""
    points = [(float(place * STEP), value) for place, value in enumerate(values)]
    load = of_points(points, len(values) * STEP)
    autoscaler = fpa([queue_metric()], **SPEC)
    scenario = Scenario(autoscaler, {METRIC: load}, (60,), phases=1, epoch=START * SECOND)
    case = Case(scenario, read_policy("fast"), ForecastSettings(FLOOR, HISTORY))
    return list(planner.roll(case, HISTORY))


async def live(values: list[float], minutes: int) -> tuple[ForecastBench, list[int]]:
    """Run the scaler after nine days of history; return the minimum that acts in each minute."""
    bench = ForecastBench(START, values, START + HISTORY)
    bench.begin(fpa([queue_metric()], **SPEC), 10)
    await bench.book.look()
    return bench, [await bench.minute() for _ in range(minutes)]


def compared(days: list[planner.DayOfMinimums], found: list[int]) -> int:
    """Compare minimums with those of a replay; return how many there are.

    The replay has none in the first hour. In the minutes of a lead after that its minimums do not yet cover
    the steps on the way: it knows no bound of before.
    """
    expected = [minimum for day in days for minimum in day.minimums]
    first = (days[0].start - START - HISTORY) // STEP
    lead = 2
    count = min(len(expected), len(found) - first + 1)
    assert count > 0
    assert found[first - 1 + lead :][: count - lead] == expected[lead:count]
    return sum(map(bool, expected[:count]))


@pytest.mark.timeout(120)  # two verdicts
async def test_a_live_scaler_publishes_the_floors_of_the_replay() -> None:
    values = held(days_of_jumps(9) + days_of_jumps(1, seed=2))
    bench, found = await live(values, 8 * 60)
    days = replayed(values)
    assert days[0].verdict.chosen == "season"
    assert bench.worker.answers[0].verdict == days[0].verdict
    assert compared(days, found) > 200
    conditions = [each for each in bench.state.memory.status.conditions or () if each.type == "ForecastReady"]
    assert [(each.status, each.reason) for each in conditions] == [("True", "Acting")]
    assert told(bench) == ["ForecastActs"]

    # In mode Advise the same is computed and shown, and nothing is published.
    before = bench.state.bounds.now.forecast
    assert before > 0
    bench.controller.put(fpa([queue_metric()], **{**SPEC, "forecast": {"mode": ADVISE, "history": "9d"}}))
    jobs = len(bench.worker.jobs)
    assert {await bench.minute() for _ in range(61)} == {0}
    assert [each.judges for each in bench.worker.jobs[jobs:]] == [False]
    shown = bench.book.document_of(bench.key)
    assert shown is not None
    assert (shown["floor"], shown["card"].mode, shown["condition"]["reason"]) == (0, ADVISE, "Advising")
    assert told(bench) == ["ForecastActs", "ForecastAdvises"]


def told(bench: ForecastBench) -> list[str]:
    return [each.reason for each in bench.server.events if each.reason.startswith("Forecast")]


@pytest.mark.thorough
@pytest.mark.timeout(600)
async def test_a_live_scaler_publishes_the_floors_of_the_replay_over_days_and_verdicts() -> None:
    values = days_of_jumps(9) + days_of_jumps(3, seed=2)
    bench, found = await live(values, 3 * 1440 - 60)
    days = replayed(values)
    judged = [each for job, each in zip(bench.worker.jobs, bench.worker.answers, strict=True) if job.judges]
    assert [each.verdict for each in judged] == [each.verdict for each in days]
    assert compared(days, found) > 2000
