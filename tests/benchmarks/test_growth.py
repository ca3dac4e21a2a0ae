"""How growth is judged and drawn, on costs that are known."""

import pytest

from benchmarks import growth


@pytest.mark.parametrize(
    ("power", "fixed"),
    [(1.0, 0.0), (2.0, 0.0), (0.5, 0.0), (1.0, 40.0)],
    ids=["linear", "quadratic", "root", "fixed"],
)
def test_the_exponent(power: float, fixed: float) -> None:
    measured = growth.Growth(growth.sizes_from(100), growth.Cost(fixed))
    for size in measured.sizes:
        measured.costs[size] = growth.Cost(fixed + 0.01 * size**power)
    assert len(measured.sizes) == 7
    assert growth.exponent(measured.points("cpu_seconds")) == pytest.approx(power)
    assert measured.points("memory_mib") == []
