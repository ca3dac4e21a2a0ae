"""Which job of forecasts is next, and how long a verdict waits for the next one."""

import pytest

from adapter.autoscaler.forecasts.book import PLANS_IN_A_ROW, JobQueue, Pauses
from adapter.autoscaler.forecasts.forecast import PAUSE, RETRY, pause_after
from adapter.autoscaler.interfaces import Key
from adapter.bounds.forecast import job as jobs
from adapter.bounds.forecast.job import ForecastAnswer
from adapter.bounds.forecast.verdict import Verdict

VICTIM = Key("victim", "web")


def greedy(count: int) -> list[Key]:
    return [Key("greedy", str(each)) for each in range(count)]


def taken(queue: JobQueue) -> list[Key]:
    return list(iter(queue.take, None))


def test_a_namespace_that_always_has_jobs_gets_every_other_turn() -> None:
    queue, order = JobQueue(), []
    for _ in range(20):
        for key in [*greedy(11), VICTIM]:  # each is due again at once
            queue.add(key, judges=True)
        order.append(queue.take())
    assert order.count(VICTIM) == 10
    assert len(set(order)) == 11


def test_plans_come_first_and_leave_turns_to_verdicts() -> None:
    queue = JobQueue()
    for key in greedy(9):
        queue.add(key, judges=False)
    queue.add(VICTIM, judges=True)
    assert taken(queue).index(VICTIM) == PLANS_IN_A_ROW
    for key in greedy(2):
        queue.add(key, judges=True)
    queue.add(VICTIM, judges=False)
    assert taken(queue)[0] == VICTIM


def test_a_job_waits_once_and_may_become_one_for_a_verdict() -> None:
    queue = JobQueue()
    first, second = greedy(2)
    for key in (first, second, first):
        queue.add(key, judges=False)
    queue.add(second, judges=True)
    queue.discard(Key("greedy", "unknown"))
    assert taken(queue) == [first, second]
    queue.add(first, judges=True)
    queue.discard(first)
    assert queue.take() is None


def test_plans_come_before_the_verdicts_of_all_other_namespaces() -> None:
    queue = JobQueue()
    for number in range(63):
        queue.add(Key(f"team-{number}", "web"), judges=True)
    assert queue.take() == Key("team-0", "web")
    queue.add(VICTIM, judges=False)
    order = taken(queue)
    assert order[0] == VICTIM
    assert len(order) == 63


def test_a_job_that_is_added_wakes_what_does_them() -> None:
    queue = JobQueue()
    queue.add(VICTIM, judges=True)
    assert queue.wake.is_set()


def test_a_pause_ends() -> None:
    pauses = Pauses()
    pauses.begin(VICTIM, 1000, 300)
    assert pauses.end_of(VICTIM, 1000) == 1300
    assert pauses.end_of(VICTIM, 1300) == 1300
    assert pauses.end_of(VICTIM, 1300 - PAUSE - 1) == 1300 - PAUSE - 1  # the clock was set back
    assert pauses.end_of(Key("victim", "other"), 1000) == 1000


def test_so_many_pauses_are_known() -> None:
    pauses = Pauses(3)
    first, *others = greedy(4)
    for key in (first, *others[:2]):
        pauses.begin(key, 0, 300)
    pauses.begin(first, 10, 300)
    pauses.begin(others[2], 20, 300)
    assert [pauses.end_of(key, 20) for key in (first, *others)] == [310, 20, 300, 320]
    pauses.begin(VICTIM, 305, 300)  # what has ended is forgotten first
    assert [pauses.end_of(key, 305) for key in (first, *others[1:], VICTIM)] == [310, 305, 320, 605]


@pytest.mark.parametrize(
    ("answer", "seconds"),
    [
        (ForecastAnswer(Verdict(0, 60, "day")), PAUSE),
        (ForecastAnswer(Verdict(0, 60, missing="3 of 7 days of history")), RETRY),
        (ForecastAnswer(reason=jobs.WORKER_FAILED), PAUSE),
        (ForecastAnswer(reason=jobs.UNREADABLE), RETRY),
        (ForecastAnswer(reason=jobs.NO_ROOM), 0),
    ],
)
def test_a_pause_is_as_long_as_the_job_was_dear(answer: ForecastAnswer, seconds: int) -> None:
    assert pause_after(answer) == seconds
