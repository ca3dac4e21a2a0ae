"""Max-min fairness."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model import fair_share

DEMANDS = st.lists(st.floats(0, 100), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("demands", "room", "level"),
    [
        ([], 1, math.inf),
        ([1, 2], 3, math.inf),
        ([10], 4, 4),
        ([1, 10], 4, 3),
        ([1, 10, 10], 5, 2),
        ([5, 5], 4, 2),
    ],
)
def test_the_level(demands: list[float], room: float, level: float) -> None:
    assert fair_share.level(demands, room) == level


@given(DEMANDS, st.floats(0.1, 100))
def test_cut_to_the_level_the_demands_fit_and_none_could_have_more(demands: list[float], room: float) -> None:
    level = fair_share.level(demands, room)
    total = sum(min(demand, level) for demand in demands)

    assert total <= room * (1 + 1e-9)
    if not math.isinf(level):
        assert total == pytest.approx(room)
        assert max(demands) >= level
