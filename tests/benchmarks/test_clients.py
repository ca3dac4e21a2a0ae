"""What trials of clients come to, on outcomes that are known."""

import asyncio
import math

import pytest

from benchmarks import clients_figures
from benchmarks.clients import Clients, Watched
from benchmarks.clients_figures import CASES, LEAST, NEEDED, SLOW_SECONDS, TWINS, Answer, Outcome, Pod


def outcome(*seconds: float, ready: float = 5.0, raised: float = 1.0, more: int = NEEDED - LEAST) -> Outcome:
    """Return a trial of 10 s with a request each second, and pods that a raise has added to the least."""
    answers = [Answer(float(due), each) for due, each in enumerate(seconds)]
    pods = [Pod(-60.0, -59.0)] * LEAST + [Pod(raised, ready)] * more
    return Outcome(10, answers, [(-60.0, LEAST), (raised, LEAST + more)], pods)


def test_a_request_is_slow_or_fails() -> None:
    found = outcome(0.5, SLOW_SECONDS, 1.3, math.inf, *[0.5] * 6)

    assert (found.slow_share(), found.failed_share()) == (0.2, 0.1)
    assert [found.percentile(share) for share in (0.8, 0.99)] == [1.3, clients_figures.TIMEOUT_SECONDS]
    assert clients_figures.slow_curve([found, outcome(2.0, *[0.5] * 9)]) == "50 0 50 50 0 0 0 0 0 0"


def test_pods_count_from_the_step() -> None:
    found = outcome(0.5)

    assert (found.before(), found.raised(), found.all_ready(), found.starts()) == (LEAST, 1, 5, [4.0] * 6)
    assert found.ready_counts()[-1] == (5, NEEDED)
    assert found.pod_seconds() == 10 * LEAST + 9 * (NEEDED - LEAST)


@pytest.mark.parametrize("found", [outcome(0.5, more=3), outcome(0.5, ready=math.inf)])
def test_what_never_comes_takes_all_of_the_trial(found: Outcome) -> None:
    assert found.all_ready() == 10


def test_a_figure_has_a_range_of_its_trials() -> None:
    trials = [{twin: outcome(*[2.0] * slow, *[0.5] * (8 - slow)) for twin in TWINS} for slow in (0, 2, 4)]
    figures, ranges = {}, {}
    for name, value, edges in clients_figures.measure("step", trials, 1):
        figures[name], ranges[name] = value, edges

    assert figures["step_fast_slow_share"] == 0.25
    assert ranges["step_fast_slow_share"] == "0 0.5"
    assert ranges["step_fast_pods_ratio"] == "1 1"
    row = clients_figures.table(figures, ranges).splitlines()[2]
    assert row.startswith(f"| {CASES['step'].about} | HPA alone | 25.0% (")


def test_what_the_watches_show() -> None:
    watched = Watched()
    for now, line in enumerate(("ADDED fast 2", "MODIFIED fast 2", "MODIFIED fast 6", "ADDED other 1")):
        watched.see("deployments", now, *line.split(" "))
    for now, line in enumerate(("ADDED a fast  ", "MODIFIED a fast True ", "MODIFIED a fast False now")):
        watched.see("pods", now, *line.split(" "))

    found = watched.outcome("fast", 10, [], 1.0)

    assert found.counts == [(-1, 2), (1, 6)]
    assert found.pods == [Pod(-1, 0, 1)]


async def test_requests_are_sent_however_late_they_are_answered() -> None:
    """Those of the case are counted, from the step on: one is answered, one gets a 503, one is cut off."""
    replies = iter([b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 503 X\r\n\r\n"])
    case = clients_figures.Case("", "", 1, lambda _: 3.0)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(next(replies, b""))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        clients = Clients({"fast": server.sockets[0].getsockname()}, case)
        clients.step = asyncio.get_running_loop().time()
        await clients.send()

    answers = [(round(each.due, 2), math.isfinite(each.seconds)) for each in clients.answers["fast"]]
    assert sorted(answers) == [(0, True), (0.33, False), (0.67, False)]
