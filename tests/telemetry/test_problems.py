"""When a fault that requests met is said, and when it is over."""

import asyncio

import pytest

from adapter.errors import PrometheusError, TooManyRequestsError
from adapter.telemetry.metrics import Monitoring
from adapter.telemetry.problems import ProblemLog, SourceProblems
from tests.support.clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def log(clock: FakeClock) -> ProblemLog:
    return ProblemLog(Monitoring(), clock)


@pytest.fixture
def faults(clock: FakeClock, log: ProblemLog) -> SourceProblems:
    return SourceProblems(clock, log)


def test_prometheus_is_back_when_it_was_asked_after_the_failure(
    faults: SourceProblems, log: ProblemLog, clock: FakeClock
) -> None:
    asked = clock.monotonic()
    clock.advance(1)
    told = faults.unfetched(PrometheusError("unreachable", "http://prometheus:9090 refused"), "rules[0]")
    since = "Prometheus does not answer since 2023-11-14T22:13:21Z"
    assert told.message == f"Internal error occurred: unable to fetch metrics: {since}"
    clock.advance(60)
    again = faults.unfetched(PrometheusError("unreachable", "again"), "rules[1]")
    assert again.message == told.message, "a text that changes would be an event each time"
    assert faults.unfetched(PrometheusError("query", "bad"), "rules[1]").message.endswith("fetch metrics")
    faults.resolve("query", subject="rules[1]")
    faults.failed(PrometheusError("unreachable", "http://prometheus:9090 refused"), "rules[0]")
    faults.answered("rules[0]", asked)
    assert log.active() == {("prometheus", ""): "http://prometheus:9090 refused"}
    clock.advance(1)
    faults.answered("rules[1]", clock.monotonic())
    assert log.active() == {}
    assert faults.unanswered().message == "Internal error occurred: unable to fetch metrics"


def test_what_a_query_failed_with_is_the_rules_own(faults: SourceProblems, log: ProblemLog) -> None:
    faults.failed(PrometheusError("timeout", "too slow"), "rules[3]")
    assert log.active() == {("query", "rules[3]"): "too slow"}


def test_too_many_queries_are_no_problem_of_the_source(faults: SourceProblems, log: ProblemLog) -> None:
    """The caller gets a 429, and no problem of Prometheus is reported."""
    busy = PrometheusError("busy", "too many questions wait for Prometheus")
    error = faults.unfetched(busy, "rules[0]")
    assert isinstance(error, TooManyRequestsError)
    assert (error.code, error.limit) == (429, "queries")
    faults.failed(busy, "rules[0]")
    assert log.active() == {}


@pytest.mark.looptime
async def test_faults_end_though_nobody_asks_again(
    faults: SourceProblems, log: ProblemLog, clock: FakeClock
) -> None:
    faults.report("list", "objects cannot be listed", "forbidden", "pods")
    faults.failed(PrometheusError("unreachable", "refused"), "rules[0]")
    faults.report("credentials", "a CA file cannot be reloaded", "broken", "ca.crt")
    task = asyncio.create_task(faults.run())
    await asyncio.sleep(6)
    assert len(log.active()) == 3
    clock.advance(61)
    await asyncio.sleep(5)
    slow = {("prometheus", ""): "refused", ("credentials", "ca.crt"): "broken"}
    assert log.active() == slow, "Prometheus has to answer, and files are checked at scrapes"
    clock.advance(220)
    faults.failed(PrometheusError("unreachable", "refused"), "rules[0]")
    clock.advance(299)
    await asyncio.sleep(5)
    assert list(log.active()) == [("prometheus", "")], "a query met it less than five minutes ago"
    clock.advance(2)
    await asyncio.sleep(5)
    assert log.active() == {}, "requests go to another replica"
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
