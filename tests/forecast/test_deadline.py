"""A job that takes too much is given up wherever it is, and everything else stays."""

import itertools

import pytest
from msgspec.structs import replace

from adapter.bounds.forecast.job import MOST_VALUES_OF_ONE, ForecastJob, HistoryQuery
from adapter.bounds.forecast.minimum import Limits
from adapter.bounds.forecast.verdict import CandidateFigures, ReplayFigures, Verdict
from adapter.model.autoscaling.forecast import DAY, FLOOR, ForecastSettings
from fastpath_forecast import judge, worker
from fastpath_forecast.candidates import CANDIDATES
from fastpath_forecast.histories import Histories
from fastpath_forecast.replay import Check
from fastpath_forecast.worker import TooMuchWorkError
from tests.forecast.forecasts import SETTINGS, case_of, working_days
from tests.forecast.live_forecasts import METRIC, HandHistory, days_of_jumps, queue_metric
from tests.support.controller import fpa
from tests.support.scaling import external_metric
from tests.support.schedules import schedule

START = 19_700 * DAY
NOW = START + 8 * DAY
FIGURES = ReplayFigures(0.0, 1.0)
JOB = ForecastJob(
    "shop/web",
    fpa([queue_metric()]),
    "fast",
    ForecastSettings(FLOOR, 7 * DAY),
    (60,),
    (HistoryQuery(METRIC, "queue"),),
    NOW,
)
PLAN = replace(
    JOB,
    verdict=Verdict(NOW, 60, "season", "", None, (CandidateFigures("season", FIGURES, FIGURES, 0.9),)),
    limits=Limits(2, 60, 1, 5, 0.9, 0.15),
    judges=False,
)
READS = 6
"""The queries for seven days."""

JUMPS = [float(round(each)) for each in days_of_jumps(8)]
"""Without noise, so that a verdict takes a second."""


def give_up_at(call: int) -> Check:
    calls = itertools.count(1)

    def check(pods: int) -> None:
        if next(calls) == call:
            raise TooMuchWorkError("too much")

    return check


def test_a_job_is_given_up_while_it_reads_and_while_it_plans_and_histories_stay() -> None:
    histories, history = Histories(), HandHistory(START, days_of_jumps(8))
    other = replace(PLAN, name="other/web")
    assert worker.answer(other, histories, history.read).plans
    for call in range(1, READS + 1):
        history.queries.clear()
        answer = worker.answer(PLAN, histories, history.read, give_up_at(call))
        assert (answer.reason, answer.problem, len(history.queries)) == ("TooMuchWork", "too much", call - 1)
    for call in (READS + 1, 1, 2):  # the second and the third have all of the history
        answer = worker.answer(PLAN, histories, history.read, give_up_at(call))
        assert (answer.reason, answer.plans) == ("TooMuchWork", ())
    assert answer.values == 2 * 7 * 1440
    history.queries.clear()
    for job in (other, PLAN):
        assert worker.answer(job, histories, history.read, give_up_at(3)).plans
    assert history.queries == []


def test_a_verdict_is_given_up_in_the_middle_of_a_replay() -> None:
    demand = working_days(8)
    case, calls = case_of(demand, SETTINGS), itertools.count(1)

    def check(pods: int) -> None:
        assert pods > 0  # of the replay without a floor
        if next(calls) == 5:
            raise TooMuchWorkError

    with pytest.raises(TooMuchWorkError):
        judge.judge(case, judge.build_demand(case), check)
    assert next(calls) == 6


def test_a_deadline_counts_from_now_in_cpu_time_and_in_seconds() -> None:
    times = {"cpu": 100.0, "real": 5.0}
    check = worker.build_deadline(10, 20, 7, lambda: times["cpu"], lambda: times["real"])
    times.update(cpu=109.9, real=24.9)
    check(7)
    times["real"] = 25.0
    with pytest.raises(TooMuchWorkError, match=r"the job takes more than 20 s$"):
        check(0)
    times["cpu"] = 110.0
    with pytest.raises(TooMuchWorkError, match="the job takes more than 10 s of CPU time"):
        check(0)
    with pytest.raises(TooMuchWorkError, match="a replay has 8 pods: expected at most 7"):
        check(8)


@pytest.mark.parametrize(
    ("metrics", "days", "values"), [(19, 35, 984_960), (46, 14, 993_600), (47, 14, 1_015_200)]
)
def test_one_autoscaler_has_so_many_values_until_its_next_verdict(
    metrics: int, days: int, values: int
) -> None:
    names = [f"m{each}" for each in range(metrics)]
    asked = replace(
        PLAN,
        autoscaler=fpa([external_metric(name, averageValue="1") for name in names]),
        settings=ForecastSettings(FLOOR, days * DAY),
        queries=tuple(HistoryQuery(name, "queue") for name in names),
        now=NOW + DAY,  # the last job before the next verdict
    )
    answer = worker.answer(asked, Histories(), HandHistory(START, []).read)
    if values <= MOST_VALUES_OF_ONE:
        assert (answer.reason, answer.values) == ("NoValues", values)
        return
    assert (answer.reason, answer.values) == ("NoRoom", 0)
    assert answer.problem == (
        f"{metrics} metrics have {values:,} values of history by the next verdict: expected at most "
        "1,000,000 for one autoscaler; ask for fewer days, or for fewer metrics"
    )


@pytest.fixture(scope="module")
def made_again() -> Verdict:
    """Return the verdict of a job whose last one is on a candidate of another version."""
    before = Verdict(NOW, 60, "trend", "", None, (CandidateFigures("trend", FIGURES, FIGURES, 0.9),))
    answer = worker.answer(replace(PLAN, verdict=before), Histories(), HandHistory(START, JUMPS).read)
    assert answer.verdict is not None
    return answer.verdict


def test_a_verdict_on_a_candidate_of_another_version_is_made_again(made_again: Verdict) -> None:
    assert [each.name for each in made_again.candidates] == [*CANDIDATES]


def test_the_schedules_of_the_autoscaler_hold_in_the_replay(made_again: Verdict) -> None:
    """A schedule that has the pods ready at all times leaves nothing for a forecast."""
    always = schedule({"name": "always", "from": "00:00", "to": "24:00", "minReplicas": 60}).document
    job = replace(JOB, schedules=(always,))
    scheduled = worker.answer(job, Histories(), HandHistory(START, JUMPS).read).verdict
    assert made_again.none is not None
    assert scheduled is not None
    assert scheduled.none is not None
    assert made_again.none.whole.shortage > 0
    assert (scheduled.none.whole.shortage, scheduled.chosen) == (0, "")
