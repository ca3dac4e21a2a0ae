"""The last hour of an autoscaler: what is kept of it to the second, what to 15 s, and what is forgotten."""

import bisect
import functools
import itertools
import operator
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from adapter.autoscaler.decide.restraint import FOLLOWS, HELD, LIMITED, Restraint
from adapter.autoscaler.explain.past_hour import EXACT, HOUR, LAPSE, MOST, RUN, SLOT, Counts, PastHour, add
from adapter.model.timestamps import SECOND
from tests.support.answers import answers

BEGIN = 1_000_000 * SLOT
NONE = Counts(BEGIN, None, None, None, (0, 0, 0), None)

instant = operator.attrgetter("at")


def at(seconds: float, demand: int | None = 3, desired: int | None = 3, ready: int | None = 3) -> Counts:
    """Return what is decided after so many seconds."""
    restraint = Restraint.ABSENT if demand is None else FOLLOWS if demand == desired else HELD
    return Counts(BEGIN + round(seconds * SECOND), demand, desired, ready, (0, 1, 10), restraint)


def hour(decisions: Iterable[Counts]) -> PastHour:
    past = PastHour()
    for decision in decisions:
        past.note(decision)
    return past


def test_an_autoscaler_at_rest_has_one_record() -> None:
    past = hour(at(second, 4 if second else 3, 4 if second else 3) for second in range(0, 7200, 60))
    (one,) = past.changes(BEGIN + 7200 * SECOND)
    assert one == at(60, 4, 4)


@pytest.mark.parametrize(("demands", "until", "expected"), answers("autoscaler/past_hour", "sways"))
def test_sways(demands: list[list[int]], until: int, expected: list[list[int]]) -> None:
    """Nothing was done until then, in seconds; in ten minutes what was before is old."""
    changes = [at(second, demand, 30, 30) for second, demand in demands]
    *kept, _ = functools.reduce(add, [*changes, at(until, changes[-1].demand, 30, 29)], tuple[Counts, ...]())
    assert [[(one.at - BEGIN) // SECOND, one.demand] for one in kept] == expected


def test_a_raise_in_a_second_is_kept_as_it_was() -> None:
    decisions = [at(0), at(60.1, 6, 6), at(60.9, 6, 6, 6), at(90, 4, 6, 6)]
    assert list(hour(decisions).changes(BEGIN + 100 * SECOND)) == decisions


def test_the_demand_of_each_second_is_forgotten_but_for_its_peaks() -> None:
    """A demand of 10 to 19 with a peak of 24, below what is held."""
    wave = [at(second, 24 if second == 300 else 10 + second * 7 % 10, 30, 30) for second in range(600)]
    kept = hour(wave).changes(wave[-1].at)
    assert len(kept) < 100
    assert wave[300] in kept
    later = [at(second, 10 + second * 7 % 10, 30, 30) for second in range(600, 3600)]
    assert len(hour(wave + later).changes(later[-1].at)) < 110


def test_a_restraint_that_lasts_keeps_its_second_and_one_that_flickers_is_forgotten() -> None:
    flickers = [at(second, 5 + second % 2, 6, 6) for second in range(1, 300)]
    lasting = [at(second, 5 - second % 2, 6, 6) for second in range(300, 330)]
    assert list(hour(flickers + lasting).changes(lasting[-1].at))[:2] == [flickers[0], lasting[0]]


def test_without_a_decision_nothing_is_known() -> None:
    past = hour([at(0), at(1), at(400, 4, 4)])
    known = [(one.at - BEGIN, one.restraint) for one in past.changes(BEGIN + 900 * SECOND)]
    assert known == [
        (0, FOLLOWS),
        (LAPSE + SECOND, None),
        (400 * SECOND, FOLLOWS),
        (400 * SECOND + LAPSE, None),
    ]
    assert list(PastHour().changes(BEGIN)) == []


@pytest.mark.parametrize(("counts", "turns"), answers("autoscaler/past_hour", "turns"))
def test_changes_of_direction(counts: list[int | None], turns: int) -> None:
    past = hour(at(place, 3, count) for place, count in enumerate(counts))
    assert (past.reversals(BEGIN + 60 * SECOND), past.reversals(BEGIN + 2 * HOUR)) == (turns, 0)


def test_a_change_each_second_fills_no_more_than_the_most() -> None:
    past = hour(at(second, second, second, second) for second in range(7200))
    kept = past.changes(BEGIN + 7199 * SECOND)
    assert len(kept) <= MOST
    assert [one.at - BEGIN for one in kept[-15:]] == [second * SECOND for second in range(7185, 7200)]


# -- whatever was decided ------------------------------------------------------------------------------------

_COUNTS = st.none() | st.integers(0, 30)
_PHASES = st.lists(
    st.tuples(
        st.integers(1, 60),
        st.sampled_from((0.1, 0.7, 1, 1, 1, 4, 14, 15, 16, 60)),
        st.lists(_COUNTS, min_size=1, max_size=7),
        st.lists(st.sampled_from((5, 6, 20)), min_size=1, max_size=2),
        st.lists(st.sampled_from((FOLLOWS, HELD, LIMITED)), min_size=1, max_size=3),
        st.sampled_from((4, 5)),
    ),
    min_size=1,
    max_size=12,
)
"""How many decisions, the seconds between them, and what they have in turns."""


def play(phases: Iterable[tuple[Any, ...]]) -> tuple[list[Counts], Sequence[Counts]]:
    """Return what changed and what is kept of it; the last decision is that of now."""
    now, changes, past = BEGIN, list[Counts](), PastHour()
    for count, step, *turns, ready in phases:
        cycles = zip(*map(itertools.cycle, turns), strict=False)
        for demand, desired, restraint in itertools.islice(cycles, count):
            now += round(step * SECOND)
            one = Counts(now, demand, desired, ready, (0, 1, 30), restraint)
            past.note(one)
            if not changes or not one.repeats(changes[-1]):
                changes.append(one)
    kept = past.changes(changes[-1].at)
    assert kept[-1].repeats(changes[-1]), "what holds now is the last"
    assert len(kept) <= MOST
    return changes, kept


def near(changes: Sequence[Counts], at: int, within: int) -> Sequence[Counts]:
    """Return what held at some time near an instant."""
    first = bisect.bisect(changes, at - within, key=instant) - 1
    return changes[max(0, first) : bisect.bisect(changes, at + within, key=instant)]


def height(changes: Iterable[Counts]) -> float:
    return max(one.height for one in changes)


@given(_PHASES)
def test_the_hour_has_each_peak_and_each_reaction_within_15_seconds(phases: list[tuple[Any, ...]]) -> None:
    changes, kept = play(phases)
    for one in changes:
        age = changes[-1].at - one.at
        if age >= HOUR:
            continue
        around = near(kept, one.at, SLOT)
        assert height(around) >= one.height
        assert max(other.desired or 0 for other in around) >= (one.desired or 0)
        assert min(other.ready or 0 for other in around) <= (one.ready or 0)
        within, share = (SLOT, 0.1) if age < EXACT else (RUN, 0.25)
        drawn = height(near(kept, one.at, 0))
        assert drawn - max(1, drawn * share) <= height(near(changes, one.at, within)), "none is invented"


@given(_PHASES)
def test_of_ten_minutes_each_peak_and_each_reaction_keeps_its_second(phases: list[tuple[Any, ...]]) -> None:
    changes, kept = play(phases)
    assume(len(changes) <= MOST)
    begin = changes[-1].at - EXACT
    assert {one for one in kept if one.at > begin} <= set(changes), "what is kept was so"
    for before, one, after in zip([changes[0], *changes], changes, [*changes[1:], None], strict=False):
        if one.at <= begin:
            continue
        (drawn,) = near(kept, one.at, 0)[-1:]
        if (one.desired, one.ready) != (before.desired, before.ready):
            assert one in kept
        if one.height > height([*(other for other in near(changes, one.at, SLOT) if other is not one), NONE]):
            assert one in kept or 0 <= drawn.height - one.height <= max(1, drawn.height / 10)
        if after is None or after.at - one.at >= SLOT:
            assert drawn.restraint is one.restraint
