"""The process of forecasts on a real Prometheus: what it reads, what it answers, and how it fails."""

import asyncio
import math
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from adapter.bounds.forecast.job import STEP, ForecastAnswer, ForecastJob, HistoryQuery
from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.plan import HOUR
from adapter.bounds.forecast.verdict import CandidateFigures, ForecastCard, ReplayFigures, Verdict
from adapter.config.options import PrometheusOptions
from adapter.forecast import messages
from adapter.forecast.service import MODULE, PROBLEM, ForecastService
from adapter.model.autoscaling.forecast import DAY, FLOOR, ForecastSettings
from adapter.prometheus import connection, endpoint, worker_process
from adapter.prometheus.endpoint import PrometheusEndpoint, TLSFiles
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog
from fastpath_forecast import worker
from fastpath_forecast.histories import Histories
from tests.forecast.live_forecasts import METRIC, HandHistory, days_of_jumps, queue_metric
from tests.support.clock import FakeClock
from tests.support.controller import fpa
from tests.support.prometheus import PrometheusFactory, PrometheusServer
from tests.support.waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

START = 19_700 * DAY
DAYS = 9
VALUES = days_of_jumps(DAYS)
GAP = range(5 * 1440, 5 * 1440 + 90)
"""Minutes without a value."""

NOW = START + DAYS * DAY - 4 * HOUR
FIGURES = ReplayFigures(0.0, 1.0)
VERDICT = Verdict(
    NOW - NOW % HOUR, 60, "season", "", None, (CandidateFigures("season", FIGURES, FIGURES, 0.9),)
)
LIMITS = Limits(2, 60, 1, 5, 0.9, 0.15)


@pytest.fixture(scope="module")
def prometheus(module_prometheus: PrometheusFactory) -> PrometheusServer:
    """Return a Prometheus with nine days of history."""
    lines = [
        f'{name}{{namespace="default"}} {value} {START + (place + 1) * STEP}'
        for name in ("queue", "renamed")
        for place, value in enumerate(VALUES)
        if place not in GAP and (name == "queue" or place < DAYS * 1440 - 6 * 60)
    ]
    first = next(place for place, line in enumerate(lines) if line.startswith("renamed"))
    text = ["# TYPE queue gauge", *lines[:first], "# TYPE renamed gauge", *lines[first:]]
    return module_prometheus(samples="\n".join(text))


def history() -> HandHistory:
    return HandHistory(START, [math.nan if place in GAP else each for place, each in enumerate(VALUES)])


def job(now: int = NOW, query: str = "last_over_time(queue[59s])", **fields: Any) -> ForecastJob:
    """Return a job that plans only; a value counts for the minute that it is from."""
    given: dict[str, Any] = {"verdict": VERDICT, "limits": LIMITS, "judges": False, **fields}
    settings = ForecastSettings(FLOOR, 7 * DAY)
    queries = (HistoryQuery(METRIC, query),)
    return ForecastJob("default/web", fpa([queue_metric()]), "fast", settings, (60,), queries, now, **given)


Start = Callable[..., Awaitable[ForecastService]]


@pytest.fixture
async def start(prometheus: PrometheusServer) -> AsyncIterator[Start]:
    """Return a maker of services, which end with the test."""
    services: list[ForecastService] = []

    async def open_service(url: str = prometheus.url, **settings: Any) -> ForecastService:
        clock = FakeClock()
        problems = ProblemLog(Monitoring(), clock)
        origin = await connection.open_connection(PrometheusOptions(prometheus_url=url), clock, problems)
        services.append(ForecastService(origin, problems, **settings))
        return services[-1]

    yield open_service
    for each in services:
        await each.close()


def expected(asked: ForecastJob) -> ForecastAnswer:
    """Return the answer that is computed from the values themselves."""
    return worker.answer(asked, Histories(), history().read)


def plain(answer: ForecastAnswer) -> object:
    """Return an answer without the card as text."""
    card = msgspec.json.decode(answer.card, type=ForecastCard | None)
    return card, msgspec.structs.replace(answer, card=msgspec.Raw(b""))


async def test_plans_are_made_from_what_prometheus_has_hour_by_hour(start: Start) -> None:
    service = await start()
    for hours in range(3):
        asked = job(NOW + hours * HOUR + 600)
        answer = await service.run(asked)
        assert answer.problem == ""
        assert plain(answer) == plain(expected(asked))
        (plan,) = answer.plans
        assert plan.hour == asked.now // HOUR + 1
        assert answer.values == 7 * 1440 + hours * 60
    first = await service.run(job(with_this_hour=True))
    assert [each.hour for each in first.plans] == [NOW // HOUR, NOW // HOUR + 1]


@pytest.mark.thorough
async def test_a_verdict_is_the_one_of_a_replay_of_the_values(start: Start) -> None:
    asked = job(verdict=None, limits=None, judges=True)
    answer = await (await start()).run(asked)
    assert answer.verdict is not None
    assert [each.name for each in answer.verdict.candidates] == ["season"]
    assert plain(answer) == plain(expected(asked))


async def test_what_a_job_needs_is_said(start: Start) -> None:
    service = await start()
    early = await service.run(job(START + 3 * DAY, verdict=None, judges=True))
    assert early.verdict is not None
    assert early.verdict.missing == "3 of 7 days of history"
    unseen = msgspec.structs.replace(job(verdict=None, judges=True), start_ups=())
    answer = await service.run(unseen)
    assert answer.verdict is not None
    assert answer.verdict.missing == "no start of a pod was seen yet"
    assert (answer.plans, answer.problem) == ((), "")
    renamed = await service.run(job(query="renamed"))
    assert (renamed.reason, renamed.problem) == (
        "NoValues",
        "the query of queue has no value in the hour before 20:00 UTC",
    )
    target = {"type": "Utilization", "averageUtilization": 80}
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    asked = msgspec.structs.replace(job(), autoscaler=fpa([metric]), queries=(HistoryQuery("cpu", "queue"),))
    in_per_cent = await service.run(asked)
    assert in_per_cent.reason == "Unsupported"
    assert "the request of one pod" in in_per_cent.problem


async def test_a_worker_that_is_killed_is_started_again(start: Start) -> None:
    service = await start()
    before = await service.run(job())
    process = service.pid
    assert process, before.problem
    os.kill(process, signal.SIGSTOP)
    asking = asyncio.create_task(service.run(job()))
    await asyncio.sleep(0)  # it is asked, and cannot answer
    os.kill(process, signal.SIGKILL)
    failed = await asking
    assert (failed.reason, failed.problem) == (
        "WorkerFailed",
        "the forecast worker ended with SIGKILL, as when memory runs out",
    )
    assert (PROBLEM, "") in service.problems.active()
    assert plain(await service.run(job())) == plain(before)
    assert not service.problems.active()


async def test_a_job_that_takes_too_long_ends_the_worker(start: Start) -> None:
    service = await start(job_timeout=0.01)
    failed = await service.run(job())
    assert (failed.reason, failed.problem) == (
        "WorkerFailed",
        "the forecast worker did not end its job in 0.01 s",
    )
    assert service.pid == 0


async def test_a_job_that_is_cancelled_ends_the_worker(start: Start) -> None:
    service = await start()
    asking = asyncio.create_task(service.run(job()))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert service.pid == 0


async def test_a_job_that_waits_for_another_is_cancelled_alone(start: Start) -> None:
    """Each slice has jobs of its own, and the worker does one at a time."""
    service = await start()
    first, second, third = (
        asyncio.create_task(service.run(asked)) for asked in (job(), job(), job(query="renamed"))
    )
    await until(lambda: service.pid)
    second.cancel()
    assert plain(await first) == plain(expected(job()))
    assert (await third).reason == "NoValues"
    assert second.cancelled()


async def test_a_worker_ends_with_its_scaler_in_the_middle_of_a_job() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        server = endpoint.PrometheusServer(PrometheusEndpoint(url), TLSFiles(), {}, "", 60.0, 1_000_000)
        with worker_process.start(MODULE) as process:
            assert process.stdin is not None
            asked = messages.WorkerJob(job(), server, 1_000_000, 120.0, 480.0)
            process.stdin.write(messages.encode_job(asked))
            process.stdin.flush()
            reader, _ = await asyncio.to_thread(silent.accept)
            with reader:  # it waits for an answer
                process.stdin.close()
                assert await asyncio.to_thread(process.wait, 30) == 0


async def test_a_worker_that_does_not_start_is_a_failure(start: Start) -> None:
    failed = await (await start(module="adapter.forecast.no_such_module")).run(job())
    assert failed.problem == "the forecast worker ended with exit status 1"


async def test_while_prometheus_is_away_the_history_cannot_be_read(
    start: Start, prometheus_server: PrometheusFactory
) -> None:
    server = await asyncio.to_thread(prometheus_server)
    service = await start(server.url)
    assert (await service.run(job())).reason == "NoValues"
    await asyncio.to_thread(server.kill)
    failed = await service.run(job(NOW + HOUR))
    assert (failed.reason, failed.problem) == (
        "HistoryUnreadable",
        "the history cannot be read: Connection refused",
    )
    await asyncio.to_thread(server.start)
    assert (await service.run(job(NOW + HOUR))).reason == "NoValues"


async def test_histories_have_room_for_so_many_values(start: Start) -> None:
    service = await start(most_values=30_000)
    assert not (await service.run(job())).problem
    other = msgspec.structs.replace(job(), name="default/other")
    answer = await service.run(other)
    assert (answer.reason, answer.values) == ("NoRoom", 7 * 1440)
    assert answer.problem == (
        "no room for 10,080 values of its history: namespace default has 10,080, "
        "and one namespace may have 15,000 of 30,000"
    )
    elsewhere = msgspec.structs.replace(job(), name="elsewhere/web")
    assert not (await service.run(elsewhere)).problem
    later = NOW + 3 * HOUR  # the first autoscaler is gone by then
    assert not (await service.run(msgspec.structs.replace(other, now=later))).problem


async def test_without_numpy_the_extra_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    service = await start()
    answer = await service.run(job())
    assert (answer.reason, answer.problem) == (
        "NotInstalled",
        "numpy is not installed: take an image tagged -forecast, or install 'fastpath-adapter[forecast]'",
    )
    assert service.pid == 0
