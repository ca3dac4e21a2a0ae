"""The pods of a simulated target."""

import math

import pytest

from adapter.errors import InputError
from fastpath_forecast.simulate.workload import MOST_REPLICAS, Workload


def _names(workload: Workload) -> list[str]:
    return [pod.name for pod in workload.pods]


def test_pods_become_ready_in_their_turn_and_the_newest_go_first() -> None:
    start_ups = iter([9, 3, 6, 3])
    workload = Workload(2, lambda: next(start_ups), epoch=0)
    assert (workload.ready, workload.next_ready) == (2, math.inf)
    workload.scale(6, 10)
    assert (workload.replicas, workload.ready, workload.next_ready) == (6, 2, 13)
    workload.advance(13)
    assert _names(workload) == ["pod-1", "pod-2", "pod-4", "pod-6", "pod-5", "pod-3"]
    workload.scale(5, 14)  # pod-5 is the newest that starts
    assert _names(workload) == ["pod-1", "pod-2", "pod-4", "pod-6", "pod-3"]
    assert workload.next_ready == 19
    workload.scale(3, 15)
    assert (workload.ready, workload.next_ready) == (3, math.inf)
    assert _names(workload) == ["pod-1", "pod-2", "pod-4"]
    assert [workload.count_ready_since(at) for at in (9, 12, 13)] == [2, 2, 3]
    workload.scale(0, 16)
    assert (workload.replicas, _names(workload)) == (0, [])


def test_a_pod_takes_a_second_at_least() -> None:
    workload = Workload(0, lambda: 0, epoch=0)
    workload.scale(1, 4)
    assert workload.next_ready == 5


def test_a_workload_is_bounded() -> None:
    workload = Workload(1, lambda: 1, epoch=0)
    with pytest.raises(InputError, match=r"^replicas: 100001: expected at most 100000"):
        workload.scale(MOST_REPLICAS + 1, 1)
    assert workload.replicas == 1
    with pytest.raises(InputError, match="expected at most 100000"):
        Workload(MOST_REPLICAS + 1, lambda: 1, epoch=0)
