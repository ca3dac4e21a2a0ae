from hypothesis import given
from hypothesis import strategies as st

from adapter.model.fastpathautoscaler import PastChange
from adapter.model.instants import SECOND, FineInstant
from adapter.scaling.history import ScaleEvent, changed_within
from adapter.scaling.pastchanges import LONGEST_PERIOD, MOST, changes_of, events_of
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
    assert events_of(None) == ((), ())
    assert events_of([PastChange(0, FineInstant(NOW))]) == ((), ())


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
def test_policies_count_the_same_afterwards(
    ups: tuple[ScaleEvent, ...], downs: tuple[ScaleEvent, ...], period: int
) -> None:
    again = events_of(changes_of(ups, downs, NOW))
    after = NOW - period
    assert [changed_within(each, after) for each in again] == [changed_within(each, after) for each in (ups, downs)]


def test_of_very_many_the_oldest_are_one_in_each_direction_and_count_for_longer() -> None:
    ups = tuple(ScaleEvent(1, NOW - (200 - each) * SECOND) for each in range(0, 200, 2))
    downs = tuple(ScaleEvent(2, NOW - (200 - each) * SECOND) for each in range(1, 200, 2))
    changes = changes_of(ups, downs, NOW)
    assert len(changes) == MOST
    again = events_of(changes)
    for period in range(1, 300):
        for before, after in zip((ups, downs), again, strict=True):
            since = NOW - period * SECOND
            assert changed_within(after, since) >= changed_within(before, since)
    assert [changed_within(each, 0) for each in again] == [100, 200]
