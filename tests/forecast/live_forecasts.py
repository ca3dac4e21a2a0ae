"""Forecasts of a controller that is stepped by hand, with jobs that are done in this process."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from adapter.autoscaler.controller.registry import Controller
from adapter.autoscaler.decide.observation import ExternalReading, Unavailable
from adapter.autoscaler.forecasts.book import ForecastBook
from adapter.autoscaler.interfaces import Key
from adapter.bounds.forecast.job import STEP, ForecastAnswer, ForecastJob, HistoryQuery
from adapter.errors import Fault, InputError
from adapter.forecast import messages
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.ready_times import PodStart
from adapter.prometheus.endpoint import PrometheusEndpoint, PrometheusServer, TLSFiles
from fastpath_forecast import worker
from fastpath_forecast.histories import Histories
from tests.support.controller import Bench
from tests.support.scaling import external_metric, pods

METRIC = "queue"
SERVER = PrometheusServer(PrometheusEndpoint("http://prometheus.example"), TLSFiles(), {}, "", 5.0, 1_000_000)


def days_of_jumps(days: int, seed: int = 1) -> list[float]:
    """Return days whose level jumps every other hour, with noise, one value a minute.

    Values are whole thousandths, as metrics have them. They stay for five minutes, which makes replays short.
    """
    random = np.random.default_rng(seed)
    levels = (8, 12, 9, 20, 30, 24, 34, 28, 33, 22, 14, 10)
    at = np.arange(days * 1440) // 5 * 5
    values = np.array(levels)[at // 120 % 12] + random.normal(0, 0.05, len(at))[at]
    return [round(float(each), 3) for each in values]


class HandHistory:
    """What Prometheus has of one metric: the value at an instant is that of the minute that ends then."""

    def __init__(self, start: int, values: list[float]) -> None:
        self.start = start
        self.values = values
        self.queries: list[tuple[str, int, int]] = []

    def at(self, instant: int) -> float:
        place = (instant - self.start) // STEP - 1
        return self.values[place] if 0 <= place < len(self.values) else math.nan

    def read(self, promql: str, start: int, end: int, step: int) -> dict[int, float]:
        self.queries.append((promql, start, end))
        found = {at: self.at(at) for at in range(start, end + 1, step)}
        return {at: value for at, value in found.items() if not math.isnan(value)}


class HandWorker:
    """Does the jobs here and at once; they travel as JSON all the same."""

    def __init__(self, history: HandHistory) -> None:
        self.history = history
        self.histories = Histories()
        self.jobs: list[ForecastJob] = []
        self.answers: list[ForecastAnswer] = []
        self.failure: ForecastAnswer | None = None

    async def run(self, job: ForecastJob) -> ForecastAnswer:
        self.jobs.append(job)
        if self.failure is not None:
            return self.failure
        sent = messages.decode_job(
            messages.encode_job(messages.WorkerJob(job, SERVER, 1000, 120.0, 480.0))
        ).job
        assert sent == job
        self.answers.append(worker.answer(sent, self.histories, self.history.read))
        return self.answers[-1]


class ForecastBench(Bench):
    """A controller with the forecasts of one autoscaler whose metric says what the history has."""

    def __init__(self, start: int, values: list[float], now: int) -> None:
        """Times are seconds since 1970. The controller starts at `now`."""
        self.history = HandHistory(start, values)
        self.worker = HandWorker(self.history)
        self.queries: Mapping[str, str] = {METRIC: "sum(queue)"}
        self.now = now
        super().__init__()

    def start(self) -> Controller:
        self.clock.skew = self.now - self.clock.seconds
        self.book = self.forecasting = ForecastBook(self.worker, self.queries_of, self.monitoring)
        self.book.controller = super().start()
        return self.book.controller

    def queries_of(self, autoscaler: FastPathAutoscaler) -> tuple[HistoryQuery, ...]:
        names = [each.external.metric.name for each in autoscaler.spec.metrics or () if each.external]
        for place, name in enumerate(names):
            if name not in self.queries:
                expected = f"no rule that was read makes the external metric {name}"
                raise InputError([Fault(f"spec.metrics[{place}]", name, expected)])
        return tuple(HistoryQuery(name, self.queries[name]) for name in names)

    @property
    def key(self) -> Key:
        return self.state.key

    def seconds(self) -> int:
        return round(self.clock.wall())

    def begin(self, autoscaler: FastPathAutoscaler, replicas: int, start_up: int = 60) -> None:
        """Put the autoscaler; ten of its pods took `start_up` seconds to be Ready."""
        self.sources.readings[METRIC] = Unavailable("NotAnswered", "no answer yet")
        self.put(autoscaler, replicas)
        for _ in range(10):
            self.state.target.ledger.note(PodStart(0, 0, 0, start_up * 1000))

    async def minute(self) -> int:
        """Go to the next minute, decide on what the metric says then, and return the floor that acts."""
        until = self.seconds() // STEP * STEP + STEP
        self.clock.seconds += until - self.seconds()
        value = self.history.at(until)
        for source in self.sources.opened:
            source.reading = (
                Unavailable("NoMetrics", "no value")
                if math.isnan(value)
                else ExternalReading((round(value * 1000),))
            )
        self.controller.loop.touch(self.key)
        await self.step()
        await self.book.look()
        await self.step(1)
        count = self.server.scales["web"].replicas
        self.server.tell("web")
        if len(self.pods.pods.get("app=web", ())) != count:
            self.pods.pods["app=web"] = pods(count)
        await self.book.look()
        while await self.book.work():
            pass
        return self.state.bounds.now.forecast


def queue_metric() -> dict[str, Any]:
    metric = external_metric(METRIC, averageValue="1")
    metric["external"]["target"]["type"] = "AverageValue"
    return metric
