"""The autoscalers of others, by hand: that of Knative, the last value, and an HPA behind KEDA."""

import math

import pytest

from fastpath_forecast.simulate.simulation import Scenario, simulate
from fastpath_tools.simulate.peers import Knative, KnativeScaler
from fastpath_tools.simulate.policies import PolledSignal, read_policy
from tests.support.simulation import CPU, PODS, autoscaler, figures, run, steps

STEP = steps(400, (0, 100), (100, 200))


def test_knative_panics_and_calms_down() -> None:
    """Needs of the stable and the panic window, ready pods, and the count, second by second."""
    scaler = KnativeScaler(Knative())
    story = [
        (0, (10, 10), 10, 10),
        (2, (10.4, 12), 10, 11),
        (4, (11, 19.5), 10, 20),  # twice the ready pods: the panic begins
        (6, (12, 15), 10, 20),  # no scale-down in a panic
        (8, (12, 30), 12, 30),  # and it is prolonged
        (68, (15, 14), 30, 30),
        (70, (15.5, 14), 30, 16),  # more than the stable window after the last time over the threshold
        (72, (3, 0), 16, 8),  # at most by half
    ]
    for second, needs, ready, count in story:
        assert scaler.decide(needs, ready, second) == count, second
        assert scaler.is_steady == (not 4 <= second < 70)
        assert scaler.reason == ("panic window" if 4 <= second < 70 else "stable window")


def test_a_panic_asks_for_the_stable_window_where_that_is_more() -> None:
    assert KnativeScaler(Knative()).decide((40, 25), 10, 0) == 40


@pytest.mark.parametrize(
    ("settings", "needs", "ready", "count"),
    [
        (Knative(), (0.5, 0.5), 0, 1),
        (Knative(), (0, 0), 1, 0),
        (Knative(max_scale_up=1.1, panic_threshold=10), (20, 20), 3, 4),  # ceil(3.3)
        (Knative(max_scale_up=2), (5, 50), 3, 6),
        (Knative(max_scale_down=4), (1, 1), 18, 4),
    ],
)
def test_the_rates_of_knative(settings: Knative, needs: tuple[float, float], ready: int, count: int) -> None:
    assert KnativeScaler(settings).decide(needs, ready, 0) == count


def test_knative_delays_scale_downs() -> None:
    scaler = KnativeScaler(Knative(scale_down_delay=6, max_scale_down=100))
    counts = [scaler.decide((need, need), 10, 2 * place) for place, need in enumerate((10, 9, 4, 4, 4, 5))]
    assert counts == [10, 10, 10, 9, 4, 5]
    assert not scaler.is_steady


def test_knative_raises_by_its_windows() -> None:
    """The stable window sees a sixtieth of the step each second; the panic window all of it after six."""
    first, second = run("kpa", STEP).changes
    phase = first.second - 100
    assert phase in {0, 1}
    assert first[:3] == (100 + phase, 10, 11)
    assert second[:3] == (106 - phase, 11, 20)
    assert (first.reason, second.reason) == ("stable window", "panic window")


def test_a_constant_load_needs_few_decisions() -> None:
    assert run("kpa", steps(100_000, (0, 100))).decisions < 5


def test_the_last_value_times_a_factor() -> None:
    """Decided at the end of each minute: 10.5 pods, then 20 s of 60 at 200, then 200, then 90."""
    result = run("persistence:x=1.05", steps(400, (0, 100), (100, 200), (240, 90)), phases=3)
    assert [change[:3] for change in result.changes] == [
        (59, 10, 11),
        (119, 11, 14),
        (179, 14, 21),
        (299, 21, 10),
    ]
    assert result.runs[0] == result.runs[2]
    bounded = run("persistence:maxReplicas=12,minReplicas=11", STEP)
    assert [change[:3] for change in bounded.changes] == [(119, 11, 12)]


@pytest.mark.parametrize("policy", ["persistence", "kpa", "keda"])
def test_a_gap_changes_nothing(policy: str) -> None:
    found = figures(policy, steps(400, (0, 100), (50, math.nan), (250, 100)))
    assert (found.changes, found.gap_seconds, found.pod_seconds) == (0, 200, 4000)


@pytest.mark.parametrize("policy", ["persistence", "kpa"])
def test_the_metric_that_needs_most_counts(policy: str) -> None:
    loads = {"load": STEP, "cpu": steps(400, (0, 100), (100, 300))}
    assert run(policy, loads, autoscaler=autoscaler((PODS, CPU))).runs[0].max_replicas == 30


def test_a_poll_sees_the_last_scrape() -> None:
    """Scrapes at 5, 20, 35, 50 and 65, polls at 7, 37 and 67."""
    signal = PolledSignal(30, 7, 10, 100.0, (15, 5))
    polled = []
    for second in range(70):
        signal.record(second, 200.0 if second >= 34 else 100.0)
        if signal.due == second:
            signal.scrape(second, 10)
            polled.append((second, signal.taken, signal.value))
    assert polled == [(7, 5, 100.0), (37, 35, 120.0), (67, 65, 200.0)]


def test_keda_is_an_hpa_that_sees_a_polled_total() -> None:
    seconds = set()
    for seed in range(20):
        (change,) = run("keda:window=0", STEP, seed=seed).changes
        assert (change.before, change.after) == (10, 20)
        seconds.add(change.second)
    assert 100 < min(seconds) < max(seconds) < 100 + 15 + 30 + 15
    assert max(seconds) > 130  # an HPA without polls has decided by then
    quick = run("keda:window=0,scrape=1s,poll=1s,sync=1s", STEP)
    assert [change[:3] for change in quick.changes] == [(100, 10, 20)]


def test_keda_leaves_cpu_to_the_metrics_api() -> None:
    scenario = {"autoscaler": autoscaler((CPU,)), "loads": {"cpu": STEP}}
    keda, native = (
        simulate(Scenario(**scenario, start_ups=(20,), phases=1), read_policy(policy))  # type: ignore[arg-type]
        for policy in ("keda", "native")
    )
    assert keda.changes == native.changes
