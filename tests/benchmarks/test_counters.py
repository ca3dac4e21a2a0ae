"""What is made of the counters of processes: errors and verdicts, on known samples."""

from collections.abc import Callable

import pytest

from benchmarks import counters
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
