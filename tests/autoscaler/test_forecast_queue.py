"""Which job of forecasts is next, and how long a verdict waits for the next one."""

from collections.abc import Callable

import pytest

from adapter.autoscaler.forecasts.book import PLANS_IN_A_ROW, JobQueue, Pauses
from adapter.autoscaler.forecasts.forecast import PAUSE, RETRY, pause_after
from adapter.autoscaler.interfaces import Key
from adapter.bounds.forecast import job as jobs
from adapter.bounds.forecast.job import ForecastAnswer
from adapter.bounds.forecast.verdict import Verdict

VICTIM = Key("victim", "web")
BOOK = "the book of a slice"


def greedy(count: int) -> list[Key]:
    return [Key("greedy", str(each)) for each in range(count)]


def do(queue: JobQueue, *books: str) -> Key | None:
    """Do the job whose turn it is, which is one of the books."""
    for book in books or (BOOK,):
        if (key := queue.take(book)) is not None:
            assert queue.take(book) is None, "one job at a time"
            queue.done()
            return key
    return None


def taken(queue: JobQueue, *books: str) -> list[Key]:
    return list(iter(lambda: do(queue, *books), None))


def test_a_namespace_that_always_has_jobs_gets_every_other_turn() -> None:
    queue, order = JobQueue(), []
    for _ in range(20):
        for key in [*greedy(11), VICTIM]:  # each is due again at once
            queue.add(key, BOOK, judges=True)
        order.append(do(queue))
    assert order.count(VICTIM) == 10
    assert len(set(order)) == 11


def test_plans_come_first_and_leave_turns_to_verdicts() -> None:
    queue = JobQueue()
    for key in greedy(9):
        queue.add(key, BOOK, judges=False)
    queue.add(VICTIM, BOOK, judges=True)
    assert taken(queue).index(VICTIM) == PLANS_IN_A_ROW
    for key in greedy(2):
        queue.add(key, BOOK, judges=True)
    queue.add(VICTIM, BOOK, judges=False)
    assert taken(queue)[0] == VICTIM


def test_a_job_waits_once_and_may_become_one_for_a_verdict() -> None:
    queue = JobQueue()
    first, second = greedy(2)
    for key in (first, second, first):
        queue.add(key, BOOK, judges=False)
    queue.add(second, BOOK, judges=True)
    queue.discard(Key("greedy", "unknown"))
    assert taken(queue) == [first, second]
    queue.add(first, BOOK, judges=True)
    queue.discard(first)
    assert queue.take(BOOK) is None


def test_plans_come_before_the_verdicts_of_all_other_slices() -> None:
    queue, books = JobQueue(), [f"slice {number}" for number in range(64)]
    for book in books[1:]:
        queue.add(Key(book, "web"), book, judges=True)
    assert do(queue, *books) == Key("slice 1", "web")
    queue.add(VICTIM, books[0], judges=False)
    assert queue.take(books[2]) is None, "another book has the turn"
    order = taken(queue, *books)
    assert order[0] == VICTIM
    assert len(order) == 63


def test_a_change_wakes_the_books_that_wait() -> None:
    queue = JobQueue()
    changes: list[Callable[[], object]] = [lambda: queue.add(VICTIM, BOOK, judges=True)]
    for change in (*changes, lambda: queue.take(BOOK), queue.done):
        changed = queue.changed
        change()
        assert changed.is_set()
        assert not queue.changed.is_set()


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
