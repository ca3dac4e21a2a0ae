"""A verdict that takes too much CPU time is given up, and everything else stays."""

import itertools

import pytest
from msgspec.structs import replace

from adapter.forecast import judge, worker
from adapter.forecast.histories import Histories
from adapter.forecast.worker import TooMuchWorkError
from adapter.model.forecasts.job import ForecastJob, HistoryQuery
from adapter.model.forecasts.settings import DAY, FLOOR, ForecastSettings
from tests.support.controller import fpa
from tests.support.forecasts import SETTINGS, case_of, working_days
from tests.support.live_forecasts import METRIC, HandHistory, days_of_jumps, queue_metric

START = 19_700 * DAY
JOB = ForecastJob(
    "shop/web",
    fpa([queue_metric()]),
    "fast",
    ForecastSettings(FLOOR, 7 * DAY),
    (60,),
    (HistoryQuery(METRIC, "queue"),),
    START + 8 * DAY,
)


def test_a_verdict_beyond_its_time_is_given_up_and_histories_stay() -> None:
    histories, history = Histories(), HandHistory(START, days_of_jumps(8))
    other = replace(JOB, name="other/web")
    for job in (other, JOB):
        answer = worker.answer(job, histories, history.read, cpu_seconds=0.0)
        assert (answer.reason, answer.problem) == (
            "TooMuchWork",
            "the verdict takes more than 0 s of CPU time",
        )
    assert answer.values == 2 * 7 * 1440
    history.queries.clear()
    worker.answer(other, histories, history.read, cpu_seconds=0.0)
    assert history.queries == []


def test_a_replay_is_given_up_in_its_middle() -> None:
    demand = working_days(8)
    case, calls = case_of(demand, SETTINGS), itertools.count(1)

    def check() -> None:
        if next(calls) == 5:
            raise TooMuchWorkError

    with pytest.raises(TooMuchWorkError):
        judge.judge(case, judge.demand_of(case), "", check)
    assert next(calls) == 6


def test_a_deadline_counts_from_now() -> None:
    times = iter([100.0, 109.9, 110.0])
    check = worker.deadline_of(10, lambda: next(times))
    check()
    with pytest.raises(TooMuchWorkError):
        check()
