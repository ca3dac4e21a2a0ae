"""Plans: bounds of the steps of an hour, and minimums from one hour to the next."""

import math

import msgspec
import pytest

from adapter.bounds.forecast.minimum import COVERAGE, UNKNOWN, Account, Hour, Limits
from adapter.bounds.forecast.plan import Plan, PlannedMinimum

NAN = math.nan
STEP = 60
LIMITS = Limits(least=1, most=40, lead=2, hold=1, coverage=0.9, max_extra=1000.0)


def plan(hour: int = 0, said: float | None = 4.0, margin: float | None = 1.0, **changes: object) -> Plan:
    made = Plan(hour, STEP, "day", LIMITS, (said,) * 60, margin, None if margin is None else -margin)
    return msgspec.structs.replace(made, **changes)


def test_a_margin_moves_the_square_root() -> None:
    assert plan().bounds(7, ()) == (9.0, 1.0)
    assert plan(margin=3.0).bounds(7, ()) == (25.0, 0.0)  # never below zero


@pytest.mark.parametrize("unknown", [plan(margin=None), plan(said=None), plan(hour=1)])
def test_an_unknown_forecast_has_no_bounds(unknown: Plan) -> None:
    assert all(math.isnan(each) for each in unknown.bounds(7, ()))
    assert all(math.isnan(each) for each in plan().bounds(60, ()))


def test_a_rise_goes_on() -> None:
    trend = plan(candidate="trend", forecast=())
    assert trend.bounds(7, (1.0, 2.0, 3.0, 2.5)) == (
        9.0,
        1.0,
    )  # 1.5 more in three steps
    assert math.isnan(trend.bounds(7, (3.0, 2.0, 3.0, 2.5))[0])
    assert math.isnan(trend.bounds(7, (2.0, 3.0, 4.0))[0])  # too few
    assert math.isnan(trend.bounds(7, (NAN, 2.0, 3.0, 4.0))[0])


def test_a_plan_is_the_same_after_its_way_from_another_process() -> None:
    made = plan(said=0.1 + 0.2, account=Account([Hour(3, extra=1.5, least=2.0)], COVERAGE))
    assert msgspec.json.decode(msgspec.json.encode(made), type=Plan) == made


def test_without_a_plan_there_is_no_minimum() -> None:
    planned = PlannedMinimum(STEP)
    assert planned.step(5, 3.0) == 0
    assert (planned.plan, planned.withheld, planned.minimum) == (None, "", 0)


def test_each_hour_has_its_plan_and_the_bounds_of_the_last_one_still_count() -> None:
    planned = PlannedMinimum(STEP)
    planned.take(plan(0))
    planned.take(plan(1, said=16.0))
    assert [planned.step(index, 3.0) for index in range(57, 60)] == [9, 9, 9]
    assert planned.plan == plan(0)
    assert [planned.step(index, 3.0) for index in range(60, 62)] == [25, 25]
    # the third hour has no plan: what was asked for ahead remains until its step has come
    assert planned.step(119, 3.0) == 25
    assert [planned.step(index, 3.0) for index in range(120, 124)] == [25, 25, 0, 0]
    assert planned.plan is None


def test_an_unknown_demand_withholds_and_is_no_rise_afterwards() -> None:
    planned = PlannedMinimum(STEP)
    planned.take(plan(candidate="trend", forecast=(), margin=0.0))
    assert [planned.step(index, float(index)) for index in range(5)] == [0, 0, 0, 6, 7]
    assert planned.step(5, NAN) == 0
    assert planned.withheld == UNKNOWN
    # two steps are left out
    assert [planned.step(index, float(index)) for index in range(8, 13)] == [0, 0, 0, 14, 15]
    assert planned.withheld == ""


def test_other_limits_are_taken_with_their_plan() -> None:
    planned = PlannedMinimum(STEP)
    planned.take(plan(0))
    planned.take(plan(1, limits=LIMITS._replace(most=5, lead=4)))
    assert planned.step(59, 3.0) == 9
    assert planned.step(60, 3.0) == 5


def test_the_first_plan_brings_the_account() -> None:
    planned = PlannedMinimum(STEP)
    planned.take(plan(account=Account([Hour(-1, covered=0, judged=100)])))
    assert planned.step(0, 3.0) == 0
    assert planned.withheld == COVERAGE


def test_the_account_of_the_former_scaler_counts_before_that_of_a_plan() -> None:
    former = Account([Hour(-1, extra=3.0, pods=60.0)])
    planned = PlannedMinimum(STEP, former)
    assert planned.account == former
    planned.take(plan(account=Account([Hour(-1, covered=0, judged=100)])))
    assert planned.account == former
    assert planned.step(0, 3.0) > 0
    assert planned.account is not None
    assert [hour.number for hour in planned.account.hours] == [-1]
    planned.take(plan(1))
    assert [planned.step(60, 3.0) > 0, [made.hour for made in planned.plans]] == [True, [1]]


def test_the_day_is_that_of_the_account() -> None:
    planned = PlannedMinimum(STEP)
    planned.take(plan(account=Account([Hour(-1, extra=3.0, pods=60.0)])))
    assert planned.day is not None
    assert planned.day.share == 0.05
    assert PlannedMinimum(STEP).day is None
