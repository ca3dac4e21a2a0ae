"""When autoscalers are due: the heap of keys, and the clock that never jumps."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.controller.loop import Due, Scheduler
from adapter.autoscaler.interfaces import Key
from adapter.model.clock import DecisionClock
from adapter.model.timestamps import SECOND
from tests.support.controller import HandClock

KEYS = A, B, C = tuple(Key("default", name) for name in "abc")
TIMES = st.integers(0, 9).map(float)
STEPS = st.lists(
    st.tuples(st.just("schedule"), st.sampled_from(KEYS), TIMES)
    | st.tuples(st.just("remove"), st.sampled_from(KEYS))
    | st.tuples(st.just("pop"), TIMES)
)


def popped(scheduler: Scheduler, now: float) -> list[Due]:
    found = []
    while (due := scheduler.pop(now)) is not None:
        found.append(due)
    return found


@given(STEPS)
def test_keys_of_a_namespace_are_due_once_in_the_order_of_their_times(steps: list[tuple[Any, ...]]) -> None:
    """A sooner time replaces a later one; of one time, what was scheduled first comes first."""
    scheduler, due = Scheduler(), dict[Key, tuple[float, int]]()
    for number, (what, *values) in enumerate(steps):
        if what == "schedule":
            key, at = values
            scheduler.schedule(key, at)
            if key not in due or at < due[key][0]:
                due[key] = (at, number)
        elif what == "remove":
            scheduler.remove(values[0])
            due.pop(values[0], None)
        else:
            assert scheduler.next_due() == min((at for at, _ in due.values()), default=None)
            expected = sorted((when, key) for key, when in due.items() if when[0] <= values[0])
            assert popped(scheduler, values[0]) == [(key, at) for (at, _), key in expected]
            for _, key in expected:
                del due[key]


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


def test_former_times_do_not_pile_up() -> None:
    """A key that is made due sooner again and again, at times far ahead, keeps few entries."""
    scheduler = Scheduler()
    scheduler.schedule(B, 9e6)
    for count in range(10_000):
        scheduler.schedule(A, 1e6 - count)
    assert len(scheduler._heap) < 1100
    assert popped(scheduler, 1e7) == [(A, 990_001.0), (B, 9e6)]


def test_the_time_of_day_follows_a_jump_when_it_is_asked_and_the_time_of_decisions_never() -> None:
    clock = HandClock()
    decisions = DecisionClock(clock)
    start = decisions.now()
    assert decisions.time_of_day() == start
    clock.seconds += 2
    now = start + 2 * SECOND
    assert (decisions.now(), decisions.time_of_day()) == (now, now)
    clock.skew += 0.9
    assert (decisions.jump(), decisions.time_of_day()) == (0, now)
    clock.skew += 9.1
    assert decisions.time_of_day() == now
    assert (decisions.jump(), decisions.jump()) == (10 * SECOND, 0)
    assert (decisions.now(), decisions.time_of_day()) == (now, now + 10 * SECOND)
    assert (decisions.time_of_day(start), decisions.set_by) == (start + 10 * SECOND, 10 * SECOND)
    clock.skew -= 30
    assert (decisions.jump(), decisions.now(), decisions.set_by) == (-30 * SECOND, now, -20 * SECOND)


def test_a_time_of_day_is_not_waited_for_too_short_a_time() -> None:
    clock = HandClock()
    decisions = DecisionClock(clock)
    clock.skew += 3600
    decisions.jump()
    due = decisions.monotonic_at(decisions.time_of_day() + SECOND)
    assert 0 < due - clock.seconds - 1 < 0.001
