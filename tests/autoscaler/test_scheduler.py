"""When autoscalers are due: the heap of keys, and the clock that never jumps."""

from adapter.autoscaler.interfaces import Key
from adapter.autoscaler.loop import DecisionClock, Due, Scheduler
from adapter.model.timestamps import SECOND
from tests.support.controller import HandClock

A, B, C = (Key("default", name) for name in "abc")


def popped(scheduler: Scheduler, now: float) -> list[Due]:
    found = []
    while (due := scheduler.pop(now)) is not None:
        found.append(due)
    return found


def test_nothing_is_due_at_first() -> None:
    scheduler = Scheduler()
    assert (scheduler.next_due(), scheduler.pop(1e9)) == (None, None)


def test_what_was_due_first_comes_first_and_once() -> None:
    scheduler = Scheduler()
    for key, due in ((A, 3.0), (B, 1.0), (C, 2.0)):
        scheduler.schedule(key, due)
    assert scheduler.next_due() == 1.0
    assert scheduler.pop(0.9) is None
    assert popped(scheduler, 2.0) == [(B, 1.0), (C, 2.0)]
    assert popped(scheduler, 3.0) == [(A, 3.0)]
    assert scheduler.next_due() is None


def test_of_the_same_time_the_first_scheduled_comes_first() -> None:
    scheduler = Scheduler()
    for key in (B, A, C):
        scheduler.schedule(key, 1.0)
    assert [due.key for due in popped(scheduler, 1.0)] == [B, A, C]


def test_a_namespace_with_many_keeps_no_other_waiting() -> None:
    """Each namespace has a turn, and in it what has been due for the longest time."""
    scheduler = Scheduler()
    many = [Key("large", f"web-{number}") for number in range(500)]
    for key in many:
        scheduler.schedule(key, 1.0)
    for name in ("small", "tiny"):
        scheduler.schedule(Key(name, "web"), 2.0)
    served = [due.key for due in popped(scheduler, 2.0)]
    assert [key for key in served if key.namespace == "large"] == many
    assert max(served.index(Key(name, "web")) for name in ("small", "tiny")) < 12
    scheduler.schedule(many[0], 3.0)
    scheduler.schedule(many[1], 3.0)
    assert scheduler.pop(3.0) == (many[0], 3.0)
    assert scheduler.next_due() is not None
    scheduler.remove(many[1])
    assert (scheduler.next_due(), scheduler.pop(3.0)) == (None, None)


def test_a_sooner_time_counts_and_a_later_one_does_not() -> None:
    scheduler = Scheduler()
    scheduler.schedule(A, 5.0)
    scheduler.schedule(A, 3.0)
    scheduler.schedule(A, 4.0)
    assert popped(scheduler, 10.0) == [(A, 3.0)]


def test_a_former_time_of_a_key_is_not_due() -> None:
    scheduler = Scheduler()
    for due in (5.0, 3.0):
        scheduler.schedule(A, due)
    assert scheduler.pop(4.0) == (A, 3.0)
    scheduler.schedule(A, 100.0)
    assert scheduler.pop(10.0) is None
    assert popped(scheduler, 100.0) == [(A, 100.0)]


def test_a_removed_key_is_not_due_and_may_come_back() -> None:
    scheduler = Scheduler()
    scheduler.schedule(A, 1.0)
    scheduler.remove(A)
    scheduler.remove(B)
    assert (scheduler.next_due(), scheduler.pop(9.0)) == (None, None)
    scheduler.schedule(A, 2.0)
    assert popped(scheduler, 9.0) == [(A, 2.0)]


def test_former_times_do_not_pile_up() -> None:
    """A key that is made due sooner again and again, at times far ahead, keeps few entries."""
    scheduler = Scheduler()
    scheduler.schedule(B, 9e6)
    for count in range(10_000):
        scheduler.schedule(A, 1e6 - count)
    assert len(scheduler._heap) < 1100
    assert popped(scheduler, 1e7) == [(A, 990_001.0), (B, 9e6)]


def test_the_clock_of_decisions_follows_a_jump_when_it_is_asked() -> None:
    clock = HandClock()
    decisions = DecisionClock(clock)
    start = decisions.now()
    clock.seconds += 2
    assert decisions.now() == start + 2 * SECOND
    clock.skew += 0.9
    assert (decisions.jump(), decisions.now()) == (0, start + 2 * SECOND)
    clock.skew += 9.1
    assert decisions.now() == start + 2 * SECOND
    assert decisions.jump() == 10 * SECOND
    assert (decisions.jump(), decisions.now()) == (0, start + 12 * SECOND)


def test_the_clock_of_decisions_follows_a_clock_that_is_set_back() -> None:
    clock = HandClock()
    decisions = DecisionClock(clock)
    start = decisions.now()
    clock.skew -= 10
    assert (decisions.jump(), decisions.now()) == (-10 * SECOND, start - 10 * SECOND)
