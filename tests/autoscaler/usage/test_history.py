"""Means over any interval of what a pod used: as the exact integral, within the time that is kept."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.usage.history import LONGEST_GAP, STEP, UsageHistory

START = 1_790_000_000.0


def filled(values: list[float], *, kept: float = 600.0, every: float = 1.0) -> UsageHistory:
    """Return a history with a value each second; the first one only begins it."""
    history = UsageHistory()
    for second, value in enumerate(values):
        history.add(START + second * every, value, kept)
    return history


def test_a_steady_usage_is_its_own_mean() -> None:
    history = filled([250.0] * 61)

    assert history.mean(START, START + 60) == pytest.approx(250.0)
    assert history.mean(START + 7.3, START + 11.9) == pytest.approx(250.0)


def test_a_step_is_in_the_mean_by_its_part() -> None:
    history = filled([0.0] * 31 + [100.0] * 30)

    assert history.mean(START, START + 60) == pytest.approx(50.0)
    assert history.mean(START + 40, START + 60) == pytest.approx(100.0)


def test_nothing_is_known_beyond_both_ends() -> None:
    history = filled([1.0] * 11)

    assert history.mean(START - 1, START + 5) is None
    assert history.mean(START + 5, START + 11) is None
    assert history.mean(START + 5, START + 5) is None
    assert UsageHistory().mean(START, START + 1) is None


def test_after_a_gap_a_history_begins_again() -> None:
    history = filled([1.0] * 11)
    history.add(START + 10 + LONGEST_GAP + 1, 9.0, 600.0)
    history.add(START + 10 + LONGEST_GAP + 2, 9.0, 600.0)

    assert history.mean(START, START + 10) is None
    assert history.mean(START + 21, START + 22) == pytest.approx(9.0)


def test_a_value_of_the_past_is_ignored() -> None:
    history = filled([5.0] * 11)
    history.add(START + 3, 1_000_000.0, 600.0)

    assert history.mean(START, START + 10) == pytest.approx(5.0)


def test_what_is_older_than_the_time_kept_is_forgotten() -> None:
    history = filled([1.0] * 1000, kept=60.0)

    assert history.mean(START + 999 - 60, START + 999) == pytest.approx(1.0)
    assert history.mean(START + 999 - 70, START + 999) is None
    assert len(history._times) <= 60 / STEP + 2


@given(st.lists(st.floats(0, 1e6), min_size=3, max_size=80), st.floats(0, 1), st.floats(0, 1))
def test_means_lie_between_the_smallest_and_the_largest_value(
    values: list[float], one: float, other: float
) -> None:
    history = filled(values)
    last = len(values) - 1
    begin, end = sorted((START + one * last, START + other * last))
    mean = history.mean(begin, end)

    if end - begin > 0.001:
        assert mean is not None
        assert min(values[1:]) * 0.999 - 1e-3 <= mean <= max(values[1:]) * 1.001 + 1e-3
