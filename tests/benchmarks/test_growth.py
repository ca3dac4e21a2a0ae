"""How growth is judged and drawn, on costs that are known."""

import pytest

from benchmarks import growth, plot


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


def test_a_picture() -> None:
    """Where matplotlib is, which is only needed to draw: the same results make the same bytes."""
    pytest.importorskip("matplotlib", reason="requirements/bench.txt has it")
    figures = {f"pods_{size}_cpu_seconds": 0.5 + size / 1000 for size in growth.sizes_from(100)}
    entry = {"figures": {**figures, "pods_fixed_cpu_seconds": 0.5, "pods_cpu_exponent": 1.0}}
    drawn = plot.draw_growth(entry)
    assert plot.draw_growth(entry) == drawn
    assert "exponent 1.00" in drawn


def test_what_is_fixed_is_not_drawn() -> None:
    figures = {
        "pods_1_memory_mib": 4.0,
        "pods_2_memory_mib": 6.0,
        "pods_fixed_memory_mib": 4.0,
        "pods_memory_exponent": 1.0,
    }
    assert plot.panels(figures) == {("pods", "memory_mib"): [(2, 2.0)]}
