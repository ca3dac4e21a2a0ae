"""Another cut, where a lagging sample hides new pods: it makes raises larger, and lets nothing scale down."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapter.autoscaler.decide.calculator import Proposal
from adapter.autoscaler.decide.observation import PodsReading, Settings
from adapter.model.coherence import incoherent_pods, unserved_pods
from tests.support.answers import answers
from tests.support.scaling import autoscaler, pods, pods_metric, situation

LAGGING = "web-0"


def proposed(reading: PodsReading, replicas: int, count: int, settings: Settings | None = None) -> Proposal:
    (metric,) = autoscaler([pods_metric("10")], settings).metrics
    made = metric.compute(reading, situation(replicas, pods(count)))
    assert isinstance(made, Proposal)
    return made


def read(each: int, lagging: int) -> PodsReading:
    """Return the values of ten old and ten new pods; one old pod lags, so the first cut has no new pod."""
    old = {f"web-{number}": each * 1000 for number in range(10)} | {LAGGING: lagging * 1000}
    new = {f"web-{number}": each * 1000 for number in range(10, 20)}
    return PodsReading(old, left_out=new, other_cut=(LAGGING,))


@pytest.mark.parametrize(("each", "lagging", "first", "replicas"), answers("decide/cuts", "cuts"))
def test_the_cut_that_asks_for_more_counts(each: int, lagging: int, first: int, replicas: int) -> None:
    reading = read(each, lagging)

    assert proposed(replace(reading, other_cut=()), 20, 20).replicas == first
    assert proposed(reading, 20, 20).replicas == replicas


def test_it_says_which_pods_are_left_out() -> None:
    texts = [step.text() for step in proposed(read(20, 10), 20, 20).steps]

    assert texts[:2] == ["pods metric load: 19 pods ready", "1 pod left out: not of one cut with the others"]


@pytest.mark.parametrize("first", [{LAGGING: 1}, {"gone": 1}], ids=["first", "other"])
def test_a_cut_without_pods_does_not_count(first: dict[str, int]) -> None:
    """A reading may have values of pods that are not known."""
    (metric,) = autoscaler([pods_metric("10")]).metrics
    reading = PodsReading(first, left_out={"web-1": 90_000}, other_cut=tuple(first))
    listed = [] if LAGGING in first else pods(2)
    plain = replace(reading, other_cut=())

    made = metric.compute(reading, situation(2, listed))
    if not listed:
        assert made == metric.compute(plain, situation(2, listed))
    else:
        assert isinstance(made, Proposal)
        assert made.replicas == 9


def test_a_sum_that_overflows_is_of_no_use() -> None:
    most = 9_000_000_000_000_000_000
    reading = PodsReading({LAGGING: 10_000}, left_out={"web-1": most, "web-2": most}, other_cut=(LAGGING,))

    assert proposed(reading, 3, 3) == proposed(replace(reading, other_cut=()), 3, 3)


VALUES = st.lists(st.integers(0, 60), min_size=2, max_size=12)


@given(VALUES, st.sets(st.integers(0, 11)), st.sets(st.integers(0, 11)), st.integers(1, 30))
def test_another_cut_only_raises_and_no_more_than_all_values(
    values: list[int], first: set[int], other: set[int], replicas: int
) -> None:
    known = {f"web-{number}": value * 1000 for number, value in enumerate(values)}
    left_out = {f"web-{number}": known[f"web-{number}"] for number in first if number < len(values) - 1}
    rest = {name: value for name, value in known.items() if name not in left_out}
    without = tuple(f"web-{number}" for number in other if number < len(values) - 1)
    count = len(values)

    whole = proposed(PodsReading(known), replicas, count).replicas
    before = proposed(PodsReading(rest, left_out=left_out), replicas, count).replicas
    now = proposed(PodsReading(rest, left_out=left_out, other_cut=without), replicas, count).replicas

    assert now >= before
    assert now <= max(before, whole, replicas)


MOMENTS = st.lists(st.integers(0, 12), min_size=8, max_size=8)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8), MOMENTS, MOMENTS)
@example([50] + [9] * 7, [0] + [5] * 7, [0] + [3] * 7)
def test_an_hpa_scales_down_no_further_than_with_all_values_and_raises_as_by_the_first_cut(
    drawn: list[int], sampled_at: list[int], ready_at: list[int]
) -> None:
    """Its controller knows of no value that is left out. 840 is a multiple of each count of pods."""
    values = {f"web-{number}": value * 840 for number, value in enumerate(drawn)}
    sampled = dict(zip(values, sampled_at, strict=False))
    ready = {name: moment for name, moment in zip(values, ready_at, strict=False) if moment > 2}
    count = len(values)

    def replicas(left_out: frozenset[str]) -> int:
        rest = {name: value for name, value in values.items() if name not in left_out}
        return proposed(PodsReading(rest), count, count).replicas

    whole, served = replicas(frozenset()), replicas(unserved_pods(values, sampled, ready))
    first = replicas(incoherent_pods(sampled, ready))
    assert min(whole, count) <= served <= max(whole, count)
    assert first <= max(count, served)
