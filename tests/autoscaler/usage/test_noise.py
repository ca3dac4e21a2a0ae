"""The noise of a usage: estimated from neighboring means, and not from the steps of the load."""

import random

import pytest

from adapter.autoscaler.usage.noise import FEWEST, MOST, Noise

WINDOW = 5.0


def noise(*means: float, every: float = WINDOW) -> Noise:
    made = Noise(WINDOW)
    for number, mean in enumerate(means):
        made.add(number * every, mean)
    return made


def test_it_is_not_known_before_there_are_enough_means() -> None:
    assert noise(*[1.0] * (FEWEST - 1)).share is None
    assert noise(*[1.0] * FEWEST).share == 0.0


def test_overlapping_means_count_once() -> None:
    assert noise(*[1.0] * 2 * FEWEST, every=WINDOW / 5).share is None


@pytest.mark.parametrize("deviation", [0.01, 0.05, 0.1])
def test_it_is_six_deviations_of_means_that_vary_normally(deviation: float) -> None:
    draw = random.Random(1)
    found = [noise(*(draw.gauss(1, deviation) for _ in range(MOST))).share or 0.0 for _ in range(50)]

    assert sum(found) / len(found) == pytest.approx(6.3 * deviation, rel=0.1)


def test_neither_a_step_nor_no_usage_is_noise() -> None:
    assert noise(*[1.0] * FEWEST, *[4.0] * FEWEST).share == 0.0
    assert noise(*[0.0] * FEWEST).share == 0.0
