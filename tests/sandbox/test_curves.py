import math

import hypothesis
import pytest
from hypothesis import strategies as st

from fastpath_sandbox import curves

CURVES = {
    "constant": curves.constant(7),
    "wave": curves.wave(10, 5, 60, phase=7),
    "steps": curves.steps([(100, 5), (200, 1), (250, 9)], before=2),
    "no steps": curves.steps([], before=3),
    "share": curves.share(curves.wave(10, 5, 60), 0.25),
}


@pytest.mark.parametrize("curve", CURVES.values(), ids=CURVES)
@hypothesis.given(start=st.floats(0, 400), length=st.floats(0, 300))
def test_a_total_is_the_integral_of_the_values(curve: curves.Curve, start: float, length: float) -> None:
    pieces = 3000
    width = length / pieces
    integral = sum(curve(start + (piece + 0.5) * width) for piece in range(pieces)) * width
    assert math.isclose(curve.total(start + length) - curve.total(start), integral, rel_tol=1e-2, abs_tol=1.0)


def test_steps_jump_at_their_time() -> None:
    curve = CURVES["steps"]
    assert [curve(now) for now in (99.9, 100, 199.9, 200, 250)] == [2, 5, 5, 1, 9]
    assert curve.total(300) - curve.total(50) == 50 * 2 + 100 * 5 + 50 * 1 + 50 * 9


def test_a_wave_is_highest_a_quarter_period_after_its_phase() -> None:
    assert CURVES["wave"](7 + 15) == pytest.approx(15)
    assert CURVES["wave"](7 + 45) == pytest.approx(5)


def test_a_counter_starts_at_zero_and_never_falls() -> None:
    count = curves.counter(CURVES["wave"], since=100)
    values = [count(100 + second) for second in range(300)]
    assert values[0] == 0
    assert values == sorted(values)
    assert values[60] == pytest.approx(600)
