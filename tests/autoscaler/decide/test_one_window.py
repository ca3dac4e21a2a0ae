"""A scale-down takes one stabilization window: a sample that shows the pods of before does not renew it.

A pod serves 10. The load falls from 200 to 100, and samples follow it, and each change of the count, late.
"""

from typing import Any

import pytest

from adapter.autoscaler.decide.calculator import Proposal
from adapter.autoscaler.decide.observation import ExternalReading, ObjectReading, PodsReading, Reading, Ways
from tests.autoscaler.decide.synced import SyncedScaler
from tests.support import simulation
from tests.support.scaling import autoscaler, external_metric, object_metric, pods, pods_metric, situation

WINDOW, LATE = 20, 8
"""The stabilization window, and for how many seconds a sample covers the past."""

ENOUGH = {10, 11}
"""The counts that are within tolerance."""

KINDS: dict[str, Any] = {
    "pods": pods_metric("10"),
    "object": object_metric("Value", value="10"),
    "external": external_metric(value="10"),
}


def read(kind: str, average: int, ready: int, most_then: int) -> Reading:
    if kind == "pods":
        return PodsReading({f"web-{number}": average for number in range(ready)}, most_then=most_then)
    if kind == "object":
        return ObjectReading(average, most_then=most_then)
    return ExternalReading([average], most_then=most_then)


class Fall:
    """The counts of each second; samples are averages over the last `LATE` seconds."""

    def __init__(self, kind: str, **spec: Any) -> None:
        behavior = {"scaleDown": {"stabilizationWindowSeconds": WINDOW}}
        self.scaler = SyncedScaler(20, [KINDS[kind]], behavior=behavior, maxReplicas=50, **spec)
        self.kind, self.counts, self.shares = kind, [20] * LATE, [10.0] * LATE

    def run(self, seconds: int, load: float, busy: int | None = None) -> None:
        """Decide each second; all but the `busy` pods are idle."""
        for _ in range(seconds):
            count = self.counts[-1]
            self.shares.append(load / count)
            average = round(1000 * sum(self.shares[-LATE:]) / LATE)
            idle = None if busy is None else max(0, count - busy)
            reading = read(self.kind, average, count, max(self.counts[-LATE:]))
            self.counts.append(self.scaler.decide(reading, idle=idle).replicas)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fall_takes_one_window_and_the_time_that_samples_cover(kind: str) -> None:
    fall = Fall(kind)
    fall.run(30, 200)
    begin = len(fall.counts)
    fall.run(WINDOW + 3 * LATE, 100)
    assert fall.counts[begin + WINDOW - 1] == 20, "nothing falls within the window"
    assert fall.counts[-1] in ENOUGH
    fall.run(3 * WINDOW, 100)
    assert fall.counts[-1] in ENOUGH, "nor does a sample lower the count twice"


def test_pods_that_get_idle_in_two_parts_go_in_one_window() -> None:
    fall = Fall("pods", scaleDown={"prefer": "Idle", "metric": "load", "drain": {"timeout": "300s"}})
    fall.run(30, 200)
    fall.run(WINDOW + LATE, 100, busy=14)
    assert fall.counts[-1] == 14
    fall.run(2 * LATE, 100, busy=10)
    assert fall.counts[-1] in ENOUGH


def test_what_is_remembered_is_the_highest_of_all_readings_and_metrics() -> None:
    """The one that asks for more now may be the one that counts with the pods of before."""
    (metric,) = autoscaler([pods_metric("10")]).metrics
    listed = pods(10)
    before, after = read("pods", 5000, 10, 16), read("pods", 6000, 10, 0)
    assert isinstance(before, PodsReading)
    assert isinstance(after, PodsReading)
    for reading in (Ways((before, after)), Ways((after, before))):
        proposal = metric.propose(reading, situation(10, listed))
        assert isinstance(proposal, Proposal)
        assert (proposal.replicas, proposal.remembered) == (8, 6)
    cuts = PodsReading(
        {"web-0": 1000, "web-1": 7000}, left_out={"web-2": 3000}, other_cut=("web-0",), most_then=4
    )
    proposal = metric.propose(cuts, situation(3, pods(3)))
    assert isinstance(proposal, Proposal)
    assert proposal.replicas >= proposal.remembered > 0


@pytest.mark.parametrize(("is_absent", "remembered"), [(False, 5), (True, 10)])
def test_without_the_value_of_a_metric_the_count_is_remembered(remembered: int, *, is_absent: bool) -> None:
    """What the others ask for is a lower bound then."""
    other = None if is_absent else read("external", 5000, 10, 20)
    scaler = SyncedScaler(10, [KINDS["pods"], KINDS["external"]], maxReplicas=50)
    made = scaler.decide(read("pods", 5000, 10, 20), other)
    assert (made.replicas, made.history.recommendations.low[-1].replicas) == (10, remembered)


def test_while_the_clock_is_in_doubt_no_window_ends() -> None:
    """The count is remembered as what was wanted last, and the window begins with it."""
    scaler = SyncedScaler(10, behavior={"scaleDown": {"stabilizationWindowSeconds": WINDOW}})
    assert scaler.counts([0, 10], 10) == [10, 10]
    scaler.constrain(doubt="its clock is wrong")
    assert "ClockInDoubt" not in str(scaler.at(15, 10).status), "nothing would fall"
    assert scaler.counts([20, 25], 5) == [10, 10]
    scaler.constrain(doubt="")
    assert scaler.counts([31, 25 + WINDOW - 1, 25 + WINDOW + 1], 5) == [10, 10, 5]


@pytest.mark.parametrize("window", [0, 15, 60, 300])
@pytest.mark.parametrize("policy", ["fast", "fast:scrape=15s,window=0", "fast:scrape=15s,window=1m"])
def test_a_simulated_fall_leaves_no_load_unserved_and_ends_in_time(policy: str, window: int) -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": window}}
    fall = simulation.steps(1500, (0, 200), (600, 100))
    scaler = simulation.autoscaler(behavior=behavior, maxReplicas=50)
    result = simulation.run(policy, fall, autoscaler=scaler)
    assert max(figures.shortage for figures in result.runs) == 0
    last = result.changes[-1]
    assert last.second <= 600 + window + 170
    assert last.after in {10, 11}
