"""What ends with the pods that simulated scale-downs remove, by hand and by rules.

A pod serves 10. The load of a second is that of the pods that are ready in it.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from adapter.autoscaler.decide import prepared_spec
from adapter.autoscaler.decide.guards.boost import Boost
from adapter.autoscaler.decide.observation import Settings
from adapter.errors import InputError
from adapter.model import timestamps
from adapter.model.timestamps import SECOND
from fastpath_forecast.simulate.chain import Signal
from fastpath_forecast.simulate.deciders import BoostDecider, Decider, NativeDecider, ScalerDecider
from fastpath_forecast.simulate.policies import read_policy
from fastpath_forecast.simulate.ranking import Ranking
from fastpath_forecast.simulate.simulation import Scenario, prefers_idle, simulate
from fastpath_forecast.simulate.workload import Workload
from tests.support import schedules
from tests.support.simulation import CPU, PODS, autoscaler, figures, run, steps

AT_ONCE = {"scaleDown": {"stabilizationWindowSeconds": 0}}
FALL = steps(300, (0, 100), (100, 50))
EPOCH = timestamps.read_instant("2026-11-23T06:00:00Z")


class Deciders:
    """An observer that counts the most costs that pods have at once."""

    costs = 0

    def stretch(self, *_: float) -> None:
        """Do nothing: only decisions count."""

    def decided(self, _: int, decider: Decider) -> None:
        if isinstance(decider, ScalerDecider) and decider.ranking is not None:
            self.costs = max(self.costs, len(decider.ranking.costs))


def workload(shares: Sequence[float]) -> Workload:
    return Workload(len(shares), lambda: 5, 0, share=lambda pod: shares[int(pod.removeprefix("pod-")) - 1])


def constant(load: float, *seconds: int) -> Any:
    return lambda: [(second, load) for second in seconds]


# -- by hand -------------------------------------------------------------------------------------------------


def test_the_newest_pods_go_or_those_with_a_cost() -> None:
    """Of 10 parts the pods have 1, 4, 2 and 3: 5 end with the newest two, and 3 with the idlest two."""
    plain, ranked = workload([1, 4, 2, 3]), workload([1, 4, 2, 3])
    assert plain.split(50, 0) == {"pod-1": 5, "pod-2": 20, "pod-3": 10, "pod-4": 15}
    assert plain.scale(2, 10) == 0.5
    assert [pod.name for pod in plain.pods] == ["pod-1", "pod-2"]
    costs = Ranking(constant(50, 8, 9, 10)).choose(ranked, 2, 10 * SECOND)
    assert costs == ["pod-1", "pod-3"]
    assert ranked.scale(2, 10, costs) == 0.3
    assert [pod.name for pod in ranked.pods] == ["pod-2", "pod-4"]
    assert ranked.split(70, 10) == {"pod-2": 28, "pod-4": 21}  # the second in which four pods still served
    assert ranked.split(70, 11) == {"pod-2": 40, "pod-4": 30}


def test_pods_that_start_go_first_and_end_nothing() -> None:
    pods = workload([1, 4, 2])
    pods.scale(3, 9)
    assert pods.scale(2, 10, ["pod-1"]) == pytest.approx(1 / 7)
    pods.scale(3, 20)
    assert pods.scale(2, 21, ["pod-2"]) == 0
    assert [pod.name for pod in pods.pods] == ["pod-2", "pod-3"]


def test_an_even_fall_by_half_ends_half_of_what_is_busy() -> None:
    """The load needs 5 pods when it falls, of which 10 are ready: half of them end half of that."""
    for option in (None, {"prefer": "Idle"}):
        result = run("fast:window=0", FALL, autoscaler=autoscaler(behavior=AT_ONCE, scaleDown=option))
        assert [change[:3] for change in result.changes] == [(100, 10, 5)]
        assert result.runs[0].busy_ended == 2.5


def test_what_a_pod_serves_is_what_it_can_be_busy_with() -> None:
    """With a capacity ratio of 2 the same pods are half as busy."""
    scaler = autoscaler(behavior=AT_ONCE)
    assert figures("fast:window=0", FALL, autoscaler=scaler, capacity_ratio=2.0).busy_ended == 1.25


def test_a_stateful_set_removes_the_newest_with_and_without_the_option() -> None:
    for kind, is_same in (("StatefulSet", True), ("Deployment", False)):
        target = {"apiVersion": "apps/v1", "kind": kind, "name": "web"}
        scaler = autoscaler(behavior=AT_ONCE, scaleTargetRef=target)
        usual, idle = (
            figures("fast:window=0", FALL, autoscaler=scaler, spread=1.0, idle=is_idle)
            for is_idle in (False, True)
        )
        assert (idle.busy_ended == usual.busy_ended) is is_same


def test_a_gap_ends_nothing_that_is_known() -> None:
    """A maximum lowers the count in a gap, in which no pod has a value: the newest go."""
    most = schedules.schedule({"from": "06:01", "to": "07:00", "maxReplicas": 4}, zone="Etc/UTC").schedule
    scaler = autoscaler(behavior=AT_ONCE, scaleDown={"prefer": "Idle"})
    load = steps(100, (0, 100), (50, math.nan))
    result = run("fast:window=0", load, autoscaler=scaler, schedules=[most], epoch=EPOCH)
    assert [change[:3] for change in result.changes] == [(60, 10, 4)]
    assert result.runs[0].busy_ended == 0


def test_a_scale_down_waits_for_idle_pods_as_long_as_the_autoscaler_says() -> None:
    """All pods have 5, and none is idle; from second 130 on all have 0.4, and are."""
    for load, second in ((FALL, 160), (steps(300, (0, 100), (100, 50), (130, 4)), 132)):
        drain = {"prefer": "Idle", "drain": {"value": "500m", "timeout": "60s"}}
        scaler = autoscaler(behavior=AT_ONCE, scaleDown=drain)
        (change, *_) = run("fast:window=0", load, autoscaler=scaler).changes
        assert change.second == second


def test_drain_needs_the_load_of_its_metric() -> None:
    """Without drain the pods are ranked by the first metric instead."""
    option: dict[str, Any] = {"prefer": "Idle", "metric": "connections"}
    by_first, by_other, draining = (
        autoscaler(behavior=AT_ONCE, scaleDown=spec)
        for spec in ({"prefer": "Idle"}, option, option | {"drain": {}})
    )
    ended = [figures("fast", FALL, autoscaler=one, spread=1.0).busy_ended for one in (by_first, by_other)]
    assert ended[0] == ended[1] > 0
    with pytest.raises(
        InputError, match=r'^spec.scaleDown.metric: "?connections"?: expected a metric of spec'
    ):
        run("fast", FALL, autoscaler=draining)
    assert run("fast", FALL, autoscaler=draining, idle=False).changes


def test_pods_are_ranked_by_the_metric_that_the_option_names() -> None:
    """All of `load` is a gap, which ranks no pod."""
    loads = {"load": steps(300, (0, math.nan)), "cpu": FALL}
    most = schedules.schedule({"from": "06:01", "to": "07:00", "maxReplicas": 4}, zone="Etc/UTC").schedule
    chosen = []
    for name in ("load", "cpu"):
        scaler = autoscaler((PODS, CPU), behavior=AT_ONCE, scaleDown={"prefer": "Idle", "metric": name})
        decider = Deciders()
        scenario = Scenario(scaler, loads, (20,), phases=1, spread=1.0, schedules=[most], epoch=EPOCH)
        simulate(scenario, read_policy("fast"), observer=decider)
        chosen.append(decider.costs)
    assert chosen[0] == 0 < chosen[1]


def test_a_boosted_hpa_has_the_option_in_an_annotation() -> None:
    given_spec = autoscaler(scaleDown={"prefer": "Idle"})
    plain = autoscaler()
    meta = replace(plain.metadata, annotations={"fastpath.io/scale-down": "idle"})
    for scaler, expected in ((given_spec, [True, False]), (replace(plain, metadata=meta), [False, True])):
        scenario = Scenario(scaler, {"load": FALL}, (20,))
        assert [prefers_idle(scenario, read_policy(name)) for name in ("fast", "boost")] == expected


def test_a_boosted_hpa_removes_the_pods_that_were_foreseen() -> None:
    """Its controller lowers the count in several syncs, as its window of a minute shows the fall.

    The scaler has values of the last seconds, and foresees all five at the first of them.
    """
    scenario = Scenario(autoscaler(behavior=AT_ONCE), {"load": FALL}, (20,), phases=1, spread=1.0)
    observer = Deciders()
    usual, idle = (
        simulate(dataclasses.replace(scenario, idle=is_idle), read_policy("boost"), observer=observer)
        for is_idle in (False, True)
    )
    assert usual.changes == idle.changes
    assert [change.after for change in idle.changes] == [9, 8, 6, 5]
    assert observer.costs == 5
    assert idle.runs[0].busy_ended < usual.runs[0].busy_ended


def test_a_scaler_without_a_decision_foresees_nothing() -> None:
    spec = prepared_spec.prepare(autoscaler(), Settings())
    boosting = BoostDecider(spec, NativeDecider(spec), Boost("Boost"), [SECOND], 4, SECOND)
    boosting.ranking = Ranking(constant(50, 8, 9, 10))
    assert boosting.rank(workload([1, 4, 2, 3]), 2, 10 * SECOND) == []


def test_a_cost_stays_for_two_syncs_of_the_controller() -> None:
    pods = workload([1, 4, 2, 3])
    ranking = Ranking(constant(50, 8, 9, 10))
    assert ranking.choose(pods, 3, 10 * SECOND) == ["pod-1", "pod-3", "pod-4"]
    pods.scale(3, 10, ["pod-1"])
    assert ranking.choose(pods, 1, 40 * SECOND) == ["pod-3", "pod-4"]
    assert ranking.choose(pods, 1, 71 * SECOND) == ["pod-3"]


def test_pods_are_ranked_by_what_they_expose_themselves() -> None:
    """The metrics API shows the fall in up to 60 s; the mean of its last three values would in 180 s."""
    drain = {"prefer": "Idle", "drain": {"value": "500m", "timeout": "1h"}}
    scaler = autoscaler((CPU,), behavior=AT_ONCE, scaleDown=drain)
    loads = {"cpu": steps(1000, (0, 100), (700, 4))}
    (change,) = run("fast:window=0,slowScrape=60s,slowWindow=0", loads, autoscaler=scaler).changes
    assert (change.before, change.after) == (10, 1)
    assert 702 <= change.second <= 760


def test_the_last_three_samples_are_known_between_scrapes() -> None:
    signal = Signal(10, 0, 0, 100, is_total=True)
    for second, load in enumerate([100] * 5 + [200] * 10 + [300] * 14 + [400]):
        signal.record(second, load)
        if signal.due == second:
            signal.scrape(second, 1)
    assert list(signal.samples()) == [(0, 100), (10, 200), (20, 300)]


# -- rules ---------------------------------------------------------------------------------------------------


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12), st.integers(0, 3), st.data())
def test_the_idlest_pods_never_end_more_than_the_newest(
    shares: list[float], starting: int, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, len(shares) + starting))
    ended = []
    for is_ranked in (False, True):
        pods = workload(shares)
        pods.scale(len(shares) + starting, 1)
        ranking = Ranking(constant(1e6, 0, 1, 2))
        costs = ranking.choose(pods, pods.replicas - count, 3 * SECOND) if is_ranked else ()
        ended.append(pods.scale(count, 3, costs))
    assert ended[1] <= ended[0] + 1e-6  # values are whole thousandths


@given(st.floats(0.1, 5), st.integers(0, 1000), st.sampled_from([90, 50, 20, 0]))
def test_of_static_shares_less_ends_in_a_fall(spread: float, seed: int, left: int) -> None:
    usual, idle = (
        figures(
            "fast:window=0",
            steps(110, (0, 100), (100, left)),
            autoscaler=autoscaler(behavior=AT_ONCE),
            spread=spread,
            seed=seed,
            idle=is_idle,
        )
        for is_idle in (False, True)
    )
    assert idle.busy_ended <= usual.busy_ended + 1e-3
    assert dataclasses.replace(idle, busy_ended=usual.busy_ended) == usual


@given(
    st.sampled_from(["fast", "boost", "fast:window=0"]),
    st.lists(st.sampled_from([0.0, 60.0, 100.0, 250.0, math.nan]), min_size=1, max_size=8),
)
def test_an_even_load_ends_the_same_with_the_option(policy: str, values: list[float]) -> None:
    load = steps(60 * len(values), *((60 * place, value) for place, value in enumerate(values)))
    usual, idle = (
        figures(policy, load, autoscaler=autoscaler(behavior=AT_ONCE), idle=is_idle)
        for is_idle in (False, True)
    )
    assert idle == usual
