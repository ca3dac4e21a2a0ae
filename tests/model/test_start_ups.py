"""Start-up times: percentiles by weight, and the time until the last of several pods is Ready."""

import math
import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.start_ups import StartUps
from tests.support.answers import answers


def test_percentiles_are_measured_times() -> None:
    even, odd = StartUps([(30.5, 1), (10, 10), (20, 9)]), StartUps([(30.5, 3), (10, 19), (20, 18)])
    assert (even.p50, even.p95) == (10, 20)
    assert (odd.p50, odd.p95) == (20, 30.5)


@pytest.mark.parametrize(("seconds", "pods", "expected"), answers("model/start_ups", "the last"))
def test_the_last_of_several_pods(seconds: Sequence[float], pods: int, expected: float) -> None:
    assert StartUps.of(seconds).until_last(pods, 600) == pytest.approx(expected)


@given(
    times=st.lists(st.tuples(st.floats(0, 4000), st.sampled_from([1, 2, 4, 8, 16])), min_size=1, max_size=50),
    pods=st.integers(1, 500),
    more=st.integers(0, 500),
)
def test_more_pods_never_take_less(times: list[tuple[float, int]], pods: int, more: int) -> None:
    start_ups = StartUps(times)
    last = start_ups.until_last(pods, 600)
    assert min(start_ups.p95, 600) <= last <= 600
    assert last <= start_ups.until_last(pods + more, 600)


# -- how often all pods are Ready in time --------------------------------------------------------------------

RAISES, LEDGERS = 10, 200

Draw = Callable[[random.Random], float]


def _normal(generator: random.Random) -> float:
    return max(1, generator.gauss(40, 6))


def _skewed(generator: random.Random) -> float:
    return generator.lognormvariate(math.log(40), 0.3)


def _on_new_nodes(generator: random.Random) -> float:
    return generator.gauss(100 if generator.random() < 0.05 else 40, 4)


def _shares(draw: Draw, seen: int, pods: int) -> tuple[float, float]:
    """Return the shares of raises that are complete in time: by the 95th percentile of pods, and by ours."""
    generator = random.Random(f"{draw.__name__} {seen} {pods}")
    by_pods = by_raise = 0
    for _ in range(LEDGERS):
        start_ups = StartUps.of(draw(generator) for _ in range(seen))
        single, whole = start_ups.p95, start_ups.until_last(pods, 600)
        for _ in range(RAISES):
            last = max(draw(generator) for _ in range(pods))
            by_pods += last <= single
            by_raise += last <= whole
    return by_pods / RAISES / LEDGERS, by_raise / RAISES / LEDGERS


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("draw", "seen", "pods", "before", "least"),
    [
        (_normal, 50, 16, 0.6, 0.94),
        (_skewed, 50, 16, 0.6, 0.92),
        (lambda generator: 20 + generator.expovariate(1 / 20), 50, 16, 0.6, 0.90),
        (_on_new_nodes, 50, 4, 0.9, 0.92),
        (_on_new_nodes, 50, 16, 0.7, 0.80),
        (_normal, 10, 8, 0.65, 0.92),
        (_skewed, 4, 4, 0.55, 0.90),
        (_skewed, 2, 4, 0.45, 0.85),
    ],
)
def test_most_raises_are_complete_in_time(
    draw: Draw, seen: int, pods: int, before: float, least: float
) -> None:
    by_pods, by_raise = _shares(draw, seen, pods)
    assert by_pods < before
    assert by_raise >= least
