"""Schedules in small simulations whose counts and figures are computed by hand.

Second 0 is 06:00 UTC and the window lasts from 07:00 to 08:00, from second 3600 to 7200. A pod serves 10, and
starts in 40 s. A count that is written in second t counts from t + 1 on, and is Ready in t + 40.
"""

from collections.abc import Sequence
from typing import Any

import pytest

from adapter.autoscaler.decide.restraint import Restraint
from adapter.bounds.schedule.windows import Schedule
from adapter.model import timestamps
from fastpath_forecast.simulate.deciders import Decider
from fastpath_forecast.simulate.engine import CountChange
from fastpath_forecast.simulate.policies import read_policy
from fastpath_forecast.simulate.schedules import ScheduledStretch, SimulatedSchedule
from fastpath_forecast.simulate.simulation import PolicyResult, Scenario, learned_horizon, simulate
from fastpath_tools.simulate.recording import Recording
from tests.support import schedules
from tests.support.simulation import autoscaler, run, steps

EPOCH = timestamps.read_instant("2026-11-23T06:00:00Z")  # a Monday
BEGIN, END = 3600, 7200
FAST, BOOST = "fast:window=0", "boost:window=0,fastWindow=0"

FLAT = steps(8000, (0, 100))
STEP = steps(8000, (0, 100), (BEGIN, 200), (END, 100))


def hour(**window: Any) -> dict[str, Any]:
    return {"from": "07:00", "to": "08:00", **window}


def schedule(*windows: dict[str, Any], ready: str = "AtStart") -> Schedule:
    return schedules.schedule(*windows, zone="Etc/UTC", ready=ready).schedule


def simulated(policy: str, load: Any, *given: Schedule, **scenario: Any) -> PolicyResult:
    return run(policy, load, 40, schedules=given, epoch=EPOCH, **scenario)


def counts(changes: Sequence[CountChange]) -> list[tuple[int, int, int]]:
    return [change[:3] for change in changes]


def test_a_floor_holds_in_its_window_and_falls_after_the_stabilization_window() -> None:
    result = simulated(FAST, FLAT, schedule(hour(minReplicas=20)))
    assert counts(result.changes) == [(BEGIN, 10, 20), (END + 300, 20, 10)]
    found = result.runs[0]
    assert found.pod_seconds == 3601 * 10 + 3900 * 20 + 499 * 10
    assert found.excess == (7501 - 3640) * 10
    assert (found.shortage, found.max_replicas, found.seconds_at_max) == (0, 20, 0)


def test_at_start_the_pods_start_when_the_window_begins() -> None:
    found = simulated(FAST, STEP, schedule(hour(minReplicas=20))).runs[0]
    assert (found.shortage, found.short_seconds) == (40 * 10, 40)


def test_by_start_the_pods_are_ready_when_the_window_begins() -> None:
    result = simulated(FAST, STEP, schedule(hour(minReplicas=20), ready="ByStart"))
    assert counts(result.changes) == [(BEGIN - 40, 10, 20), (END + 300, 20, 10)]
    found = result.runs[0]
    assert (found.shortage, found.excess) == (0, 301 * 10)
    assert found.pod_seconds == 3561 * 10 + 3940 * 20 + 499 * 10


def test_the_lead_has_a_limit() -> None:
    """Pods that take 15 minutes begin 10 minutes early, and are Ready 5 minutes late."""
    result = run(FAST, STEP, 900, schedules=[schedule(hour(minReplicas=20), ready="ByStart")], epoch=EPOCH)
    assert result.changes[0].second == BEGIN - 600
    assert result.runs[0].shortage == 300 * 10


def test_a_forecast_looks_ahead_as_long_as_one_pod_takes() -> None:
    ahead = [learned_horizon(seconds) for seconds in ([40] * 50 + [50] * 49, [7200] * 20, [0])]
    assert ahead == [50, 3600, 1]


def test_each_schedule_has_its_own_lead() -> None:
    given = schedule(hour(minReplicas=15)), schedule(hour(minReplicas=20), ready="ByStart")
    for listed in (given, given[::-1]):
        assert counts(simulated(FAST, FLAT, *listed).changes)[0] == (BEGIN - 40, 10, 20)
    given = schedule(hour(minReplicas=20)), schedule(hour(minReplicas=15), ready="ByStart")
    for listed in (given, given[::-1]):
        assert counts(simulated(FAST, FLAT, *listed).changes)[:2] == [(BEGIN - 40, 10, 15), (BEGIN, 15, 20)]


def test_the_end_waits_for_the_stabilization_window_of_the_autoscaler() -> None:
    given = autoscaler(behavior={"scaleDown": {"stabilizationWindowSeconds": 60}})
    result = simulated(FAST, FLAT, schedule(hour(minReplicas=20)), autoscaler=given)
    assert counts(result.changes)[1:] == [(END + 60, 20, 10)]


def test_a_floor_above_max_replicas_is_max_replicas() -> None:
    result = simulated(FAST, FLAT, schedule(hour(minReplicas=20)), autoscaler=autoscaler(most=15))
    assert counts(result.changes) == [(BEGIN, 10, 15), (END + 300, 15, 10)]
    assert result.runs[0].seconds_at_max == 3900


def test_a_ceiling_below_the_need_is_a_shortage() -> None:
    """Down at once, as of any autoscaler above its maxReplicas, and up again at the end of the window."""
    result = simulated(FAST, steps(8000, (0, 300)), schedule(hour(maxReplicas=20)))
    assert counts(result.changes) == [(BEGIN, 30, 20), (END, 20, 30)]
    found = result.runs[0]
    assert found.shortage == (END + 40 - (BEGIN + 1)) * 10
    assert found.seconds_at_max == END - BEGIN


def test_the_metrics_decide_within_the_bounds() -> None:
    """100 needs 10, 170 needs 17 and 400 needs 40; the window is from 12 to 25."""
    load = steps(8000, (0, 100), (4000, 170), (5000, 400))
    result = simulated(FAST, load, schedule(hour(minReplicas=12, maxReplicas=25)))
    assert counts(result.changes) == [(BEGIN, 10, 12), (4000, 12, 17), (5000, 17, 25), (END, 25, 40)]


@pytest.mark.parametrize(("ready", "at"), [("AtStart", BEGIN), ("ByStart", BEGIN - 40)])
def test_a_boosted_hpa_is_raised_and_reads_the_floor(ready: str, at: int) -> None:
    """The HPA keeps the count after the raise ends, and lowers it when it has not read the floor for 300 s.

    Its own algorithm counts a recommendation of exactly that age too.
    """
    result = simulated(BOOST, FLAT, schedule(hour(minReplicas=20), ready=ready))
    assert counts(result.changes)[0] == (at, 10, 20)
    raised, lowered = result.changes
    assert (lowered.before, lowered.after, lowered.by) == (20, 10, 0)
    assert END + 300 <= lowered.second < END + 315
    assert result.runs[0].pod_seconds == (lowered.second - at) * 10 + 8000 * 10
    assert raised.by == 1


def test_a_boosted_hpa_has_no_ceiling() -> None:
    load = steps(8000, (0, 100), (4000, 400))
    without = simulated(BOOST, load).changes
    assert counts(without)[:1] == [(4000, 10, 20)]  # a doubling in 15 s is what the default policy allows
    assert simulated(BOOST, load, schedule(hour(maxReplicas=15))).changes == without
    both = schedule(hour(maxReplicas=15, minReplicas=12))
    assert counts(simulated(BOOST, load, both).changes)[:2] == [(BEGIN, 10, 12), (4000, 12, 24)]


@pytest.mark.parametrize("policy", ["native:window=0", "fixed:replicas=10"])
def test_an_hpa_alone_and_a_fixed_count_have_no_schedule(policy: str) -> None:
    assert simulated(policy, FLAT, schedule(hour(minReplicas=20, maxReplicas=30))).changes == []


@pytest.mark.parametrize("policy", [FAST, BOOST])
def test_a_load_that_begins_in_a_window_begins_with_its_floor(policy: str) -> None:
    result = simulated(policy, FLAT, schedule(hour(minReplicas=20) | {"from": "05:00"}))
    assert [change[1:3] for change in result.changes] == [(20, 10)]


OUTER = {
    "type": "External",
    "external": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}


def test_a_floor_wakes_a_target_at_zero() -> None:
    result = simulated(
        FAST,
        steps(8000, (0, 50), (600, 0)),
        schedule(hour(minReplicas=3)),
        autoscaler=autoscaler([OUTER], least=0),
    )
    assert counts(result.changes) == [(599 + 300, 5, 0), (BEGIN, 0, 3), (END + 300, 3, 0)]


def test_a_floor_wakes_no_hpa() -> None:
    given = autoscaler([OUTER], least=0)
    assert (
        simulated(BOOST, steps(8000, (0, 0)), schedule(hour(minReplicas=3)), autoscaler=given).changes == []
    )


def test_second_0_is_the_epoch() -> None:
    """The clock of Berlin is an hour ahead of UTC in November: the same window is an hour earlier."""
    berlin = schedules.schedule(hour(minReplicas=20), zone="Europe/Berlin").schedule
    assert counts(simulated(FAST, FLAT, berlin).changes) == [(3600 + 300, 20, 10)]
    later = run(FAST, FLAT, 40, schedules=[berlin], epoch=EPOCH - 3600 * timestamps.SECOND)
    assert counts(later.changes)[0] == (BEGIN, 10, 20)


def test_stretches_are_those_of_the_bounds() -> None:
    given = schedule(
        hour(minReplicas=20, maxReplicas=40), {"from": "07:30", "to": "07:45", "minReplicas": 25}
    )
    assert SimulatedSchedule([given]).stretches(EPOCH, 86_400 + 4000) == [
        ScheduledStretch(3600, 5400, 20, 40),
        ScheduledStretch(5400, 6300, 25, 40),
        ScheduledStretch(6300, 7200, 20, 40),
        ScheduledStretch(86_400 + 3600, 86_400 + 4000, 20, 40),
    ]
    assert SimulatedSchedule([]).stretches(EPOCH, 4000) == []


def test_a_window_that_begins_in_some_days_is_seen_beside_a_long_one() -> None:
    long = {"start": "2026-11-01T00:00", "end": "2026-12-24T00:00", "maxReplicas": 40}
    late = {"start": "2026-11-26T06:00", "end": "2026-11-26T07:00", "minReplicas": 20}
    day = 86_400
    assert SimulatedSchedule([schedule(long, late)]).stretches(EPOCH, 4 * day) == [
        ScheduledStretch(0, 3 * day, None, 40),
        ScheduledStretch(3 * day, 3 * day + 3600, 20, 40),
        ScheduledStretch(3 * day + 3600, 4 * day, None, 40),
    ]


@pytest.mark.parametrize(
    ("policy", "window", "load", "expected"),
    [
        (FAST, {"minReplicas": 20}, 100, Restraint.SCHEDULED),
        (BOOST, {"minReplicas": 20}, 100, Restraint.SCHEDULED),
        (FAST, {"maxReplicas": 20}, 300, Restraint.SCHEDULED),
        (FAST, {"minReplicas": 5, "maxReplicas": 20}, 100, Restraint.FOLLOWS),
        (FAST, {"maxReplicas": 20}, 0, Restraint.LOWEST),
        (FAST, {"minReplicas": 20}, 2000, Restraint.HIGHEST),
        (BOOST, {"maxReplicas": 20}, 300, Restraint.FOLLOWS),
    ],
)
def test_what_holds_the_count_in_a_window(
    policy: str, window: dict[str, Any], load: float, expected: Restraint
) -> None:
    """In the second half of the window, when the start-up of pods no longer counts."""
    recording = Recording(8000, 800)
    demand = {"load": steps(8000, (0, load))}
    given = [schedule(hour(**window))]
    scenario = Scenario(autoscaler(), demand, (40,), phases=1, schedules=given, epoch=EPOCH)
    simulate(scenario, read_policy(policy), observer=recording)
    assert {column.restraint for column in recording.columns[540:720]} == {expected}
    assert Restraint.SCHEDULED not in {column.restraint for column in recording.columns[:360]}


WEEK = 7 * 86_400
WEEK_EPOCH = timestamps.read_instant("2026-11-23T00:00:00Z")
BUSINESS = {"from": "08:00", "to": "18:30", "minReplicas": 20}
STARTS = [day * 86_400 + 8 * 3600 for day in range(7)]


class ReadyAt:
    """Notes the ready pods at some seconds."""

    def __init__(self, seconds: Sequence[int]) -> None:
        self.ready = dict.fromkeys(seconds, 0)

    def stretch(self, second: int, seconds: int, need: float, ready: int, replicas: int) -> None:
        self.ready |= {at: ready for at in self.ready if second <= at < second + seconds}

    def decided(self, place: int, decider: Decider) -> None:
        pass


def ready_at_starts(policy: str, ready: str, start_ups: Sequence[int]) -> list[int]:
    """Return the ready pods at each start of the window in a week; 4 pods serve the load."""
    watching, load = ReadyAt(STARTS), {"load": steps(WEEK, (0, 40))}
    given = [schedule(BUSINESS, ready=ready)]
    scenario = Scenario(autoscaler(), load, start_ups, phases=1, schedules=given, epoch=WEEK_EPOCH)
    simulate(scenario, read_policy(policy), observer=watching)
    return list(watching.ready.values())


@pytest.mark.parametrize("policy", ["fast", "boost"])
def test_by_start_the_pods_of_a_week_are_ready_at_each_start(policy: str) -> None:
    """Start-up times around 40 s; in 16 pods the longest is among them, and the lead is a little longer."""
    start_ups = [37, 38, 39, 40, 40, 40, 41, 42, 43]
    assert ready_at_starts(policy, "ByStart", start_ups) == [20] * 7
    assert ready_at_starts(policy, "AtStart", start_ups) == [4] * 7


def test_by_start_slow_pods_are_ready_too() -> None:
    """A lead for single pods, of 40 s, would have lacked one of 16 pods at most of the starts."""
    assert ready_at_starts("fast", "ByStart", [40] * 19 + [100]) == [20] * 7
