"""When the counter of a process counts as the usage of its container, and what is said where it does not."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.usage import calibration
from tests.support.answers import answers

COUNTER = "resourceRules.cpu.scrape"


def comparison(
    ratio: float, pod: str = "web-1", lowest: float = 100, highest: float = 100
) -> calibration.Comparison:
    """Return a comparison of a counter that shows 100, of means from `lowest` to `highest`."""
    return calibration.Comparison(pod, 100 * ratio, 100, lowest, highest, least=20)


def compared(*ratios: float, pod: str = "web-1") -> calibration.Calibration:
    """Return the calibration after comparisons of a counter that shows 100."""
    state = calibration.UNKNOWN
    for ratio in ratios:
        state = calibration.follow(state, [comparison(ratio, pod)])
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


@pytest.mark.parametrize(("ratio", "why"), answers("usage/calibration", "another thing"))
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


def test_a_counter_that_jumps_between_processes_has_no_odd_numbers() -> None:
    verdict = calibration.judge(calibration.Calibration((0.0019, 0.13, 0.02, 0.1)), "x")

    assert verdict == calibration.CalibrationVerdict(
        None, "Unsteady", "x does not follow the container's usage: each scrape may reach another process"
    )


def test_one_bad_comparison_of_many_changes_nothing() -> None:
    good = compared(*[1.0] * 9)
    verdict = calibration.judge(calibration.follow(good, [comparison(3.0, "web-2")]), "x")

    assert verdict.ratio == pytest.approx(1.0)


def test_a_pod_that_departs_is_apart_until_it_is_close_again_or_gone() -> None:
    state = calibration.follow(compared(*[1.0] * 9), [comparison(0.3, "liar")])
    assert state.apart == {"liar"}
    assert calibration.without(state, ["liar"]).apart == frozenset()
    assert calibration.without(state, ["web-1"]) == state

    state = calibration.follow(state, [comparison(1.01, "liar")])
    assert state.apart == frozenset()


def test_a_counter_that_stands_still_shows_no_ratio() -> None:
    assert (
        calibration.follow(calibration.UNKNOWN, [calibration.Comparison("web-1", 100, 0, 0, 0)])
        is calibration.UNKNOWN
    )


@pytest.mark.parametrize(
    ("container", "lowest", "highest", "apart"),
    answers("usage/calibration", "a_comparison_without_a_ratio_shows_whether_a_pod_agrees"),
)
def test_a_comparison_without_a_ratio_shows_whether_a_pod_agrees(
    container: float, lowest: float, highest: float, *, apart: bool
) -> None:
    before = compared(*[1.0] * 9)
    state = calibration.follow(
        before, [calibration.Comparison("web-2", container, 150, lowest, highest, least=20)]
    )

    assert state.ratios == before.ratios
    assert state.apart == ({"web-2"} if apart else frozenset())


def test_no_ratio_is_explained_by_any_number_of_processes() -> None:
    verdict = calibration.judge(calibration.Calibration((1e300,) * calibration.FEWEST), "x")

    assert verdict.why == "a part of the usage is not in x: the container uses 1e+300 times as much"


def test_the_last_comparisons_count() -> None:
    state = compared(*[3.0] * calibration.MOST, *[1.0] * calibration.MOST)

    assert len(state.ratios) == calibration.MOST
    assert calibration.judge(state, "x").ratio == pytest.approx(1.0)


@given(st.lists(st.floats(0.25, 100), max_size=100), st.integers(0, 2**32))
def test_what_counts_is_within_the_band_and_close_to_most(ratios: list[float], seed: int) -> None:
    shuffled = random.Random(seed).sample(ratios, len(ratios))
    verdict = calibration.judge(compared(*shuffled), "x")

    if verdict.ratio is None:
        assert verdict.why
    else:
        assert len(ratios) >= calibration.FEWEST
        assert calibration.BAND[0] <= verdict.ratio <= calibration.BAND[1]
