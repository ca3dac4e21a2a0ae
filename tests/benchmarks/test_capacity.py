"""When a workload has its pods, on times that are known, and the pods of the benchmark that measures it."""

import math
from pathlib import Path

import aiohttp

from adapter.compose.clock import SystemClock
from benchmarks.capacity import PodTimes, Startup, WorkloadTimes
from benchmarks.ready_pods import Pods
from benchmarks.ready_world import NAMESPACE, PODS, Workload
from fastpath_sandbox.apiserver.server import Cluster
from tests.support.waiting import until

CLOCK = SystemClock()


def stepped(
    *pods: PodTimes, needed: int = 10, asked: tuple[tuple[float, int], ...] = ((103.0, 7), (104.0, 9))
) -> WorkloadTimes:
    """Return a workload with five pods from before its step at 100."""
    return WorkloadTimes(100.0, needed, [*(PodTimes(1.0, 2.0) for _ in range(5)), *pods], asked)


def starting(*times: tuple[float, float]) -> list[PodTimes]:
    return [PodTimes(ready, counted) for ready, counted in times]


def test_the_time_ends_with_the_last_pod_that_is_needed() -> None:
    times = stepped(*starting((110, 125), (111, 112), (130, 131), (120, 121), (140, 190)))

    assert times.seconds_asked() == 4
    assert times.seconds_ready() == 30
    assert times.seconds_counted() == 31


def test_a_pod_that_is_deleted_does_not_count() -> None:
    gone = PodTimes(105.0, 106.0, ended=119.0)
    times = stepped(gone, *starting((110, 111), (115, 116), (120, 121), (150, 151)))

    assert times.seconds_ready() == 50
    assert times.seconds_counted() == 51


def test_what_never_comes_has_no_time() -> None:
    times = stepped(*starting((110, 111), (112, math.inf), (113, 114), (115, 116)), asked=((101.0, 8),))

    assert times.seconds_asked() is None
    assert times.seconds_ready() == 15
    assert times.seconds_counted() is None


def test_shortage_is_missing_pods_times_seconds() -> None:
    # 4 missing for 10 s, 3 for 10 s, 1 for 20 s
    times = stepped(*starting((110, 110), (120, 120), (120, 120), (140, 140), (150, 150)))

    assert times.shortage(200.0) == 4 * 10 + 3 * 10 + 1 * 20
    assert times.shortage(115.0) == 4 * 10 + 3 * 5


async def test_a_pod_counts_once_it_is_ready_and_its_reader_has_read_it(tmp_path: Path) -> None:
    workload = Workload("boosted", "short", "boosted-short-0", [Startup(0.0, 3600.0)])
    async with Cluster(now=CLOCK.wall) as cluster:
        pods = Pods(cluster, [workload], CLOCK.wall, tmp_path / "pods.json")
        async with pods, aiohttp.ClientSession() as session:

            async def scrape(number: int, agent: str) -> tuple[int, str]:
                url = f"http://{workload.pods[number].address}:{pods.port}/metrics"
                async with session.get(url, headers={"User-Agent": agent}) as response:
                    return response.status, (await response.text()).rpartition(" ")[2].strip()

            assert await scrape(0, "fastpath") == (200, "8.0")
            assert workload.times().seconds_counted() is None
            workload.step = CLOCK.wall()
            cluster.scale("deployments", workload.name, PODS + 1, NAMESPACE, manager="someone")
            new = PODS
            await until(lambda: len(workload.pods) > new and workload.pods[new].running)
            assert [count for _, count in workload.asked] == [PODS + 1]
            assert (await scrape(new, "fastpath"))[0] == 503
            await until(lambda: workload.pods[new].address in (tmp_path / "pods.json").read_text())
            assert cluster.get("deployments", workload.name, NAMESPACE)["status"]["readyReplicas"] == PODS

            pods.become_ready(workload, workload.pods[new])
            state = cluster.get("deployments", workload.name, NAMESPACE)["status"]
            assert (state["replicas"], state["readyReplicas"]) == (PODS + 1, PODS + 1)
            assert await scrape(new, "Prometheus/3.0") == (200, "16.25")
            assert workload.pods[new].times.counted == math.inf
            assert await scrape(new, "fastpath") == (200, "16.25")
            assert workload.pods[new].times.ready <= workload.pods[new].times.counted < math.inf

            cluster.scale("deployments", workload.name, PODS, NAMESPACE, manager="someone")
            await until(lambda: workload.pods[new].times.ended < math.inf)
            assert (await scrape(new, "fastpath"))[0] == 503
            await until(lambda: workload.pods[new].address not in (tmp_path / "pods.json").read_text())
