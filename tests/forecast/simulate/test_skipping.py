"""Decisions and seconds that are skipped change no figure."""

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.bounds.schedule.windows import Schedule
from adapter.model import timestamps
from fastpath_forecast.simulate import load
from fastpath_forecast.simulate.chain import Chain
from fastpath_forecast.simulate.load import Load
from fastpath_forecast.simulate.simulation import Scenario, simulate
from fastpath_tools.simulate.peers import PeerChain
from fastpath_tools.simulate.policies import read_policy
from tests.support import schedules as support
from tests.support.simulation import CPU, PODS, autoscaler

OUTER = {
    "type": "External",
    "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "7"}},
}

NOON = 12 * 3600
EPOCH = timestamps.read_instant("2026-11-23T12:00:00Z")


@contextmanager
def without_skips() -> Iterator[None]:
    """Compute every decision, second by second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Chain, "_can_skip", lambda *_: False)
        for chain in (Chain, PeerChain):
            patch.setattr(chain, "idle_until", lambda _, second, __: second + 1)
        yield


@st.composite
def loads(draw: st.DrawFn) -> Load:
    """Draw a load that often stays at a level, so that there is something to skip."""
    step = draw(st.sampled_from([1, 7, 60, 200]))
    values = draw(
        st.lists(st.sampled_from([0.0, 60.0, 100.0, 104.5, 250.0, float("nan")]), min_size=1, max_size=12)
    )
    return load.of_points(
        [(place * step, value) for place, value in enumerate(values)], draw(st.integers(1, 700))
    )


PACES = {
    "native": ("scrape", "sync", "window"),
    "fast": ("scrape", "slowScrape", "slowWindow", "tick", "window"),
    "boost": ("fastScrape", "fastWindow", "scrape", "sync", "tick", "window"),
    "keda": ("poll", "scrape", "sync", "window"),
    "kpa": ("scaleDownDelay", "tick", "window"),
    "persistence": ("sync", "window"),
}
LEAST = {"kpa": 6, "persistence": 1}


@st.composite
def policies(draw: st.DrawFn) -> str:
    """Draw a policy: some of its paces, the others are the defaults."""
    name = draw(st.sampled_from(sorted(PACES)))
    pairs = []
    for key in PACES[name]:
        if draw(st.booleans()):
            is_window = key.lower().endswith("window") or key == "scaleDownDelay"
            seconds = st.integers(LEAST.get(name, 0), 30) if is_window else st.integers(1, 9)
            pairs.append(f"{key}={draw(seconds)}s")
    return ":".join([name, ",".join(pairs)][: 2 if pairs else 1])


@st.composite
def behaviors(draw: st.DrawFn) -> Mapping[str, Any] | None:
    if draw(st.booleans()):
        return None
    windows = st.sampled_from([0, 5, 13, 60, 300])
    policies = [
        {
            "type": "Percent",
            "value": draw(st.sampled_from([10, 100])),
            "periodSeconds": draw(st.sampled_from([15, 40])),
        },
        {"type": "Pods", "value": draw(st.integers(1, 4)), "periodSeconds": 15},
    ]
    return {
        "scaleUp": {"stabilizationWindowSeconds": draw(windows), "policies": policies},
        "scaleDown": {"stabilizationWindowSeconds": draw(windows), "policies": policies},
    }


@st.composite
def schedules(draw: st.DrawFn) -> list[Schedule]:
    """Draw windows of the minutes around the load."""
    found = []
    for number in range(draw(st.integers(0, 2))):
        windows = []
        for _ in range(draw(st.integers(1, 3))):
            at, length = draw(st.integers(-120, 700)), draw(st.sampled_from([1, 20, 61, 300]))
            least = draw(st.none() | st.integers(0, 40))
            most = draw(st.integers(least or 0, 40)) if least is None or draw(st.booleans()) else None
            bounds = {"minReplicas": least, "maxReplicas": most}
            windows.append(
                {"from": clock(NOON + at), "to": clock(NOON + at + length)}
                | {name: bound for name, bound in bounds.items() if bound is not None}
            )
        ready = draw(st.sampled_from(["AtStart", "ByStart"]))
        read = support.schedule(*windows, zone="Etc/UTC", ready=ready).schedule
        found.append(dataclasses.replace(read, name=f"shop/{number}"))
    return found


def clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


@given(
    policies(),
    st.sampled_from([(PODS,), (OUTER,), (PODS, OUTER), (CPU,), (CPU, OUTER)]),
    loads(),
    loads(),
    behaviors(),
    st.sampled_from([(1,), (20,), (3, 9, 40)]),
    schedules(),
    st.integers(0, 1000),
    st.sampled_from([0.0, 0.0, 1.5]),
    st.sampled_from([None, None, {}, {"drain": {}}, {"drain": {"value": "8", "timeout": "20s"}}]),
)
def test_skipping_changes_nothing(
    policy: str,
    metrics: tuple[Mapping[str, Any], ...],
    first: Load,
    second: Load,
    behavior: Mapping[str, Any] | None,
    start_ups: tuple[int, ...],
    windows: list[Schedule],
    seed: int,
    spread: float,
    option: Mapping[str, Any] | None,
) -> None:
    removal = None if option is None or metrics == (OUTER,) else {"prefer": "Idle", **option}
    scenario = Scenario(
        autoscaler(metrics, most=30, behavior=behavior, scaleDown=removal),
        {"load": first, "queue": second, "cpu": first},
        start_ups,
        phases=1,
        seed=seed,
        schedules=windows,
        epoch=EPOCH,
        spread=spread,
    )
    quick = simulate(scenario, read_policy(policy))
    with without_skips():
        slow = simulate(scenario, read_policy(policy))
    assert quick.changes == slow.changes
    assert quick.decisions <= slow.decisions
    (one,), (other,) = quick.runs, slow.runs
    for name in type(one).__slots__:
        assert abs(getattr(one, name) - getattr(other, name)) <= 1e-6 * abs(getattr(other, name)), name


def test_a_count_that_is_held_after_a_minimum_outlives_no_window() -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 5}}
    minimum = support.schedule(
        {"from": clock(NOON), "to": clock(NOON + 100), "minReplicas": 9}, zone="Etc/UTC"
    ).schedule
    scenario = Scenario(
        autoscaler(behavior=behavior),
        {"load": load.of_points([(0, 50.0)], 300)},
        (20,),
        phases=1,
        schedules=[minimum],
        epoch=EPOCH,
    )
    quick = simulate(scenario, read_policy("fast"))
    with without_skips():
        slow = simulate(scenario, read_policy("fast"))
    assert quick.changes == slow.changes
    assert [change.after for change in quick.changes if change.second > 100]
    assert quick.decisions < slow.decisions / 10


def test_a_floor_that_ends_between_two_decisions_of_the_scaler_frees_the_hpa() -> None:
    scenario = Scenario(
        autoscaler(behavior={"scaleDown": {"stabilizationWindowSeconds": 0}}),
        {"load": load.of_points([(0, 0.0), (1, 60.0), (2, 0.0)], 60)},
        (1,),
        phases=1,
        epoch=EPOCH,
    )
    quick = simulate(scenario, read_policy("boost:sync=1s,tick=4s,window=0s"))
    with without_skips():
        slow = simulate(scenario, read_policy("boost:sync=1s,tick=4s,window=0s"))
    assert quick.changes == slow.changes
    assert [(change.after, change.by) for change in quick.changes] == [(2, 1), (1, 0)]


def test_the_second_after_a_written_count_is_visited() -> None:
    behavior = {"scaleDown": {"stabilizationWindowSeconds": 0}}
    scenario = Scenario(
        autoscaler(behavior=behavior),
        {"load": load.of_points([(0, 250.0), (40, 20.0)], 100)},
        (20,),
        phases=1,
    )
    policy = read_policy("fast:scrape=5s,window=20s,tick=2s")
    quick = simulate(scenario, policy)
    with without_skips():
        slow = simulate(scenario, policy)
    assert quick.changes == slow.changes
    assert quick.decisions < slow.decisions
