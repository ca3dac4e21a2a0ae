"""Small loads whose figures are computed by hand, for each policy.

A pod serves 10; pods start in 20 s unless a test says otherwise. A count that is written in second t is Ready
in second t + 20.
"""

import math

import msgspec
import pytest

from adapter.model.autoscaling.pending_capacity import PendingCapacity
from adapter.model.quantity import read as read_quantity
from fastpath_forecast.simulate import elasticity
from tests.support.simulation import CPU, autoscaler, figures, run, steps

POLICIES = ("native", "native:window=0", "fast", "fast:window=0", "boost", "boost:window=0,fastWindow=0")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_constant_load_changes_nothing(policy: str) -> None:
    found = figures(policy, steps(300, (0, 100)))
    assert (found.shortage, found.excess, found.changes) == (0, 0, 0)
    assert (found.pod_seconds, found.need, found.max_replicas) == (3000, 3000, 10)
    assert (found.short_seconds, found.seconds_at_max, found.backlog_max) == (0, 0, 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_load_costs_the_minimum(policy: str) -> None:
    found = figures(policy, steps(100, (0, 0)), autoscaler=autoscaler(least=2))
    assert (found.shortage, found.excess, found.pod_seconds, found.need) == (0, 200, 200, 0)


def test_a_fixed_count_is_arithmetic() -> None:
    found = figures("fixed:replicas=12", steps(400, (0, 100), (100, 200), (300, 50)))
    assert found.shortage == 200 * (20 - 12)
    assert found.excess == 100 * (12 - 10) + 100 * (12 - 5)
    assert found.pod_seconds == 400 * 12
    assert found.need == 100 * 10 + 200 * 20 + 100 * 5
    assert (found.short_seconds, found.changes, found.max_replicas) == (200, 0, 12)
    assert found.backlog_max == 200 * (200 - 120)


def test_elasticity_is_arithmetic() -> None:
    """Demand is in whole pods: 8 for 71, 16 for 160, none for 0. A gap counts in nothing."""
    found = figures(
        "fixed:replicas=12", steps(500, (0, 71), (100, 160), (300, 0), (350, 120), (400, math.nan))
    )
    assert found.known_seconds == 400
    assert found.theta_under == 100 * (200 * 4 / 16) / 400
    assert found.theta_over == 100 * (100 * 4 / 8 + 50 * 12 / 1) / 400
    assert found.time_under == 100 * 200 / 400
    assert found.time_over == 100 * 150 / 400
    nothing = figures("fixed:replicas=12", steps(100, (0, math.nan)))
    assert (nothing.theta_under, nothing.theta_over, nothing.time_under, nothing.time_over) == (0, 0, 0, 0)


def test_a_whole_need_that_is_no_binary_fraction_is_whole() -> None:
    assert 2.1 / 0.7 > 3
    assert [elasticity.demand(need) for need in (2.1 / 0.7, 3, 3.001, 0)] == [3, 3, 4, 0]


def test_elastic_speedup_is_a_geometric_mean() -> None:
    """Half of the first, the same of two, and a quarter of the last: the fourth root of 8."""
    assert elasticity.speedup((4, 30, 20, 60), (2, 30, 20, 15)) == pytest.approx(8**0.25)
    assert elasticity.speedup((4, 30, 20, 60), (4, 30, 20, 60)) == 1
    assert elasticity.speedup((4, 30, 20, 60), (0, 30, 20, 60)) is None
    assert elasticity.speedup((0, 30, 20, 60), (4, 30, 20, 60)) is None


STEP = steps(400, (0, 100), (100, 200))


def test_a_step_seen_at_once() -> None:
    """With gauges scraped and decided each second the raise is written in the second of the step."""
    result = run("fast:window=0", STEP)
    assert [change[:3] for change in result.changes] == [(100, 10, 20)]
    found = result.runs[0]
    assert found.shortage == 20 * 10
    assert found.pod_seconds == 101 * 10 + 299 * 20
    assert (found.short_seconds, found.changes, found.max_replicas) == (20, 1, 20)
    assert found.backlog_max == 20 * 100


def test_a_step_in_a_window() -> None:
    """The mean of five seconds grows by a fifth of the step each second."""
    result = run("fast", STEP)
    assert [change[:3] for change in result.changes] == [
        (100, 10, 12),
        (101, 12, 14),
        (102, 14, 16),
        (103, 16, 18),
        (104, 18, 20),
    ]
    assert result.runs[0].shortage == 20 * 10 + 8 + 6 + 4 + 2


def test_a_step_as_an_hpa_sees_it() -> None:
    """Of phases the drawn ones count: the step is scraped, and then decided on, at the next of each."""
    result = run("native:window=0", STEP)
    (change,) = result.changes
    assert (change.before, change.after) == (10, 20)
    assert 100 <= change.second < 100 + 15 + 15
    assert result.runs[0].shortage == 10 * (change.second + 20 - 100)


def test_boost_raises_as_fast_does_and_holds() -> None:
    """The HPA with its window of a minute asks for less for a minute, and the floor keeps what was raised."""
    result = run("boost", STEP)
    assert [change[:3] for change in result.changes] == [change[:3] for change in run("fast", STEP).changes]
    assert {change.by for change in result.changes} == {1}
    assert result.runs[0].shortage == 220


def test_the_usage_that_pods_expose_raises_at_once_and_lowers_only_with_that_of_the_metrics_api() -> None:
    loads = {"cpu": steps(900, (0, 100), (100, 200), (700, 100))}
    scaler = autoscaler((CPU,), behavior={"scaleDown": {"stabilizationWindowSeconds": 0}})
    up, down = run("fast:window=0,slowScrape=60s,slowWindow=0", loads, autoscaler=scaler).changes
    boosted, *_ = run("boost:fastWindow=0", loads, autoscaler=scaler).changes
    late_up, late_down = run(
        "fast:window=0,scrape=60s,slowScrape=60s,slowWindow=0", loads, autoscaler=scaler
    ).changes
    assert up[:3] == boosted[:3] == (100, 10, 20)
    assert late_up.second > 100
    assert (down.second, down.before, down.after) == (late_down.second, 20, 10)
    assert down.second > 700


def test_a_ramp() -> None:
    """Each raise follows when the tolerance is exceeded, and is Ready 20 s later."""
    ramp = steps(100, *((second, 100 + second) for second in range(100)))
    result = run("fast:window=0", ramp)
    assert [change[:3] for change in result.changes] == [
        (11, 10, 12),
        (33, 12, 14),
        (55, 14, 16),
        (77, 16, 18),
        (99, 18, 20),
    ]
    ready = [10] * 31 + [12] * 22 + [14] * 22 + [16] * 22 + [18] * 3
    needs = [(100 + second) / 10 for second in range(100)]
    assert result.runs[0].shortage == pytest.approx(sum(map(lambda n, r: max(0, n - r), needs, ready)))
    assert result.runs[0].need == pytest.approx(sum(needs))


def test_a_spike_shorter_than_a_scrape() -> None:
    """An HPA that scrapes a gauge every 15 s may not see it; one whose window covers it sees a part of it."""
    spike = steps(200, (0, 100), (1, 500), (6, 100))
    unseen = [
        result for seed in range(20) if not (result := run("native:window=0", spike, seed=seed)).changes
    ]
    assert unseen
    for result in unseen:
        assert result.runs[0].shortage == 5 * 40
        assert (result.runs[0].pod_seconds, result.runs[0].backlog_max) == (2000, 5 * 400)
    (first, *_) = run("native", spike).changes
    assert first.after == math.ceil((55 * 100 + 5 * 500) / 60 / 10)


def test_starting_pods_cost_and_do_not_serve() -> None:
    found = figures("fast:window=0", STEP, start_up=250)
    assert found.shortage == 250 * 10
    assert found.pod_seconds == 101 * 10 + 299 * 20


def test_pods_go_at_once() -> None:
    """Down after the five minutes of the stabilization window of 0 s that the behavior sets."""
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    result = run("fast:window=0", steps(300, (0, 100), (100, 50)), autoscaler=autoscaler(behavior=behavior))
    assert [change[:3] for change in result.changes] == [(100, 10, 5)]
    assert result.runs[0].excess == 5
    assert result.runs[0].pod_seconds == 101 * 10 + 199 * 5


def test_what_is_not_served_waits_or_is_lost() -> None:
    burst = steps(100, (0, 100), (10, 150), (20, 50))
    assert figures("fixed:replicas=10", burst).backlog_max == 10 * 50
    assert figures("fixed:replicas=10", burst, carries=False).backlog_max == 0


def test_the_capacity_ratio_is_what_a_pod_serves() -> None:
    """Pods that serve half of their target: the autoscaler is content, and half of the load is not served."""
    found = figures("fast", steps(100, (0, 100)), capacity_ratio=0.5)
    assert (found.changes, found.need, found.shortage) == (0, 2000, 1000)


def test_bounds_hold() -> None:
    result = run("fast:window=0", STEP, autoscaler=autoscaler(most=15))
    assert [change[:3] for change in result.changes] == [(100, 10, 15)]
    assert result.runs[0].seconds_at_max == 299
    result = run("fast:window=0,maxReplicas=14", STEP)
    assert [change[:3] for change in result.changes] == [(100, 10, 14)]


def test_a_policy_may_have_another_target() -> None:
    """The pods stay what they are: only the autoscaler aims elsewhere."""
    found = figures("fast:target=5", steps(100, (0, 100)))
    assert (found.need, found.max_replicas, found.excess) == (1000, 20, 1000)


def test_a_gap_shows_no_metric() -> None:
    gap = steps(200, (0, 100), (50, math.nan), (150, 100))
    found = figures("fast:window=0", gap)
    assert (found.changes, found.gap_seconds, found.need, found.pod_seconds) == (0, 100, 1000, 2000)


OUTER = {
    "type": "External",
    "external": {"metric": {"name": "load"}, "target": {"type": "AverageValue", "averageValue": "10"}},
}
VALUE = {
    "type": "External",
    "external": {"metric": {"name": "load"}, "target": {"type": "Value", "value": "10"}},
}
OBJECT = {
    "type": "Object",
    "object": {
        "metric": {"name": "load"},
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
        "target": {"type": "AverageValue", "averageValue": "10"},
    },
}


@pytest.mark.parametrize("metric", [OUTER, VALUE, OBJECT])
def test_every_type_of_metric(metric: dict[str, object]) -> None:
    result = run("fast:window=0", STEP, autoscaler=autoscaler([metric]))
    assert [change[:3] for change in result.changes] == [(100, 10, 20)]


def test_pending_capacity_counts() -> None:
    """While the queue grows by what starting pods would work off, the option withholds raises."""
    growing = steps(120, *((second, 100 + 5 * max(0, second - 10)) for second in range(120)))
    plain = autoscaler([OUTER], most=1000)
    pending = (PendingCapacity("load", read_quantity("5")),)
    option = msgspec.structs.replace(
        plain, spec=msgspec.structs.replace(plain.spec, pending_capacity=pending)
    )
    counts = [
        run("fast:window=0", growing, 60, autoscaler=each).runs[0].max_replicas for each in (plain, option)
    ]
    assert counts[0] > 60
    assert counts[1] < 30


def test_a_workload_at_zero_wakes() -> None:
    """A total is measured without pods. The default policy allows four pods in the first 15 s."""
    late = steps(200, (0, 0), (100, 50))
    result = run("fast:window=0", late, autoscaler=autoscaler([OUTER], least=0))
    assert result.runs[0].max_replicas == 5
    assert [change[:3] for change in result.changes] == [(100, 0, 4), (115, 4, 5)]
