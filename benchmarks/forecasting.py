"""What forecasts cost a scaler, and the process that makes them: `python -m benchmarks.forecasting`.

The scaler's part is measured as in `benchmarks.tick`: rounds of three controllers with the same autoscalers
take turns, one of them with the floor of a forecast for each. The other two show what the same measurement
says of two that do not differ. Then the floors of all autoscalers are computed as at the beginning of a
minute; `longest` is how long other tasks waited for their turn meanwhile. The process gets its jobs from an
HTTP server that answers as Prometheus does. The unit is CPU time, except for `longest`, so that a busy
machine gives valid figures too.
"""

import asyncio
import gc
import math
import os
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from adapter.autoscaler.controller.registry import Controller
from adapter.autoscaler.forecasts.book import ForecastBook
from adapter.autoscaler.interfaces import Forecasts, Key
from adapter.bounds.forecast.job import STEP, TOO_MUCH_WORK, ForecastAnswer, ForecastJob, HistoryQuery
from adapter.bounds.forecast.minimum import Account, Hour, Limits
from adapter.bounds.forecast.plan import HOUR, Plan
from adapter.bounds.forecast.verdict import CandidateFigures, ReplayFigures, Verdict
from adapter.config.options import PrometheusOptions
from adapter.forecast.service import CPU_SECONDS, MEMORY_BYTES, ForecastService
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscaler
from adapter.model.autoscaling.forecast import DAY, FLOOR, ForecastSettings
from adapter.model.autoscaling.hpa import decode_scalar
from adapter.prometheus import connection
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from benchmarks import common, documents, tick
from benchmarks.common import Goal, Report
from benchmarks.stage import memory_of, processor_seconds
from fastpath_forecast.worker import MOST_SAMPLES
from fastpath_sandbox.listener import Listener
from tests.support.controller import HandClock, NoForecasts
from tests.support.waiting import running

_METRIC = documents.pods_metric("requests_per_second", "20")
_QUERIES = (HistoryQuery("requests_per_second", "sum(requests)"),)
_NOW = 19_700 * DAY

_VALUE = 20_400
_CHANGES = 20
"""So many rounds of a load that comes and goes come before those that are measured. Each change leaves the
objects of an autoscaler elsewhere in memory, so a load that never changed would make rounds 10 % faster than
any real scaler has them."""


def main() -> None:
    sizes = common.parse_sizes(
        __doc__, autoscalers=1000, pods=10, rounds=40, minutes=10, jobs=60, days=14, seconds=30.0
    )
    os.sched_setaffinity(0, {common.SERVER_CORE})
    count = int(sizes.autoscalers)
    all_of = f"{count:,} autoscalers"
    goals = {
        "round_ratio": Goal(
            f"a round of {all_of} with the floors of forecasts, by one without: cpu", 1.03, ""
        ),
        "step_seconds": Goal(f"the floors of {all_of} with a forecast, each minute: cpu", 0.1, "s"),
        "step_longest_seconds": Goal(
            f"the longest time that other tasks wait meanwhile, with {all_of}", 0.02, "s"
        ),
    }
    largest = "the process of forecasts with the largest job: memory"
    goals["largest_job_mib"] = Goal(largest, MEMORY_BYTES / 1024 / 1024, "MiB")
    report = Report("forecasting", vars(sizes), goals)
    report.add(**asyncio.run(_rounds(count, int(sizes.pods), int(sizes.rounds), int(sizes.minutes))))
    report.add(**asyncio.run(_jobs(int(sizes.jobs), int(sizes.days))))
    report.add(largest_job_mib=asyncio.run(_largest(sizes.seconds)))
    report.show()


# -- the scaler ----------------------------------------------------------------------------------------------


class _Worker:
    """Answers with a verdict and the plans of two hours at once."""

    def __init__(self, card: bytes) -> None:
        self._card = card
        figures = ReplayFigures(1.0, 1.0)
        self._verdict = Verdict(0, 60, "season", "", None, (CandidateFigures("season", figures, figures),))

    async def run(self, job: ForecastJob) -> ForecastAnswer:
        hour, limits = job.now // HOUR, Limits(1, 10, 1, 5, 0.9, 0.15)
        account = Account([Hour(hour - each, pods=600.0, least=10.0) for each in range(24, 0, -1)])
        said = tuple(math.log(9 + math.sin(place)) for place in range(HOUR // STEP))
        weights = (0.01, 0.02, 0.01)
        plans = tuple(
            Plan(hour + each, STEP, "season", limits, said, weights, 0.1, -0.1, account) for each in (0, 1)
        )
        # as from a line of the process: every answer has objects of its own
        made = ForecastAnswer(self._verdict, limits, plans, msgspec.Raw(self._card))
        return msgspec.json.decode(msgspec.json.encode(made), type=ForecastAnswer)

    async def close(self) -> None:
        pass


def _controller(clock: HandClock, world: tick.World, forecasts: Forecasts, count: int) -> Controller:
    controller = tick.open_controller(clock, world, forecasts, Monitoring())
    is_forecast = not isinstance(forecasts, NoForecasts)
    if isinstance(forecasts, ForecastBook):
        forecasts.controller = controller
    for number in range(count):
        document = tick.autoscaler(number, world.pods, _METRIC)
        if is_forecast:
            document["spec"]["forecast"] = {"mode": FLOOR}
        controller.put(msgspec.convert(document, FastPathAutoscaler, dec_hook=decode_scalar))
    return controller


async def _rounds(count: int, pods: int, rounds: int, minutes: int) -> dict[str, float]:
    clock = HandClock()
    clock.seconds += -(clock.wall() % HOUR) + HOUR + 120  # two minutes after the hour
    world = tick.World(pods, _VALUE)
    book = ForecastBook(_Worker(b'"' + b"x" * 9_600 + b'"'), lambda _: (), Monitoring())
    controllers = [_controller(clock, world, each, count) for each in (NoForecasts(), NoForecasts(), book)]
    plain, again, forecasting = controllers

    async def tick_all(seconds: float, value: int = _VALUE) -> None:
        clock.seconds += seconds
        world.set_value(value)
        for each in controllers:
            await each.loop.tick()

    await tick_all(0.0)
    await book.look()
    gc.collect()
    before = memory_of(os.getpid())
    while await book.work():
        pass
    gc.collect()
    memory = memory_of(os.getpid()) - before
    for _ in range(2):  # from the second minute on a decision has the demand that the floor needs
        await tick_all(STEP)
        await book.look()
    for number in range(_CHANGES):
        await tick_all(1.0, 2 * _VALUE if number % 4 else _VALUE)
    await tick_all(1.0)
    gc.collect()
    gc.freeze()
    times: dict[Controller, list[float]] = {each: [] for each in controllers}
    for number in range(rounds):
        clock.seconds += 1.0
        first = number % len(controllers)
        for each in controllers[first:] + controllers[:first]:
            times[each].append(await tick.decide_all(each))
    acting = sum(_has_floor(forecasting, key) for key in forecasting.names())
    assert acting == count, f"{acting} of {count} have a floor"
    steps, waits = [], []
    for _ in range(minutes):
        await tick_all(STEP)  # the demand of this minute
        async with _waiting() as waited:
            start = time.process_time()
            await book.look()
            steps.append(time.process_time() - start)
        waits.append(max(waited, default=0.0))
    for each in controllers:
        tick.close(each)
    gc.unfreeze()
    median = {each: statistics.median(found) for each, found in times.items()}
    return {
        "round_without_seconds": median[plain],
        "round_with_seconds": median[forecasting],
        "round_ratio": median[forecasting] / median[plain],
        "round_ratio_of_two_without": median[again] / median[plain],
        "step_seconds": statistics.median(steps),
        "step_longest_seconds": statistics.median(waits),
        "autoscalers_memory_mib": memory,
    }


def _has_floor(controller: Controller, key: Key) -> bool:
    state = controller.find(key)
    return state is not None and state.bounds.now.forecast > 0


@asynccontextmanager
async def _waiting() -> AsyncIterator[list[float]]:
    """Note how long a task waits for each of its turns."""
    waits: list[float] = []

    async def wait() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0)
            waits.append(time.perf_counter() - start)

    async with running(wait()):
        await asyncio.sleep(0)
        yield waits


# -- the process ---------------------------------------------------------------------------------------------


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    """Answer a range query as Prometheus, with a daily wave, a value each five minutes."""
    start, end = (int(float(request.query[name])) for name in ("start", "end"))
    values = [[at, f"{_wave(at // 300 * 300):.3f}"] for at in range(start, end + 1, STEP)]
    data = {"resultType": "matrix", "result": [{"metric": {}, "values": values}]}
    return web.json_response({"status": "success", "data": data})


def _wave(at: int) -> float:
    return 20 * (20 - 12 * math.cos(at * 2 * math.pi / DAY) + 0.3 * math.sin(at * 7.3))


@asynccontextmanager
async def _forecasts(cpu_seconds: float = CPU_SECONDS) -> AsyncIterator[ForecastService]:
    """Run the process of forecasts, which gets its history over HTTP."""
    clock = HandClock()
    problems = ProblemLog(Monitoring(), clock)
    async with Listener(_answer, "127.0.0.1", 0) as prometheus:
        options = PrometheusOptions(prometheus_url=prometheus.url)
        origin = await connection.open_connection(options, clock, problems)
        service = ForecastService(origin, problems, cpu_seconds)
        yield service
        await service.close()


async def _largest(cpu_seconds: float) -> float:
    """Return the most memory of the process in MiB, with the job that takes most and no other history.

    That is the one with the most pods. The most values, of 50 metrics with 12 days, take less.
    """
    document = tick.autoscaler(0, MOST_SAMPLES, _METRIC)
    document["spec"]["maxReplicas"] = MOST_SAMPLES
    document["spec"]["metrics"][0]["pods"]["target"]["averageValue"] = "2m"
    autoscaler = msgspec.convert(document, FastPathAutoscaler, dec_hook=decode_scalar)
    settings = ForecastSettings(FLOOR, 35 * DAY)
    async with _forecasts(cpu_seconds) as service:
        job = ForecastJob("shop/web", autoscaler, "fast", settings, (60,), _QUERIES, _NOW)
        answer = await service.run(job)
        assert answer.reason == TOO_MUCH_WORK, answer.problem
        return memory_of(service.pid, "VmHWM")


async def _jobs(count: int, days: int) -> dict[str, float]:
    document = tick.autoscaler(0, 60, _METRIC)
    autoscaler = msgspec.convert(document, FastPathAutoscaler, dec_hook=decode_scalar)
    settings = ForecastSettings(FLOOR, days * DAY)
    async with _forecasts() as service:

        async def run(name: str, now: int, before: ForecastAnswer | None = None) -> ForecastAnswer:
            verdict, limits = (None, None) if before is None else (before.verdict, before.limits)
            judges = before is None
            job = ForecastJob(
                name, autoscaler, "fast", settings, (60,), _QUERIES, now, None, verdict, limits, judges
            )
            answer = await service.run(job)
            assert not answer.problem, answer.problem
            return answer

        first = await run("first", _NOW)
        pid = service.pid
        peak = memory_of(pid, "VmHWM")
        verdict_cpu = processor_seconds(pid)
        base, names = memory_of(pid), [f"shop/{number}" for number in range(count)]
        for name in names:
            await run(name, _NOW, first)
        kept, read_cpu = memory_of(pid) - base, processor_seconds(pid)
        for name in names:
            await run(name, _NOW + HOUR, first)
        plan_cpu = processor_seconds(pid) - read_cpu
    return {
        "process_peak_mib": peak,
        "history_kib": 1024 * kept / count,
        "verdict_cpu_seconds": verdict_cpu,
        "plan_cpu_seconds": plan_cpu / count,
    }


if __name__ == "__main__":
    main()
