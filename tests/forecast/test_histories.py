"""What the process of forecasts keeps of the past, and what it reads again."""

import math
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.bounds.forecast.job import STEP, HistoryQuery
from adapter.bounds.forecast.plan import HOUR
from adapter.errors import PrometheusError
from fastpath_forecast.histories import Histories, NoRoomError

START = 1_700_000_000 // HOUR * HOUR
QUERIES = (HistoryQuery("a", "A"), HistoryQuery("b", "B"))


class Past:
    """A Prometheus in which the value of a minute is its number, and ten times that for B."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.failing = ""

    def read(self, promql: str, start: int, end: int, step: int) -> dict[int, float]:
        self.asked.append((promql, (start - START) // STEP, (end - START) // STEP))
        if promql == self.failing:
            raise PrometheusError("unreachable", "Connection refused")
        factor = 10 if promql == "B" else 1
        return {at: float(factor * ((at - START) // STEP)) for at in range(start, end + 1, step)}


def update(kept: Histories, past: Past, first: int, last: int) -> dict[str, Sequence[float]]:
    """Ask for the minutes from one to another, the end exclusive; return the first and the last value."""
    found = kept.update("x", QUERIES, START + first * STEP, START + last * STEP, START, past.read)
    assert {len(each) for each in found.values()} == {last - first}
    return {name: (each[0], each[-1]) for name, each in found.items()}


def test_a_value_is_that_of_the_minute_that_ends_then_and_only_what_is_new_is_read() -> None:
    kept, past = Histories(), Past()
    assert update(kept, past, 0, 120) == {"a": (1, 120), "b": (10, 1200)}
    assert past.asked == [("A", 1, 120), ("B", 1, 120)]
    past.asked.clear()
    assert update(kept, past, 60, 180) == {"a": (61, 180), "b": (610, 1800)}
    assert past.asked == [("A", 121, 180), ("B", 121, 180)]
    assert kept.values == 240
    past.asked.clear()
    assert update(kept, past, 60, 180) == {"a": (61, 180), "b": (610, 1800)}
    assert past.asked == []


def test_a_read_that_fails_leaves_each_history_as_it_is() -> None:
    kept, past = Histories(), Past()
    update(kept, past, 0, 120)
    past.failing = "B"
    with pytest.raises(PrometheusError):
        update(kept, past, 60, 180)
    past.failing = ""
    past.asked.clear()
    assert update(kept, past, 60, 240) == {"a": (61, 240), "b": (610, 2400)}
    assert past.asked == [("A", 181, 240), ("B", 121, 240)]


def test_an_older_begin_or_another_query_reads_all_again() -> None:
    kept, past = Histories(), Past()
    update(kept, past, 60, 120)
    past.asked.clear()
    assert update(kept, past, 0, 120) == {"a": (1, 120), "b": (10, 1200)}
    assert past.asked[0] == ("A", 1, 120)
    renamed = (HistoryQuery("a", "A2"), QUERIES[1])
    past.asked.clear()
    kept.update("x", renamed, START, START + 120 * STEP, START, past.read)
    assert [each[0] for each in past.asked] == ["A2", "B"]


def test_negative_values_and_missing_ones_are_unknown() -> None:
    kept = Histories()

    def read(promql: str, start: int, end: int, step: int) -> dict[int, float]:
        return {start: -1.0, end: 3.0}

    found = kept.update("x", QUERIES[:1], START, START + 3 * STEP, START, read)["a"].tolist()
    assert [math.isnan(each) for each in found] == [True, True, False]


def keep(kept: Histories, name: str, minutes: int, metrics: int = 1, now: int = START) -> bool:
    """Ask for so many minutes of an autoscaler, and tell whether there was room."""
    queries = [HistoryQuery(str(each), str(each)) for each in range(metrics)]
    try:
        kept.update(name, queries, START, START + minutes * STEP, now, lambda *_: {})
    except NoRoomError:
        return False
    return True


def names(kept: Histories) -> set[str]:
    return set(kept._kept)


def test_a_namespace_has_half_of_the_room() -> None:
    kept = Histories(25_000)
    wide = [keep(kept, f"greedy/{each}", 50, metrics=50) for each in range(9)]
    assert wide == [True] * 5 + [False] * 4
    assert not keep(kept, "greedy/narrow", 50)
    assert kept.values == 12_500
    for each in range(3):  # at once, and at any time later
        assert keep(kept, "victim/web", 20, now=START + each * HOUR)
    with pytest.raises(NoRoomError) as told:
        kept.update("greedy/more", QUERIES, START, START + 50 * STEP, START, Past().read)
    assert str(told.value) == (
        "no room for 100 values of its history: namespace greedy has 12,500, "
        "and one namespace may have 12,500 of 25,000"
    )


def test_many_autoscalers_of_one_metric_leave_room_too() -> None:
    kept = Histories(25_000)
    assert sum(keep(kept, f"greedy/{each}", 50) for each in range(496)) == 250
    assert keep(kept, "victim/web", 50)


def test_in_a_full_room_the_largest_namespace_loses_what_it_used_longest_ago() -> None:
    kept = Histories(1000)
    for each in range(5):
        assert keep(kept, f"a/{each}", 100)
        assert keep(kept, f"b/{each}", 80)
    assert keep(kept, "c/0", 100)
    assert keep(kept, "a/0", 100)  # used again
    assert keep(kept, "c/1", 50)
    assert names(kept) == {f"a/{each}" for each in (0, 2, 3, 4)} | {f"b/{each}" for each in range(5)} | {
        "c/0",
        "c/1",
    }
    assert not keep(kept, "a/1", 100)  # and does not take it back
    assert keep(kept, "c/0", 200)
    assert kept.values <= 1000


def test_what_would_not_help_drops_no_history() -> None:
    kept = Histories(1000)
    for each in range(4):
        assert keep(kept, f"{each}/web", 250)
    with pytest.raises(NoRoomError) as told:
        kept.update("new/web", QUERIES, START, START + 125 * STEP, START, Past().read)
    assert str(told.value) == (
        "no room for 250 values of its history: 1,000 of 1,000 are taken, 0 by namespace new, "
        "and no other one would have more than it"
    )
    assert kept.values == 1000
    assert keep(kept, "new/web", 249)


def test_what_is_used_no_more_makes_room_first() -> None:
    kept = Histories(1000)
    assert keep(kept, "a/old", 500)
    assert keep(kept, "b/web", 400, now=START + 3 * HOUR)
    assert keep(kept, "a/new", 400, now=START + 3 * HOUR)
    assert names(kept) == {"b/web", "a/new"}


def test_a_history_that_cannot_be_read_takes_room_once() -> None:
    kept, past = Histories(1000), Past()
    past.failing = "A"
    for each in range(5):
        assert keep(kept, f"large/{each}", 100)
        assert keep(kept, f"other/{each}", 80)
    for _ in range(5):
        with pytest.raises(PrometheusError):
            kept.update("failing/web", QUERIES[:1], START, START + 200 * STEP, START, past.read)
    assert len([each for each in names(kept) if each.startswith("large/")]) == 4
    assert kept.values == 1000


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.integers(1, 60)), max_size=60))
def test_room_is_never_exceeded_and_a_small_history_always_has_some(
    asked: list[tuple[str, int, int]],
) -> None:
    kept = Histories(200)
    for namespace, number, minutes in asked:
        before = names(kept)
        if not keep(kept, f"{namespace}/{number}", minutes):
            assert before - names(kept) <= {f"{namespace}/{number}"}
        sums = Counter[str]()
        for name, each in kept._kept.items():
            sums[name[0]] += each.values
        assert sums.total() == kept.values <= 200
        assert max(sums.values(), default=0) <= 100
    assert keep(kept, "victim/web", 40)
