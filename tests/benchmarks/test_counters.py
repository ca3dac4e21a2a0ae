"""What is made of the counters of processes: errors, verdicts, and raises by noise, on known samples."""

import random
from collections.abc import Callable

import pytest

from benchmarks import counters, noise
from benchmarks.counters import Sample


def samples(shown: Callable[[int], float], seconds: int = 100) -> list[Sample]:
    """Return samples of a group that uses a fifth of a core, and of what its process shows by then."""
    return [Sample(float(second), shown(second), 0.2 * second, 1.0, 1.0) for second in range(seconds)]


def test_a_counter_of_a_constant_part_is_exact_once_calibrated() -> None:
    shown = samples(lambda second: 0.19 * second)
    judged = counters.judge(shown, "x")

    assert list(counters.errors(shown, 5, [1.0] * len(shown))) == pytest.approx([0.05] * 95)
    assert judged.last.ratio == pytest.approx(0.2 / 0.19)
    assert max(counters.errors(shown, 5, judged.ratios)) == pytest.approx(0.0, abs=1e-9)


def test_a_counter_of_half_the_processes_is_refused() -> None:
    judged = counters.judge(samples(lambda second: 0.1 * second), "x")

    assert judged.last.ratio is None
    assert judged.last.why == "1 of 2 processes is not in x: the container uses 2 times as much"


def test_a_counter_that_falls_goes_on_from_zero() -> None:
    found = counters.without_resets([Sample(0, value, 0, 0, 0) for value in (5.0, 6.0, 1.0, 3.0)])

    assert [sample.counter for sample in found] == [0.0, 1.0, 2.0, 4.0]


def test_raises_are_those_that_the_controller_does_not_make() -> None:
    own, containers = [1.0] * 200, [1.0] * 200
    for second in (20, 22, 100, 160):
        own[second] = 1.2
    containers[90] = 1.2

    assert list(noise.raises(own, containers)) == [20, 160]


@pytest.mark.parametrize("window", noise.WINDOWS)
def test_a_step_without_noise_raises_after_its_part_of_the_window(window: int) -> None:
    """0.3 of the target are missing to the tolerance, and the step is 0.84."""
    guarded, alone = noise.reaction([1.0] * 60, 4, window, random.Random(1))

    assert guarded == alone
    assert 0.3 / 0.84 * window <= alone <= 0.3 / 0.84 * window + 1


def test_the_noise_of_a_load_is_no_raise_once_it_is_known() -> None:
    draw = random.Random(1)
    trace = [draw.gauss(0.2, 0.05) for _ in range(120)]
    shown = noise.show(noise.draw_usage(trace, 4, 4000, draw), 5)

    assert list(noise.raises(shown.own[400:], shown.containers[400:]))
    assert not list(noise.raises(shown.own_guarded[400:], shown.containers[400:]))
