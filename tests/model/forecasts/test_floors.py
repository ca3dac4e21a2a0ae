"""Floors from bounds: what they cover, what withholds them, and what a day may cost."""

import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.model.forecasts.floors import (
    ABSENT,
    BUDGET,
    COVERAGE,
    SPENT,
    UNKNOWN,
    Account,
    CountModel,
    Day,
    FloorFollower,
    Hour,
    Limits,
    floors,
)

NAN = math.nan
HOUR = 60
LIMITS = Limits(least=1, most=40, lead=0, hold=1, coverage=0.9, max_extra=1000.0)
"""A budget that is never exceeded."""


def follower(account: Account | None = None, **limits: Any) -> FloorFollower:
    return FloorFollower(LIMITS._replace(**limits), HOUR, account)


def follow(followed: FloorFollower, demands: list[float], bounds: list[float], first: int = 0) -> list[int]:
    """Return the floors of steps with the demand of the step before each, and the bounds known to each."""
    return [
        followed.step(index, demand, bound)
        for index, (demand, bound) in enumerate(zip(demands, bounds, strict=True), first)
    ]


def covered(followed: FloorFollower) -> float | None:
    return followed.day.coverage


# -- what a floor covers -------------------------------------------------------------------------------------


def test_a_floor_covers_the_bounds_up_to_the_lead() -> None:
    bounds = [5.0, 3.0, NAN, 7.0, NAN, NAN, NAN]
    assert follow(follower(lead=2), [1.0] * 7, bounds) == [5, 5, 5, 7, 7, 7, 0]
    assert follow(follower(lead=0), [1.0] * 7, bounds) == [5, 3, 0, 7, 0, 0, 0]


@pytest.mark.parametrize(
    ("bound", "floor"), [(0.0, 0), (2.0, 2), (2.1, 3), (3 + 4e-16, 3), (12.0, 12), (50.0, 12)]
)
def test_a_bound_is_rounded_up_to_pods_and_stops_at_the_maximum(bound: float, floor: int) -> None:
    assert follower(most=12).step(7, 1.0, bound) == floor


def test_while_the_demand_is_unknown_there_is_no_floor() -> None:
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
    """Without a floor the highest demand within the hold stays, and a floor stays for the hold too."""
    followed = follower(hold=3, least=2, most=10)
    demands = [4.0, 1.0, 1.0, 1.0, 1.0, 30.0]
    bounds = [6.0, NAN, NAN, NAN, NAN, NAN]
    assert follow(followed, demands, bounds) == [6, 0, 0, 0, 0, 0]
    # the first demand is that of the step before the first; its floor is 0
    assert followed.day == Day(extra=0 + 2 + 2 + 4 + 0 + 0, pods=4 + 4 + 4 + 2 + 2 + 10, covered=1, judged=1)
    assert followed.day.share == pytest.approx(8 / 26)
    assert follower().day.share == 0


def test_a_floor_beyond_the_budget_is_withheld_until_there_is_room() -> None:
    """Each step with the floor adds 2 pods to 10; withheld beyond 9 % of 10, and given again at 7 %."""
    followed = follower(least=10, max_extra=0.1)
    found = [(followed.step(index, 10.0, 12.0), followed.withheld) for index in range(8)]
    held, withheld = (12, ""), (0, BUDGET)
    assert found == [withheld, withheld, held, withheld, withheld, held, held, withheld]


@pytest.mark.parametrize(("zone", "held"), [("UTC", 62), ("Etc/GMT+1", 60 + 62)])
def test_a_day_that_needs_less_has_a_smaller_budget_from_its_beginning(zone: str, held: int) -> None:
    """The last 24 hours would allow 1,296 pod steps. This day seems to need 1 pod, and gets 9 % of that.

    One hour west of UTC the same hour is the last of the day before.
    """
    hours = [Hour(number, pods=600, least=10) for number in range(24)]
    followed = follower(Account(hours), max_extra=0.1, zone=zone)
    found = follow(followed, [1.0] * 200, [3.0] * 200, first=24 * HOUR)
    assert found[: held + 1] == [3] * held + [0]


def test_a_floor_is_withheld_while_the_expected_demand_does_not_come() -> None:
    """10 of the last 20 steps had less than the lower bound, until they are 2."""
    followed = follower()
    demands = [1.0] * 11 + [5.0] * 18
    found = [followed.step(index, demand, 6.0, 2.0) for index, demand in enumerate(demands)]
    assert found == [6] * 10 + [0] * 18 + [6]
    again = [followed.step(index, 1.0, 6.0, 2.0) for index in range(29, 40)]
    assert (again[8:10], followed.withheld) == ([6, 0], ABSENT)


@pytest.mark.parametrize(
    ("floors", "demands", "pods"),
    [
        ([0, 0, 0], [4.0, 4.3, 4.5], [(4, 0), (4, 0), (5, 0)]),
        ([0, 0, 0], [10.0, 9.0, 8.9], [(10, 0), (10, 0), (9, 0)]),
        ([11, 0, 0], [10.0, 10.0, 9.0], [(10, 1), (10, 1), (10, 0)]),
        ([12, 0, 0], [10.0, 10.0, 10.0], [(10, 2), (10, 0), (10, 0)]),
        ([50, 0, 0], [1.0, 99.0, 1.0], [(2, 18), (20, 0), (2, 0)]),
    ],
    ids=["a raise beyond the tolerance", "a fall", "a floor that the tolerance keeps", "a floor", "bounds"],
)
def test_the_counts_that_are_expected(
    floors: list[int], demands: list[float], pods: list[tuple[float, float]]
) -> None:
    model = CountModel(LIMITS._replace(least=2, most=20))
    found = []
    for floor, demand in zip(floors, demands, strict=True):
        model.begin(min(floor, 20))
        found.append(model.end(demand))
    assert found == pods


@pytest.mark.parametrize(("floor", "extra"), [(0, 0), (11, 1.2), (15, 3)])
def test_counts_are_as_wrong_as_a_replay_has_found_them(floor: int, extra: float) -> None:
    """Pods that only the floor makes are counted in full."""
    model = CountModel(LIMITS._replace(ratio=1.2))
    model.begin(floor)
    assert model.end(10.0) == pytest.approx((12.0, extra))


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
    """A floor above the maximum or of an unknown demand, or one after a day that has cost too much."""
    followed = follower(least=least, most=most, lead=lead, hold=hold, coverage=0.5, max_extra=max_extra)
    highest: list[float] = []
    for index, (demand, bound) in enumerate(steps):
        floor = followed.step(index, demand, bound)
        highest.append(0.0 if math.isnan(bound) else bound)
        asked = min(math.ceil(max(highest[-1 - lead :]) - 1e-9), most)
        assert floor in {0, asked}
        if math.isnan(demand):
            assert (floor, followed.withheld) == (0, UNKNOWN)
        assert floor == asked or followed.withheld
        if floor:
            assert followed.day.extra <= SPENT * max_extra * followed.day.pods


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


def test_the_floors_of_a_replay() -> None:
    demands, bounds = [1.0, 2.0, NAN, 1.0, 1.0], [4.0, 3.0, 5.0, 6.0, 2.0]
    found = floors(demands, bounds, 100, follower())
    # the demand of the step before the first is not known, nor is that before the fourth
    assert found == [0, 3, 5, 0, 2]
