"""The process that makes forecasts: jobs on standard input, answers on standard output, a line of JSON each.

It has the histories in memory, and nothing else: what a job needs of the past is in the job. It ends when
its standard input ends, which is when the scaler ends.
"""

import functools
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

import msgspec
import numpy as np
from msgspec import structs

from adapter.bounds.forecast import job as jobs
from adapter.bounds.forecast.job import MOST_VALUES_OF_ONE, STEP, ForecastAnswer, ForecastJob
from adapter.bounds.forecast.plan import HOUR
from adapter.bounds.forecast.verdict import JUDGED_DAYS, Verdict
from adapter.bounds.schedule import documents
from adapter.errors import InputError, PrometheusError
from adapter.forecast.messages import WorkerJob, WorkerReply, decode_job
from adapter.model.timestamps import SECOND
from fastpath_forecast import judge, planner, range_query, replay
from fastpath_forecast.candidates import CANDIDATES
from fastpath_forecast.grid import DAY, DemandGrid, Values
from fastpath_forecast.histories import Histories, NoRoomError, Read
from fastpath_forecast.judge import Case
from fastpath_forecast.replay import Check
from fastpath_forecast.simulate import metrics, policies
from fastpath_forecast.simulate.load import of_points
from fastpath_forecast.simulate.simulation import Scenario

_NICE = 10  # decisions have priority


MOST_SAMPLES = 100_000
"""How many values a decision of a replay has at most, one of each metric and pod."""


class TooMuchWorkError(Exception):
    """A job takes more than it may."""


def build_deadline(
    cpu_seconds: float,
    seconds: float,
    most_pods: int,
    cpu_clock: Callable[[], float] = time.thread_time,
    clock: Callable[[], float] = time.monotonic,  # noqa: TID251 - a process of its own
) -> Check:
    """Return a check that raises TooMuchWorkError.

    It raises once this thread has used so much CPU time, after so many seconds, and for more pods.
    """
    cpu_end, end = cpu_clock() + cpu_seconds, clock() + seconds

    def check(pods: int) -> None:
        if pods > most_pods:
            raise TooMuchWorkError(f"a replay has {pods:,} pods: expected at most {most_pods:,}")
        if cpu_clock() >= cpu_end:
            raise TooMuchWorkError(f"the job takes more than {cpu_seconds:g} s of CPU time")
        if clock() >= end:
            raise TooMuchWorkError(f"the job takes more than {seconds:g} s")

    return check


def answer(job: ForecastJob, histories: Histories, read: Read, check: Check = replay.go_on) -> ForecastAnswer:
    """Do a job: read what is new of the history, judge if that is asked for, and plan the next hour.

    What `check` raises gives it up. Raises PrometheusError.
    """

    def read_in_time(promql: str, start: int, end: int, step: int) -> dict[int, float]:
        check(0)
        return read(promql, start, end, step)

    try:
        outcome = _answer(job, histories, read_in_time, check)
    except NoRoomError as error:
        outcome = ForecastAnswer(reason=jobs.NO_ROOM, problem=str(error))
    except TooMuchWorkError as error:
        outcome = ForecastAnswer(reason=jobs.TOO_MUCH_WORK, problem=str(error))
    except InputError as error:
        faults = "; ".join(f"{fault.path}: {fault.expected}" for fault in error.faults)
        outcome = ForecastAnswer(reason=jobs.UNSUPPORTED, problem=faults)
    return structs.replace(outcome, values=histories.values)


def _answer(job: ForecastJob, histories: Histories, read: Read, check: Check) -> ForecastAnswer:
    at = job.now // HOUR * HOUR
    verdict = job.verdict
    # a verdict may be of a version with other candidates
    if verdict is not None and verdict.chosen not in {"", *CANDIDATES}:
        verdict = None
    if job.judges or (verdict is not None and _has_moved(job, verdict)):
        verdict = None
    begin = (at if verdict is None else verdict.at) - job.settings.history // HOUR * HOUR
    # Before anything is read: a job that is too large must not cost the queries first.
    _check_size(job)
    simulated = metrics.simulated_metrics(job.autoscaler.spec.metrics or (), job.request)
    rows = histories.update(job.name, job.queries, begin, at, job.now, read)
    for metric in simulated:
        if np.isnan(rows[metric.name][-HOUR // STEP :]).all():
            end = f"{at // HOUR % 24:02}:00 UTC"
            problem = f"the query of {metric.name} has no value in the hour before {end}"
            return ForecastAnswer(reason=jobs.NO_VALUES, problem=problem)
    # of several metrics, one unknown makes the demand unknown
    demand = functools.reduce(np.maximum, (rows[metric.name] / metric.capacity for metric in simulated))
    grid = DemandGrid(begin, STEP, demand, job.settings.zone)
    limits, account = job.limits, None
    if verdict is None:
        judged = max(begin, at - JUDGED_DAYS * DAY)
        last = {metric: row[(judged - begin) // STEP :] for metric, row in rows.items()}
        verdict, variant = judge.judge(_case(job, judged, last), grid, check)
        if variant is not None:
            limits, account = variant.limits, variant.account
    check(0)
    case = _case(job, begin, {})
    card = msgspec.Raw(msgspec.json.encode(planner.build_card(case, grid, verdict)))
    # The judge found no forecast that is better than none. The card says so, and there is no plan.
    if not verdict.chosen or limits is None:
        return ForecastAnswer(verdict, card=card)
    this = at // HOUR
    hours = range(this if job.with_this_hour else this + 1, this + 2)
    check(0)
    plans = planner.plans(grid, verdict.chosen, limits, job.settings, hours, account)
    return ForecastAnswer(verdict, limits, tuple(plans), card)


def _check_size(job: ForecastJob) -> None:
    """Raise NoRoomError for a history that would be too large by the next verdict, a day from now."""
    values = len(job.queries) * (job.settings.history + DAY) // STEP
    if values > MOST_VALUES_OF_ONE:
        raise NoRoomError(
            f"{len(job.queries)} metrics have {values:,} values of history by the next verdict: expected at "
            f"most {MOST_VALUES_OF_ONE:,} for one autoscaler; ask for fewer days, or for fewer metrics"
        )


def _case(job: ForecastJob, begin: int, rows: dict[str, Values]) -> Case:
    loads = {}
    for metric, row in rows.items():
        points = zip(range(0, len(row) * STEP, STEP), row.tolist(), strict=True)
        loads[metric] = of_points(points, len(row) * STEP)
    epoch = begin * SECOND
    schedules = [documents.check(document, "", []).schedule for document in job.schedules]
    scenario = Scenario(
        job.autoscaler, loads, job.start_ups, job.request, phases=1, schedules=schedules, epoch=epoch
    )
    return Case(scenario, policies.read_policy(job.policy), job.settings)


def _has_moved(job: ForecastJob, verdict: Verdict) -> bool:
    """Tell whether minimums now look another number of steps ahead, because pods start faster or slower."""
    if job.limits is None or not (job.start_ups or job.settings.horizon):
        return bool(verdict.chosen)
    return judge.build_limits(_case(job, 0, {})).lead != job.limits.lead


def run(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer the jobs on `source` one after the other until it ends."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_feed, args=(source, lines), daemon=True).start()
    histories: Histories | None = None
    while True:
        request = decode_job(lines.get())
        if histories is None:
            histories = Histories(request.most_values)
        sink.write(msgspec.json.encode(_reply(request, histories)) + b"\n")
        sink.flush()


def _feed(source: BinaryIO, lines: "queue.SimpleQueue[bytes]") -> None:
    for line in source:
        lines.put(line)
    os._exit(0)  # the job in progress has no use any more


def _reply(request: WorkerJob, histories: Histories) -> WorkerReply:
    def read(promql: str, start: int, end: int, step: int) -> dict[int, float]:
        return range_query.read_range(request.server, promql, start, end, step)

    try:
        most_pods = MOST_SAMPLES // max(1, len(request.job.queries))
        check = build_deadline(request.cpu_seconds, request.seconds, most_pods)
        return WorkerReply(answer(request.job, histories, read, check))
    except PrometheusError as error:
        problem = f"the history cannot be read: {error.message}"
        return WorkerReply(
            ForecastAnswer(reason=jobs.UNREADABLE, problem=problem, values=histories.values),
            refused=range_query.is_unauthorized(error),
        )


def main() -> None:
    """Run as a process."""
    os.nice(_NICE)
    run(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
