from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide.behavior import Policy, Rules, lower_limit, raise_limit
from adapter.autoscaler.decide.history import (
    MOST,
    Events,
    History,
    Recommendation,
    Recommendations,
    ScaleEvent,
    changed_within,
    inherited_events,
    queued,
    recent_changes,
    with_change,
    with_event,
)
from adapter.autoscaler.decide.memory import recall
from adapter.model.autoscaling.fastpath_autoscaler import FastPathAutoscalerStatus, PastChange
from adapter.model.timestamps import SECOND, FineInstant
from tests.support.answers import answers
from tests.support.scaling import NOW

A = Recommendation
LONGEST_PERIOD = 1800 * SECOND
"""The longest period of a policy."""


def _listed(events: list[list[Any]]) -> tuple[ScaleEvent, ...]:
    """Return events: changes, their times, and whether they are outdated."""
    return tuple(ScaleEvent(*each) for each in events)


def test_queues_keep_what_can_still_matter() -> None:
    queues = Recommendations()
    for at, replicas in enumerate([5, 3, 4, 4, 9, 1]):
        queues = queues.recorded(replicas, at * SECOND)

    assert queues.high == (A(9, 4 * SECOND), A(1, 5 * SECOND))
    assert queues.low == (A(1, 5 * SECOND),)
    assert (queues.empty, Recommendations().empty) == (False, True)


def test_queues_forget_after_an_hour() -> None:
    queues = Recommendations().recorded(9, 0).recorded(5, SECOND).recorded(7, 2 * SECOND)
    later = queues.recorded(1, 3601 * SECOND)

    assert queues.recorded(1, 3600 * SECOND).high[0] == A(9, 0)
    assert (later.high[0], later.low) == (A(7, 2 * SECOND), (A(1, 3601 * SECOND),))
    rising = Recommendations().recorded(1, 0).recorded(2, SECOND).recorded(3, 3601 * SECOND)
    assert rising.low == (A(2, SECOND), A(3, 3601 * SECOND))


class UpstreamList:
    """Upstream's recommendations of one HPA: a list in which the last stale entry is overwritten."""

    def __init__(self, *entries: Recommendation) -> None:
        self.entries = list(entries)

    def record(self, replicas: int, now: int, stale_before: int) -> None:
        stale = [place for place, entry in enumerate(self.entries) if entry.at < stale_before]
        place = stale[-1] if stale else len(self.entries)
        self.entries[place : place + 1] = [Recommendation(replicas, now)]

    def counts(self, wanted: int, after: int) -> list[int]:
        return [wanted, *(entry.replicas for entry in self.entries if entry.at > after)]


_SYNCS = st.lists(
    st.tuples(
        st.integers(0, 400 * SECOND) | st.sampled_from([SECOND, 15 * SECOND, 300 * SECOND]),
        st.integers(0, 12),
    ),
    min_size=1,
    max_size=40,
)
_WINDOWS = st.sampled_from([0, 1, 15, 60, 300, 3600]).map(lambda seconds: seconds * SECOND)


@given(syncs=_SYNCS, up=_WINDOWS, down=_WINDOWS)
def test_queues_and_upstreams_list_say_the_same_of_each_window(
    syncs: list[tuple[int, int]], up: int, down: int
) -> None:
    now, queues, upstream = int(NOW), Recommendations(), UpstreamList()
    for pause, wanted in syncs:
        now += pause
        assert queues.lowest(wanted, now - up) == min(upstream.counts(wanted, now - up))
        assert queues.highest(wanted, now - down) == max(upstream.counts(wanted, now - down))
        queues = queues.recorded(wanted, now)
        upstream.record(wanted, now, min(now - up, now - down))


@given(
    entries=st.lists(st.builds(A, st.integers(0, 12), st.integers(0, 9)), max_size=9),
    after=st.integers(-1, 9),
    wanted=st.integers(0, 12),
)
def test_queues_of_entries_in_any_order(entries: list[Recommendation], after: int, wanted: int) -> None:
    queues, upstream = queued(entries), UpstreamList(*entries)

    assert queues.highest(wanted, after) == max(upstream.counts(wanted, after))
    assert queues.lowest(wanted, after) == min(upstream.counts(wanted, after))


def test_changes_after_an_instant() -> None:
    events = (ScaleEvent(4, 10), ScaleEvent(2, 20, outdated=True), ScaleEvent(1, 30))

    assert changed_within(events, 9) == 7
    assert changed_within(events, 10) == 3
    assert changed_within(events, 30) == 0
    assert changed_within((ScaleEvent(2**31 - 1, 1), ScaleEvent(1, 1)), 0) == -(2**31)


@pytest.mark.parametrize(("events", "kept"), answers("decide/history", "events"))
def test_events_take_the_place_of_outdated_ones(events: list[list[Any]], kept: list[list[Any]]) -> None:
    assert with_event(_listed(events), 9, 100, 60) == _listed(kept)


@pytest.mark.parametrize(("change", "ups", "downs"), answers("decide/history", "changes"))
def test_a_change_is_an_event_of_its_direction_and_counts_for_its_periods(
    change: int, ups: list[list[Any]], downs: list[list[Any]]
) -> None:
    earlier = History(ups=(ScaleEvent(1, 50),), downs=(ScaleEvent(1, 50),))
    history = with_change(earlier, change, 100, (30, 60))

    assert (history.ups, history.downs) == (_listed(ups), _listed(downs))


def test_they_are_in_the_order_of_time_with_their_sign() -> None:
    ups = (ScaleEvent(3, NOW - 5 * SECOND), ScaleEvent(1, NOW - 20 * SECOND, outdated=True))
    downs = (ScaleEvent(2, NOW - 10 * SECOND), ScaleEvent(9, NOW - LONGEST_PERIOD))
    changes = recent_changes(ups, downs, NOW, LONGEST_PERIOD)
    assert changes == (
        PastChange(1, FineInstant(NOW - 20 * SECOND)),
        PastChange(-2, FineInstant(NOW - 10 * SECOND)),
        PastChange(3, FineInstant(NOW - 5 * SECOND)),
    )
    assert recent_changes(ups, downs, NOW, 10 * SECOND) == changes[2:]


def test_neither_an_assumption_nor_nothing_is_reported() -> None:
    assumed = ScaleEvent(3, NOW - 5 * SECOND, assumed=True)
    assert recent_changes((assumed, ScaleEvent(1, NOW)), (), NOW, LONGEST_PERIOD) == (
        PastChange(1, FineInstant(NOW)),
    )
    assert inherited_events(None, NOW) == ((), ())
    assert inherited_events([PastChange(0, FineInstant(NOW))], NOW) == ((), ())


KNOWN = ((ScaleEvent(2, NOW),), (ScaleEvent(1, NOW),))
STATUS = FastPathAutoscalerStatus(recent_changes=(PastChange(3, FineInstant(NOW)),))


@pytest.mark.parametrize(
    ("status", "events", "remembered"),
    [
        (STATUS, None, ((ScaleEvent(3, NOW, inherited=True),), ())),
        (STATUS, KNOWN, KNOWN),
        (STATUS, ((), ()), ((), ())),
        (None, KNOWN, KNOWN),
        (None, None, ((), ())),
    ],
)
def test_the_known_events_of_an_object_before_it_count_instead_of_those_of_the_status(
    status: FastPathAutoscalerStatus | None,
    events: tuple[Events, Events] | None,
    remembered: tuple[Events, Events],
) -> None:
    history = recall(status, events, NOW).history
    assert (history.ups, history.downs) == remembered


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


@given(_EVENTS, _EVENTS, st.integers(0, LONGEST_PERIOD - 1), st.integers(-7200 * SECOND, 7200 * SECOND))
def test_changes_have_the_same_times_and_sizes_afterwards(
    ups: tuple[ScaleEvent, ...], downs: tuple[ScaleEvent, ...], period: int, set_by: int
) -> None:
    """They are told with times of day."""
    told = recent_changes(ups, downs, NOW, LONGEST_PERIOD, set_by)
    assert {change.time for change in told} <= {event.at + set_by for event in (*ups, *downs)}
    again = inherited_events(told, NOW, set_by)
    after = NOW - period
    assert [changed_within(each, after) for each in again] == [
        changed_within(each, after) for each in (ups, downs)
    ]


def test_of_very_many_the_oldest_are_one_in_each_direction_and_count_for_longer() -> None:
    ups = tuple(ScaleEvent(1, NOW - (200 - each) * SECOND) for each in range(0, 200, 2))
    downs = tuple(ScaleEvent(2, NOW - (200 - each) * SECOND) for each in range(1, 200, 2))
    changes = recent_changes(ups, downs, NOW, LONGEST_PERIOD)
    assert len(changes) == MOST
    again = inherited_events(changes, NOW)
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
    told = recent_changes(_events(ups, skew), _events(downs, skew), NOW + skew, LONGEST_PERIOD)
    now: int = NOW
    for term in terms:
        inherited = inherited_events(told, now)
        now += term
        told = recent_changes(*inherited, now, LONGEST_PERIOD)
    inherited = inherited_events(told, now)
    now += elapsed

    assert raise_limit(current, up, *inherited, now)[0] <= raise_limit(current, up, *true, now)[0]
    assert lower_limit(current, down, *inherited, now)[0] >= lower_limit(current, down, *true, now)[0]


@given(_CHANGES, _CHANGES, st.integers(0, 48 * 3600 * SECOND), _UP, st.integers(0, 200))
def test_nor_is_anything_kept_back_for_longer_than_a_period(
    ups: list[tuple[int, int]], downs: list[tuple[int, int]], skew: int, rules: Rules, current: int
) -> None:
    inherited = inherited_events(
        recent_changes(_events(ups, skew), _events(downs, skew), NOW + skew, LONGEST_PERIOD), NOW
    )
    now = NOW + rules.longest_period
    assert raise_limit(current, rules, *inherited, now) == raise_limit(current, rules, (), (), now)
    assert lower_limit(current, rules, *inherited, now) == lower_limit(current, rules, (), (), now)


def _events(changes: list[tuple[int, int]], skew: int) -> tuple[ScaleEvent, ...]:
    return tuple(ScaleEvent(change, NOW - age + skew) for change, age in changes)
