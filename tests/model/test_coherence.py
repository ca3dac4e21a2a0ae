"""Which values may be added up: a table of cuts, and what holds for any load and any times of samples."""

from collections.abc import Mapping
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapter.model.coherence import heavier_cut, incoherent_pods, unserved_pods
from tests.support.answers import answers


@pytest.mark.parametrize(("sampled", "ready", "left_out"), answers("model/coherence", "left out"))
def test_pods_that_are_left_out(
    sampled: Mapping[str, float], ready: Mapping[str, float], left_out: str
) -> None:
    assert incoherent_pods(sampled, ready) == set(left_out)


NAMES = "abcdefgh"
MOMENTS = st.integers(0, 12)


@st.composite
def shared_loads(draw: st.DrawFn) -> tuple[list[int], dict[str, int], dict[str, int]]:
    """Return a load by second, when pods became ready (-1 for long ago), and when each was sampled."""
    load = draw(st.lists(st.integers(0, 1000), min_size=13, max_size=13))
    names = NAMES[: draw(st.integers(1, len(NAMES)))]
    ready = {name: draw(st.one_of(st.just(-1), MOMENTS)) for name in names}
    return load, ready, {name: draw(MOMENTS) for name in names}


@given(shared_loads())
@example(([20] + [100] * 12, {"a": -1, "b": 1, "c": 2}, {"a": 0, "b": 1, "c": 2}))
def test_a_sum_never_exceeds_the_largest_load_of_its_time(
    drawn: tuple[list[int], dict[str, int], dict[str, int]],
) -> None:
    load, ready, sampled = drawn

    def share(name: str) -> Fraction:
        """Return what a pod shows: its part of the load, none before it was ready."""
        second = sampled[name]
        count = sum(since <= second for since in ready.values())
        return Fraction(load[second], count) if ready[name] <= second else Fraction(0)

    recent = {name: since for name, since in ready.items() if since >= 0}
    left_out = incoherent_pods(sampled, recent)
    assert not any(ready[name] < 0 for name in left_out), "the others still show the load"
    shares: Mapping[str, Any] = {name: share(name) for name in sampled}
    heavier = heavier_cut(shares, sampled, recent, left_out) or left_out
    for without in (left_out, heavier, unserved_pods(shares, sampled, recent)):
        kept = sampled.keys() - without
        first, last = min(sampled[name] for name in kept), max(sampled[name] for name in kept)
        assert sum(map(share, kept)) <= max(load[first : last + 1])


@given(shared_loads(), st.lists(st.integers(0, 9), min_size=len(NAMES), max_size=len(NAMES)))
def test_the_other_cut_has_the_largest_sum_of_all(
    drawn: tuple[list[int], dict[str, int], dict[str, int]], shown: list[int]
) -> None:
    _, ready, sampled = drawn
    values = dict(zip(sampled, shown, strict=False))
    recent = {name: since for name, since in ready.items() if since >= 0}
    cuts = [
        names
        for count in range(1, len(sampled) + 1)
        for names in combinations(sampled, count)
        if max(ready[name] for name in names) <= min(sampled[name] for name in names)
    ]
    left_out = incoherent_pods(sampled, recent)
    without = heavier_cut(values, sampled, recent, left_out)

    before = sum(values[name] for name in sampled.keys() - left_out)
    largest = max((sum(values[name] for name in names) for names in cuts), default=0)
    if without:
        kept = sampled.keys() - without
        assert max(ready[name] for name in kept) <= min(sampled[name] for name in kept)
        assert sum(values[name] for name in kept) == largest > before
    else:
        assert largest <= before


def test_one_lagging_sample_hides_no_new_pods() -> None:
    old, new = [f"old-{number}" for number in range(10)], [f"new-{number}" for number in range(10)]
    sampled = dict.fromkeys([*old, *new], 100.0) | {"old-0": 65.0}
    ready = dict.fromkeys(new, 70.0)
    values = dict.fromkeys(sampled, 20) | {"old-0": 10}

    assert incoherent_pods(sampled, ready) == set(new)
    assert heavier_cut(values, sampled, ready, frozenset(new)) == {"old-0"}
    less = values | dict.fromkeys(new, 1)
    assert heavier_cut(less, sampled, ready, frozenset(new)) == frozenset(), "the same sum"


@given(shared_loads())
def test_nothing_is_left_out_once_all_were_sampled_after_the_last_became_ready(
    drawn: tuple[list[int], dict[str, int], dict[str, int]],
) -> None:
    _, ready, sampled = drawn
    last = max(ready.values())
    later = {name: max(moment, last) for name, moment in sampled.items()}

    assert incoherent_pods(later, ready) == frozenset()


@pytest.mark.parametrize(
    ("lagging", "new", "left_out"),
    [
        pytest.param(20, 20, "", id="no new pod is below the mean of the old ones"),
        pytest.param(18, 19, "old", id="the lagging pod is below the mean of the others"),
        pytest.param(30, 20, "new", id="it is above that"),
    ],
)
def test_one_lagging_sample_hides_new_pods_from_an_hpa_only_if_it_is_above_the_mean(
    lagging: int, new: int, left_out: str
) -> None:
    values = {"old": lagging, **dict.fromkeys("abcdefghi", 20), "new": new}
    sampled = dict.fromkeys(values, 100.0) | {"old": 65.0}

    assert unserved_pods(values, sampled, {"new": 70.0}) == {left_out} - {""}
