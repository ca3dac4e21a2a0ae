"""What the process of forecasts keeps of the past, and what it reads again."""

import math
from collections.abc import Sequence

import pytest

from adapter.errors import PrometheusError
from adapter.forecast.histories import Histories
from adapter.model.forecasts.job import STEP, HistoryQuery
from adapter.model.forecasts.plan import HOUR

START = 1_700_000_000 // HOUR * HOUR
QUERIES = (HistoryQuery("a", "A"), HistoryQuery("b", "B"))


class Past:
    """A Prometheus in which the value of a minute is its number, and ten times that for B."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.failing = ""
        self.most = 10**9

    def read(self, promql: str, start: int, end: int, step: int) -> dict[int, float]:
        self.asked.append((promql, (start - START) // STEP, (end - START) // STEP))
        if promql == self.failing:
            raise PrometheusError("unreachable", "Connection refused")
        if (end - start) // step + 1 > self.most:
            raise PrometheusError("query", "query processing would load too many samples into memory")
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


def test_what_is_too_much_is_asked_for_in_halves() -> None:
    kept, past = Histories(), Past()
    past.most = 300
    assert update(kept, past, 0, 1000) == {"a": (1, 1000), "b": (10, 10000)}
    past.most = 50
    with pytest.raises(PrometheusError):
        update(Histories(), past, 0, 1000)


def test_negative_values_and_missing_ones_are_unknown() -> None:
    kept = Histories()

    def read(promql: str, start: int, end: int, step: int) -> dict[int, float]:
        return {start: -1.0, end: 3.0}

    found = kept.update("x", QUERIES[:1], START, START + 3 * STEP, START, read)["a"].tolist()
    assert [math.isnan(each) for each in found] == [True, True, False]
