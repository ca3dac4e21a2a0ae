"""A controller whose forecasts have a verdict that a test sets, and what a line of a story of it does."""

import itertools
import json
import math
from typing import Any

import msgspec

from adapter.autoscaler.decide.observation import ExternalReading
from adapter.autoscaler.forecasts.forecast import AutoscalerForecast
from adapter.bounds.forecast.job import STEP, ForecastAnswer, ForecastJob, HistoryQuery
from adapter.bounds.forecast.minimum import Account, Hour, Limits
from adapter.bounds.forecast.plan import HOUR, Plan
from adapter.bounds.forecast.verdict import CandidateFigures, ForecastCard, ReplayFigures, Verdict
from adapter.errors import Fault, InputError, NotSyncedError
from adapter.kubernetes.write.outbox import IDLE
from adapter.kubernetes.write.writer import WriteKind
from adapter.model.autoscaling import slices
from adapter.model.autoscaling import status as statuses
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.forecast import DAY
from fastpath_tools.explain import render
from tests.autoscaler.specs import read_spec
from tests.boost.configmaps import Store
from tests.boost.floorterms import StoringProcess
from tests.forecast.live_forecasts import METRIC, ForecastBench, queue_metric
from tests.support.controller import fpa, shown_document

START = 19_700 * DAY
FLOOR = 14
NAME = "fastpath-forecasts-slice-00"
NONE = CandidateFigures("none", ReplayFigures(100.0, 1000.0), ReplayFigures(50.0, 400.0))
GOOD = CandidateFigures("day", ReplayFigures(30.0, 1050.0), ReplayFigures(10.0, 420.0), 0.9, 0.91)
BAD = msgspec.structs.replace(GOOD, name="week", refused="it costs too much")
CHEAP = Account([Hour(START // HOUR - each, pods=600.0, least=10.0) for each in range(24, 0, -1)])
"""A day of ten pods without a floor."""


def verdict_of(*candidates: CandidateFigures, chosen: str = "", missing: str = "") -> Verdict:
    return Verdict(START, 60, chosen, missing, None if missing else NONE, candidates)


REFUSAL = verdict_of(BAD)


class JudgedBench(ForecastBench):
    """A leader whose jobs are answered with a verdict, and plans of a level demand; verdicts are stored.

    It begins `minute` minutes after START.
    """

    def __init__(self, store: Store, minute: int = 30, *, number: int = 0) -> None:
        super().__init__(START, [10.0] * 4 * 1440, START + minute * STEP)
        self.spec: dict[str, Any] = {"minReplicas": 2, "maxReplicas": 60, "forecast": {"mode": "Floor"}}
        self.verdict = verdict_of(GOOD, BAD, chosen="day")
        self.limits = Limits(2, 60, 1, 5, 0.9, 1.0)
        self.asked: list[ForecastJob] = []
        self.overtaking: dict[str, Any] = {}
        """What changes of the spec during the next job."""
        self.unknown: Exception | None = None
        """Why no query is known."""
        self.worker.run = self.run  # type: ignore[method-assign]
        process = StoringProcess(store, self.clock)
        self.line, self.problems = process.line, process.problems
        self.term = process.open_term(WriteKind.STATUS, number=number)
        self.verdicts = self.book.begin(slices.slice_of("default"), self.term.slot)

    def queries_of(self, autoscaler: FastPathAutoscaler) -> tuple[HistoryQuery, ...]:
        if self.unknown is not None:
            raise self.unknown
        return super().queries_of(autoscaler)

    @property
    def forecast_of(self) -> AutoscalerForecast:
        """The forecast of the only autoscaler."""
        (forecast,) = self.book._entries.values()
        return forecast

    @property
    def floor(self) -> int:
        return self.state.bounds.now.forecast

    async def run(self, job: ForecastJob) -> ForecastAnswer:
        self.asked.append(job)
        if self.overtaking:
            self.put_spec(**self.overtaking)
            self.overtaking = {}
            await self.book.look()
        if self.worker.failure is not None:
            return self.worker.failure
        verdict = self.verdict_for(job)
        card = msgspec.Raw(msgspec.json.encode(ForecastCard("Floor", 0.15, 0.2, verdict)))
        if not verdict.chosen:
            return ForecastAnswer(verdict, card=card, values=9)
        hour = job.now // HOUR
        hours = (hour, hour + 1) if job.with_this_hour else (hour + 1,)
        said = (math.log1p(FLOOR - 0.5),) * 60
        plans = tuple(Plan(each, STEP, "day", self.limits, said, margin=0.0, account=CHEAP) for each in hours)
        return ForecastAnswer(verdict, self.limits, plans, card, values=9)

    def verdict_for(self, job: ForecastJob) -> Verdict:
        if job.judges:
            return msgspec.structs.replace(self.verdict, at=job.now // HOUR * HOUR)
        assert job.verdict is not None
        return job.verdict

    async def run_for(self, minutes: int) -> list[int]:
        return [await self.minute() for _ in range(minutes)]

    async def open(self, uid: str = "uid-1") -> None:
        """Put the autoscaler, and decide it once before the minute is over."""
        self.begin(fpa([queue_metric()], uid=uid, **self.spec), 10)
        await self.book.look()
        for source in self.sources.opened:
            source.reading = ExternalReading([10_000])
        await self.step(15)

    def put_spec(self, **spec: Any) -> None:
        self.controller.put(fpa([queue_metric()], **self.spec | spec))

    async def save(self) -> None:
        if self.verdicts.due(0) is not IDLE:
            await self.verdicts.write()


class ForecastScript:
    """The words of a story of a forecast: see test_forecast_book.py."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.bench = JudgedBench(store)
        self._log: list[tuple[int, str]] = []
        self._floor = 0
        self._told = self._asked = 0
        self._condition = ""

    def news(self) -> list[str]:
        """Return the minutes in which something was asked for, changed or told since the last line."""
        self._note()
        groups = itertools.groupby(self._log, lambda entry: entry[1])
        news = [f"{' '.join(str(minute) for minute, _ in group)}: {text}" for text, group in groups]
        self._log.clear()
        return news

    def _note(self) -> None:
        bench = self.bench
        if not any(bench.controller.names()):
            return
        said = [self._asked_for(job) for job in bench.asked[self._asked :]]
        events = [event for event in bench.server.events if event.reason.startswith("Forecast")]
        said += [f"{event.type} {event.reason}: {event.message}" for event in events[self._told :]]
        self._asked, self._told = len(bench.asked), len(events)
        found = statuses.find(bench.state.memory.status.conditions, "ForecastReady")
        condition = f"{found.status} {found.reason}: {found.message}" if found else "no condition"
        said += [f"floor {bench.floor}"] * (bench.floor != self._floor)
        said += [condition] * (condition != self._condition)
        self._floor, self._condition = bench.floor, condition
        self._log += [((bench.seconds() - START) // STEP, text) for text in said]

    def _asked_for(self, job: ForecastJob) -> str:
        what = "a verdict, and plans" if job.judges else "plans"
        known = f", by the verdict of minute {(job.verdict.at - START) // STEP}" if job.verdict else ""
        return f"asked for {what}{' with this hour' if job.with_this_hour else ''}{known}"

    # -- what happens ----------------------------------------------------------------------------------------

    def lead(self, minute: str) -> None:
        """Have another process lead from a minute on."""
        self.bench = JudgedBench(self.store, int(minute))
        self._floor = self._told = self._asked = 0
        self._condition = ""

    async def lead_before(self) -> str:
        """Have the first leader lead for some minutes, and store its verdict."""
        await self.open()
        await self.run("10")
        self._log.clear()
        return await self.save()

    async def open(self, *words: str) -> None:
        fields = dict(word.split("=") for word in words)
        self.bench.spec["forecast"]["mode"] = fields.pop("mode", "Floor")
        uid = fields.pop("uid", "uid-1")
        self.bench.spec |= read_spec(f"{name}={text}" for name, text in fields.items())
        await self.bench.open(uid)

    async def run(self, minutes: str) -> None:
        for _ in range(int(minutes)):
            await self.bench.minute()
            self._note()

    async def step(self, seconds: str) -> None:
        await self.bench.step(int(seconds))

    async def change_for(self, minutes: str) -> None:
        """Change the spec each minute."""
        for minute in range(int(minutes)):
            self.bench.put_spec(syncPeriod=f"{10 + minute}s")
            await self.run("1")

    async def only_look(self, seconds: str) -> str:
        """Let time pass without a decision, and return when the next look is, and the floor."""
        self.bench.clock.seconds += int(seconds)
        now = self.bench.seconds()
        due = await self.bench.book.look()
        floor = self.bench.book.bound_of(self.bench.key).min
        return f"next look in {due - now} s; floor {floor}"

    def without_forecast(self) -> None:
        self.bench.controller.put(fpa([queue_metric()], minReplicas=2, maxReplicas=60))

    async def give_up_slice(self) -> str:
        self.bench.clock.seconds += 2 * STEP
        await self.bench.book.look()
        self.bench.controller.drop(slices.slice_of("default"))
        return f"work: {await self.bench.book.work()}"

    def verdict(self, *words: str) -> None:
        """Have the next verdicts refuse all candidates, or lack something."""
        self.bench.verdict = REFUSAL if words == ("bad",) else verdict_of(missing=" ".join(words))

    def fail(self, *words: str) -> None:
        """Have jobs fail, or work again."""
        problem = " ".join(words)
        answer = ForecastAnswer(reason="HistoryUnreadable", problem=problem) if problem else None
        self.bench.worker.failure = answer

    def overtake(self, *words: str) -> None:
        self.bench.overtaking = read_spec(words)

    def rules(self, state: str) -> None:
        fault = Fault("spec.metrics[0]", METRIC, "no rule makes it")
        states = {"unlisted": NotSyncedError("not listed yet"), "missing": InputError([fault]), "known": None}
        self.bench.unknown = states[state]

    def demand(self, state: str) -> None:
        self.bench.history.values = [10.0] * 4 * 1440 if state == "known" else []

    def extra(self, most: str) -> None:
        self.bench.limits = self.bench.limits._replace(max_extra=float(most))

    async def save(self) -> str:
        await self.bench.save()
        return f"{self.bench.line.gets} reads; stored: {' '.join(self.store.texts(NAME)) or 'nothing'}"

    def spoil_stored(self) -> None:
        self.store.edit(NAME, lambda document: document["data"].update({"uid-1": "{"}))

    # -- what is known ---------------------------------------------------------------------------------------

    def replicas(self) -> str:
        return str(self.bench.server.scales["web"].replicas)

    def explained(self) -> list[str]:
        lines = render(shown_document(self.bench.controller))
        return [line.strip() for line in lines if line.strip().startswith("forecast:")] or ["nothing"]

    def shown(self) -> str:
        shown = shown_document(self.bench.controller)["forecast"]
        chosen = shown["card"]["verdict"]["chosen"]
        return json.dumps({name: shown[name] for name in ("floor", "withheld")} | {"chosen": chosen})

    def metrics(self) -> list[str]:
        """Return what is exposed of forecasts."""
        families = self.bench.monitoring.registry.collect()
        samples = [sample for family in families for sample in family.samples]
        found = [each for each in samples if each.name.startswith("fastpath_forecast_")]
        return [f"{each.name.removeprefix('fastpath_forecast_')} {each.value:.12g}" for each in found]

    def spread(self) -> str:
        return f"verdicts are in hour {self.bench.forecast_of.spread % 24} of the day"

    def last_job(self) -> str:
        job = self.bench.asked[-1]
        return f"start-ups {job.start_ups}, at most {job.autoscaler.spec.max_replicas} replicas"

    def account(self) -> str:
        account = self.bench.forecast_of.planned.account
        return (
            "none" if account is None else f"hours {[hour.number - START // HOUR for hour in account.hours]}"
        )

    def reported(self) -> list[str]:
        return list(self.bench.problems.active().values())
