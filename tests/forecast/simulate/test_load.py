"""Loads: CSV files, steps, gaps."""

import math

import pytest

from adapter.errors import InputError
from fastpath_forecast.simulate import load
from fastpath_forecast.simulate.load import LoadSpan
from tests.support.answers import answers


def test_a_value_holds_until_the_next() -> None:
    read = load.read_csv("seconds,load\n0,10\n5,20\n5.5,30\n9,0\n", "load.csv")
    assert list(read.segments()) == [(0, 5, 10.0), (5, 6, 20.0), (6, 9, 30.0), (9, 10, 0.0)]
    assert (read.seconds, read.mean, read.highest) == (10, (50 + 20 + 90) / 10, 30)


def test_a_byte_order_mark_quotes_and_blank_lines() -> None:
    read = load.read_csv('\ufeffseconds, load\r\n"0","10"\r\n\r\n ,\r\n5,1e1\r\n', "load.csv")
    assert list(read.segments()) == [(0, 6, 10.0)]


def test_a_value_that_a_later_one_of_the_same_second_replaces() -> None:
    read = load.of_points([(0, 1), (1.2, 2), (1.7, 3)], 4)
    assert list(read.segments()) == [(0, 2, 1), (2, 4, 3)]


def test_equal_values_are_one_step_and_gaps_too() -> None:
    read = load.of_points([(0, 1), (2, 1), (4, math.nan), (6, math.nan), (8, 2)], 10, [LoadSpan(1, 2)])
    assert list(read.starts) == [0, 4, 8]
    assert (read.known_seconds, read.mean) == (6, (4 + 4) / 6)
    assert read.saturated == [LoadSpan(1, 2)]


def test_a_load_that_is_all_gap() -> None:
    read = load.of_points([(0, math.nan)], 5)
    assert read.known_seconds == 0
    assert math.isnan(read.mean)
    assert math.isnan(read.highest)


LONG = [
    ("9" * 200_000, "expected seconds,load: field larger than field limit (131072)"),
    ("x" * 500, f"load: {'x' * 157}...: expected a number from 0 to 1e+15"),
]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *answers("forecast/load", "refused"),
        *((f"seconds,load\n0,{value}\n", f"load.csv:2: {message}") for value, message in LONG),
    ],
)
def test_bad_files(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load.read_csv(text, "load.csv")
    assert str(caught.value) == message


@pytest.mark.parametrize("total", [-1.0, 1.1e15, 1e300])
def test_a_total_that_no_metric_has_is_a_gap(total: float) -> None:
    grid = load.Grid(0, 30, 10)
    found = load.build_load({0: 5.0, 10: total, 20: 6.0}, {10: total}, grid, 10.0)
    assert [value for value in found.values if not math.isnan(value)] == [5.0, 6.0]
    assert (found.known_seconds, found.saturated) == (20, ())
