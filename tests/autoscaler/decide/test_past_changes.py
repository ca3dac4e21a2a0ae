from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide.behavior import Policy, Rules, lower_limit, raise_limit
from adapter.autoscaler.decide.history import (
    LONGEST_PERIOD,
    MOST,
    ScaleEvent,
    changed_within,
    changes_of,
    events_of,
)
from adapter.model.autoscaling.fastpath_autoscaler import PastChange
from adapter.model.timestamps import SECOND, FineInstant
from tests.support.scaling import NOW


def test_they_are_in_the_order_of_time_with_their_sign() -> None:
    ups = (ScaleEvent(3, NOW - 5 * SECOND), ScaleEvent(1, NOW - 20 * SECOND, outdated=True))
    downs = (ScaleEvent(2, NOW - 10 * SECOND), ScaleEvent(9, NOW - LONGEST_PERIOD))
    changes = changes_of(ups, downs, NOW)
    assert changes == (
        PastChange(1, FineInstant(NOW - 20 * SECOND)),
        PastChange(-2, FineInstant(NOW - 10 * SECOND)),
        PastChange(3, FineInstant(NOW - 5 * SECOND)),
    )
    assert changes_of(ups, downs, NOW, 10 * SECOND) == changes[2:]


def test_what_was_only_assumed_is_not_told() -> None:
    assumed = ScaleEvent(3, NOW - 5 * SECOND, assumed=True)
    assert changes_of((assumed, ScaleEvent(1, NOW)), (), NOW) == (PastChange(1, FineInstant(NOW)),)


def test_nothing() -> None:
    assert changes_of((), (), NOW) == ()
    assert events_of(None, NOW) == ((), ())
    assert events_of([PastChange(0, FineInstant(NOW))], NOW) == ((), ())


_EVENTS = st.lists(
    st.builds(
        ScaleEvent,
        st.integers(1, 50),
        st.integers(0, 2 * LONGEST_PERIOD).map(lambda age: NOW - age),
        st.booleans(),
        st.just(value=False),
    ),
    max_size=MOST // 2,
).map(tuple)


@given(_EVENTS, _EVENTS, st.integers(0, LONGEST_PERIOD - 1))
def test_changes_have_the_same_times_and_sizes_afterwards(
    ups: tuple[ScaleEvent, ...], downs: tuple[ScaleEvent, ...], period: int
) -> None:
    again = events_of(changes_of(ups, downs, NOW), NOW)
    after = NOW - period
    assert [changed_within(each, after) for each in again] == [
        changed_within(each, after) for each in (ups, downs)
    ]


def test_of_very_many_the_oldest_are_one_in_each_direction_and_count_for_longer() -> None:
    ups = tuple(ScaleEvent(1, NOW - (200 - each) * SECOND) for each in range(0, 200, 2))
    downs = tuple(ScaleEvent(2, NOW - (200 - each) * SECOND) for each in range(1, 200, 2))
    changes = changes_of(ups, downs, NOW)
    assert len(changes) == MOST
    again = events_of(changes, NOW)
    for period in range(1, 300):
        for before, after in zip((ups, downs), again, strict=True):
            since = NOW - period * SECOND
            assert changed_within(after, since) >= changed_within(before, since)
    assert [changed_within(each, 0) for each in again] == [100, 200]


_AGES = st.integers(0, LONGEST_PERIOD)
_CHANGES = st.lists(st.tuples(st.integers(1, 50), _AGES), max_size=6)


def _rules(most: int) -> st.SearchStrategy[Rules]:
    seconds = st.integers(1, 1800).map(lambda each: each * SECOND)
    policies = st.lists(
        st.builds(Policy, st.booleans(), st.integers(1, most), seconds), min_size=1, max_size=3
    )
    return st.builds(Rules, st.just(0), st.sampled_from(["Max", "Min", "Disabled"]), policies.map(tuple))


_UP, _DOWN = _rules(200), _rules(100)
"""A policy that lowers by more than 100 % has no order: of fewer pods it takes away more."""


@given(
    _CHANGES,
    _CHANGES,
    st.integers(0, 48 * 3600 * SECOND) | st.integers(0, 60 * SECOND),
    st.lists(st.integers(0, 1800 * SECOND), max_size=2),
    st.integers(0, 1800 * SECOND),
    _UP,
    _DOWN,
    st.integers(0, 200),
)
def test_after_a_leader_whose_clock_was_ahead_nothing_grows_faster_and_nothing_shrinks_sooner(
    ups: list[tuple[int, int]],
    downs: list[tuple[int, int]],
    skew: int,
    terms: list[int],
    elapsed: int,
    up: Rules,
    down: Rules,
    current: int,
) -> None:
    """`terms` are how long further leaders with a right clock led, `elapsed` how long the last one has."""
    true = _events(ups, 0), _events(downs, 0)
    told = changes_of(_events(ups, skew), _events(downs, skew), NOW + skew)
    now: int = NOW
    for term in terms:
        inherited = events_of(told, now)
        now += term
        told = changes_of(*inherited, now)
    inherited = events_of(told, now)
    now += elapsed

    assert raise_limit(current, up, *inherited, now)[0] <= raise_limit(current, up, *true, now)[0]
    assert lower_limit(current, down, *inherited, now)[0] >= lower_limit(current, down, *true, now)[0]


@given(_CHANGES, _CHANGES, st.integers(0, 48 * 3600 * SECOND), _UP, st.integers(0, 200))
def test_nor_is_anything_kept_back_for_longer_than_a_period(
    ups: list[tuple[int, int]], downs: list[tuple[int, int]], skew: int, rules: Rules, current: int
) -> None:
    inherited = events_of(changes_of(_events(ups, skew), _events(downs, skew), NOW + skew), NOW)
    now = NOW + rules.longest_period
    assert raise_limit(current, rules, *inherited, now) == raise_limit(current, rules, (), (), now)
    assert lower_limit(current, rules, *inherited, now) == lower_limit(current, rules, (), (), now)


def _events(changes: list[tuple[int, int]], skew: int) -> tuple[ScaleEvent, ...]:
    return tuple(ScaleEvent(change, NOW - age + skew) for change, age in changes)
