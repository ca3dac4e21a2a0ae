"""When the counter of a process counts as the usage of its container, and what is said where it does not."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.usage import calibration
from adapter.autoscaler.usage.calibration import BAND, FEWEST, MOST, UNKNOWN, Calibration, Comparison

COUNTER = "resourceRules.cpu.scrape"


def compared(*ratios: float, pod: str = "web-1") -> Calibration:
    """Return the calibration after comparisons of a counter that shows 100."""
    state = UNKNOWN
    for ratio in ratios:
        state = calibration.follow(state, [Comparison(pod, 100 * ratio, 100)])
    return state


def test_a_counter_that_follows_its_container_counts() -> None:
    verdict = calibration.judge(compared(1.01, 1.03, 1.02), COUNTER)

    assert verdict.ratio == pytest.approx(1.02)
    assert verdict.why == ""


def test_before_three_comparisons_nothing_is_known() -> None:
    verdict = calibration.judge(compared(1.0, 1.0), COUNTER)

    assert verdict.ratio is None
    assert verdict.why == (
        "resourceRules.cpu.scrape has been compared with the container's usage 2 times: 3 are needed"
    )


@pytest.mark.parametrize(
    ("ratio", "why"),
    [
        (2.0, "1 of 2 processes is not in x: the container uses 2 times as much"),
        (3.05, "2 of 3 processes are not in x: the container uses 3.05 times as much"),
        (1.4, "a part of the usage is not in x: the container uses 1.4 times as much"),
        (0.5, "x shows 2 times the container's usage"),
    ],
)
def test_a_counter_of_another_thing_does_not_count(ratio: float, why: str) -> None:
    verdict = calibration.judge(compared(*[ratio] * 5), "x")

    assert verdict.ratio is None
    assert verdict.why == why


def test_a_counter_of_another_process_at_each_scrape_does_not_count() -> None:
    verdict = calibration.judge(compared(1.0, 2.4, 0.7, 3.1, 1.1, 1.9), "x")

    assert verdict.ratio is None
    assert verdict.why.startswith(
        "x does not follow the container's usage, which is 0.7 to 3.1 times as much"
    )


def test_one_bad_comparison_of_many_changes_nothing() -> None:
    good = compared(*[1.0] * 9)
    verdict = calibration.judge(calibration.follow(good, [Comparison("web-2", 300, 100)]), "x")

    assert verdict.ratio == pytest.approx(1.0)


def test_a_pod_that_departs_is_apart_until_it_is_close_again() -> None:
    state = calibration.follow(compared(*[1.0] * 9), [Comparison("liar", 1, 100)])
    assert state.apart == {"liar": 0.01}

    state = calibration.follow(state, [Comparison("liar", 101, 100)])
    assert state.apart == {}


def test_a_pod_that_is_gone_is_apart_no_more() -> None:
    state = calibration.follow(compared(*[1.0] * 9), [Comparison("liar", 1, 100)])

    assert calibration.without(state, {"liar"}).apart == {}
    assert calibration.without(state, {"web-1"}) is state


def test_a_counter_that_stands_still_is_not_compared() -> None:
    assert calibration.follow(UNKNOWN, [Comparison("web-1", 100, 0)]) is UNKNOWN


def test_the_last_comparisons_count() -> None:
    state = compared(*[3.0] * MOST, *[1.0] * MOST)

    assert len(state.ratios) == MOST
    assert calibration.judge(state, "x").ratio == pytest.approx(1.0)


@given(st.lists(st.floats(0.01, 100), max_size=100), st.integers(0, 2**32))
def test_what_counts_is_within_the_band_and_close_to_most(ratios: list[float], seed: int) -> None:
    shuffled = random.Random(seed).sample(ratios, len(ratios))
    verdict = calibration.judge(compared(*shuffled), "x")

    if verdict.ratio is None:
        assert verdict.why
    else:
        assert len(ratios) >= FEWEST
        assert BAND[0] <= verdict.ratio <= BAND[1]
