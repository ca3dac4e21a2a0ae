"""Plans: bounds of the steps of an hour, and minimums from one hour to the next."""

import math

import msgspec
import pytest

from adapter.bounds.forecast.minimum import COVERAGE, UNKNOWN, Account, Hour, Limits
from adapter.bounds.forecast.plan import Plan, PlannedMinimum

NAN = math.nan
STEP = 60
LIMITS = Limits(least=1, most=40, lead=2, hold=1, coverage=0.9, max_extra=1000.0)


DOUBLE = math.log(2)
"""A margin that doubles the demand and a pod, or halves it."""


def plan(hour: int = 0, said: float | None = 4.0, margin: float | None = DOUBLE, **changes: object) -> Plan:
    offset = None if said is None else math.log1p(said)
    low = None if margin is None else -margin
    made = Plan(hour, STEP, "season", LIMITS, (offset,) * 60, margin=margin, low=low)
    return msgspec.structs.replace(made, **changes)


def bounds(made: Plan, *demands: float) -> object:
    return pytest.approx(made.bounds(7, demands), nan_ok=True)


def test_a_margin_is_a_share_of_the_demand_and_a_pod() -> None:
    assert bounds(plan(), 3.0) == (9.0, 1.5)
    assert bounds(plan(margin=2 * DOUBLE), 3.0) == (19.0, 0.25)
    assert bounds(plan(margin=3 * DOUBLE), 3.0) == (39.0, 0.0)  # never below zero


@pytest.mark.parametrize("unknown", [plan(margin=None), plan(said=None), plan(hour=1)])
def test_an_unknown_forecast_has_no_bounds(unknown: Plan) -> None:
    assert all(math.isnan(each) for each in unknown.bounds(7, (3.0,)))
    assert all(math.isnan(each) for each in plan().bounds(60, (3.0,)))


def test_means_of_the_last_demands_have_weights() -> None:
    """Of one, of five and of thirty steps; of what is known of them."""
    last = plan(said=0.0, weights=(1.0, 0.0, 0.0), margin=0.0, low=0.0)
    assert bounds(last, 9.0, 9.0, 4.0) == (4.0, 4.0)
    five = plan(said=0.0, weights=(0.0, 1.0, 0.0), margin=0.0, low=0.0)
    assert bounds(five, 90.0, *[6.0] * 4, 1.0) == (5.0, 5.0)
    assert bounds(five, 90.0, 6.0, NAN, NAN, NAN, 2.0) == (4.0, 4.0)
    assert bounds(five, 2.0) == (2.0, 2.0)
    both = plan(said=3.0, weights=(1.0, 0.0, -1.0), margin=0.0, low=0.0)
    assert bounds(both, *[0.0] * 29, 30.0) == (4 * 31 / 2 - 1,) * 2
    assert bounds(both, 3.0, NAN) == (NAN, NAN)


def test_weights_that_know_no_end_do() -> None:
    steep = plan(weights=(1000.0, 0.0, 0.0))
    assert math.isfinite(steep.bounds(7, (1e9,))[0])
    assert bounds(plan(weights=(-1000.0, 0.0, 0.0)), 1e9) == (1.0, 0.0)


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
    planned.take(plan(1, said=12.0))
    assert [planned.step(index, 3.0) for index in range(57, 60)] == [9, 9, 9]
    assert planned.plan == plan(0)
    assert [planned.step(index, 3.0) for index in range(60, 62)] == [25, 25]
    # the third hour has no plan: what was asked for ahead remains until its step has come
    assert planned.step(119, 3.0) == 25
    assert [planned.step(index, 3.0) for index in range(120, 124)] == [25, 25, 0, 0]
    assert planned.plan is None


def test_an_unknown_demand_withholds_and_counts_for_nothing_afterwards() -> None:
    planned = PlannedMinimum(STEP)
    planned.take(plan(said=0.0, weights=(0.0, 1.0, 0.0), margin=0.0))
    assert [planned.step(index, float(index + 3)) for index in range(3)] == [3, 4, 4]
    assert planned.step(3, NAN) == 0
    assert planned.withheld == UNKNOWN
    # two steps are left out
    assert planned.step(6, 7.0) == 6  # 5 and 7 are known of the last five
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
