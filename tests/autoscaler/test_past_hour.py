"""The last hour of an autoscaler: what is kept of it, and how much memory that takes."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from adapter.autoscaler.decide.restraint import Restraint
from adapter.autoscaler.explain.past_hour import MOST, SPAN, SPANS, Counts, PastHour
from adapter.model.timestamps import SECOND

BEGIN = 1_000_000 * SPAN
REST = Counts(3, 3, 3, 0, 1, 10, Restraint.FOLLOWS)

_counts = st.builds(
    Counts,
    st.none() | st.integers(0, MOST),
    st.none() | st.integers(0, MOST),
    st.none() | st.integers(0, MOST),
    st.integers(0, MOST),
    st.integers(0, MOST),
    st.integers(1, MOST),
    st.sampled_from(Restraint),
)


def weight(past: PastHour) -> int:
    """Return the bytes of an hour with all that only it holds."""
    return sys.getsizeof(past) + sum(sys.getsizeof(getattr(past, name)) for name in PastHour.__slots__)


def test_an_autoscaler_at_rest_takes_one_record() -> None:
    past = PastHour()
    for second in range(7200):
        past.note(REST, BEGIN + second * SECOND)

    (one, _) = past.spans(BEGIN + 7200 * SECOND)
    assert (one.counts, one.end - one.start) == (REST, (SPANS - 1) * SPAN)
    assert weight(past) < 256


def test_the_busiest_hour_takes_less_than_2_kib() -> None:
    past = PastHour()
    for second in range(7200):
        replicas = 40_000 + second
        past.note(
            Counts(replicas, replicas, replicas, replicas, 9, replicas, Restraint.HELD),
            BEGIN + second * SECOND,
        )

    assert len(list(past.spans(BEGIN + 7199 * SECOND))) == SPANS
    assert weight(past) <= 2048


def test_a_short_peak_is_kept() -> None:
    past = PastHour()
    past.note(REST, BEGIN)
    past.note(REST._replace(demand=9, ready=2, desired=9), BEGIN + SECOND)
    past.note(REST._replace(restraint=Restraint.HELD), BEGIN + 2 * SECOND)

    (one,) = past.spans(BEGIN + 3 * SECOND)
    assert one.counts == Counts(9, 3, 2, 0, 1, 10, Restraint.HELD)


def test_nothing_is_shown_before_the_first_decision() -> None:
    assert list(PastHour().spans(BEGIN)) == []


def test_counts_beyond_the_largest_are_kept_as_the_largest() -> None:
    past = PastHour()
    past.note(Counts(2**31 - 1, 0, 70_000, 0, 0, 2**31 - 1, Restraint.FOLLOWS), BEGIN)

    (one,) = past.spans(BEGIN + 1)
    assert one.counts == Counts(MOST, 0, MOST, 0, 0, MOST + 1, Restraint.FOLLOWS)


def test_changes_of_direction_are_counted() -> None:
    past = PastHour()
    for place, desired in enumerate((3, 5, 8, 8, 4, None, 4, 6, 2)):
        past.note(REST._replace(desired=desired), BEGIN + place * SPAN)

    assert past.reversals == 3


@given(st.lists(st.tuples(st.integers(0, 3 * SPANS), _counts), max_size=200))
def test_spans_are_those_of_a_plain_list(decisions: list[tuple[int, Counts]]) -> None:
    past, span, kept = PastHour(), 0, dict[int, Counts]()
    for steps, counts in decisions:
        span += min(steps, 3)
        past.note(counts, BEGIN + span * SPAN)
        before = kept.get(span, counts)
        demands = [one for one in (before.demand, counts.demand) if one is not None]
        readies = [one for one in (before.ready, counts.ready) if one is not None]
        kept[span] = counts._replace(demand=max(demands, default=None), ready=min(readies, default=None))

    now = BEGIN + span * SPAN + 1
    first = max(min(kept, default=0), span - SPANS)
    expected = {place: kept.get(place) for place in range(first, span + 1) if kept}
    shown: dict[int, Counts | None] = {}
    for one in past.spans(now):
        first, last = (one.start - BEGIN) // SPAN, (one.end - 1 - BEGIN) // SPAN
        shown |= dict.fromkeys(range(first, last + 1), one.counts)
    for place in shown:
        assert shown[place] == expected[place]
    assert len(shown) >= min(len(expected), SPANS)
    assert weight(past) <= 2048
