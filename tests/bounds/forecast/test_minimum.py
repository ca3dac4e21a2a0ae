"""Floors from bounds: what they cover, what withholds them, and what a day may cost."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.bounds.forecast.minimum import (
    ABSENT,
    BUDGET,
    COVERAGE,
    FEW_LOW,
    MOST_LOW,
    RECENT,
    UNKNOWN,
    Account,
    CountModel,
    Day,
    Hour,
    Limits,
    MinimumFollower,
)

NAN = math.nan
HOUR = 60
LIMITS = Limits(least=1, most=40, lead=0, hold=1, coverage=0.9, max_extra=1000.0)
"""A budget that is never exceeded."""


def follower(account: Account | None = None, **limits: Any) -> MinimumFollower:
    return MinimumFollower(LIMITS._replace(**limits), HOUR, account)


def follow(followed: MinimumFollower, demands: list[float], bounds: list[float], first: int = 0) -> list[int]:
    """Return the minimums of steps with the demand of the step before each, and the bounds known to each."""
    return [
        followed.step(index, demand, bound)
        for index, (demand, bound) in enumerate(zip(demands, bounds, strict=True), first)
    ]


def covered(followed: MinimumFollower) -> float | None:
    return followed.day.coverage


# -- what a minimum covers -----------------------------------------------------------------------------------


def test_a_floor_covers_the_bounds_up_to_the_lead() -> None:
    bounds = [5.0, 3.0, NAN, 7.0, NAN, NAN, NAN]
    assert follow(follower(lead=2), [1.0] * 7, bounds) == [5, 5, 5, 7, 7, 7, 0]
    assert follow(follower(lead=0), [1.0] * 7, bounds) == [5, 3, 0, 7, 0, 0, 0]


@pytest.mark.parametrize(
    ("bound", "minimum"), [(0.0, 0), (2.0, 2), (2.1, 3), (3 + 4e-16, 3), (12.0, 12), (50.0, 12)]
)
def test_a_bound_is_rounded_up_to_pods_and_stops_at_the_maximum(bound: float, minimum: int) -> None:
    assert follower(most=12).step(7, 1.0, bound) == minimum


def test_while_the_demand_is_unknown_there_is_no_minimum() -> None:
    followed = follower(lead=1)
    assert follow(followed, [1.0, NAN], [5.0, 6.0]) == [5, 0]
    assert (followed.withheld, followed.day.pods) == (UNKNOWN, 1)
    assert followed.step(2, 1.0, 2.0) == 6
    assert followed.withheld == ""


def test_steps_that_were_left_out_had_no_demand_and_no_bound() -> None:
    followed = follower(lead=2)
    assert followed.step(0, 1.0, 5.0) == 5
    assert followed.step(2, 1.0, 3.0) == 5
    assert followed.step(4, 1.0, NAN) == 3
    assert followed.step(1000, 1.0, 2.0) == 2
    assert followed.day.judged == 0  # the bounds were of steps whose demand is unknown


@given(
    steps=st.lists(st.none() | st.tuples(st.floats(0, 50), st.floats(0, 50)), max_size=30),
    lead=st.integers(0, 4),
    hold=st.integers(1, 4),
)
def test_a_step_that_is_left_out_is_one_without_values(
    steps: list[tuple[float, float] | None], lead: int, hold: int
) -> None:
    one, other = (follower(lead=lead, hold=hold, coverage=0) for _ in range(2))
    for index, each in enumerate([(1.0, 2.0), *steps]):
        if each is None:
            assert other.step(index, NAN, NAN) == 0
        else:
            assert one.step(index, *each) == other.step(index, *each)
            assert one.day == other.day


# -- what it costs -------------------------------------------------------------------------------------------


def test_a_day_has_the_pods_without_a_floor_and_those_that_it_added() -> None:
    """Without a minimum the highest demand within the hold stays, and a minimum stays for the hold too."""
    followed = follower(hold=3, least=2, most=10)
    demands = [4.0, 1.0, 1.0, 1.0, 1.0, 30.0]
    bounds = [6.0, NAN, NAN, NAN, NAN, NAN]
    assert follow(followed, demands, bounds) == [6, 0, 0, 0, 0, 0]
    # the first demand is that of the step before the first; its minimum is 0
    assert followed.day == Day(extra=0 + 2 + 2 + 4 + 0 + 0, pods=4 + 4 + 4 + 2 + 2 + 10, covered=1, judged=1)
    assert followed.day.share == pytest.approx(8 / 26)
    assert follower().day.share == 0


def test_a_floor_beyond_the_budget_is_withheld_until_there_is_room() -> None:
    """Each step with the minimum adds 2 pods to 10. Of 10 % nine tenths may be spent; 7 % is cheap again."""
    followed = follower(least=10, max_extra=0.1, most=12)
    followed.step(23 * HOUR - 1, 10.0, NAN)
    before, seen = 12, set()
    for index in range(23 * HOUR, 24 * HOUR):
        minimum, day = followed.step(index, 10.0, 12.0), followed.day
        assert followed.withheld == ("" if minimum else BUDGET)
        share = (day.extra + 2) / day.pods
        assert share < 0.09 + 1e-9 if minimum else share > 0.07 - 1e-9
        if minimum != before:
            assert share < 0.07 + 1e-9 if minimum else share > 0.09 - 1e-9
        before = minimum
        seen.add(minimum)
    assert seen == {0, 12}


def test_a_quiet_day_has_a_small_budget_from_its_beginning() -> None:
    """What is left of the day counts with its least. A minimum counts for as long as its pods stay."""
    before = Account([Hour(number, pods=100 * HOUR, least=100) for number in range(24)])
    for first, minimum in ((24 * HOUR, 0), (24 * HOUR - 30, 30)):  # the day begins with hour 24
        followed = follower(before, max_extra=0.1, hold=20, most=200)
        assert followed.step(first, 1.0, NAN) == 0
        assert followed.step(first + 1, 1.0, 30.0) == minimum, followed.withheld
    # of 1 pod for 24 hours 9 % are 130 pod steps; 29 more pods for 20 steps are too much, 6 are not
    followed = follower(before, max_extra=0.1, hold=20, most=200)
    assert follow(followed, [1.0] * 3, [NAN, 7.0, 30.0], first=24 * HOUR) == [0, 7, 0]


@pytest.mark.parametrize(("zone", "minimum"), [("UTC", 0), ("America/New_York", 30)])
def test_the_day_is_that_of_the_zone(zone: str, minimum: int) -> None:
    """At midnight in UTC a day in New York has most of its pods behind it."""
    before = Account([Hour(number, pods=100 * HOUR, least=100) for number in range(24)])
    followed = follower(before, max_extra=0.1, hold=20, most=200, zone=zone)
    assert follow(followed, [1.0, 1.0], [NAN, 30.0], first=24 * HOUR) == [0, minimum]


def test_a_floor_that_adds_nothing_costs_nothing() -> None:
    followed = follower(max_extra=0.0)
    assert follow(followed, [5.0, 5.0], [5.0, 5.0]) == [5, 5]
    assert followed.step(2, 5.0, 6.0) == 0
    assert followed.withheld == BUDGET


@given(
    steps=st.lists(
        st.tuples(st.just(NAN) | st.floats(0, 60), st.just(NAN) | st.floats(0, 60)), min_size=1, max_size=200
    ),
    least=st.integers(0, 10),
    most=st.integers(10, 40),
    lead=st.integers(0, 3),
    hold=st.integers(1, 4),
    max_extra=st.floats(0, 1),
)
def test_what_never_happens(
    steps: list[tuple[float, float]], least: int, most: int, lead: int, hold: int, max_extra: float
) -> None:
    """A floor above the maximum or of an unknown demand; a day that costs more than its budget.

    A minimum is in the account when its step has ended, and stays for the hold.
    """
    followed = follower(least=least, most=most, lead=lead, hold=hold, coverage=0.5, max_extra=max_extra)
    highest: list[float] = []
    for index, (demand, bound) in enumerate(steps):
        minimum = followed.step(index, demand, bound)
        highest.append(0.0 if math.isnan(bound) else bound)
        asked = min(math.ceil(max(highest[-1 - lead :]) - 1e-9), most)
        assert minimum in {0, asked}
        if math.isnan(demand):
            assert (minimum, followed.withheld) == (0, UNKNOWN)
        assert minimum == asked or followed.withheld
        day = followed.day
        assert day.extra <= max_extra * day.pods + hold * (most - least) + 1e-6


# -- coverage ------------------------------------------------------------------------------------------------


def test_a_broken_coverage_withholds_until_it_is_restored() -> None:
    followed = follower(coverage=0.9)
    assert follow(followed, [2.0] * 60, [1.0] * 60)[-1] == 1
    assert covered(followed) is None
    assert followed.step(60, 2.0, 3.0) == 0
    assert (followed.withheld, covered(followed)) == (COVERAGE, 0)
    # 60 bounds were broken: 0.7 of 200 is not enough, 0.8 of 300 is
    found = follow(followed, [2.0] * 240, [3.0] * 240, first=61)
    assert found == [0] * 239 + [3]
    assert covered(followed) == 0.8
    # and not withheld again before it is below 0.7
    assert follow(followed, [4.0] * 43, [3.0] * 43, first=301) == [3] * 42 + [0]
    assert covered(followed) == pytest.approx(240 / 343)


# -- absence -------------------------------------------------------------------------------------------------


def test_a_demand_that_does_not_come_withholds_the_floor_until_it_is_there() -> None:
    followed = follower()
    assert followed.step(0, 2.0, 9.0, 5.0) == 9  # before it no demand was expected
    for index in range(1, MOST_LOW):
        assert followed.step(index, 2.0, 9.0, 5.0) == 9
    assert followed.step(MOST_LOW, 2.0, 9.0, 5.0) == 0
    assert followed.withheld == ABSENT
    index = MOST_LOW + 1
    while followed.step(index, 6.0, 9.0, 5.0) == 0:
        assert followed.withheld == ABSENT
        index += 1
    # all but FEW_LOW of those that were low have left the last RECENT
    assert index == RECENT + MOST_LOW - FEW_LOW


def test_without_a_lower_bound_nothing_is_absent() -> None:
    assert follow(follower(), [0.0] * 50, [9.0] * 50) == [9] * 50


def test_a_lower_bound_is_for_the_step_that_it_was_asked_for() -> None:
    followed = follower(lead=3)
    for index in range(3 + MOST_LOW):
        assert followed.step(index, 2.0, 9.0, 5.0) == 9
    assert followed.withheld == ""


# -- the model -----------------------------------------------------------------------------------------------


def test_a_count_stays_within_tolerance_and_falls_after_the_hold() -> None:
    model = CountModel(LIMITS._replace(hold=2))
    found = []
    for demand in (10.0, 10.9, 11.1, 10.9, 10.0, 9.0, 9.0, 1.0, 1.0, 50.0):
        model.begin(0)
        model.end(demand)
        found.append((model.without, model.replicas))
    assert [without for without, _ in found] == [10, 10, 12, 12, 12, 10, 10, 10, 1, 40]
    assert all(without == replicas for without, replicas in found)


def test_a_floor_adds_pods_to_those_that_a_replay_has_found() -> None:
    model = CountModel(LIMITS._replace(ratio=0.9, hold=1))
    model.begin(8)
    assert model.end(10.0) == (9.0, 0.0)  # metrics made the count
    model.begin(10)
    assert model.end(10.0) == (9.0, 1.0)
    model.begin(11)
    assert model.end(10.0) == (9.0, 2.0)
    model.begin(0)
    assert model.end(10.0) == (9.0, 0.9)  # within tolerance the pod that a minimum has added stays


# -- the account ---------------------------------------------------------------------------------------------


def test_a_day_has_the_last_24_hours_and_the_one_that_is_not_over() -> None:
    hours = [Hour(0, extra=100, pods=10, covered=7, judged=9), Hour(1, pods=20)]
    followed = follower(Account(hours))
    assert followed.day == Day(100, 30, 7, 9)
    followed.step(24 * HOUR + 1, 1.0, NAN)
    assert followed.day == Day(100, 31, 7, 9)
    followed.step(25 * HOUR + 1, 1.0, NAN)
    assert followed.day == Day(0, 22, 0, 0)
    followed.step(100 * HOUR + 1, 1.0, NAN)
    assert followed.day == Day(0, 1, 0, 0)


def test_the_next_follower_goes_on_with_the_account() -> None:
    first = follower(least=10, max_extra=0.1)
    follow(first, [10.0] * 125, [12.0] * 125)
    before = first.account
    text = msgspec.json.encode(before)
    second = follower(msgspec.json.decode(text, type=Account), least=10, max_extra=0.1)
    assert (second.day, second.withheld) == (first.day, first.withheld)
    for index in range(125, 200):
        assert second.step(index, 10.0, 12.0) == first.step(index, 10.0, 12.0)
    # what one has does not change with the other
    assert msgspec.json.encode(before) == text
    follow(follower(before), [9.0] * 99, [NAN] * 99, first=125)
    assert msgspec.json.encode(before) == text


def test_an_account_says_what_is_withheld() -> None:
    hours = [Hour(0, extra=9, pods=100)]
    assert follower(Account(hours), least=10, max_extra=0.1).step(0, 10.0, 10.0) == 10
    assert follower(Account(hours, BUDGET), least=10, max_extra=0.1).step(0, 10.0, 10.0) == 0


def test_demand_that_did_not_come_is_part_of_the_account() -> None:
    first = follower(least=1, max_extra=1000.0)
    for index in range(RECENT):
        first.step(index, 4.0, 10.0, 8.0)
    assert (first.withheld, first.account.low) == (ABSENT, RECENT - 1)
    second = follower(first.account, least=1, max_extra=1000.0)
    assert second.step(RECENT, 8.0, 10.0, 8.0) == 0
    assert second.withheld == ABSENT
    found = [second.step(index, 8.0, 10.0, 8.0) for index in range(RECENT + 1, 3 * RECENT)]
    assert found.index(10) == RECENT - FEW_LOW - 1


# -- other limits --------------------------------------------------------------------------------------------


def test_other_limits_keep_the_account_and_another_lead_forgets_the_bounds_ahead() -> None:
    followed = follower(lead=2, hold=3)
    follow(followed, [4.0, 3.0, 2.0], [8.0, 9.0, 7.0])
    day = followed.day
    followed.adopt(followed.limits._replace(most=6, hold=2))
    assert followed.day == day
    assert followed.step(3, 2.0, 1.0) == 6
    followed.adopt(followed.limits._replace(lead=1))
    assert followed.step(4, 2.0, 3.0) == 3
    assert followed.step(5, 2.0, 1.0) == 3
    assert followed.step(6, 2.0, 1.0) == 1
