import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide import behavior
from adapter.autoscaler.decide.behavior import Policy, ReplicaLimits, Rules, lower_limit, raise_limit
from adapter.autoscaler.decide.history import (
    LONGEST_PERIOD,
    MOST,
    History,
    Recommendation,
    RecommendationList,
    RecommendationQueues,
    ScaleEvent,
    changed_within,
    changes_of,
    events_of,
    shifted,
    with_change,
    with_event,
)
from adapter.model.autoscaling.fastpath_autoscaler import PastChange
from adapter.model.timestamps import SECOND, FineInstant
from tests.support.scaling import NOW

A = Recommendation


def test_the_list_is_read_after_an_instant() -> None:
    listed = RecommendationList((A(9, 10), A(2, 20), A(5, 30)))

    assert listed.highest(3, 9) == 9
    assert listed.highest(3, 10) == 5
    assert listed.highest(6, 10) == 6
    assert listed.lowest(3, 19) == 2
    assert listed.lowest(3, 20) == 3
    assert not listed.empty
    assert RecommendationList().empty


def test_the_last_stale_entry_is_overwritten() -> None:
    listed = RecommendationList((A(1, 10), A(2, 20), A(3, 30), A(4, 15)))

    assert listed.recorded(9, 40, 20).entries == (A(1, 10), A(2, 20), A(3, 30), A(9, 40))
    assert listed.recorded(9, 40, 15).entries == (A(9, 40), A(2, 20), A(3, 30), A(4, 15))
    assert listed.recorded(9, 40, 10).entries == (*listed.entries, A(9, 40))


def test_queues_keep_what_can_still_matter() -> None:
    queued = RecommendationQueues()
    for at, replicas in enumerate([5, 3, 4, 4, 9, 1]):
        queued = queued.recorded(replicas, at * SECOND, 0)

    assert queued.high == (A(9, 4 * SECOND), A(1, 5 * SECOND))
    assert queued.low == (A(1, 5 * SECOND),)
    assert not queued.empty
    assert RecommendationQueues().empty
    assert RecommendationQueues().highest(3, 0) == RecommendationQueues().lowest(3, 0) == 3


def test_queues_forget_after_an_hour() -> None:
    queued = RecommendationQueues().recorded(9, 0, 0).recorded(5, SECOND, 0).recorded(7, 2 * SECOND, 0)

    exactly = queued.recorded(1, 3600 * SECOND, 0)
    later = queued.recorded(1, 3601 * SECOND, 0)

    assert exactly.high[0] == A(9, 0)
    assert later.high[0] == A(7, 2 * SECOND)
    assert later.low == (A(1, 3601 * SECOND),)
    rising = RecommendationQueues().recorded(1, 0, 0).recorded(2, SECOND, 0).recorded(3, 3601 * SECOND, 0)
    assert rising.low == (A(2, SECOND), A(3, 3601 * SECOND))


_SYNCS = st.lists(
    st.tuples(
        st.integers(0, 400 * SECOND) | st.sampled_from([SECOND, 15 * SECOND, 300 * SECOND]),
        st.integers(0, 12),
    ),
    min_size=1,
    max_size=40,
)
_WINDOWS = st.sampled_from([0, 1, 15, 60, 300, 3600]).map(lambda seconds: seconds * SECOND)


@given(syncs=_SYNCS, up=_WINDOWS, down=_WINDOWS, first=st.integers(0, 12))
def test_both_forms_decide_alike(syncs: list[tuple[int, int]], up: int, down: int, first: int) -> None:
    policies = (Policy(percent=False, value=3, period=60 * SECOND),)
    now = int(NOW)
    plain: History = History(RecommendationList().recorded(first, now, now))
    queued: History = History(RecommendationQueues().recorded(first, now, now))
    legacy_plain, legacy_queued = plain.recommendations, queued.recommendations
    current = first
    for pause, wanted in syncs:
        now += pause
        limits = ReplicaLimits(0, 12)
        rules = Rules(up, "Max", policies), Rules(down, "Max", policies)

        one = behavior.normalize(wanted, current, limits, *rules, plain, now)
        other = behavior.normalize(wanted, current, limits, *rules, queued, now)
        legacy_one = behavior.normalize_legacy(wanted, current, limits, down, legacy_plain, now)
        legacy_other = behavior.normalize_legacy(wanted, current, limits, down, legacy_queued, now)

        assert (one[:4], one.steps) == (other[:4], other.steps)
        assert (legacy_one[:4], legacy_one.steps) == (legacy_other[:4], legacy_other.steps)
        plain, queued = History(one.recommendations), History(other.recommendations)
        legacy_plain, legacy_queued = legacy_one.recommendations, legacy_other.recommendations
        current = one.replicas


def test_changes_after_an_instant() -> None:
    events = (ScaleEvent(4, 10), ScaleEvent(2, 20, outdated=True), ScaleEvent(1, 30))

    assert changed_within(events, 9) == 7
    assert changed_within(events, 10) == 3
    assert changed_within(events, 30) == 0
    assert changed_within((ScaleEvent(2**31 - 1, 1), ScaleEvent(1, 1)), 0) == -(2**31)


@pytest.mark.parametrize(
    ("events", "kept"),
    [
        pytest.param((), (ScaleEvent(9, 100),), id="the first"),
        pytest.param(
            (ScaleEvent(1, 40),), (ScaleEvent(1, 40), ScaleEvent(9, 100)), id="exactly the period old"
        ),
        pytest.param((ScaleEvent(1, 39),), (ScaleEvent(9, 100),), id="older"),
        pytest.param(
            (ScaleEvent(1, 10), ScaleEvent(2, 20), ScaleEvent(3, 90)),
            (ScaleEvent(1, 10, outdated=True), ScaleEvent(9, 100), ScaleEvent(3, 90)),
            id="the last outdated one is overwritten, the others stay marked",
        ),
        pytest.param(
            (ScaleEvent(1, 90, outdated=True), ScaleEvent(2, 95)),
            (ScaleEvent(9, 100), ScaleEvent(2, 95)),
            id="the mark stays",
        ),
    ],
)
def test_events_take_the_place_of_outdated_ones(
    events: tuple[ScaleEvent, ...], kept: tuple[ScaleEvent, ...]
) -> None:
    assert with_event(events, 9, 100, 60) == kept


@pytest.mark.parametrize("kind", [RecommendationList, RecommendationQueues])
def test_on_a_clock_that_was_set_ages_stay_what_they_are(
    kind: type[RecommendationList | RecommendationQueues],
) -> None:
    recommendations = kind().recorded(9, 10, 0).recorded(2, 20, 0)
    before = History(recommendations, (ScaleEvent(1, 15),), (ScaleEvent(2, 25),))

    after = shifted(shifted(before, 100), -30)

    assert after.ups == (ScaleEvent(1, 85),)
    assert after.downs == (ScaleEvent(2, 95),)
    assert after.recommendations.highest(0, 79) == before.recommendations.highest(0, 9) == 9
    assert after.recommendations.highest(0, 80) == before.recommendations.highest(0, 10) == 2
    assert shifted(after, -70) == before


@pytest.mark.parametrize(
    ("change", "ups", "downs"),
    [(3, (ScaleEvent(3, 100),), ()), (-3, (), (ScaleEvent(3, 100),)), (0, (), ())],
)
def test_a_change_is_an_event_of_its_direction(
    change: int, ups: tuple[ScaleEvent, ...], downs: tuple[ScaleEvent, ...]
) -> None:
    made = with_change(History(), change, 100, (60, 60))

    assert (made.ups, made.downs) == (ups, downs)


def test_a_scale_down_counts_for_the_periods_down() -> None:
    earlier = ScaleEvent(1, 50)

    made = with_change(History(downs=(earlier,)), -2, 100, (30, 60))

    assert made.downs == (earlier, ScaleEvent(2, 100))


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


def test_an_assumption_is_not_reported() -> None:
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
