"""The forecasts of a term: when jobs are done, what becomes of their answers, and what is shown."""

import asyncio
import itertools
import math
from typing import Any

import msgspec
import pytest

from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.forecasts.book import ForecastBook
from adapter.autoscaler.forecasts.forecast import PAUSE, RETRY, AutoscalerForecast
from adapter.autoscaler.interfaces import Key
from adapter.bounds.forecast.job import STEP, ForecastAnswer, ForecastJob, HistoryQuery
from adapter.bounds.forecast.minimum import Account, Hour, Limits
from adapter.bounds.forecast.plan import HOUR, Plan
from adapter.bounds.forecast.verdict import CandidateFigures, ForecastCard, ReplayFigures, Verdict
from adapter.errors import NotSyncedError
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.forecast import DAY
from fastpath_tools.explain import render
from tests.autoscaler.looped import HandLoopClock
from tests.forecast.live_forecasts import METRIC, ForecastBench, queue_metric
from tests.support.controller import fpa, shown_document

START = 19_700 * DAY
LIMITS = Limits(2, 60, 1, 5, 0.9, 1.0)
NONE = CandidateFigures("none", ReplayFigures(100.0, 1000.0), ReplayFigures(50.0, 400.0))
GOOD = CandidateFigures("day", ReplayFigures(30.0, 1050.0), ReplayFigures(10.0, 420.0), 0.9, 0.91)
BAD = msgspec.structs.replace(GOOD, name="week", refused="it costs too much")
FLOOR = 14
PAUSED = (
    "False",
    "Paused",
    "the next verdict is due at 2023-12-09T01:01:01Z: a changed or new spec does not hasten it",
)
CHEAP = Account([Hour(START // HOUR - each, pods=600.0, least=10.0) for each in range(24, 0, -1)])
"""A day of ten pods without a floor."""


def verdict_of(at: int, *candidates: CandidateFigures, chosen: str = "", missing: str = "") -> Verdict:
    return Verdict(at, 60, chosen, missing, None if missing else NONE, candidates)


class JudgedBench(ForecastBench):
    """A bench whose jobs are answered with a verdict that the test sets, and plans of a level demand."""

    def __init__(self, **forecast: Any) -> None:
        super().__init__(START, [10.0] * 4 * 1440, START + 30 * STEP)
        self.forecast = {"mode": "Floor", **forecast}
        self.verdict = verdict_of(START, GOOD, BAD, chosen="day")
        self.limits = LIMITS
        self.asked: list[ForecastJob] = []
        self.failure: ForecastAnswer | None = None
        self.unknown: Exception | None = None
        """Why no query is known."""
        self.worker.run = self.run  # type: ignore[method-assign]

    def queries_of(self, autoscaler: FastPathAutoscaler) -> tuple[HistoryQuery, ...]:
        if self.unknown is not None:
            raise self.unknown
        return super().queries_of(autoscaler)

    @property
    def forecast_of(self) -> AutoscalerForecast:
        """The forecast of the only autoscaler."""
        (forecast,) = self.book._entries.values()
        return forecast

    async def run(self, job: ForecastJob) -> ForecastAnswer:
        self.asked.append(job)
        if self.failure is not None:
            return self.failure
        verdict = self.verdict
        if not job.judges:
            assert job.verdict is not None
            verdict = job.verdict
        else:
            verdict = msgspec.structs.replace(verdict, at=job.now // HOUR * HOUR)
        card = msgspec.Raw(msgspec.json.encode(ForecastCard("Floor", 0.15, 0.2, verdict)))
        if not verdict.chosen:
            return ForecastAnswer(verdict, card=card, values=9)
        hour = job.now // HOUR
        hours = (hour, hour + 1) if job.with_this_hour else (hour + 1,)
        said = (math.log1p(FLOOR - 0.5),) * 60
        plans = tuple(Plan(each, STEP, "day", self.limits, said, margin=0.0, account=CHEAP) for each in hours)
        return ForecastAnswer(verdict, self.limits, plans, card, values=9)

    async def run_for(self, minutes: int) -> list[int]:
        return [await self.minute() for _ in range(minutes)]

    async def open(self) -> None:
        self.begin(fpa([queue_metric()], minReplicas=2, maxReplicas=60, forecast=self.forecast), 10)
        await self.book.look()

    def put_spec(self, **spec: Any) -> None:
        given = {"minReplicas": 2, "maxReplicas": 60, "forecast": self.forecast, **spec}
        self.controller.put(fpa([queue_metric()], **given))

    def condition(self) -> tuple[str, str, str]:
        """Return status, reason and message of the condition, "" without one."""
        for condition in self.state.memory.status.conditions or ():
            if condition.type == "ForecastReady":
                return condition.status, condition.reason or "", condition.message or ""
        return "", "", ""

    def events(self) -> list[str]:
        return [each.reason for each in self.server.events if each.reason.startswith("Forecast")]

    def metric(self, name: str) -> float | None:
        labels = {"kind": "FastPathAutoscaler", "namespace": "default", "name": "web"}
        return self.monitoring.registry.get_sample_value(f"fastpath_forecast_{name}", labels)

    def explained(self) -> list[str]:
        lines = render(shown_document(self.controller))
        return [line.strip() for line in lines if line.strip().startswith("forecast:")]


@pytest.fixture
def bench() -> JudgedBench:
    return JudgedBench()


async def test_a_verdict_gives_a_floor_that_is_shown_everywhere(bench: JudgedBench) -> None:
    await bench.open()
    assert await bench.run_for(1) == [0]
    assert (await bench.run_for(5))[-1] == FLOOR
    assert bench.server.scales["web"].replicas == FLOOR
    told = "candidate day: -70 % shortage, +5 % pods in a replay of 7 days"
    assert bench.condition() == ("True", "Acting", told)
    assert bench.events() == ["ForecastActs"]
    assert bench.metric("floor_replicas") == FLOOR
    assert (bench.metric("ready"), bench.metric("acting")) == (1, 1)
    assert bench.metric("verdict_timestamp_seconds") == START
    assert bench.metric("extra_ratio") is not None
    assert bench.metric("coverage_ratio") is None  # too few bounds were compared yet
    assert bench.monitoring.registry.get_sample_value("fastpath_forecast_history_values") == 9
    shown = shown_document(bench.controller)["forecast"]
    assert (shown["floor"], shown["withheld"]) == (FLOOR, "")
    assert shown["card"]["verdict"]["chosen"] == "day"
    assert bench.explained() == [f"forecast: floor {FLOOR}, by candidate day"]
    bench.controller.put(fpa([queue_metric()], minReplicas=2, maxReplicas=60))
    await bench.run_for(2)
    assert (bench.condition()[0], bench.metric("floor_replicas"), bench.explained()) == ("", None, [])
    assert bench.state.bounds.now.forecast == 0


async def test_plans_are_asked_for_once_an_hour_and_a_verdict_once_a_day(bench: JudgedBench) -> None:
    await bench.open()
    await bench.run_for(26 * 60)
    minutes = [(each.now - START) // STEP for each in bench.asked]
    first, *hourly = minutes
    assert first == 31
    assert [each // 60 for each in hourly] == list(range(1, 1 + len(hourly)))
    assert len({each % 60 for each in hourly}) == 1
    hours = [each.now // HOUR % 24 for each in bench.asked if each.judges]
    assert len(hours) == 2
    assert hours[1] == bench.forecast_of.spread % 24
    assert [each.with_this_hour for each in bench.asked] == [True] + [False] * len(hourly)
    assert bench.asked[-1].start_ups == (60,) * 10


async def test_a_job_that_fails_is_repeated_and_the_last_plan_ends_with_its_hour(bench: JudgedBench) -> None:
    await bench.open()
    await bench.run_for(80)
    count, planned = len(bench.asked), bench.asked[-1].now // HOUR + 1
    said = "the history cannot be read: Connection refused"
    bench.failure = ForecastAnswer(reason="HistoryUnreadable", problem=said)
    found = await bench.run_for(240)
    jobs = [each.now for each in bench.asked[count:]]
    assert {later - sooner for sooner, later in itertools.pairwise(jobs)} == {RETRY}
    end = ((planned + 1) * HOUR - START) // STEP - 30 - 80
    assert set(found[: end - 1]) == {FLOOR}
    assert set(found[end + 2 :]) == {0}
    assert bench.condition() == ("False", "HistoryUnreadable", said)
    assert bench.events() == ["ForecastActs", "ForecastFailed"]
    assert bench.metric("ready") == 0
    assert bench.metric("acting") == 1
    bench.failure = None
    await bench.run_for(10)
    assert bench.state.bounds.now.forecast == FLOOR
    assert bench.events()[-1] == "ForecastActs"


@pytest.mark.looptime
async def test_a_step_is_exact_and_nothing_looks_between_two(
    bench: JudgedBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decisions are a minute apart, half a minute beside the steps, and the clock is set on the way."""
    looked, look = list[float](), ForecastBook.look
    clock = bench.clock = HandLoopClock()
    bench.now = START + 30 * STEP + 30 + round(clock.seconds - clock.monotonic())
    bench.start()

    async def looks(book: ForecastBook) -> int:
        looked.append(round(clock.wall() - START, 2))
        return await look(book)

    monkeypatch.setattr(ForecastBook, "look", looks)
    bench.sources.readings[METRIC] = ExternalReading([10_000])
    bench.put(fpa([queue_metric()], minReplicas=2, syncPeriod="60s", forecast=bench.forecast), 10)
    running = bench.book.run(), bench.controller.loop.run()
    tasks = [asyncio.create_task(each) for each in running]
    await asyncio.sleep(29.9)
    assert bench.server.writes == []
    assert len(looked) < 5
    looked.clear()
    await asyncio.sleep(0.2)
    assert bench.server.writes == [("web", FLOOR)]
    await asyncio.sleep(10)
    assert looked == [31 * 60]
    clock.skew += 55
    await asyncio.sleep(1.1)
    assert len(looked) == 2
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_metric_without_a_query_is_named(bench: JudgedBench) -> None:
    bench.queries = {}
    await bench.open()
    await bench.run_for(2)
    assert bench.asked == []
    said = f"spec.metrics[0]: no rule that was read makes the external metric {METRIC}"
    assert bench.condition() == ("False", "NoQuery", said)


async def test_while_the_rules_are_not_known_nothing_fails(bench: JudgedBench) -> None:
    await bench.open()
    bench.unknown = NotSyncedError("not listed yet")
    await bench.run_for(2)
    assert bench.condition() == ("False", "Pending", "the first verdict is being made")
    bench.unknown = None
    await bench.run_for(1)
    assert len(bench.asked) == 1


@pytest.mark.parametrize(
    ("verdict", "status", "reason", "message"),
    [
        (verdict_of(START, BAD), "True", "Refused", "no candidate may act: week: it costs too much"),
        (
            verdict_of(START, missing="3 of 7 days of history"),
            "False",
            "Incomplete",
            "no verdict yet: 3 of 7 days of history",
        ),
    ],
)
async def test_without_a_candidate_there_is_no_floor(
    bench: JudgedBench, verdict: Verdict, status: str, reason: str, message: str
) -> None:
    bench.verdict = verdict
    await bench.open()
    assert set(await bench.run_for(10)) == {0}
    assert bench.condition() == (status, reason, message)
    assert bench.events() == []
    assert bench.explained() == ["forecast: no floor (no candidate acts)"]


async def test_a_demotion_is_told(bench: JudgedBench) -> None:
    await bench.open()
    await bench.run_for(60)
    bench.verdict = verdict_of(START, BAD)
    await bench.run_for(25 * 60)
    assert bench.condition()[1] == "Refused"
    assert bench.events() == ["ForecastActs", "ForecastRefused"]
    assert bench.state.bounds.now.forecast == 0


async def test_while_the_demand_is_not_known_the_floor_is_withheld(bench: JudgedBench) -> None:
    await bench.open()
    await bench.run_for(10)
    bench.history.values = []
    assert (await bench.run_for(2))[-1] == 0
    assert bench.condition()[:2] == ("True", "Withheld")
    assert bench.explained() == ["forecast: no floor (DemandUnknown)"]
    bench.history.values = [10.0] * 4 * 1440
    assert (await bench.run_for(2))[-1] == FLOOR
    assert bench.events() == ["ForecastActs"]  # what comes and goes is no news


async def test_a_demand_that_no_decision_has_seen_lately_is_not_known(bench: JudgedBench) -> None:
    await bench.open()
    await bench.run_for(10)
    bench.clock.seconds += STEP
    await bench.book.look()
    assert bench.book.bound_of(bench.key).min == 0


async def test_changes_do_not_hasten_a_verdict(bench: JudgedBench) -> None:
    await bench.open()
    await bench.run_for(10)
    assert bench.state.bounds.now.forecast == FLOOR
    for minute in range(PAUSE // STEP - 12):
        bench.put_spec(syncPeriod=f"{10 + minute}s")
        assert await bench.run_for(1) == [0]
        assert minute == 0 or bench.condition() == PAUSED
    assert len(bench.asked) == 1
    await bench.run_for(10)
    assert [each.judges for each in bench.asked] == [True, True]
    assert bench.state.bounds.now.forecast == FLOOR
    assert bench.condition()[1] == "Acting"


async def test_a_job_that_was_overtaken_by_a_change_counts_no_more(bench: JudgedBench) -> None:
    await bench.open()
    ran = bench.run

    async def run(job: ForecastJob) -> ForecastAnswer:
        answer = await ran(job)
        if len(bench.asked) == 1:
            bench.put_spec(maxReplicas=30)
            await bench.book.look()
        return answer

    bench.worker.run = run  # type: ignore[method-assign]
    await bench.run_for(2)
    assert len(bench.asked) == 1
    assert bench.condition() == PAUSED
    await bench.run_for(PAUSE // STEP)
    assert [each.autoscaler.spec.max_replicas for each in bench.asked] == [60, 30]
    assert [each.judges for each in bench.asked] == [True, True]


async def test_a_floor_that_is_not_computed_any_more_ends(bench: JudgedBench) -> None:
    await bench.open()
    await bench.run_for(5)
    await bench.step(119)
    assert bench.state.bounds.now.forecast == FLOOR
    await bench.step(61)
    assert bench.state.bounds.now.forecast == 0


@pytest.mark.parametrize("broken", ["build_job", "take", "show", "step", "readiness"])
async def test_a_defect_in_one_forecast_keeps_no_other_from_its_floor(
    bench: JudgedBench, broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    works, bad = getattr(AutoscalerForecast, broken), Key("default", "api")
    await bench.open()

    def breaks(forecast: AutoscalerForecast, *given: Any, **named: Any) -> Any:
        if forecast.state.key == bad:
            raise ZeroDivisionError
        return works(forecast, *given, **named)

    monkeypatch.setattr(AutoscalerForecast, broken, breaks)
    spec = {"minReplicas": 2, "maxReplicas": 60, "forecast": bench.forecast}
    bench.put(fpa([queue_metric()], name="api", uid="uid-2", **spec), replicas=10)
    task = asyncio.create_task(bench.book.run())
    for _ in range(6):
        floor = await bench.minute()
    assert floor == FLOOR
    assert not task.done()
    assert [record.message for record in caplog.records] == ["unexpected error while making a forecast"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
